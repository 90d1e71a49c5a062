"""Outcomes of stages and the verdict over them."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import Annotated

from pydantic import Field, JsonValue

from contribbot.model.base import Model


class Outcome(enum.StrEnum):
    """How one proof ended."""

    PASSED = "passed"
    FAILED = "failed"
    #: This machine cannot run it, for the reason given. Never a pass.
    UNAVAILABLE = "unavailable"
    #: It was not asked for, or could not matter any more, for the reason given.
    SKIPPED = "skipped"


class Verdict(enum.StrEnum):
    """What the outcomes of one patch amount to on this machine."""

    #: All that can run here passed, a fail-to-pass check among it.
    PROVED = "proved"
    #: Something failed.
    REFUTED = "refuted"
    #: Nothing failed, but nothing was shown to go from red to green either.
    INCOMPLETE = "incomplete"


class StageResult(Model):
    """One proof by one stage on one target.

    Attributes:
        stage: The stage.
        target: The hardware: `cpu`, `cuda`, a gfx target; or `any` where it does not matter.
        outcome: How it ended.
        reason: One line that says why; for a pass, what was seen.
        seconds: How long the work took when it was done.
        cached: Whether it was done in an earlier run with the same inputs.
        details: What the stage saw, for the record.
    """

    stage: str
    target: str
    outcome: Annotated[Outcome, Field(strict=False)]
    reason: str
    seconds: float = Field(ge=0)
    cached: bool = False
    details: dict[str, JsonValue] = Field(default_factory=dict)


def judge(results: Sequence[StageResult], targets: Collection[str]) -> Verdict:
    """Return the verdict over the results of one patch.

    It is `proved` only when some fail-to-pass check went from red to green here
    (a patch that merely applies is not proved), and nothing that this machine has
    the hardware for was unavailable.

    Args:
        results: The results.
        targets: The targets that the machine has.
    """
    if any(result.outcome is Outcome.FAILED for result in results):
        return Verdict.REFUTED
    red_to_green = any(
        result.outcome is Outcome.PASSED and result.details.get("expect") == "fail-to-pass"
        for result in results
    )
    unavailable = any(
        result.outcome is Outcome.UNAVAILABLE and result.target in targets for result in results
    )
    return Verdict.PROVED if red_to_green and not unavailable else Verdict.INCOMPLETE


#: Stages whose target is hardware that something ran on. `compile` has targets too, and
#: says nothing of the hardware.
ON_HARDWARE = frozenset({"reproduce", "numerics", "bench"})

#: Targets that every machine has.
HOST_TARGETS = frozenset({"any", "cpu"})


def open_targets(results: Sequence[StageResult]) -> list[str]:
    """Return the targets on which something was asked for and could not run here.

    What could not be compiled or built for a target is `compile:gfx950`, `build:cuda`:
    that another thing ran on the target, or did not, is another matter.

    Args:
        results: The results.
    """
    seen = dict.fromkeys(
        result.target if result.stage in ON_HARDWARE else f"{result.stage}:{result.target}"
        for result in results
        # `any` is no target: what fails there is this machine, not a lack of hardware.
        if result.outcome is Outcome.UNAVAILABLE and result.target != "any"
    )
    return list(seen)
