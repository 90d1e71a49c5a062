"""Stage `numerics`: results judged by the error that a same-precision reference makes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from contribbot.model.outcome import Outcome, StageResult
from contribbot.model.proofs import Numerics
from contribbot.numerics.limits import VARIABLE
from contribbot.numerics.records import CellRecord
from contribbot.numerics.words import count, times
from contribbot.verify.checkunit import Way, check_unit
from contribbot.verify.childrun import CheckRun
from contribbot.verify.job import Job, Unit
from contribbot.verify.verdict import Cause, Judgement, judge_check

#: Cells of one side that a record holds; of more, the worst of each group, and totals.
MOST_CELLS: Final = 64
#: Results of one cell that a record holds, the worst of them.
MOST_OUTPUTS: Final = 16


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
            "cells": {"base": _kept(base.cells), "patched": _kept(patched.cells)},
            "totals": {"base": _totals(base.cells), "patched": _totals(patched.cells)},
        },
    )


def judge_cells(entry: Numerics, base: CheckRun, patched: CheckRun) -> Judgement:
    """Judge an entry as a check, and see that its cells show what its tests claim."""
    judgement = judge_check(entry, base, patched)
    if judgement.outcome is not Outcome.PASSED:
        return judgement
    problem = not_shown(entry, base.cells, patched.cells)
    if problem:
        bad = any(cell.failed for cell in patched.cells)
        return Judgement(Cause.FAILS_PATCHED if bad else Cause.SHOWS_NOTHING, words=problem)
    left = len(patched.skipped)
    skipped = f"; {count(left)} test{'s' if left != 1 else ''} skipped" if left else ""
    return replace(judgement, words=_summary(entry, base.cells, patched.cells) + skipped)


def not_shown(entry: Numerics, base: Sequence[CellRecord], patched: Sequence[CellRecord]) -> str:
    """Say why green tests show nothing of numbers, or nothing."""
    if not patched:
        return f"{entry.file} judges no cell: it uses no Grid of contribbot.numerics"
    judged = [one for cell in patched for one in cell.outputs if one.elements]
    if not judged:
        return "every result is empty, so no number was judged"
    for cell in patched:
        if cell.failed:
            return f"judged bad, though its test did not fail: {cell.test}: {cell.failed}"
    if all(one.kind == "error" and one.allowed >= one.largest for one in judged):
        return (
            "every error that fudge and floor allow is as large as the values themselves, "
            "so zeros would pass"
        )
    differing = sorted({cell.test for cell in base} ^ {cell.test for cell in patched})
    if differing:
        return f"judged on one of the two trees only: {differing[0]}"
    return ""


def _summary(entry: Numerics, base: Sequence[CellRecord], patched: Sequence[CellRecord]) -> str:
    """Say what was seen, in one line."""
    kinds = {one.kind for cell in patched for one in cell.outputs}
    seen = []
    if "error" in kinds:
        worst = max(cell.ratio for cell in patched)
        seen.append(
            f"patched error at most {times(worst)} times the same-precision reference's "
            f"(allowed {times(entry.fudge)})"
        )
    if "exact" in kinds:
        exact = sum(one.elements for cell in patched for one in cell.outputs if one.kind == "exact")
        seen.append(f"{count(exact)} elements bit-identical")
    return f"{_cells(len(patched))}: {', '.join(seen)}; base {_of_base(base)}"


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
        said.append(f"up to {times(max(cell.ratio for cell in base))} times")
    exact = [one for one in outputs if one.kind == "exact" and one.elements]
    if exact:
        differing = sum(one.mismatches for one in exact)
        said.append(f"differs in {count(differing)} elements" if differing else "the same bits")
    return ", ".join(said) or "has nothing to compare"


def _cells(number: int) -> str:
    return f"{count(number)} cell{'s' if number != 1 else ''}"


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
    if len(cell.outputs) <= MOST_OUTPUTS:
        return cell
    ranked = sorted(cell.outputs, key=lambda one: one.badness, reverse=True)
    return cell.model_copy(update={"outputs": tuple(ranked[:MOST_OUTPUTS])})


def _badness(cell: CellRecord) -> tuple[bool, int, float, int]:
    mismatches = sum(one.mismatches for one in cell.outputs)
    return bool(cell.failed), cell.non_finite, cell.ratio, mismatches
