"""Judging what was measured against what a patch claims."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Final

from contribbot.bench.stats import Spread, spread
from contribbot.bench.wire import CaseInfo

#: How often a claim that the first rounds do not decide is looked at: each time with as many
#: rounds more. A claim that is just missed passes at one look in forty at most, so at three
#: in forty in all.
LOOKS: Final = 3


class Verdict(enum.StrEnum):
    """What the measurements of one case say of the claim."""

    PASSED = "passed"
    FAILED = "failed"
    #: The claim lies inside the interval.
    UNDECIDED = "undecided"
    #: It could not be measured on this machine.
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class Claim:
    """What a patch says of its speed.

    Attributes:
        at_least: What the base's time divided by the patched tree's must reach.
        memory_at_most: What the patched tree's peak memory divided by the base's may
            reach; None: nothing is claimed.
        rounds: Pairs of measurements at first.
    """

    at_least: float
    memory_at_most: float | None
    rounds: int


@dataclass
class Measurements:
    """What was measured of one case on one side.

    Attributes:
        seconds: The median time of a call, of each round.
        samples: Over how many samples a round's median goes; of the last round.
        memory: Bytes at the peak of a call without its inputs, or None.
        sets: Sets of inputs that took turns.
    """

    seconds: list[float] = field(default_factory=list)
    samples: int = 0
    memory: int | None = None
    sets: int = 1


@dataclass
class CaseResult:
    """One case: what was measured, and what it says of the claim.

    Attributes:
        info: The case.
        base: The base's side.
        patched: The patched tree's side.
        verdict: What it comes to.
        text: One line that says why.
        lasting: Whether the same again would say the same.
    """

    info: CaseInfo
    base: Measurements = field(default_factory=Measurements)
    patched: Measurements = field(default_factory=Measurements)
    verdict: Verdict = Verdict.UNAVAILABLE
    text: str = "not measured"
    lasting: bool = True

    @property
    def ratio(self) -> Spread | None:
        """The base's time over the patched tree's, round by round; above 1 is faster."""
        pairs = list(zip(self.base.seconds, self.patched.seconds, strict=False))
        return spread([base / patched for base, patched in pairs]) if pairs else None

    @property
    def memory_ratio(self) -> float | None:
        """The patched tree's peak memory over the base's, where it was measured."""
        base, patched = self.base.memory, self.patched.memory
        if base is None or patched is None:
            return None
        if base == 0:
            return 1.0 if patched == 0 else math.inf
        return patched / base


def judge_case(case: CaseResult, claim: Claim) -> None:
    """Set verdict and text of a case that was measured.

    Args:
        case: The case, with at least one round on both sides.
        claim: What was claimed.
    """
    ratio = case.ratio
    assert ratio is not None  # noqa: S101  the caller has measured
    case.lasting = True
    case.verdict, case.text = _speed(ratio, len(case.patched.seconds), claim.at_least)
    if claim.memory_at_most is None:
        return
    memory, text = _memory(case.memory_ratio, claim.memory_at_most)
    if memory is Verdict.FAILED:
        case.verdict, case.text = memory, text
    else:
        case.text += f"; {text}"


def _speed(ratio: Spread, rounds: int, at_least: float) -> tuple[Verdict, str]:
    shown = ratio_text(ratio)
    if ratio.low >= at_least:
        return Verdict.PASSED, shown
    if ratio.high < at_least:
        return Verdict.FAILED, f"{shown} the base's speed, and at least {at_least:g} is claimed"
    return Verdict.UNDECIDED, (
        f"too noisy to tell: {number(ratio.low)} to {number(ratio.high)} against a claim of "
        f"{at_least:g} after {rounds} rounds; "
        "run it again with nothing else running here, or raise `rounds`"
    )


def _memory(ratio: float | None, at_most: float) -> tuple[Verdict, str]:
    if ratio is None:
        return Verdict.FAILED, "memory_at_most: memory is measured on a GPU only"
    shown = f"{number(ratio)} times the base's peak memory"
    if ratio <= at_most:
        return Verdict.PASSED, shown
    return Verdict.FAILED, f"{shown}, and at most {at_most:g} is claimed"


def is_noise(ratio: Spread) -> bool:
    """Say whether a difference lies inside its own spread."""
    return ratio.low <= 1 <= ratio.high


def ratio_text(ratio: Spread) -> str:
    """Return a ratio with its interval as text, such as `1.39x (1.38 to 1.40)`."""
    noise = ", noise" if is_noise(ratio) else ""
    return f"{number(ratio.median)}x ({number(ratio.low)} to {number(ratio.high)}{noise})"


def number(value: float) -> str:
    """Return a ratio with three digits or more, so that 0.979 does not read 0.98."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"  # noqa: PLR2004  where two digits stand before the point
