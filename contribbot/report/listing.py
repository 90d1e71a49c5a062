"""What a patch changes in the machine code, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from contribbot.compiling.demangle import function_of
from contribbot.compiling.pairs import COLUMNS, Numbers, Row
from contribbot.compiling.record import left_out_of, rows_in
from contribbot.model.outcome import StageResult
from contribbot.report.text import clean

#: Rows of one target; many instantiations of a template change alike.
_ROWS: Final = 6
#: Characters of a kernel's name.
_NAME: Final = 64
#: Of these, what is left at least of the function's own name.
_LEAST: Final = 9
#: The table has figures alone: a kernel with the same ones may have other instructions.
_SAME: Final = "with the same figures"
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
    """
    lines: list[str] = []
    for result in results:
        rows = rows_in(result.details) if result.stage == "compile" else []
        if not rows:
            continue
        name = f"{result.details.get('check', '')} {result.target}"
        lines += _table(name, rows, left_out_of(result.details), limit)
    return lines


def _table(name: str, rows: Sequence[Row], left_out: tuple[int, int], limit: int) -> list[str]:
    more, same = left_out
    changed = [row for row in rows if row.changed]
    shown = changed[:limit]
    left = sum(row.count for row in changed[limit:]) + more
    kinds = {"changed": more, _SAME: same, "new": 0, "gone": 0}
    for row in rows:
        kinds[_kind(row)] += row.count
    counts = [
        f"{number} kernel{'s' if number != 1 else ''} {kind}"
        for kind, number in kinds.items()
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


def _kind(row: Row) -> str:
    if row.base is None or row.patched is None:
        return "new" if row.base is None else "gone"
    return "changed" if row.changed else _SAME


def _cells(row: Row) -> list[str]:
    name = _short(row.title)
    if row.count > 1:
        name += f" x{row.count}"
    if _kind(row) in {"new", "gone"}:
        name += f" ({_kind(row)})"
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
    # Template arguments tell instantiations apart; of the function a part will do.
    function = function_of(title)
    arguments = title[len(function) :]
    if len(arguments) <= _NAME - _LEAST:
        return _cut(function, _NAME - len(arguments)) + arguments
    return _cut(title, _NAME)


def _cut(text: str, length: int) -> str:
    """Return a text cut in the middle."""
    half = (length - 1) // 2
    return f"{text[:half]}…{text[-half:]}" if len(text) > length else text
