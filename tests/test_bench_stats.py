"""Intervals, verdicts and texts, on numbers that are given."""

from __future__ import annotations

import itertools
import math
import random
from functools import partial

import pytest

from contribbot.bench.child import kind_of
from contribbot.bench.verdict import (
    CaseInfo,
    CaseResult,
    Claim,
    Measurements,
    Spread,
    case_record,
    judge_case,
    spread,
)
from contribbot.cli.outcomes import detail_blocks
from contribbot.cli.render import lines_of
from contribbot.model.evidence import Outcome
from contribbot.model.record import MeasuredCase
from tests.records import seen

INFO = CaseInfo(name="case", bytes_moved=None, flops=None)


@pytest.mark.parametrize(
    ("count", "place", "confidence"),
    # From published tables of the sign test's interval for a median, e.g. n = 9: 2nd and 8th.
    [(6, 1, 0.96875), (9, 2, 0.9609375), (18, 5, 0.969), (20, 6, 0.9586), (27, 8, 0.981)],
)
def test_the_interval_is_the_binomial_one(count: int, place: int, confidence: float) -> None:
    values = [float(number) for number in range(1, count + 1)]
    random.Random(1).shuffle(values)  # noqa: S311  an order, no secret
    interval = spread(values)
    assert (interval.low, interval.high) == (place, count + 1 - place)
    assert interval.median == (count + 1) / 2
    assert interval.confidence == pytest.approx(confidence, abs=5e-4)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    generator = random.Random(7)  # noqa: S311  draws, no secret
    for draw, count, median, confidence in (
        # A lopsided distribution: the exponential's median is ln 2.
        (partial(generator.expovariate, 1), 9, 0.693147, 0.961),
        (partial(generator.lognormvariate, 0, 0.1), 6, 1.0, 0.969),
    ):
        draws = [spread([draw() for _ in range(count)]) for _ in range(4000)]
        held = sum(interval.low <= median <= interval.high for interval in draws) / len(draws)
        assert held == pytest.approx(confidence, abs=0.012)
    assert spread([3.0]) == Spread(3.0, 3.0, 3.0, 0.0)


def test_what_sessions_differ_by_is_in_the_interval_of_a_ratio() -> None:
    generator = random.Random(11)  # noqa: S311  draws, no secret

    def session(scatter: float) -> Spread:
        shift = generator.gauss(0, 0.0046)  # as one H200's sessions differ
        pairs = [math.exp(shift + generator.gauss(0, scatter)) for _ in range(6)]
        return spread(pairs).over_sessions()

    for scatter in (0.001, 0.005, 0.02):
        found = [session(scatter) for _ in range(2000)]
        held = sum(interval.is_noise for interval in found)
        touch = [a.low <= b.high and b.low <= a.high for a, b in itertools.pairwise(found)]
        assert held >= 0.95 * len(found)
        assert sum(touch) >= 0.95 * len(touch)
    assert str(Spread(2.0, 1.99, 2.0, 0.97).over_sessions()) == "2.000x (1.978 to 2.020)"


RATIOS = [0.93, 0.95, 0.97, 0.98, 0.99, 1.0, 1.01, 1.05, 1.3]
NOISY = "too noisy to tell: 0.949 to 1.051 against a claim of {} after 9 pairs of processes;"


@pytest.mark.parametrize(
    ("ratios", "at_least", "memory", "at_most", "verdict", "text"),
    [
        (RATIOS, 0.948, None, None, "passed", "0.990x (0.949 to 1.051, noise)"),
        (RATIOS, 0.95, None, None, "undecided", NOISY.format(0.95)),
        (RATIOS, 1.05, None, None, "undecided", NOISY.format(1.05)),
        (RATIOS, 1.06, None, None, "failed", "0.990x (0.949 to 1.051, noise) the base's speed"),
        ([2.0] * 9, 1.3, None, None, "passed", "2.000x (1.980 to 2.020)"),
        ([1.0] * 9, 0.9, (100, 200), 2.0, "passed", "1.000x"),
        ([1.0] * 9, 0.9, (100, 201), 2.0, "failed",
         "2.010 times the base's peak memory, and at most 2 is claimed"),
        ([1.0] * 9, 0.9, (0, 0), 1.0, "passed", "1.000x"),
        ([1.0] * 9, 0.9, (0, 1), 9.0, "failed", "inf times"),
    ],
)  # fmt: skip
def test_a_claim_is_judged_by_the_interval_and_by_peak_memory(
    *, ratios: list[float], at_least: float, memory: tuple[int, int] | None,
    at_most: float | None, verdict: str, text: str,
) -> None:  # fmt: skip
    case = CaseResult(INFO, Measurements([[ratio] for ratio in ratios]))
    case.patched.seconds = [[1.0]] * len(ratios)
    if memory:
        case.base.memory, case.patched.memory = memory
    judge_case(case, Claim(at_least, at_most, 9))
    assert str(case.verdict) == verdict
    assert case.text.startswith(text)


