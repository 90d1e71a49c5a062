"""Stage `numerics`: results judged by the error that a same-precision reference makes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from contribbot.model.checks import Numerics
from contribbot.model.evidence import Outcome, StageResult
from contribbot.numerics.limits import VARIABLE
from contribbot.numerics.records import CellRecord, OutputRecord
from contribbot.numerics.words import count, times
from contribbot.verify.check import Way, check_unit
from contribbot.verify.job import Job, Unit
from contribbot.verify.run_result import CheckRun
from contribbot.verify.verdict import Cause, Judgement, judge_check

#: Cells of one side that a record holds; of more, the worst of each group, and totals.
MOST_CELLS: Final = 64
#: Results of one cell that a record holds, the worst of them.
MOST_OUTPUTS: Final = 16
_REFERENCES: Final = "the same-precision reference's"


class NumericsStage:
    """Runs each `[[numerics]]` of a patch on both trees, as a check that also reports cells."""

    name = "numerics"
    after = ("apply",)

    def units(self, job: Job) -> list[Unit]:
        """One unit an entry."""
        return [check_unit(job, entry, way_of(entry)) for entry in job.patch.spec.numerics]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """Nothing later depends on it."""


def way_of(entry: Numerics) -> Way:
    """Return how an entry is run: with its limits, and judged by its cells too."""
    floor: JsonValue = dict(entry.floor) if isinstance(entry.floor, dict) else entry.floor
    limits: dict[str, JsonValue] = {"fudge": entry.fudge, "floor": floor}
    return Way(
        judge=lambda _check, base, patched: judge_cells(entry, base, patched),
        env={VARIABLE: json.dumps(limits)},
        details=lambda base, patched: {
            **limits,
            "why": entry.why,
            "judged_by_sha256": _judged_by(patched.cells),
            "cells": {"base": _kept(base.cells), "patched": _kept(patched.cells)},
            "totals": {"base": _totals(base.cells), "patched": _totals(patched.cells)},
        },
    )


def judge_cells(entry: Numerics, base: CheckRun, patched: CheckRun) -> Judgement:
    """Judge an entry as a check, and see that its cells show what its tests claim."""
    judgement = judge_check(entry, base, patched)
    if judgement.outcome is Outcome.UNAVAILABLE:
        return judgement
    passed = judgement.outcome is Outcome.PASSED
    shown = not_shown(entry, patched.cells) if passed else None
    if shown := shown or _not_the_same(base.cells, patched.cells, complete=passed):
        return shown
    if not passed:
        return judgement
    left = len(patched.skipped)
    skipped = f"; {count(left)} test{'s' if left != 1 else ''} skipped" if left else ""
    return replace(judgement, words=_summary(entry, base.cells, patched.cells) + skipped)


def not_shown(entry: Numerics, cells: Sequence[CellRecord]) -> Judgement | None:
    """Judge green tests whose cells show nothing of numbers; None: each shows something."""
    if not cells:
        told = f"{entry.file} judges no cell: it uses no Grid of contribbot.numerics"
        return Judgement(Cause.SHOWS_NOTHING, told=told)
    for cell in cells:
        if cell.failed:
            told = f"judged bad, though its test did not fail: {cell.test}: {cell.failed}"
            return Judgement(Cause.FAILS_PATCHED, words=told)
    empty = [
        f"{cell.cell}: {output.name} is empty"
        if not output.elements
        else f"{cell.cell}: zeros would pass for {output.name}: fudge and floor allow an error "
        "as large as the values"
        for cell in cells
        for output in cell.outputs
        if output.vacuous
    ]
    return Judgement(Cause.SHOWS_NOTHING, told=empty[0], more=len(empty) - 1) if empty else None


def _not_the_same(
    base: Sequence[CellRecord], patched: Sequence[CellRecord], *, complete: bool
) -> Judgement | None:
    """Judge cells that the two trees judged by other inputs or references; None: by the same."""
    sides = [{cell.test: cell for cell in cells} for cells in (base, patched)]
    for test in {**sides[0], **sides[1]}:
        old, new = (side.get(test) for side in sides)
        told = _difference(old, new, complete=complete)
        if told:
            return Judgement(Cause.REFERENCES_DIFFER, told=f"{test}: {told}")
    return None


def _difference(old: CellRecord | None, new: CellRecord | None, *, complete: bool) -> str:
    """Say what two trees did not judge a cell by in common; a run that failed may end sooner."""
    if old is None or new is None:
        return "judged on one of the two trees only" if complete else ""
    if (old.seeds, old.axes) != (new.seeds, new.axes):
        return "other seeds or values"
    for one, other in zip(old.digests, new.digests, strict=False):
        what = f"{other.result} seed {other.seed}"
        if one.inputs != other.inputs or (one.result, one.seed) != (other.result, other.seed):
            return f"{what}: other inputs"
        if one.references != other.references:
            return f"{what}: other references"
    if complete and not old.digests:
        return "the base ended before it was known what judges the result: hand over a function"
    whole = complete and not old.failed
    return "other results" if whole and len(old.digests) != len(new.digests) else ""


def _summary(entry: Numerics, base: Sequence[CellRecord], patched: Sequence[CellRecord]) -> str:
    """Say what was seen, in one line."""
    outputs = [output for cell in patched for output in cell.outputs]
    seen = []
    if multiples := _multiples(outputs):
        seen.append(f"patched error at most {multiples} (allowed {times(entry.fudge)})")
    exact = sum(output.elements for output in outputs if output.kind == "exact")
    if exact:
        seen.append(f"{count(exact)} elements bit-identical")
    number = f"{count(len(patched))} cell{'s' if len(patched) != 1 else ''}"
    return f"{number}: {', '.join(seen)}; base {_of_base(base)}"


def _multiples(outputs: Sequence[OutputRecord]) -> str:
    """Say how large errors are, each as a multiple of what decides on it; or nothing."""
    judged = [output for output in outputs if output.kind == "error" and output.elements]
    said = [
        f"{times(max(output.ratio or 0.0 for output in some))} times {what}"
        for some, what in (
            ([output for output in judged if not output.by_floor], _REFERENCES),
            ([output for output in judged if output.by_floor], "the floor"),
        )
        if some
    ]
    return ", ".join(said) + (" where that is larger" if len(said) > 1 else "")


def _of_base(base: Sequence[CellRecord]) -> str:
    """Say what the base did in the same cells."""
    said = []
    silent = sum(not cell.outputs for cell in base)
    if silent == len(base):
        return "gives no result in any"
    if silent:
        said.append(f"gives no result in {count(silent)}")
    spoiled = sum(cell.non_finite > 0 for cell in base)
    if spoiled:
        said.append(f"NaN or infinite in {count(spoiled)}")
    outputs = [one for cell in base for one in cell.outputs]
    odd = sum(1 for one in outputs if one.complaint and not one.elements)
    if odd:
        said.append(f"of another shape, dtype or device in {count(odd)}")
    judged = [one for one in outputs if one.kind == "error" and one.elements]
    if judged:
        worst = max(judged, key=lambda one: one.ratio or 0.0)
        floor = " the floor" if worst.by_floor else ""
        said.append(f"up to {times(worst.ratio or 0.0)} times{floor}")
    exact = [one for one in outputs if one.kind == "exact" and one.elements]
    if exact:
        differing = sum(one.mismatches for one in exact)
        said.append(f"differs in {count(differing)} elements" if differing else "the same bits")
    return ", ".join(said) or "has nothing to compare"


def _totals(cells: Sequence[CellRecord]) -> dict[str, JsonValue]:
    outputs = [one for cell in cells for one in cell.outputs]
    return {
        "cells": len(cells),
        "failed": sum(bool(cell.failed) for cell in cells),
        "elements": sum(one.elements for one in outputs),
        "mismatches": sum(one.mismatches for one in outputs),
        "non_finite": sum(one.non_finite for one in outputs),
    }


def _kept(cells: Sequence[CellRecord]) -> list[JsonValue]:
    """Return what the record keeps: all cells, or the worst of each group.

    A group is a test function and a value of its grid's first axis.
    """
    chosen = list(cells)
    if len(cells) > MOST_CELLS:
        groups: dict[tuple[str, ...], list[CellRecord]] = {}
        for cell in cells:
            function = cell.test.partition("[")[0]
            groups.setdefault((function, *list(cell.axes.values())[:1]), []).append(cell)
        each = max(1, MOST_CELLS // len(groups))
        ranked = [sorted(group, key=_badness, reverse=True) for group in groups.values()]
        chosen = [cell for group in ranked for cell in group[:each]]
        chosen = sorted(chosen, key=_badness, reverse=True)[:MOST_CELLS]
    return [_shortened(cell).model_dump(mode="json") for cell in chosen]


def _shortened(cell: CellRecord) -> CellRecord:
    """Return the worst results of a cell; what judged it is in one digest for all cells."""
    ranked = sorted(cell.outputs, key=lambda output: output.badness, reverse=True)
    outputs = tuple(ranked[:MOST_OUTPUTS]) if len(ranked) > MOST_OUTPUTS else cell.outputs
    return cell.model_copy(update={"outputs": outputs, "digests": ()})


def _judged_by(cells: Sequence[CellRecord]) -> str:
    """Return the SHA-256 over the digests of all inputs and references."""
    rows = [[cell.test, *(row.model_dump() for row in cell.digests)] for cell in cells]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _badness(cell: CellRecord) -> tuple[bool, int, float, int]:
    mismatches = sum(one.mismatches for one in cell.outputs)
    return bool(cell.failed), cell.non_finite, cell.ratio, mismatches
