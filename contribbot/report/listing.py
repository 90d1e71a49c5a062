"""What a patch changes in the machine code, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from contribbot.compiling.pairs import COLUMNS, Numbers, Row
from contribbot.compiling.record import rows_in
from contribbot.model.outcome import StageResult
from contribbot.report.text import clean

#: Rows of one target; many instantiations of a template change alike.
_ROWS: Final = 6
#: Characters of a kernel's name.
_NAME: Final = 56
#: Columns of a record, and what stands above them. `waves` is occupancy, by SIMD.
_SHOWN: Final = (
    ("vgprs", "VGPR"),
    ("sgprs", "SGPR"),
    ("lds", "LDS"),
    ("spills", "spills"),
    ("occupancy", "waves"),
    ("code", "code"),
    ("instructions", "instructions"),
)


def listing_lines(results: Iterable[StageResult], *, limit: int = _ROWS) -> list[str]:
    """Return tables of what changed, base -> patched: one for each entry and target.

    Kernels that did not change are counted, those that did are shown, the worst first.

    Args:
        results: Outcomes; those that are not of the stage `compile`, or have no
            listing, give nothing.
        limit: Rows of one table at most.
    """
    lines: list[str] = []
    for result in results:
        rows = rows_in(result.details) if result.stage == "compile" else []
        if not rows:
            continue
        table = result.details.get("table")
        left_out = table.get("more") if isinstance(table, dict) else 0
        more = left_out if isinstance(left_out, int) else 0
        lines += _table(f"{result.details.get('check', '')} {result.target}", rows, more, limit)
    return lines


def _table(name: str, rows: Sequence[Row], more: int, limit: int) -> list[str]:
    changed = [row for row in rows if row.changed]
    same = sum(row.count for row in rows if not row.changed)
    shown = changed[:limit]
    left = sum(row.count for row in changed[limit:]) + more
    counts = [
        f"{number} kernel{'s' if number != 1 else ''} {what}"
        for number, what in (
            (sum(row.count for row in changed) + more, "changed"),
            (same, "unchanged"),
        )
        if number
    ]
    lines = [f"{clean(name)}: {', '.join(counts)}"]
    if shown:
        cells = [["", *(title for _, title in _SHOWN)], *(_cells(row) for row in shown)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
        lines += [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in cells
        ]
    if left:
        lines.append(f"  and {left} more")
    return [line.rstrip() for line in lines]


def _cells(row: Row) -> list[str]:
    name = _short(row.title)
    if row.count > 1:
        name += f" x{row.count}"
    if row.base is None or row.patched is None:
        name += " (new)" if row.base is None else " (gone)"
    return [name, *(_cell(row, column) for column, _ in _SHOWN)]


def _cell(row: Row, column: str) -> str:
    before, after = _value(row.base, column), _value(row.patched, column)
    if not before or not after or before == after:
        return after or before
    return f"{before} -> {after}"


def _value(numbers: Numbers | None, column: str) -> str:
    if numbers is None:
        return ""
    value = numbers[COLUMNS.index(column)]
    return f"{value:,}" if value is not None else "?"


def _short(title: str) -> str:
    """Return a kernel's name without the namespaces that say nothing, cut in the middle."""
    for namespace in ("(anonymous namespace)::", "c10::"):
        title = title.replace(namespace, "")
    title = clean(title)
    if len(title) <= _NAME:
        return title
    half = (_NAME - 1) // 2
    return f"{title[:half]}…{title[-half:]}"
