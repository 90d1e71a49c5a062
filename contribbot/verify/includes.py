"""What a C++ file includes, as far as that depends on macros that are known.

No preprocessor: one would need every header of ROCm and of torch. A condition that
speaks of other macros counts as met, each way, so that what it guards is looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Comments, and literals that could hold what looks like one; raw strings first.
_SKIPPED: Final = re.compile(
    r'R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'"
    r"|//(?:\\\n|[^\n])*"
    r"|/\*.*?\*/",
    re.DOTALL,
)
_DIRECTIVE: Final = re.compile(
    r"^[ \t]*#[ \t]*(?P<name>[a-z]+)(?P<rest>(?:\\\n|[^\n])*)$", re.MULTILINE
)
_INCLUDE: Final = re.compile(r'\s*(?:<(?P<angle>[^>\n]+)>|"(?P<quote>[^"\n]+)")')
_HAS_INCLUDE: Final = re.compile(r'__has_include\s*\(\s*[<"]([^>"]+)[>"]\s*\)')
_TOKEN: Final = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|&&|\|\||[()!]|[^\s\w()!]+")

#: A condition may hold, may not, or depend on what is not known.
Truth = bool | None


@dataclass(frozen=True)
class Macros:
    """What is known of macros."""

    defined: frozenset[str]  # they are defined, as 1
    undefined: frozenset[str]  # they are not
    absent: tuple[str, ...]  # headers, by regular expression, that are not there

    def is_defined(self, name: str) -> Truth:
        """Say whether a macro is defined, where that is known."""
        if name in self.defined:
            return True
        return False if name in self.undefined else None

    def is_absent(self, header: str) -> bool:
        """Say whether a header is one of those that are not there."""
        return any(re.search(pattern, header) for pattern in self.absent)


@dataclass(frozen=True)
class Include:
    """One `#include` that the compiler may see."""

    line: int  # its line, from 1
    name: str  # what it names
    quoted: bool  # whether the including file's folder is searched first


def includes(text: str, macros: Macros) -> Iterator[Include]:
    """Yield what a file includes under the macros that are known."""
    blanked = _SKIPPED.sub(_blank, text)
    branches: list[_Branches] = []
    for found in _DIRECTIVE.finditer(blanked):
        name, rest = found["name"], found["rest"].replace("\\\n", " ")
        if name in {"if", "ifdef", "ifndef"}:
            branches.append(_Branches(_condition(name, rest, macros)))
        elif name in {"elif", "elifdef", "elifndef", "else"} and branches:
            branches[-1].turn(True if name == "else" else _condition(name[2:], rest, macros))
        elif name == "endif" and branches:
            branches.pop()
        elif name == "include" and all(one.seen for one in branches):
            what = _INCLUDE.match(rest)
            if what:
                line = blanked.count("\n", 0, found.start()) + 1
                yield Include(line, what["angle"] or what["quote"], bool(what["quote"]))


def _blank(found: re.Match[str]) -> str:
    """Take a comment or a raw string out and keep the lines; other literals stay."""
    text = found[0]
    if text.startswith(('"', "'")):
        return text
    return " " + "\n" * text.count("\n")


class _Branches:
    """Which of the branches of one `#if` the compiler may see."""

    def __init__(self, condition: Truth) -> None:
        self.seen = condition is not False
        self._settled = condition is True

    def turn(self, condition: Truth) -> None:
        """Enter the next branch."""
        self.seen = not self._settled and condition is not False
        self._settled = self._settled or condition is True


def _condition(name: str, rest: str, macros: Macros) -> Truth:
    if name == "if":
        known = _HAS_INCLUDE.sub(lambda one: "0" if macros.is_absent(one[1]) else "?", rest)
        return _Expression(_TOKEN.findall(known), macros).value()
    words = rest.split()
    truth = macros.is_defined(words[0]) if words else None
    return truth if name == "ifdef" else _not(truth)


def _not(one: Truth) -> Truth:
    return None if one is None else not one


def _and(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


class _Expression:
    """A condition: `&&`, `||`, `!`, `defined` and parentheses; all else is not known."""

    def __init__(self, tokens: Sequence[str], macros: Macros) -> None:
        self._tokens = tokens
        self._at = 0
        self._macros = macros

    def value(self) -> Truth:
        try:
            value = self._either()
        except RecursionError:
            return None
        # What is left over was not understood, so nothing is.
        return value if self._at == len(self._tokens) else None

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""

    def _either(self) -> Truth:
        value = self._both()
        while self._peek() == "||":
            self._take()
            value = _not(_and(_not(value), _not(self._both())))
        return value

    def _both(self) -> Truth:
        value = self._operand()
        while self._peek() == "&&":
            self._take()
            value = _and(value, self._operand())
        return value

    def _operand(self) -> Truth:
        value = self._single()
        depth = 0
        while self._peek() and (depth or self._peek() not in {"&&", "||", ")"}):
            # Compared, added, called: of that nothing is known.
            depth += {"(": 1, ")": -1}.get(self._take(), 0)
            value = None
        return value

    def _single(self) -> Truth:
        token = self._take()
        if token == "!":  # noqa: S105  an operator, no password
            return _not(self._single())
        if token == "(":  # noqa: S105  an operator, no password
            value = self._either()
            return value if self._take() == ")" else None
        if token == "defined":  # noqa: S105  an operator, no password
            if self._peek() != "(":
                return self._macros.is_defined(self._take())
            self._take()
            value = self._macros.is_defined(self._take())
            return value if self._take() == ")" else None
        if token.isdecimal():
            return int(token) != 0
        return self._macros.is_defined(token)


@dataclass(frozen=True)
class Left:
    """An include of a header that is not there."""

    file: str  # the file, relative to the build's folder
    line: int  # the line, from 1
    header: str  # what it includes


def left_over(start: Path, *, build: Path, root: Path, macros: Macros) -> list[Left]:
    """Return the includes of absent headers in a file and in all that it reaches."""
    found: list[Left] = []
    waiting, known = [start.resolve()], {start.resolve()}
    while waiting:
        file = waiting.pop()
        for one in includes(file.read_text(encoding="utf-8", errors="replace"), macros):
            places = ((file.parent,) if one.quoted else ()) + (root,)
            reached = next(
                # As os.path tells: a name too long for a file is none.
                (place / one.name for place in places if os.path.isfile(place / one.name)),  # noqa: PTH113  is_file() raises
                None,
            )
            if reached is not None:
                # A file of the project's own, whatever it is called.
                target = reached.resolve()
                if target not in known and target.is_relative_to(build):
                    known.add(target)
                    waiting.append(target)
            elif macros.is_absent(one.name):
                found.append(Left(os.path.relpath(file, build), one.line, one.name))
    return sorted(found, key=lambda one: (one.file, one.line))
