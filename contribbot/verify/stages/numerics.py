"""Stage `numerics`: judge results by the error of a reference in the same precision."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from contribbot.compile.cache import json_digest
from contribbot.markdown import times
from contribbot.model.checks import LIMITS_VARIABLE, Check, Numerics
from contribbot.model.evidence import NumericsStageResult, Outcome
from contribbot.model.patch import Patch
from contribbot.model.record import (
    CellRecord,
    CellsRecord,
    CheckDetails,
    Digests,
    NumericsDetails,
    NumericsRecord,
    Totals,
    TotalsRecord,
)
from contribbot.verify.job import Job
from contribbot.verify.pytest_run import CheckRun
from contribbot.verify.stages import Probe, Stage, Unit, is_red
from contribbot.verify.stages.reproduce import CheckRunner, CheckWork, check_probe
from contribbot.verify.verdict import Cause, Judgement, RunSide, judge_sides

#: The largest number of a tree's cells in a record: the worst cells; totals count all cells.
MOST_CELLS: Final = 64
#: The largest number of results of one cell in a record: the worst results.
MOST_OUTPUTS: Final = 16
_REFERENCES: Final = "the same-precision reference's"


class NumericsStage(Stage):
    """Runs each `[[numerics]]` on both trees, as a check that also reports cells."""

    result = NumericsStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for each `[[numerics]]`."""
        return [CheckWork(job, runner_of(entry)).unit() for entry in job.patch.spec.numerics]

    def probes(self, patch: Patch) -> Iterable[Probe]:
        """Return one probe for each fail-to-pass `[[numerics]]`."""
        red = filter(is_red, patch.spec.numerics)
        return [check_probe("numerics", runner_of(entry)) for entry in red]


def runner_of(entry: Check) -> CheckRunner:
    """Return the runner of a check; a numerics check has limits and is judged by its cells."""
    if not isinstance(entry, Numerics):
        return CheckRunner(entry)
    limits = entry.model_dump(include={"fudge", "floor"})

    def add(details: CheckDetails, base: CheckRun, patched: CheckRun) -> NumericsDetails:
        judged = NumericsRecord(
            fudge=entry.fudge,
            floor=entry.floor,
            why=entry.why,
            # One digest covers the digests of all inputs and references.
            judged_by_sha256=json_digest(
                [[cell.test, *(row.model_dump() for row in cell.digests)] for cell in patched.cells]
            ),
            cells=CellsRecord(base=_worst(base.cells), patched=_worst(patched.cells)),
            totals=TotalsRecord(base=add_up(base.cells), patched=add_up(patched.cells)),
        )
        return NumericsDetails(**dict(details), numerics=judged)

    return CheckRunner(
        entry,
        judge=lambda _check, base, patched: judge_cells(entry, base, patched),
        vacuous=lambda run: not_shown(entry, run.cells),
        env={LIMITS_VARIABLE: json.dumps(limits)},
        details=add,
    )


def judge_cells(entry: Numerics, base: CheckRun, patched: CheckRun) -> Judgement:
    """Judge a numerics check by its tests, and by its cells, which must confirm the tests."""
    judgement = judge_sides(entry, base, patched)
    if judgement.outcome is Outcome.UNAVAILABLE:
        return judgement
    passed = judgement.outcome is Outcome.PASSED
    shown = not_shown(entry, patched.cells) if passed else None
    if shown := shown or _not_the_same(base.cells, patched.cells, complete=passed):
        return shown
    if not passed:
        return judgement
    words = summary(entry.fudge, add_up(base.cells), add_up(patched.cells), len(patched.skipped))
    return replace(judgement, words=words)


def not_shown(entry: Numerics, cells: Sequence[CellRecord]) -> Judgement | None:
    """Judge a run whose tests passed by failed or vacuous cells; None: every cell is good."""
    if not cells:
        detail = f"{entry.file} judges no cell: it uses no Grid of contribbot.numerics"
        return Judgement(Cause.SHOWS_NOTHING, detail=detail)
    for cell in cells:
        if cell.failed:
            words = f"judged bad, though its test did not fail: {cell.test}: {cell.failed}"
            return Judgement(Cause.FAILS_PATCHED, RunSide.PATCHED, words=words)
    empty = [
        f"{cell.cell}: {output.name}: {output.why_vacuous}"
        for cell in cells
        for output in cell.outputs
        if output.vacuous
    ]
    return Judgement(Cause.SHOWS_NOTHING, detail=empty[0], more=len(empty) - 1) if empty else None


def _not_the_same(
    base: Sequence[CellRecord], patched: Sequence[CellRecord], *, complete: bool
) -> Judgement | None:
    """Judge cells with different inputs or references on the two trees; None: the same on both."""
    sides = [{cell.test: cell for cell in cells} for cells in (base, patched)]
    for test in {**sides[0], **sides[1]}:
        old, new = (side.get(test) for side in sides)
        if detail := _difference(old, new, complete=complete):
            same = "inputs and references must be the same on both trees"
            return Judgement(Cause.DIFFERENT, detail=f"{same}: {test}: {detail}")
    return None


