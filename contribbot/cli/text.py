"""The helpers that `render` replaces, for the commands that still call them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from contribbot.cli.render import STYLES, Code, StateText, clean, count, duration, escape
from contribbot.cli.render import width as columns_of
from contribbot.model.evidence import StageResult
from contribbot.model.lifecycle import ConflictSide

__all__ = ["STYLES", "Code", "Coloured", "clean", "count", "duration", "escape"]

#: Columns where there is no terminal.
WIDEST: Final = 100
_LAST_CELL: Final = re.compile(r"^.*\S  +(?=\S)|^ *")


class Coloured(StateText):
    """A line with a word that has a colour where there is a terminal."""

    __slots__ = ()

    @classmethod
    def of(cls, line: str, word: str) -> Coloured:
        """Colour a word of a line."""
        del word
        return cls(line)


def width(*, stderr: bool = False) -> int:
    """Return how many columns there are: the terminal's, or `WIDEST`."""
    return columns_of(stderr=stderr) or WIDEST


def fold(line: str, columns: int) -> list[str]:
    """Return a line as lines that fit; what goes on stands below its last cell."""
    if len(line) <= columns or isinstance(line, Code):
        return [line]
    match = _LAST_CELL.match(line)
    indent = len(match[0]) if match else 0
    if not line[:indent].strip() or indent > columns * 2 // 3:
        indent = len(line) - len(line.lstrip())
        hang = " " * (indent + 2)
    else:
        hang = " " * indent
    return textwrap.wrap(
        line[indent:], columns, initial_indent=line[:indent], subsequent_indent=hang,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines further to the right; code stays code."""
    return [type(line)(f"  {line}") for line in lines]


def near(path: Path) -> str:
    """Return a path as seen from the current folder, where it lies below that."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def code(lines: Iterable[str], indent: str = "") -> list[str]:
    """Return lines of code, safe to print and never folded."""
    return [Code(indent + clean(line)) for line in lines]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, their columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def titled(rows: Iterable[tuple[str, Iterable[str]]], indent: str = "  ") -> list[str]:
    """Return rows under titles in a column of their own, each title once."""
    listed = [(title, text) for title, texts in rows for text in texts]
    wide = max((len(title) for title, _ in listed), default=0)
    lines: list[str] = []
    before = ""
    for title, text in listed:
        lines.append(f"{indent}{'' if title == before else title:{wide}}  {clean(text)}".rstrip())
        before = title
    return lines


def side_lines(side: ConflictSide, *, base: str, indent: str = "") -> list[str]:
    """Return what does not fit, and its three sides; `>` marks what the other side lacks."""
    lines = [clean(indent + side.headline)]
    for title, rows, other in (
        ("the patch expects:", side.expected, side.found),
        (f"{base} has, at line {side.line}:", side.found, side.expected),
        ("the patch wants:", side.wanted, side.wanted),
    ):
        there = {clean(row) for row in other}
        lines += [f"{indent}  {title}"] if rows else []
        lines += [
            Code(f"{indent}    {'|' if row in there else '>'} {row}".rstrip())
            for row in map(clean, rows)
        ]
    return lines


def conflict_lines(result: StageResult) -> list[str]:
    """Return the three sides of each conflict of an `apply` outcome, as lines."""
    conflicts = result.details.get("conflicts")
    lines: list[str] = []
    for conflict in conflicts if isinstance(conflicts, list) else []:
        if isinstance(conflict, dict) and conflict.get("hunk"):
            headline = f"{conflict['path']}, hunk {conflict['hunk']}"
            side = ConflictSide.model_validate({**conflict, "headline": headline}, strict=False)
            lines += side_lines(side, base="the pin")
    return lines
