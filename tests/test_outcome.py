"""The verdict over outcomes, and what the shell is told."""

from __future__ import annotations

import pytest

from contribbot.bench.verdict import BenchResult, CaseInfo, CaseResult
from contribbot.model.evidence import Outcome, PatchReport, StageResult, Verdict
from contribbot.model.record import CaseVerdict
from contribbot.verify.pipeline import exit_code
from contribbot.verify.verdict import judge, open_targets, unmet, verdict_line
from tests.records import seen

INFO = CaseInfo(name="case", bytes_moved=None, flops=None)
HERE = frozenset({"any", "cpu"})
RED = seen("reproduce", red="5 == 6")
BENCH = seen("bench", outcome=Outcome.UNAVAILABLE, too_noisy=True)


def report(*stages: StageResult) -> PatchReport:
    return PatchReport(
        patch="area", upstream="toy", pin="v1.0", base_commit=None, patched_tree=None,
        verdict=judge(stages, HERE), stages=stages, open=tuple(open_targets(stages)),
    )  # fmt: skip


def test_a_bench_that_is_too_noisy_is_open_and_takes_nothing_away() -> None:
    told = report(RED, BENCH)
    assert (told.verdict, told.open) == (Verdict.PROVED, ("bench:cpu",))
    assert exit_code([told], []) == 0
    assert verdict_line(told) == (
        "area: proved on cpu: fails without the patch, passes with it; too noisy to tell: bench:cpu"
    )


def test_a_bench_that_is_too_noisy_proves_nothing() -> None:
    assert report(BENCH).verdict is Verdict.INCOMPLETE
    told = report(RED, BENCH)
    assert unmet(told, ["reproduce:cpu", "bench:cpu", "cpu"]) == ["bench:cpu", "cpu"]
    assert exit_code([told], ["bench:cpu"]) == 1


def test_red_to_green_proves_only_where_a_test_is_red_again_without_the_change() -> None:
    assert report(RED).verdict is Verdict.PROVED
    assert report(seen("reproduce", red="5 == 6", proof=False)).verdict is Verdict.INCOMPLETE


def test_why_nothing_was_proved_is_in_the_verdict() -> None:
    lacking = seen(
        "reproduce", "gfx942", Outcome.UNAVAILABLE,
        label="gpu", reason="gpu: no gfx942 on this machine",
    )  # fmt: skip
    other = lacking.model_copy(update={"target": "gfx950", "reason": "gpu: no gfx950 on this"})
    said = "area: incomplete: nothing could be proved here: no gfx942 on this machine"
    assert verdict_line(report(lacking)).startswith(f"{said}; could not run: ")
    assert verdict_line(report(lacking, other, BENCH)).startswith(f"{said} (and 1 more); ")
    said = "area: incomplete: what ran here passed and does not prove the patch alone: no gfx942 "
    assert verdict_line(report(seen("reproduce"), lacking)).startswith(said)


def test_a_target_on_which_a_check_passed_is_not_called_not_run() -> None:
    lacking = seen("numerics", outcome=Outcome.UNAVAILABLE, reason="no module scipy")
    line = verdict_line(report(seen("reproduce"), lacking))
    assert "could not run: numerics" in line
    assert "not run: cpu" not in line


@pytest.mark.parametrize(
    "other",
    [
        seen("bench", outcome=Outcome.UNAVAILABLE),
        seen("reproduce", outcome=Outcome.UNAVAILABLE),
    ],
)
def test_what_is_unavailable_for_another_reason_still_counts(other: StageResult) -> None:
    told = report(RED, other)
    assert (told.verdict, told.open) == (Verdict.INCOMPLETE, ("cpu",))
    assert exit_code([told], []) == 3


@pytest.mark.parametrize(
    ("verdicts", "trouble", "noisy"),
    [
        ("passed undecided", "", True),
        ("undecided", "", True),
        ("undecided", "the child is gone", False),
        ("undecided unavailable", "", False),
        ("undecided failed", "", False),
        ("passed", "", False),
        ("", "", False),
    ],
)
def test_only_measured_cases_are_noisy(verdicts: str, trouble: str, *, noisy: bool) -> None:
    cases = [CaseResult(INFO, verdict=CaseVerdict(word)) for word in verdicts.split()]
    assert BenchResult(cases=cases, trouble=trouble).too_noisy is noisy
