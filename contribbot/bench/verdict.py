"""What a child answers, what was measured, and how it is judged against what a patch claims."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field

from contribbot.bench.results import ResultFinding
from contribbot.model.base import Line, Model

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]
#: A number of bytes or operations; any that can be divided.
Amount = Annotated[int, Field(gt=0, lt=2**63)]

#: Why a child could not do what it was asked.
#: `error`: the file or the tree's code raised. `memory`: there is not enough memory.
#: `fault`: the tree's code broke the GPU's context. `lost`: the GPU went away.
#: `missing`: the machine lacks something. `uncomparable`: the result cannot be compared.
RefusalKind = Literal["error", "memory", "fault", "lost", "missing", "uncomparable"]


class Refusal(Model):
    """The child could not do what it was asked; `error` is `ExceptionType: message`."""

    kind: RefusalKind
    error: str


class CaseInfo(Model):
    """A case as its file describes it."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    device: Literal["cpu", "cuda"]
    bytes_moved: Amount | None
    flops: Amount | None
    matmul: Literal["float16", "bfloat16", "float32", "float64"] | None
    #: Below 1: what is 0 lies within 1 of everything.
    rtol: Annotated[float, Field(ge=0, lt=1, strict=False)] | None = None
    atol: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)] | None = None
    not_compared: Annotated[Line, Field(max_length=200)] | Literal[""] = ""


class ListedCases(Model):
    """The file is imported: its cases, in its order."""

    cases: Annotated[tuple[CaseInfo, ...], Field(strict=False)]


class PreparedCase(Model):
    """A case has its inputs (so many sets, which take turns) and has run once.

    `memory` is the peak of a run in bytes on the device, without the inputs.
    """

    memory: Annotated[int, Field(ge=0)] | None
    sets: Annotated[int, Field(ge=1)]


class MeasuredRound(Model):
    """One round of one case: the median time of a call, over so many samples."""

    seconds: Positive
    samples: Annotated[int, Field(ge=1)]


class ComputedCase(Model):
    """A case has computed its results; `unlike` says how they differ when it does so again."""

    unlike: str


class ComparedResults(Model):
    """The base's side has compared its results with the patched tree's."""

    finding: Annotated[ResultFinding, Field(strict=False)]
    text: str


class Acknowledged(Model):
    """It is done, and there is nothing to say about it."""


class Ceilings(Model):
    """What this machine can do at best, measured on the spot.

    `copy_rate` is in bytes a second, read and written; `matmul_rate` in operations a second,
    by element type.
    """

    device: str
    copy_rate: Positive
    matmul_rate: dict[str, Positive]


#: How often the interval must hold the true median.
CONFIDENCE: Final = 0.95
#: Pairs of processes after which the claim is looked at, until it is decided. A claim that is
#: just missed passes at one look in forty at most, so at four in forty in all.
LOOKS: Final = (3, 6, 12, 18)
#: Student's t at that confidence, by the number of values.
_STUDENT: Final = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
#: Digits of a measured number that are kept; none is good to more.
_DIGITS: Final = 6


class CaseVerdict(enum.StrEnum):
    """What the measurements of one case say of the claim."""

    PASSED = "passed"
    FAILED = "failed"
    #: The claim lies inside the interval, or too little was measured for one.
    UNDECIDED = "undecided"
    #: It could not be measured on this machine.
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class Spread:
    """A median, and an interval that holds the true median with some confidence."""

    median: float
    low: float
    high: float
    confidence: float

    @property
    def is_noise(self) -> bool:
        """Whether a ratio's difference from 1 lies inside its own spread."""
        return self.low <= 1 <= self.high

    def __str__(self) -> str:
        noise = ", noise" if self.is_noise else ""
        return f"{number(self.median)}x ({number(self.low)} to {number(self.high)}{noise})"


@dataclass(frozen=True)
class Claim:
    """What a patch says of its speed, as `[[bench]]` states it."""

    at_least: float
    memory_at_most: float | None
    rounds: int

    @property
    def rounds_a_pair(self) -> int:
        """The rounds that each pair of processes measures."""
        return max(1, round(self.rounds / LOOKS[0]))


@dataclass
class Measurements:
    """What was measured of one case on one side."""

    #: The median time of a call, of each round of each process.
    seconds: list[list[float]] = field(default_factory=list)
    #: Over how many samples a round's median goes.
    samples: int = 0
    #: The peak of a call in bytes, without its inputs, of which so many sets took turns.
    memory: int | None = None
    sets: int = 1

    @property
    def time(self) -> Spread:
        """The time of a call, process by process."""
        return spread([statistics.median(rounds) for rounds in self.seconds])


