"""Judge the measurements of a bench by the patch's claim, and write them as a record."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal

from pydantic import Field

from contribbot.model.base import Model
from contribbot.model.evidence import Outcome
from contribbot.model.record import (
    BenchCase,
    CaseSide,
    CaseVerdict,
    MeasuredCase,
    MeasuredSide,
    Ratio,
)

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]
#: A positive number of bytes or operations.
Amount = Annotated[int, Field(gt=0, lt=2**63)]


class CaseInfo(Model):
    """A case as its bench file describes it."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    bytes_moved: Amount | None
    flops: Amount | None
    graph: bool = False


#: How the results on both trees compare; `inputs`: `run` returns only its inputs.
Results = Literal["alike", "different", "inputs"]
_COMPARED: Final[dict[Results, str]] = {
    "alike": "with the same results",
    "different": "but the results differ, so it proves nothing alone",
    "inputs": "but `run` returns no result to compare, so it proves nothing alone",
}
#: The probability with which the interval must contain the true median.
CONFIDENCE: Final = 0.95
#: Numbers of pairs of processes after which the claim is judged, until it is decided. Fewer than
#: six pairs have no interval by order statistics. Judging up to three times adds at most 2 wrong
#: decisions in 100, when pairs scatter as widely as the claim is far from the truth.
LOOKS: Final = (6, 12, 18)
#: How much a ratio differs between sessions on one machine (clocks, heat, other memory), beyond
#: the scatter within a session: twice the standard deviation, which was 0.0046 and 0.0041 over 31
#: and 48 cases that one H200 measured again hours later.
SESSIONS: Final = 0.01
#: `called` is shown if a call with host time takes more than this many times the GPU's time.
_SLOWER: Final = 1.1
#: The number of significant digits that a record keeps of a measured number.
_DIGITS: Final = 6


@dataclass(frozen=True)
class Spread:
    """A median, and an interval that contains the true median with a given confidence."""

    median: float
    low: float
    high: float
    confidence: float

    @property
    def is_noise(self) -> bool:
        """Whether the interval of a ratio contains 1."""
        return self.low <= 1 <= self.high

    def over_sessions(self) -> Spread:
        """Return the spread of ratios, widened by `SESSIONS` for runs at other times."""
        down, up = (
            math.exp(math.hypot(math.log(self.median / end), SESSIONS))
            for end in (self.low, self.high)
        )
        low, high = short(self.median / down), short(self.median * up)
        return replace(self, low=low, high=high)

    def __str__(self) -> str:
        noise = ", noise" if self.is_noise else ""
        return f"{number(self.median)}x ({number(self.low)} to {number(self.high)}{noise})"


@dataclass(frozen=True)
class Claim:
    """The speed and memory that a patch claims in `[[bench]]`."""

    at_least: float
    memory_at_most: float | None
    rounds: int


@dataclass
class Measurements:
    """The measurements of one case on one tree."""

    #: For each process, the median seconds of a call in each round.
    seconds: list[list[float]] = field(default_factory=list)
    #: For each process, a short call's seconds in a series on a GPU, host time included.
    called: list[list[float]] = field(default_factory=list)
    #: The number of samples in a round.
    samples: int = 0
    #: A call's peak memory in bytes, without inputs; and the number of sets of inputs.
    memory: int | None = None
    sets: int = 1


@dataclass
class CaseResult:
    """A case with its measurements, the verdict on the claim, and the reason."""

    info: CaseInfo
    base: Measurements = field(default_factory=Measurements)
    patched: Measurements = field(default_factory=Measurements)
    verdict: CaseVerdict = CaseVerdict.UNDECIDED
    text: str = ""
    results: Results = "different"  # compared only if the patch claims a gain
    #: Whether another run would give the same verdict.
    lasting: bool = True
    #: The error messages of failed requests.
    errors: list[str] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """For each pair, the base's time divided by the patched tree's time; above 1: faster."""
        return pair_ratios(self.base.seconds, self.patched.seconds)

    @property
    def ratio(self) -> Spread | None:
        """The median ratio with an interval that allows for other sessions; None: not measured."""
        return spread(self.ratios).over_sessions() if self.patched.seconds else None

    @property
    def called(self) -> Spread | None:
        """The ratio with host time, if host time makes a tree `_SLOWER` times slower; else None."""
        slower = [
            statistics.median(itertools.chain(*side.called))
            > _SLOWER * statistics.median(itertools.chain(*side.seconds))
            for side in (self.base, self.patched)
            if all(side.called) and side.called
        ]
        if len(slower) < 2 or not any(slower):  # noqa: PLR2004  both sides
            return None
        return spread(pair_ratios(self.base.called, self.patched.called)).over_sessions()

    @property
    def memory_ratio(self) -> float | None:
        """The patched tree's peak memory divided by the base's; None: not measured."""
        base, patched = self.base.memory, self.patched.memory
        if base is None or patched is None:
            return None
        if base == 0:
            return 1.0 if patched == 0 else math.inf
        return short(patched / base)

    def settle(self, verdict: CaseVerdict, text: str, *, lasting: bool = True) -> None:
        """Set the verdict, the reason, and whether another run would give the same verdict."""
        self.verdict, self.text, self.lasting = verdict, text, lasting


