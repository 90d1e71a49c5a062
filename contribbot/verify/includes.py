"""What a C++ file includes, as far as known macros tell; a condition on others counts as met."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.model.base import Model

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
_INCLUDE: Final = re.compile(r'^\s*(?:<(?P<angle>[^>\n]+)>|"(?P<quote>[^"\n]+)")')
_HAS_INCLUDE: Final = re.compile(r'__has_include\s*\(\s*[<"]([^>"]+)[>"]\s*\)')
#: Parts of a condition that Python writes in another way; `!=` is no `!`.
_TOKEN: Final = re.compile(r"\bdefined\b|&&|\|\||!(?!=)|[?:]|(?<![\w.])\d[\w.']*")
_AS_PYTHON: Final = {"defined": "", "&&": " and ", "||": " or ", "!": " not ", "?": ",", ":": ","}

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
        return name in self.defined or (False if name in self.undefined else None)

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
    #: Of each open `#if`, whether its branch is seen, and whether one before it surely is.
    branches: list[tuple[bool, bool]] = []
    for directive in _DIRECTIVE.finditer(blanked):
        name, rest = directive["name"], directive["rest"].replace("\\\n", " ")
        if name in {"if", "ifdef", "ifndef"}:
            branches.append(_enter(_condition(name, rest, macros), settled=False))
        elif name in {"elif", "elifdef", "elifndef", "else"} and branches:
            truth = name == "else" or _condition(name[2:], rest, macros)
            branches[-1] = _enter(truth, settled=branches[-1][1])
        elif name == "endif" and branches:
            branches.pop()
        elif name == "include" and all(seen for seen, _ in branches):
            line = blanked.count("\n", 0, directive.start()) + 1
            for header in _INCLUDE.finditer(rest):
                yield Include(line, header["angle"] or header["quote"], bool(header["quote"]))


def _enter(condition: Truth, *, settled: bool) -> tuple[bool, bool]:
    return not settled and condition is not False, settled or condition is True


def _blank(skipped: re.Match[str]) -> str:
    """Take a comment or a raw string out and keep the lines; other literals stay."""
    text = skipped[0]
    return text if text.startswith(('"', "'")) else " " + "\n" * text.count("\n")


def _condition(name: str, rest: str, macros: Macros) -> Truth:
    if name == "if":
        return _value(rest, macros)
    words = rest.split()
    truth = macros.is_defined(words[0]) if words else None
    return truth if name == "ifdef" else _not(truth)


def _value(condition: str, macros: Macros) -> Truth:
    """Return what `&&`, `||`, `!`, `defined` and parentheses come to; all else is not known."""

    def as_python(token: re.Match[str]) -> str:
        number = str(int(token[0])) if token[0].isdecimal() else "unknown()"
        return _AS_PYTHON.get(token[0], number)

    known = _HAS_INCLUDE.sub(
        lambda header: "0" if macros.is_absent(header[1]) else "unknown()", condition
    )
    try:
        return _truth(ast.parse(_TOKEN.sub(as_python, known).strip(), mode="eval").body, macros)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _truth(node: ast.expr, macros: Macros) -> Truth:
    match node:
        case ast.Constant(value=int(number)):
            return number != 0
        case ast.Name(id=name):
            return macros.is_defined(name)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _not(_truth(operand, macros))
        case ast.BoolOp(op=operator, values=values):
            truths = {_truth(value, macros) for value in values}
            decisive = isinstance(operator, ast.Or)
            if decisive in truths:
                return decisive
            return None if None in truths else not decisive
    # Compared, added, called: of that nothing is known.
    return None


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


class Left(Model):
    """An include of a header that is not there."""

    file: str  # the file, relative to the build's folder
    line: int  # the line, from 1
    header: str  # what it includes


def left_over(start: Path, *, build: Path, root: Path, macros: Macros) -> list[Left]:
    """Return the includes of absent headers in a file and in all that it reaches."""
    left: list[Left] = []
    waiting, known = [start.resolve()], {start.resolve()}
    while waiting:
        file = waiting.pop()
        for include in includes(file.read_text(encoding="utf-8", errors="replace"), macros):
            folders = ((file.parent,) if include.quoted else ()) + (root,)
            # As os.path tells: a name may be too long for a file.
            places = (folder / include.name for folder in folders)
            reached = next((path for path in places if os.path.isfile(path)), None)  # noqa: PTH113  is_file() raises
            if reached is not None:
                # A file of the project's own, whatever it is called.
                target = reached.resolve()
                if target not in known and target.is_relative_to(build):
                    known.add(target)
                    waiting.append(target)
            elif macros.is_absent(include.name):
                path = os.path.relpath(file, build)
                left.append(Left(file=path, line=include.line, header=include.name))
    return sorted(left, key=lambda row: (row.file, row.line))