@dataclass
class CaseResult:
    """One case: what was measured, what it says of the claim and why."""

    info: CaseInfo
    base: Measurements = field(default_factory=Measurements)
    patched: Measurements = field(default_factory=Measurements)
    results: ComparedResults | None = None
    verdict: CaseVerdict = CaseVerdict.UNDECIDED
    text: str = ""
    #: Whether the same again would say the same.
    lasting: bool = True

    @property
    def ratios(self) -> list[float]:
        """The base's time over the patched tree's, pair by pair; above 1 is faster."""
        return [
            short(statistics.median([b / p for b, p in zip(base, patched, strict=True)]))
            for base, patched in zip(self.base.seconds, self.patched.seconds, strict=True)
        ]

    @property
    def ratio(self) -> Spread | None:
        """The median of the ratios and its interval."""
        return spread(self.ratios) if self.patched.seconds else None

    @property
    def memory_ratio(self) -> float | None:
        """The patched tree's peak memory over the base's, where it was measured."""
        base, patched = self.base.memory, self.patched.memory
        if base is None or patched is None:
            return None
        if base == 0:
            return 1.0 if patched == 0 else math.inf
        return short(patched / base)

    def settle(self, verdict: CaseVerdict, text: str, *, lasting: bool = True) -> None:
        """Set the verdict and why."""
        self.verdict, self.text, self.lasting = verdict, text, lasting


def short(value: float) -> float:
    """Return a number as a record keeps it: what follows from it can be computed again."""
    return float(f"{value:.{_DIGITS}g}")


def number(value: float) -> str:
    """Return a ratio with three digits or more, so that 0.979 does not read 0.98."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"  # noqa: PLR2004  where two digits stand before the point


def spread(values: Sequence[float]) -> Spread:
    """Return the median and its confidence interval by order statistics.

    Fewer than six values give none: theirs is Student's, of the logarithms.

    Each value lies below the true median with probability 1/2, however the values are
    distributed (all they must be is independent). So the number of them that do is
    binomial, and the interval from the k-th smallest to the k-th largest misses the
    median with probability 2 P(Binomial(n, 1/2) < k). The largest k that keeps
    `CONFIDENCE` is taken; it exists from six values on. For nine it is the second.
    """
    ordered = sorted(values)
    count = len(ordered)
    if count in _STUDENT:
        logarithms = [math.log(value) for value in ordered]
        middle = math.exp(statistics.mean(logarithms))
        wide = math.exp(_STUDENT[count] * statistics.stdev(logarithms) / math.sqrt(count))
        return Spread(*map(short, (middle, middle / wide, middle * wide, CONFIDENCE)))
    depth = 1
    while depth < (count + 1) // 2 and _missed(count, depth + 1) <= 1 - CONFIDENCE:
        depth += 1
    confidence = 1 - _missed(count, depth)
    median, low, high = statistics.median(ordered), ordered[depth - 1], ordered[-depth]
    return Spread(*map(short, (median, low, high, confidence)))


def _missed(count: int, depth: int) -> float:
    """Return how often the interval between the depth-th values of both ends misses."""
    below: int = sum(math.comb(count, k) for k in range(depth))
    return min(1.0, 2 * below / math.ldexp(1, count))


def judge_results(case: CaseResult, unlike: tuple[str, str], compared: ComparedResults) -> None:
    """Judge what both sides computed; `unlike` says how each differs from its own first run.

    What is neither different nor useless stays to be measured.
    """
    case.results = compared
    if unlike[0]:
        case.settle(
            CaseVerdict.UNAVAILABLE,
            "run computes something else when it is called again on the base (it changes its"
            f" inputs, or draws random numbers of its own): {unlike[0]}",
        )
    elif compared.finding is ResultFinding.VACUOUS:
        case.settle(
            CaseVerdict.UNAVAILABLE,
            "run returns nothing that can be compared (None, or only 0 and NaN): return what it"
            " computes, or state `not_compared`",
        )
    elif text := (unlike[1] and f"called again, {unlike[1]}") or compared.text:
        advice = "if meant, state `rtol`, `atol` or `not_compared`"
        case.settle(
            CaseVerdict.FAILED, f"the patched tree computes something else: {text}; {advice}"
        )


def judge_case(case: CaseResult, claim: Claim) -> None:
    """Judge a case that was measured by at least one pair of processes."""
    ratio, at_least, at_most = case.ratio, claim.at_least, claim.memory_at_most
    assert ratio is not None  # noqa: S101  the caller has measured
    if ratio.low >= at_least:
        case.settle(CaseVerdict.PASSED, str(ratio))
    elif ratio.high < at_least:
        claimed = f"and at least {at_least:g} is claimed"
        case.settle(CaseVerdict.FAILED, f"{ratio} the base's speed, {claimed}")
    else:
        case.settle(
            CaseVerdict.UNDECIDED,
            f"too noisy to tell: {number(ratio.low)} to {number(ratio.high)} against a claim of "
            f"{at_least:g} after {len(case.ratios)} pairs of processes; "
            "run it again with nothing else running here, or raise `rounds`",
        )
    if at_most is None:
        return
    if case.memory_ratio is None:
        case.settle(CaseVerdict.FAILED, "memory_at_most: memory is measured on a GPU only")
        return
    peak = f"{number(case.memory_ratio)} times the base's peak memory"
    if case.memory_ratio > at_most:
        case.settle(CaseVerdict.FAILED, f"{peak}, and at most {at_most:g} is claimed")
    else:
        case.text += f"; {peak}"