@dataclass
class BenchResult:
    """The results of a bench's cases, and the trouble that ended the bench early, if any."""

    cases: list[CaseResult] = field(default_factory=list)
    unmeasured: int = 0
    #: Why the bench as a whole stopped, the verdict for that reason, and whether another run
    #: would stop for the same reason.
    trouble: str = ""
    verdict: CaseVerdict = CaseVerdict.FAILED
    lasting: bool = True
    #: Whether a child process did not answer in time.
    hung: bool = False
    #: The error messages that stopped the bench.
    errors: list[str] = field(default_factory=list)

    @property
    def results(self) -> Results:
        """`alike` if each case has alike results on both trees, else the first other word."""
        return next((each.results for each in self.cases if each.results != "alike"), "alike")

    @property
    def words(self) -> list[str]:
        """All error messages of the bench and its cases."""
        return [*self.errors, *itertools.chain(*(case.errors for case in self.cases))]

    def of(self, *verdicts: CaseVerdict) -> list[CaseResult]:
        """Return the cases that have one of the verdicts."""
        return [case for case in self.cases if case.verdict in verdicts]

    @property
    def too_noisy(self) -> bool:
        """Whether all cases were measured, none failed, and one or more are undecided."""
        tell = self.of(CaseVerdict.PASSED, CaseVerdict.UNDECIDED)
        return not self.trouble and tell == self.cases and bool(self.of(CaseVerdict.UNDECIDED))


def short(value: float) -> float:
    """Return a number rounded to the six significant digits that a record keeps."""
    return float(f"{value:.{_DIGITS}g}")


