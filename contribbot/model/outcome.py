"""Outcomes of stages and the verdict over them."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import Annotated, Final

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


#: Outcomes of what was really done.
SEEN: Final = frozenset({Outcome.PASSED, Outcome.FAILED})


class Verdict(enum.StrEnum):
    """What the outcomes of one patch amount to on this machine."""

    #: All that can run here passed, and something went from red to green by what the patch adds.
    PROVED = "proved"
    #: A claim was tested, and is false.
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


def too_noisy(result: StageResult) -> bool:
    """Say whether a bench was measured and cannot tell: it is open, and no fault of anything."""
    noisy = result.stage == "bench" and result.details.get("too_noisy") is True
    return noisy and result.outcome is Outcome.UNAVAILABLE


def unavailable_here(result: StageResult, targets: Collection[str]) -> bool:
    """Say whether a machine with these targets could not run what it has the hardware for."""
    lacking = result.outcome is Outcome.UNAVAILABLE and result.target in targets
    return lacking and not too_noisy(result)


def went_red_to_green(result: StageResult) -> bool:
    """Say whether a fail-to-pass entry passed."""
    return result.outcome is Outcome.PASSED and result.details.get("expect") == "fail-to-pass"


def proves(result: StageResult) -> bool:
    """Say whether an outcome proves a patch: red to green, by what the patch adds.

    What is compiled, hipified or built is the patch's own text. A check has to have run
    statements that the patch adds, launched the kernels that it states, or loaded a build that
    the patch makes another.
    """
    if not went_red_to_green(result) or result.stage not in ON_HARDWARE:
        return went_red_to_green(result)
    kernels = result.details.get("kernels")
    launched = isinstance(kernels, dict) and bool(kernels["stated"]) and not kernels["never_ran"]
    built = result.details.get("built") is True
    return launched or built or bool(result.details.get("witness"))


def judge(results: Sequence[StageResult], targets: Collection[str]) -> Verdict:
    """Return the verdict over the results of one patch on a machine with these targets.

    It is `proved` only when something went from red to green here by what the patch adds, and
    nothing was unavailable that this machine has the hardware for.
    """
    if any(result.outcome is Outcome.FAILED for result in results):
        return Verdict.REFUTED
    red_to_green = any(proves(result) for result in results)
    unavailable = any(unavailable_here(result, targets) for result in results)
    return Verdict.PROVED if red_to_green and not unavailable else Verdict.INCOMPLETE


#: Stages whose target is hardware that something ran on. `compile` has targets too, and
#: says nothing of the hardware.
ON_HARDWARE = frozenset({"reproduce", "numerics", "bench"})

#: Targets that every machine has.
HOST_TARGETS = frozenset({"any", "cpu"})


def open_targets(results: Sequence[StageResult]) -> list[str]:
    """Return the targets on which something was asked for and could not be told here.

    What could not be compiled or built for a target is `compile:gfx950`, `build:cuda`, and a
    bench that was too noisy is `bench:cpu`: what else ran on the target is another matter.
    """
    seen = dict.fromkeys(
        result.target
        if result.stage in ON_HARDWARE and not too_noisy(result)
        else f"{result.stage}:{result.target}"
        for result in results
        # `any` is no target: what fails there is this machine, not a lack of hardware.
        if result.outcome is Outcome.UNAVAILABLE and result.target != "any"
    )
    return list(seen)
