"""What `verify --json` prints (a contract)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from contribbot.model.base import Model
from contribbot.model.outcome import ON_HARDWARE, Outcome, StageResult, Verdict, proves


class PatchReport(Model):
    """The outcomes of one patch on this machine.

    Attributes:
        patch: Its name.
        upstream: The upstream.
        pin: The pin's tag.
        base_commit: What it was applied on; None when that could not be had.
        patched_tree: git's id of the patched tree; None when it does not apply.
        verdict: What the outcomes amount to.
        stages: The outcomes.
        open: Targets on which something was asked for and could not run here.
    """

    patch: str
    upstream: str
    pin: str
    base_commit: str | None
    patched_tree: str | None
    verdict: Annotated[Verdict, Field(strict=False)]
    stages: Annotated[tuple[StageResult, ...], Field(strict=False)]
    open: Annotated[tuple[str, ...], Field(strict=False)]


class VerifyReport(Model):
    """The outcomes of all patches that were verified.

    Attributes:
        patches: One report each, in the queue's order.
    """

    patches: Annotated[tuple[PatchReport, ...], Field(strict=False)]


def unmet(report: PatchReport, required: Sequence[str]) -> list[str]:
    """Return which of the required targets a report does not prove."""
    missing = []
    for need in required:
        stage, _, target = need.rpartition(":")
        there = [
            result
            for result in report.stages
            if result.target == target
            and (result.stage == stage if stage else result.stage in ON_HARDWARE)
        ]
        shown = stage or any(map(proves, there))
        if {result.outcome for result in there} != {Outcome.PASSED} or not shown:
            missing.append(need)
    return missing
