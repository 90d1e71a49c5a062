"""Stage `witness`: which of the statements that a patch adds really ran under its checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pydantic import JsonValue

from contribbot.model.evidence import Outcome, StageResult
from contribbot.verify.check import kernel_units
from contribbot.verify.job import Job
from contribbot.verify.stages.base import Finding, Stage, Unit, as_table


class WitnessStage(Stage):
    """Adds up what each check has witnessed, by target; and judges the kernels that ran."""

    name = "witness"
    after = ("reproduce",)

    def units(self, job: Job) -> list[Unit]:
        """One unit a target, as what ran on one says nothing of another; and the kernels'."""
        witnessed: dict[str, list[StageResult]] = {}
        for stage in ("reproduce", "numerics", "emulate"):
            for result in job.results.get(stage, ()):
                if result.outcome is Outcome.PASSED and "witness" in result.details:
                    witnessed.setdefault(result.target, []).append(result)
        units = [_unit(job, target, ran) for target, ran in witnessed.items()]
        return [*units, *kernel_units(job)]


def _added(results: Sequence[StageResult]) -> dict[str, list[int]]:
    """Return the added lines of which there is code that was emulated."""
    added: dict[str, set[int]] = {}
    for result in results:
        for path, lines in as_table(result.details["coded"]).items():
            added.setdefault(path, set()).update(_lines(lines))
    return {path: sorted(lines) for path, lines in sorted(added.items())}


def _unit(job: Job, target: str, results: list[StageResult]) -> Unit:
    witnessed = [result.details["witness"] for result in results]
    # What was emulated is counted by lines that have code, and not by statements.
    if all("coded" in result.details for result in results):
        added = _added(results)
        work = partial(_add_up, added, witnessed, deleted=False, coded=True)
        own: dict[str, JsonValue] = {path: [*lines] for path, lines in added.items()}
        return Unit(target, {"added": own, "witness": witnessed}, work)
    inputs: dict[str, JsonValue] = {
        "base": job.trees.base,
        "patched": job.trees.patched,
        "tests": list(job.patch.upstream.tests),
        "witness": witnessed,
    }
    return Unit(target, inputs, partial(_count, job, witnessed))


def _count(job: Job, witnessed: Sequence[JsonValue]) -> Finding:
    side, statements = job.witnesses()
    starts = {path: [row.start for row in rows] for path, rows in statements.items()}
    return _add_up(starts, witnessed, deleted=side == job.trees.base, coded=False)


def _add_up(
    own: Mapping[str, Sequence[int]],
    witnessed: Sequence[JsonValue],
    *,
    deleted: bool,
    coded: bool,
) -> Finding:
    """Say how many of the statements that a patch adds, or deletes, any check has witnessed."""
    files: dict[str, JsonValue] = {}
    total = seen = 0
    for path, lines in own.items():
        ran = {line for by in witnessed if isinstance(by, dict) for line in _lines(by.get(path))}
        files[path] = {
            "executed": [line for line in lines if line in ran],
            "not_executed": [line for line in lines if line not in ran],
        }
        total += len(lines)
        seen += len(ran.intersection(lines))
    details: dict[str, JsonValue] = {"files": files, "added": total, "executed": seen}
    if deleted:
        details["deleted"] = True
    if not total:
        what = "line with code" if coded else "Python statement"
        reason = f"the patch adds no {what} that could be witnessed"
        return Finding(Outcome.SKIPPED, reason, details)
    kind = "deleted" if deleted else "added"
    noun = "lines with code" if coded else "statements"
    share = f"{seen} of {total} {kind} {noun} ran ({seen / total:.0%})"
    if not seen:
        reason = f"{share}: no check here reaches the change in a test"
        return Finding(Outcome.SKIPPED, reason, details)
    return Finding(Outcome.PASSED, share, details)


def _lines(value: JsonValue) -> list[int]:
    return [line for line in value if isinstance(line, int)] if isinstance(value, list) else []
