"""Render sentences, tables, pairs and code as lines for a terminal or for a pipe."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from contribbot.model.evidence import target_order
from contribbot.model.lifecycle import ConflictSide

#: Styles of words, in rich's names; red is also bold, for readers who cannot tell red from green.
STYLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("passed", "proved", "fresh", "applies", "here", "success"), "green"),
    **dict.fromkeys(("failed", "refuted", "tampered", "conflicts", "timed out"), "bold red"),
    **dict.fromkeys(("contradiction", "failure"), "bold red"),
    **dict.fromkeys(("unavailable", "incomplete", "stale", "missing", "foreign"), "yellow"),
    **dict.fromkeys(("not here", "superseded", "turned down", "cancelled"), "yellow"),
    **dict.fromkeys(("skipped", "queued"), "dim"),
}
_STATE: Final = re.compile(rf"\b({'|'.join(sorted(STYLES, key=len, reverse=True))})")
_GAP: Final = 2
#: The least width in columns, and the width of a terminal that does not tell its width.
_LEAST: Final = 20
_UNKNOWN: Final = 80


class Code(str):
    """A line of code, or a command to copy, which is never folded."""

    __slots__ = ()


class StateText(str):
    """Text in which the first word that is a key of `STYLES` has a colour on a terminal."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows in columns; a terminal shows the head, and folds or cuts (`cut`) the last column.

    A pipe gets each row whole, on one line, and the head if `headed`. Empty columns are left out.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    indent: int = 0
    cut: bool = False
    headed: bool = False


#: A sentence (or `Code`, or `StateText`), or a table.
Block: TypeAlias = str | Table


def pairs(rows: Iterable[tuple[str, Iterable[str]]], indent: int = _GAP) -> Table:
    """Return a table: each title with texts once, beside the first of the title's texts."""
    listed: list[tuple[str, str]] = []
    for title, texts in rows:
        listed += [(title if not at else "", text) for at, text in enumerate(texts)]
    return Table(listed, indent=indent)


def indented(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks, indented two columns further; each block keeps its type."""
    return [
        dataclasses.replace(block, indent=block.indent + _GAP)
        if isinstance(block, Table)
        else type(block)(f"{'':{_GAP}}{block}")
        for block in blocks
    ]


def clean(text: str) -> str:
    """Return text with a space or U+FFFD for control characters, which a terminal would obey."""
    return "".join(
        char if char.isprintable() else " " if char in "\n\t\r" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def is_watched(*, stderr: bool = False) -> bool:
    """Return whether a stream is a terminal outside CI."""
    return (sys.stderr if stderr else sys.stdout).isatty() and not os.environ.get("CI")


def width(*, stderr: bool = False) -> int:
    """Return COLUMNS, or else the terminal's columns; 0 for a pipe, where nothing is folded."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal():
        return max(_LEAST, int(stated))
    if not is_watched(stderr=stderr):
        return 0
    stream = sys.stderr if stderr else sys.stdout
    return max(_LEAST, os.get_terminal_size(stream.fileno()).columns or _UNKNOWN)


def lines_of(blocks: Iterable[Block], columns: int = 0, *, coloured: bool = False) -> Iterator[str]:
    """Yield blocks as lines that fit `columns` (0: any length), without control characters."""
    for block in blocks:
        if isinstance(block, Table):
            table = _filled(block)
            yield from _drawn(table, columns, coloured) if columns and table.rows else _piped(table)
            continue
        line = clean(block.expandtabs())
        if coloured and isinstance(block, StateText):
            yield from _drawn(Table([[StateText(line)]]), columns or len(line), coloured)
        elif len(line) <= columns or not columns or isinstance(block, Code):
            yield line.rstrip()
        else:
            hang = " " * (len(line) - len(line.lstrip()) + _GAP)
            yield from textwrap.wrap(
                line,
                columns,
                subsequent_indent=hang,
                break_long_words=False,
                break_on_hyphens=False,
                drop_whitespace=True,
            )


def _filled(table: Table) -> Table:
    """Return a table without its empty columns."""
    used = [any(column) for column in zip(*table.rows, strict=True)]
    rows = [[*itertools.compress(row, used)] for row in table.rows]
    return dataclasses.replace(table, rows=rows, head=[*itertools.compress(table.head, used)])


def _piped(table: Table) -> Iterator[str]:
    head = [table.head] if table.headed else []
    rows = [[clean(cell) for cell in row] for row in (*head, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (" " * _GAP).join(map(str.ljust, row, widths))
        yield f"{'':{table.indent}}{cells}".rstrip()


def _drawn(block: Table, columns: int, coloured: bool) -> Iterator[str]:
    """Yield the lines of a table drawn by rich; in a wide table, fold or cut the last column."""
    from rich import console, padding, table, text  # noqa: PLC0415  only where a table is drawn

    *_, last = range(len(block.rows[0]))
    head = [*block.head] or [""] * (last + 1)
    grid = table.Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=any(head))
    for at, title in enumerate(head):
        grid.add_column(title, no_wrap=at != last, overflow="fold" if at == last else "ellipsis")
    for row in block.rows:
        cells = [text.Text(clean(cell)) for cell in row]
        if block.cut:
            cells[last].no_wrap, cells[last].overflow = True, "ellipsis"
        for cell, shown in zip(row, cells, strict=True):
            if isinstance(cell, StateText) and (word := _STATE.search(shown.plain)):
                shown.stylize(STYLES[word[1]], *word.span(1))
        grid.add_row(*cells)
    out = console.Console(
        file=io.StringIO(),
        width=columns,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
    )
    with out.capture() as drawing:
        out.print(padding.Padding(grid, (0, 0, 0, block.indent), expand=False), highlight=False)
    yield from (line.rstrip() for line in drawing.get().splitlines())


def near(path: Path) -> str:
    """Return a path, relative to the current folder if the relative path is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def count(number: int, what: str) -> str:
    """Return a number with its noun, such as `1 job` or `2,000 jobs`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


_KINDS: Final = {"emulated": "emulated", "compile": "compiled", "build": "built"}


def summary_of(targets: Iterable[str]) -> str:
    """Return a short list of targets, such as `cpu, cuda, 5 emulated`."""
    groups: dict[str, list[str]] = {}
    for target in sorted(targets, key=target_order):
        kind, _, name = target.rpartition(":")
        groups.setdefault(_KINDS.get(kind, "") if name else "", []).append(target)
    named = [
        [f"{len(group)} {kind}"] if kind and len(group) > 1 else group
        for kind, group in groups.items()
    ]
    return ", ".join(itertools.chain.from_iterable(named))


def conflict_blocks(sides: Iterable[ConflictSide], base: str = "the pin") -> Iterator[Block]:
    """Yield the expected, found and wanted lines of each conflict; `>`: a line that differs."""
    for side in sides:
        yield side.headline
        for title, rows, other in (
            ("the patch expects:", side.expected, side.found),
            (f"{base} has, at line {side.line}:", side.found, side.expected),
            ("the patch wants:", side.wanted, side.wanted),
        ):
            yield from [f"  {title}"] if rows else []
            yield from (Code(f"    {'|' if row in other else '>'} {row}") for row in rows)
