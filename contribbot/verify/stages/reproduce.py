"""Stage `reproduce`: the checks of the patch, on the base and on the patched tree."""

from __future__ import annotations

from contribbot.model.outcome import StageResult
from contribbot.verify.checkunit import Way, check_unit
from contribbot.verify.job import Job, Unit


class ReproduceStage:
    """Runs each check in a child pytest, once per tree."""

    name = "reproduce"
    after = ("apply",)

    def units(self, job: Job) -> list[Unit]:
        """One unit a check."""
        return [check_unit(job, check, Way()) for check in job.patch.spec.checks]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """The results themselves are what `witness` reads."""
