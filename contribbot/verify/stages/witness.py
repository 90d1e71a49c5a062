"""Stage `witness`: which of the statements that a patch adds really ran under its checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from contribbot.model.evidence import Outcome, StageResult
from contribbot.verify.check import kernel_units
from contribbot.verify.job import Finding, Job, Unit


class WitnessStage:
    """Adds up what each check has witnessed, by target; and judges the kernels that ran."""

    name = "witness"
    after = ("reproduce",)

    def units(self, job: Job) -> list[Unit]:
        """One unit a target, as what ran on one says nothing of another; and the kernels'."""
        ran = [
            result
            for stage in ("reproduce", "numerics")
            for result in job.results.get(stage, ())
            if result.outcome is Outcome.PASSED and "witness" in result.details
        ]
        targets = dict.fromkeys(result.target for result in ran)
        return [*(self._unit(job, target, ran) for target in targets), *kernel_units(job)]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """Nothing later depends on it."""

    def _unit(self, job: Job, target: str, every: list[StageResult]) -> Unit:
        here = [one.details["witness"] for one in every if one.target == target]
        inputs: dict[str, JsonValue] = {
            "base": job.trees.base,
            "patched": job.trees.patched,
            "tests": list(job.patch.upstream.tests),
            "witness": here,
        }
        return Unit(target, inputs, lambda: _look(job, here))


def _look(job: Job, witnessed: Sequence[JsonValue]) -> Finding:
    side, statements = job.witnesses()
    starts = {path: [one.lines.start for one in own] for path, own in statements.items()}
    return add_up(starts, witnessed, deleted=side == job.trees.base)


def add_up(
    own: Mapping[str, Sequence[int]], witnessed: Sequence[JsonValue], *, deleted: bool
) -> Finding:
    """Say how many of the statements that a patch adds, or deletes, any check has witnessed."""
    files: dict[str, JsonValue] = {}
    total = seen = 0
    for path, lines in own.items():
        ran = {line for one in witnessed if isinstance(one, dict) for line in _lines(one.get(path))}
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
        said = "the patch adds no Python statement that could be witnessed"
        return Finding(Outcome.SKIPPED, said, details)
    kind = "deleted" if deleted else "added"
    share = f"{seen} of {total} {kind} statements ran ({seen / total:.0%})"
    if not seen:
        said = f"{share}: no check here reaches the change in a test"
        return Finding(Outcome.SKIPPED, said, details)
    return Finding(Outcome.PASSED, share, details)


def _lines(value: JsonValue) -> list[int]:
    return [one for one in value if isinstance(one, int)] if isinstance(value, list) else []