SAME = "1.000x (0.990 to 1.010, noise)"


@pytest.mark.parametrize(
    ("base", "patched", "at_least", "verdict", "said"),
    [
        # The GPU takes 5 us; what the host makes of it is 20 us, on one side or on both.
        (20e-6, 20e-6, 0.9, "passed", f"{SAME}; called as a program does, 1.000x"),
        (20e-6, 40e-6, 0.9, "failed", "called as a program does, 0.500x (0.495 to 0.505)"),
        (20e-6, 20.1e-6, 1.0, "undecided", "too noisy to tell"),
        (5e-6, 5e-6, 0.9, "passed", SAME),
    ],
)
def test_a_call_that_waits_for_the_host_is_judged_by_a_loss(
    base: float, patched: float, at_least: float, verdict: str, said: str
) -> None:
    case = CaseResult(INFO)
    for side, called in ((case.base, base), (case.patched, patched)):
        side.seconds, side.called = [[5e-6, 5e-6]] * 6, [[called, called]] * 6
    judge_case(case, Claim(at_least, None, 9))
    assert (str(case.verdict), case.text[: len(said)]) == (verdict, said)
    measured = case_record(case)
    assert isinstance(measured, MeasuredCase)
    assert bool(measured.called_ratio) is (base > 5e-6)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("CUDA error: an illegal memory access was encountered", "fault"),
        ("CUDA error: device-side assert triggered", "fault"),
        ("CUDA error: unspecified launch failure", "fault"),
        ("HIP error: invalid device function", "fault"),
        ("CUDA error: unknown error", "lost"),
        ("CUDA error: uncorrectable ECC error encountered", "lost"),
        ("CUDA driver error: device not ready", "lost"),
        ("CUDA error: out of memory", "memory"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "memory"),
        ("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory",
         "memory"),
        ("shapes do not match", "error"),
    ],
)  # fmt: skip
def test_what_a_runtime_says_is_told_apart(error: str, kind: str) -> None:
    assert kind_of(RuntimeError(error)) == kind


def test_the_real_out_of_memory_error_is_known() -> None:
    import torch

    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60, dtype=torch.uint8)
    assert kind_of(raised.value) == "memory"
    assert kind_of(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")) == "memory"


def test_the_table_says_what_was_measured() -> None:
    some = {"input_sets": 1, "rounds": [], "samples": 1}
    side = {"seconds": 9.15e-05, "low": 9.1e-05, "high": 9.2e-05, "peak_bytes": 2**20, **some}
    fast = {"seconds": 4.89e-05, "low": 4.8e-05, "high": 5e-05, "peak_bytes": 2**21,
            "bytes_per_second": 3.64e12, **some}  # fmt: skip
    ratio = {"median": 1.871, "low": 1.86, "high": 1.88, "noise": False, "confidence": 0.97}
    cases = [
        {"case": "bf16", "verdict": "passed", "text": "", "base": side, "patched": fast,
         "ratio": ratio, "rounds": 0, "pairs": []},
        {"case": "fp16", "verdict": "unavailable", "text": "not measured",
         "base": {"input_sets": 1}, "patched": {"input_sets": 1}},
    ]  # fmt: skip
    result = seen("bench", "cuda", Outcome.UNAVAILABLE, cases=cases)

    head, row, missing = lines_of(detail_blocks(result))

    assert " ".join(head.split()) == "case base patched speed (95 in 100) moved peak memory"
    assert " ".join(row.split()) == (
        "bf16 91.5 µs 48.9 µs 1.871 (1.860-1.880) 3,640 GB/s 1.0 -> 2.0 MiB"
    )
    assert missing == "fp16: not measured"
    assert detail_blocks(seen("reproduce")) == []
