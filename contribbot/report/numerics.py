"""The worst cells of a `numerics` outcome, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue, ValidationError

from contribbot.model.outcome import StageResult
from contribbot.numerics.records import CellRecord, OutputRecord
from contribbot.numerics.words import count, number, place_of
from contribbot.report.text import clean

#: Results shown of each side.
_MOST: Final = 3


def worst_lines(result: StageResult) -> list[str]:
    """Return the worst results of the base and of the patched tree."""
    cells = result.details.get("cells")
    if not isinstance(cells, dict):
        return []
    lines: list[str] = []
    for side, title in (("patched", "patched tree"), ("base", "base")):
        ranked = sorted(_judged(cells.get(side)), key=lambda pair: pair[1].badness, reverse=True)
        if ranked:
            lines.append(f"  worst on the {title}:")
            lines += [f"    {_row(cell, one)}" for cell, one in ranked[:_MOST]]
    return lines


def _judged(cells: JsonValue) -> Iterator[tuple[CellRecord, OutputRecord]]:
    for one in cells if isinstance(cells, list) else []:
        try:
            cell = CellRecord.model_validate(one)
        except ValidationError:
            continue  # a record of another version; the reason line still says what came of it
        for output in cell.outputs:
            yield cell, output


def _row(cell: CellRecord, one: OutputRecord) -> str:
    where = f"{cell.cell} seed {one.worst_seed}: {one.name}: "
    if one.complaint and not one.elements:
        return clean(where + one.complaint)
    told = []
    if one.non_finite:
        told.append(f"{count(one.non_finite)} NaN or infinite")
    if one.kind == "exact":
        told.append(f"{count(one.mismatches)} of {count(one.elements)} elements differ")
    else:
        told.append(f"max abs {number(one.max_abs)}, {one.multiple}")
        told.append(f"{count(one.mismatches)} of {count(one.elements)} elements beyond")
    told.append("max rel " + ("undefined" if one.max_rel is None else number(one.max_rel)))
    if one.place is not None:
        told.append(f"at {place_of(one.place)}")
    return clean(where + ", ".join(told))