def _difference(old: CellRecord | None, new: CellRecord | None, *, complete: bool) -> str:
    """Return how a cell's seeds, inputs or references differ between the trees; empty: equal."""
    if old is None or new is None:
        return "judged on one of the two trees only" if complete else ""
    if (old.seeds, old.axes) != (new.seeds, new.axes):
        return "other seeds or values"
    for before, after in zip(old.digests, new.digests, strict=False):
        if detail := _unlike(before, after, complete=complete):
            return f"{after.result} seed {after.seed}: {detail}"
    if complete and not old.digests:
        return "the base ended before it was known what judges the result: hand over a function"
    whole = complete and not old.failed
    return "other results" if whole and len(old.digests) != len(new.digests) else ""


def _unlike(before: Digests, after: Digests, *, complete: bool) -> str:
    """Return how a result's inputs or references differ between the trees; empty: equal."""
    if (before.seed, before.result) != (after.seed, after.result):
        return "other results or seeds"
    if before.inputs != after.inputs:
        pairs = zip(before.inputs.split(), after.inputs.split(), strict=False)
        alike = len([*itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])
        return f"other inputs, from number {alike + 1} of what is drawn on"
    if before.references != after.references:
        return "other references"
    written = [name for name in after.written if name not in before.written and complete]
    more = "is overwritten, and is not on the base: if callers allow that, hand over a clone of it"
    return f"{written[0]} {more}" if written else ""


def add_up(cells: Sequence[CellRecord]) -> Totals:
    """Return the totals over one tree's cells."""
    outputs = [output for cell in cells for output in cell.outputs]
    exact = [output for output in outputs if output.kind == "exact" and output.elements]
    judged = [output for output in outputs if output.kind == "error" and output.elements]
    ratios = [(output.by_floor, output.ratio or 0.0) for output in judged]
    return Totals(
        cells=len(cells),
        failed=sum(bool(cell.failed) for cell in cells),
        silent=sum(not cell.outputs for cell in cells),
        spoiled=sum(cell.non_finite > 0 for cell in cells),
        odd=sum(bool(output.complaint and not output.elements) for output in outputs),
        elements=sum(output.elements for output in outputs),
        mismatches=sum(output.mismatches for output in outputs),
        non_finite=sum(output.non_finite for output in outputs),
        exact=sum(output.elements for output in exact),
        differing=sum(output.mismatches for output in exact),
        ratio=max((ratio for floor, ratio in ratios if not floor), default=None),
        floor_ratio=max((ratio for floor, ratio in ratios if floor), default=None),
    )


def summary(fudge: float, base: Totals, patched: Totals, skipped: int) -> str:
    """Return the totals of both trees in one line."""
    seen = []
    ratios = ((patched.ratio, _REFERENCES), (patched.floor_ratio, "the floor"))
    if multiples := [f"{times(ratio)} times {what}" for ratio, what in ratios if ratio is not None]:
        larger = " where that is larger" if len(multiples) > 1 else ""
        most = f"{', '.join(multiples)}{larger}"
        seen.append(f"patched error at most {most} (allowed {times(fudge)})")
    if patched.exact:
        seen.append(f"{patched.exact:,} elements bit-identical")
    number = f"{patched.cells:,} cell{'s' if patched.cells != 1 else ''}"
    left = f"; {skipped:,} test{'s' if skipped != 1 else ''} skipped" if skipped else ""
    return f"{number}: {', '.join(seen)}; base {_of_base(base)}{left}"


def _of_base(base: Totals) -> str:
    """Return a phrase that sums up the base's results in the cells of a numerics check."""
    if base.silent == base.cells:
        return "gives no result in any"
    kinds = (
        (base.silent, "gives no result in"),
        (base.spoiled, "NaN or infinite in"),
        (base.odd, "of another shape, dtype or device in"),
    )
    said = [f"{what} {cells:,}" for cells, what in kinds if cells]
    ratios = [ratio for ratio in (base.ratio, base.floor_ratio) if ratio is not None]
    if ratios:
        floor = " the floor" if max(ratios) != base.ratio else ""
        said.append(f"up to {times(max(ratios))} times{floor}")
    if base.exact:
        same = f"differs in {base.differing:,} elements" if base.differing else "the same bits"
        said.append(same)
    return ", ".join(said) or "has nothing to compare"


def _worst(cells: Sequence[CellRecord]) -> tuple[CellRecord, ...]:
    """Return the worst cells with their worst results, without digests, for the record."""
    if len(cells) > MOST_CELLS:
        cells = sorted(cells, key=_badness, reverse=True)[:MOST_CELLS]
    shorter = []
    for cell in cells:
        outputs = cell.outputs
        if len(outputs) > MOST_OUTPUTS:
            ranked = sorted(outputs, key=lambda output: output.badness, reverse=True)
            outputs = tuple(ranked[:MOST_OUTPUTS])
        shorter.append(cell.model_copy(update={"outputs": outputs, "digests": ()}))
    return tuple(shorter)


def _badness(cell: CellRecord) -> tuple[bool, int, float, int]:
    mismatches = sum(output.mismatches for output in cell.outputs)
    return bool(cell.failed), cell.non_finite, cell.ratio, mismatches
