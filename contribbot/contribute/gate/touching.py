"""Which files and functions a diff touches, from its hunks and, for Python, from the syntax."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.git.patch_format import parse, plain_path
from contribbot.model.patch import PatchFile

_HUNK: Final = re.compile(r"^@@ -\d+(?:,\d+)? \+(?P<start>\d+)(?:,\d+)? @@ ?(?P<header>.*)$")
#: A line that begins a function or class: of Python anywhere, of C and its kin by its header.
_PYTHON: Final = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+(?P<name>\w+)")
_CALLABLE: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*\(")
_TYPE: Final = re.compile(r"\b(?:class|struct|namespace|enum|union)\s+(?P<name>[A-Za-z_]\w*)")
#: What stands before a parenthesis and is no function's name.
_NO_NAMES: Final = frozenset(
    {
        "if", "for", "while", "switch", "return", "sizeof", "defined", "decltype", "__attribute__",
        "__launch_bounds__", "alignas", "static_assert", "catch", "else", "template",
    }
)  # fmt: skip
_CHANGES: Final = ("+", "-")
#: A file that is parsed; a larger one is somebody's joke.
_LARGEST: Final = 4 * 2**20


@dataclass(frozen=True)
class Hunk:
    """A hunk of a diff.

    Attributes:
        header: What git writes behind the second `@@`.
        start: The first line of the new side, from 1.
        lines: Its lines, each with its sign.
    """

    header: str
    start: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Touch:
    """A file that a diff touches.

    Attributes:
        path: Its path, where it is afterwards.
        before: Its path before, where that is another; or empty.
        removed: Whether it is gone afterwards.
        hunks: What changes.
    """

    path: str
    before: str
    removed: bool
    hunks: tuple[Hunk, ...]


def read_diff(name: str, content: bytes) -> list[Touch]:
    """Take a diff apart."""
    found = []
    for file in parse(name, content):
        old, new = plain_path(file.source_file), plain_path(file.target_file)
        removed = bool(file.is_removed_file)
        path = old if removed else new
        hunks = tuple(
            Hunk(
                _text(hunk.section_header),
                hunk.target_start,
                tuple(_text(f"{line.line_type}{line.value}").rstrip("\n") for line in hunk),
            )
            for hunk in file
        )
        moved = old if not removed and not file.is_added_file and old != new else ""
        found.append(Touch(path, moved, removed, hunks))
    return found


def read_files(files: Iterable[PatchFile]) -> list[Touch]:
    """Take the diffs of patch files apart."""
    return [touch for file in files for touch in read_diff(file.name, file.content)]


def read_hunks(text: str) -> tuple[Hunk, ...]:
    """Take the hunks of one file apart, as GitHub gives them; what is no hunk is passed over."""
    found: list[Hunk] = []
    rows: list[str] = []
    at: re.Match[str] | None = None
    for row in [*text.split("\n"), "@@ -0 +0 @@"]:
        begins = _HUNK.match(row)
        if begins is None:
            rows.append(row)
            continue
        if at is not None:
            found.append(Hunk(at["header"], int(at["start"]), tuple(rows)))
        at, rows = begins, []
    return tuple(found)


def functions(path: str, hunks: Sequence[Hunk], content: bytes | None = None) -> frozenset[str]:
    """Return the functions and classes that hunks change, as `Class.method` where that is known."""
    if path.endswith((".py", ".pyi")):
        spans = _spans(content) if content is not None else None
        if spans is not None:
            lines = [line for hunk in hunks for line in _changed(hunk)]
            return frozenset(name for line in lines if (name := _innermost(spans, line)))
        return frozenset(name for hunk in hunks for name in _walk(hunk))
    return frozenset(name for hunk in hunks if (name := _header_name(hunk.header)))


def _text(latin: str) -> str:
    """Return text that stands for bytes as the text that the bytes are."""
    return latin.encode("latin-1").decode("utf-8", "replace")


def _changed(hunk: Hunk) -> Iterator[int]:
    """Yield the lines of the new side that are new, or in front of which something is gone."""
    line = hunk.start
    for row in hunk.lines:
        if row.startswith("-"):
            yield line
        elif row.startswith("+"):
            yield line
            line += 1
        elif not row.startswith("\\"):
            line += 1


def _walk(hunk: Hunk) -> Iterator[str]:
    """Yield what each change of Python stands in, as far as the hunk itself shows it."""
    header = _PYTHON.match(hunk.header)
    current = header["name"] if header else ""
    for row in hunk.lines:
        begins = _PYTHON.match(row[1:])
        if begins:
            current = begins["name"]
        if row.startswith(_CHANGES) and current:
            yield current


def _header_name(header: str) -> str:
    """Return the function or type that git's line behind `@@` names; or nothing."""
    for found in _CALLABLE.finditer(header):
        if found["name"] not in _NO_NAMES:
            return found["name"]
    named = _TYPE.search(header)
    return named["name"] if named else ""


_Spans = list[tuple[int, int, str]]


def _spans(content: bytes) -> _Spans | None:
    """Return first line, last line and name of each function and class; None: no Python."""
    if len(content) > _LARGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: _Spans = []
    wanted: list[tuple[ast.AST, str]] = [(tree, "")]
    while wanted:
        node, around = wanted.pop()
        name = around
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{around}.{node.name}" if around else node.name
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found.append((first, node.end_lineno or first, name))
        wanted += [(child, name) for child in ast.iter_child_nodes(node)]
    return found


def _innermost(spans: _Spans, line: int) -> str:
    """Return the name of the smallest span around a line; or nothing."""
    around = [(last - first, name) for first, last, name in spans if first <= line <= last]
    return min(around)[1] if around else ""


def shared_functions(ours: Iterable[str], theirs: Iterable[str]) -> list[str]:
    """Return what two diffs both change; where one knows only the class, the other's method."""
    others = set(theirs)
    return sorted({name for name in ours if any(_same(name, other) for other in others)})


def _same(one: str, other: str) -> bool:
    """Say whether names are the same, or one of them around or at the end of the other."""
    longer, shorter = sorted((one, other), key=len, reverse=True)
    return longer == shorter or longer.startswith(f"{shorter}.") or longer.endswith(f".{shorter}")
