"""Stage `reproduce`: run the checks of the patch on the base and on the patched tree."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from contribbot.model.evidence import Outcome, PatchFault, ReproduceStageResult
from contribbot.model.patch import Patch
from contribbot.verify.check import CheckRunner, check_probe, check_unit
from contribbot.verify.job import Job
from contribbot.verify.stages.base import Finding, Probe, Stage, Unit, is_red

_UNPROVED: Final = "nothing is stated that could prove it: write a check and state it in patch.toml"


class ReproduceStage(Stage):
    """Runs each check with pytest in a separate process, once for each tree."""

    result = ReproduceStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for each check; for a patch without proof, one skipped unit."""
        if job.patch.spec.unproved:
            missing = partial(
                Finding,
                Outcome.SKIPPED,
                _UNPROVED,
                lasting=False,
                patch_fault=PatchFault.UNFINISHED,
            )
            return [Unit("any", None, missing)]
        return [check_unit(job, check, CheckRunner()) for check in job.patch.spec.checks]

    def probes(self, patch: Patch) -> Iterable[Probe]:
        """Return one probe for each fail-to-pass check."""
        return [
            check_probe("check", check, CheckRunner())
            for check in filter(is_red, patch.spec.checks)
        ]