def number(value: float) -> str:
    """Return a ratio as text: three decimal places below 10, else one."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"  # noqa: PLR2004  where two digits stand before the point


def pair_ratios(base: Sequence[Sequence[float]], patched: Sequence[Sequence[float]]) -> list[float]:
    """Return, for each pair, the median of the ratios of its rounds."""
    return [
        short(statistics.median([b / p for b, p in zip(*pair, strict=True)]))
        for pair in zip(base, patched, strict=True)
    ]


def spread(values: Sequence[float]) -> Spread:
    """Return the median of some values and its confidence interval by order statistics.

    If the values are independent, each lies below the true median with probability 1/2,
    whatever their distribution. So the number of values below the median is
    binomial, and the interval from the k-th smallest to the k-th largest misses the
    median with probability 2 P(Binomial(n, 1/2) < k). The largest k that keeps `CONFIDENCE`
    is taken, or 1 for fewer than six values, which keep less. For nine values, k is 2.
    """
    ordered = sorted(values)
    count = len(ordered)

    def missed(depth: int) -> float:
        below: int = sum(math.comb(count, k) for k in range(depth))
        return min(1.0, 2 * below / math.ldexp(1, count))

    deeper = (k for k in range(2, (count + 1) // 2 + 1) if missed(k) <= 1 - CONFIDENCE)
    depth = max(deeper, default=1)
    median, low, high = statistics.median(ordered), ordered[depth - 1], ordered[-depth]
    return Spread(*map(short, (median, low, high, 1 - missed(depth))))


def judge_case(case: CaseResult, claim: Claim) -> None:
    """Set the verdict of a case that one or more pairs of processes have measured."""
    ratio, at_least, at_most = case.ratio, claim.at_least, claim.memory_at_most
    assert ratio is not None  # noqa: S101  the caller has measured
    if ratio.low >= at_least:
        case.settle(CaseVerdict.PASSED, str(ratio))
    elif ratio.high < at_least:
        case.settle(CaseVerdict.FAILED, f"{ratio} the base's speed, {_claimed(at_least)}")
    else:
        case.settle(
            CaseVerdict.UNDECIDED,
            f"too noisy to tell: {number(ratio.low)} to {number(ratio.high)} against a claim of "
            f"{at_least:g} after {len(case.ratios)} pairs of processes; "
            "run it again with nothing else running here, or raise `rounds`",
        )
    if called := case.called:
        said = f"called as a program does, {called}"
        # With host time, a gain on the GPU may vanish: only a loss breaks the claim.
        if called.high < min(at_least, 1):
            case.settle(CaseVerdict.FAILED, f"{said} the base's speed, {_claimed(at_least)}")
        else:
            case.text += f"; {said}"
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


def _claimed(at_least: float) -> str:
    return f"and at least {at_least:g} is claimed"


def conclude(result: BenchResult, claim: Claim) -> tuple[Outcome, str, bool]:
    """Return a bench's outcome, the reason, and whether another run would end the same way."""
    failed = result.of(CaseVerdict.FAILED)
    lasting = result.lasting and all(case.lasting for case in failed)
    if result.trouble and (result.verdict is CaseVerdict.FAILED or not failed):
        more = f" ({_cases(result.unmeasured)} not measured)" if result.unmeasured else ""
        broken = result.verdict is CaseVerdict.FAILED
        outcome = Outcome.FAILED if broken else Outcome.UNAVAILABLE
        return outcome, result.trouble + more, lasting and broken
    unclear = [*result.of(CaseVerdict.UNAVAILABLE), *result.of(CaseVerdict.UNDECIDED)]
    if failed or unclear:
        first, *others = failed or unclear
        more = f" (and {_cases(len(others))} more)" if others else ""
        outcome = Outcome.FAILED if failed else Outcome.UNAVAILABLE
        return outcome, f"{first.info.name}: {first.text}{more}", bool(failed) and lasting
    passed = result.of(CaseVerdict.PASSED)
    ratios = [case.ratio for case in passed if case.ratio is not None]
    medians = [number(ratio.median) for ratio in sorted(ratios, key=lambda ratio: ratio.median)]
    noise = ", all of it noise" if all(ratio.is_noise for ratio in ratios) else ""
    speed = f"{medians[0]}x to {medians[-1]}x the base's speed{noise}"
    if len(ratios) == 1:
        speed = f"{ratios[0]} the base's speed"
    if called := sorted(case.called.median for case in passed if case.called):
        ends = f"{number(called[0])}x to {number(called[-1])}x"
        speed += f" on the GPU, {ends} called as a program does"
    claimed = f"at least {claim.at_least:g} is claimed"
    if claim.at_least > 1:
        claimed += f", {_COMPARED[result.results]}"
    return Outcome.PASSED, f"{_cases(len(ratios))}: {speed}; {claimed}", True


def _cases(count: int) -> str:
    return f"{count} case{'s' if count != 1 else ''}"


def case_record(case: CaseResult) -> BenchCase:
    """Return the record of a case: seconds, bytes, rates and ratios."""
    info, ratio, called = case.info, case.ratio, case.called
    facts: dict[str, object] = {"case": info.name, **info.model_dump(exclude={"name"})}
    facts |= {"verdict": case.verdict, "text": case.text}
    side_of = _unmeasured if ratio is None else _measured
    facts |= {"base": side_of(case.base, info), "patched": side_of(case.patched, info)}
    if ratio is None:
        return BenchCase.model_validate(facts)
    facts |= {
        "rounds": sum(map(len, case.patched.seconds)),
        "pairs": tuple(case.ratios),
        "ratio": _ratio(ratio),
        "called_ratio": _ratio(called) if called is not None else None,
        "memory_ratio": case.memory_ratio if case.base.memory else None,
    }
    return MeasuredCase.model_validate(facts)


def _ratio(spread: Spread) -> Ratio:
    return Ratio(**vars(spread), noise=spread.is_noise)


def _unmeasured(side: Measurements, _info: CaseInfo) -> CaseSide:
    return CaseSide(peak_bytes=side.memory, input_sets=side.sets)


def _measured(side: Measurements, info: CaseInfo) -> MeasuredSide:
    # For each process, the median seconds of a call.
    time = spread([statistics.median(rounds) for rounds in side.seconds])
    called = [*itertools.chain(*side.called)]
    return MeasuredSide(
        **dict(_unmeasured(side, info)),
        seconds=time.median,
        low=time.low,
        high=time.high,
        rounds=tuple(itertools.chain(*side.seconds)),
        samples=side.samples,
        called_seconds=short(statistics.median(called)) if called else None,
        bytes_per_second=short(info.bytes_moved / time.median) if info.bytes_moved else None,
        flops_per_second=short(info.flops / time.median) if info.flops else None,
    )
