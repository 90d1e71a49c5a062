"""What runs, builds and patches come to, judged as data; tests/test_verify.py runs one of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contribbot import process
from contribbot.bench.verdict import BenchResult, CaseInfo, CaseResult
from contribbot.model.checks import Build, Check
from contribbot.model.evidence import Outcome, PatchReport, StageResult, Verdict
from contribbot.model.failure import RunFailure
from contribbot.model.record import CaseVerdict
from contribbot.verify.pipeline import exit_code
from contribbot.verify.pytest_plugin import why_broken
from contribbot.verify.pytest_run import CheckRun, FailedTest, Scrub, read_report
from contribbot.verify.stages.build import BuildSide, judge_build
from contribbot.verify.stages.reproduce import reason_of
from contribbot.verify.verdict import (
    Cause,
    Judgement,
    RunSide,
    decide,
    judge,
    judge_sides,
    open_targets,
    sentence,
    unmet,
    verdict_line,
)
from tests.records import seen
from tests.tools import small_disk

CHECK = Check(name="red", file="test_red.py", expect="fail-to-pass", reason="^AssertionError")
SAME = Check(name="same", file="test_same.py", expect="pass-to-pass")
ONE, TWO = "t.py::one", "t.py::two"
OWN = RunFailure.OWN_IMPORT
MEMORY, DEVICE = RunFailure.NO_MEMORY, RunFailure.NOT_VISIBLE
REASON = "AssertionError: assert 5 == 6"


def red(message: str = REASON, kind: RunFailure | None = None) -> CheckRun:
    failure = FailedTest(ONE, "call", message, kind)
    return CheckRun(failed=[failure], status=1)


def green(*tests: str, **more: list[str] | int) -> CheckRun:
    run = CheckRun(passed=list(tests or [ONE]), status=0)
    for name, value in more.items():
        setattr(run, name, value)
    return run


def ended(kind: RunFailure, *, seconds: float = 1.0) -> CheckRun:
    return CheckRun(kind=kind, trouble=str(kind), seconds=seconds, limit=120.0)


@pytest.mark.parametrize(
    ("check", "base", "patched", "again", "cause"),
    [
        (CHECK, red(), green(), red(), Cause.NO_STATEMENT),
        (SAME, green(), green(), None, Cause.GREEN_ON_BOTH),
        # The claim was tested, and is false.
        (CHECK, green(), green(), green(), Cause.PASSES_BASE),
        (CHECK, red("Zero: 1"), green(), red("Zero: 1"), Cause.OTHER_REASON),
        (CHECK, red(), red(), red(), Cause.FAILS_PATCHED),
        (SAME, green(), red(), red(), Cause.FAILS_PATCHED),
        (SAME, red(), green(), red(), Cause.FAILS_BASE),
        (CHECK, red(), ended(RunFailure.CRASHED), ended(RunFailure.CRASHED), Cause.DIES_PATCHED),
        (CHECK, red(), ended(RunFailure.FIXTURE), ended(RunFailure.FIXTURE), Cause.DIES_PATCHED),
        (SAME, green(), ended(RunFailure.TIMED_OUT), None, Cause.DIES_PATCHED),
        (SAME, green(), red(kind=OWN), red(kind=OWN), Cause.FAILS_PATCHED),
        (SAME, green(), ended(OWN), ended(OWN), Cause.DIES_PATCHED),
        (SAME, green(), red("MemoryError: ", kind=MEMORY), None, Cause.DIES_PATCHED),
        (SAME, green(), red("no device", kind=DEVICE), None, Cause.DIES_PATCHED),
        # The check is broken.
        (CHECK, red(kind=RunFailure.MISTAKE), green(), None, Cause.BROKEN),
        (CHECK, red(), red(kind=RunFailure.MISTAKE), None, Cause.BROKEN),
        (SAME, red(kind=RunFailure.MISTAKE), green(), None, Cause.BROKEN),
        (CHECK, ended(RunFailure.EMPTY), green(), None, Cause.BROKEN),
        (CHECK, red(), ended(RunFailure.EMPTY), None, Cause.BROKEN),
        (CHECK, red(), ended(RunFailure.MISTAKE), None, Cause.BROKEN),
        (CHECK, red(), ended(RunFailure.IMPORTS), None, Cause.BROKEN),
        (CHECK, red(kind=OWN), green(), None, Cause.BROKEN),
        (CHECK, ended(OWN), green(), None, Cause.BROKEN),
        (SAME, green(), red(kind=RunFailure.NETWORK), None, Cause.BROKEN),
        (CHECK, red(), ended(RunFailure.STOPPED), None, Cause.BROKEN),
        (CHECK, red(), green(status=3), None, Cause.BROKEN),
        (CHECK, ended(RunFailure.FIXTURE), ended(RunFailure.FIXTURE), None, Cause.BROKEN),
        (CHECK, red(), green(ONE, TWO), None, Cause.DIFFERENT),
        (SAME, green(ONE, TWO), green(ONE), None, Cause.DIFFERENT),
        (SAME, green(ONE, TWO), green(ONE, skipped=[TWO]), None, Cause.SKIPPED),
        (CHECK, red(), green(partly=[ONE]), None, Cause.SKIPPED),
        (CHECK, red(), green(), green(), Cause.FLAKY),
        (CHECK, red(), green(), ended(RunFailure.CRASHED), Cause.FLAKY),
        (CHECK, red(), green(), red(kind=RunFailure.MISTAKE), Cause.FLAKY),
        (CHECK, red(), green(), red("Zero: 1"), Cause.FLAKY),
        (CHECK, red("Zero: 1"), green(), red(), Cause.FLAKY),
        (SAME, green(), red(), green(), Cause.FLAKY),
        (SAME, red(), green(), green(), Cause.FLAKY),
        (CHECK, green(), green(), red(), Cause.FLAKY),
        (CHECK, red(), ended(RunFailure.CRASHED), green(), Cause.FLAKY),
        # It could not be tested here.
        (CHECK, ended(RunFailure.CRASHED), ended(RunFailure.CRASHED), None, Cause.BROKEN),
        (CHECK, ended(RunFailure.CRASHED), green(), None, Cause.BROKEN),
        (CHECK, red(), ended(RunFailure.MEDDLED), None, Cause.BROKEN),
        (SAME, green(seconds=20), ended(RunFailure.TIMED_OUT, seconds=120), None, Cause.BROKEN),
        # A base that fails is no yardstick for the patched tree.
        (CHECK, red(), ended(RunFailure.TIMED_OUT), None, Cause.BROKEN),
        (CHECK, red(), ended(RunFailure.NO_MEMORY), None, Cause.MACHINE),
        (CHECK, red(), red("MemoryError: ", kind=MEMORY), None, Cause.MACHINE),
        (CHECK, red(), red("no device", kind=DEVICE), None, Cause.MACHINE),
        (CHECK, red("MemoryError: ", kind=MEMORY), green(), None, Cause.MACHINE),
        (CHECK, red("no device", kind=DEVICE), green(), None, Cause.MACHINE),
    ],
)
def test_a_check(
    check: Check, base: CheckRun, patched: CheckRun, again: CheckRun | None, cause: Cause
) -> None:
    assert decided(check, base, patched, again).cause is cause


def decided(
    check: Check, base: CheckRun, patched: CheckRun, again: CheckRun | None = None,
    without: CheckRun | None = None,
) -> Judgement:  # fmt: skip
    """Return what some runs come to: `again` is what each side does that is run again."""
    runs = {RunSide.BASE: [base], RunSide.PATCHED: [patched]}
    if without is not None:
        runs[RunSide.WITHOUT_CHANGE] = []
    red = judge_sides(check, base, patched).cause is Cause.RED_TO_GREEN
    while isinstance(said := decide(check, runs), RunSide):
        if said is RunSide.WITHOUT_CHANGE:
            runs[said].append(without or base)
        elif red:
            runs[said].append((again or base) if said is RunSide.BASE else patched)
        else:
            assert again is not None, f"{said} would have to run again"
            runs[said].append(again)
    return said


@pytest.mark.parametrize(
    ("without", "again", "cause"),
    [
        # The red comes back: the base need not run again.
        (red(), None, Cause.RED_TO_GREEN),
        (red("AssertionError: assert 4 == 6"), None, Cause.RED_TO_GREEN),
        # It does not: the check needs the text, a name or a signature.
        (green(), red(), Cause.BY_TEXT),
        (red("TypeError: none"), red(), Cause.BY_NAME),
        (red(kind=RunFailure.MISTAKE), red(), Cause.BY_NAME),
        (ended(RunFailure.MISTAKE), red(), Cause.NOT_ALONE),
        (None, red(), Cause.NO_STATEMENT),
    ],
)
def test_a_red_comes_back(without: CheckRun | None, again: CheckRun | None, cause: Cause) -> None:
    judgement = decided(CHECK, red(), green(), again, without)
    assert (judgement.cause, judgement.proof) == (cause, cause is Cause.RED_TO_GREEN)
    assert judgement.outcome is Outcome.PASSED


def test_a_patched_tree_that_differs_from_run_to_run_is_flaky() -> None:
    runs = {RunSide.BASE: [red()], RunSide.PATCHED: [green(), red()]}
    said = decide(CHECK, runs)
    assert isinstance(said, Judgement)
    assert (said.cause, said.side) == (Cause.FLAKY, RunSide.PATCHED)


def test_what_a_cause_stands_for() -> None:
    outcomes = {cause: Judgement(cause).outcome for cause in Cause}
    assert {cause for cause, outcome in outcomes.items() if outcome is Outcome.PASSED} == {
        Cause.RED_TO_GREEN, Cause.GREEN_ON_BOTH, Cause.BY_TEXT, Cause.BY_NAME,
        Cause.NO_STATEMENT, Cause.NOT_ALONE, Cause.NEW_KERNEL, Cause.REPRODUCED,
        Cause.NOT_REPRODUCED,
    }  # fmt: skip
    assert {cause for cause, outcome in outcomes.items() if outcome is Outcome.FAILED} == {
        Cause.FAILS_PATCHED, Cause.DIES_PATCHED, Cause.FAILS_BASE, Cause.PASSES_BASE,
        Cause.OTHER_REASON,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("base", "patched", "said"),
    [
        (red(), green(), "1 test: fail on the base as stated, pass on the patched tree"),
        (green(ONE, TWO), green(), f"passes on the base, so it shows nothing: {ONE} (and 1 more)"),
        (red(kind=RunFailure.MISTAKE), green(), (
            f"the check is broken on the base: {ONE}: {REASON}; if the tree raises "
            "AssertionError and that is the bug, name AssertionError in `reason`")),
        (red("E: 1"), green(), (
            f"fails on the base for another reason than stated: {ONE}: E: 1; stated is "
            f"{CHECK.reason} (if what is seen is the fault, correct `reason`, else the check)")),
        (red(), red("E: " + 400 * "x"), f"fails on the patched tree: {ONE}: E: {297 * 'x'}…"),
        (red(), ended(RunFailure.CRASHED), "on the patched tree: crashed"),
    ],
)  # fmt: skip
def test_what_is_said_of_it(base: CheckRun, patched: CheckRun, said: str) -> None:
    assert sentence(judge_sides(CHECK, base, patched)) == said


def reported(folder: Path, output: bytes, *events: dict[str, object], code: int = 1) -> CheckRun:
    report = folder / "report.jsonl"
    report.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    done = process.Supervised(
        code, timed_out=False, flooded=False, starved=False, output=output, seconds=1
    )
    return read_report(report, done, limit=60, scrub=Scrub(folder, folder))


PASSED: dict[str, object] = {"ended": [ONE, "passed"]}
SKIPPED: dict[str, object] = {"ended": [ONE, "skipped"]}


def failed(when: str, message: str = "fixture 'x' not found") -> dict[str, object]:
    return {"ended": [ONE, "failed"], "failed": {"test": ONE, "when": when, "message": message}}


LACKING = {"uncollected": {"test": "t.py", "when": "collect", "message": "ImportError: no x\nno y"}}


@pytest.mark.parametrize(
    ("events", "status", "kind", "detail"),
    [
        ([failed("setup")], 1, RunFailure.FIXTURE,
         f"error in setup of {ONE}: fixture 'x' not found"),
        ([failed("teardown")], 1, RunFailure.FIXTURE,
         f"error in teardown of {ONE}: fixture 'x' not found"),
        ([SKIPPED], 0, RunFailure.EMPTY, "executed no test (1 skipped)"),
        ([], 5, RunFailure.EMPTY, "executed no test"),
        ([{"collected": [ONE]}], 1, RunFailure.STOPPED, f"stopped before {ONE} had run"),
        ([PASSED], 2, RunFailure.STOPPED, "its session was stopped"),
        ([LACKING], 2, RunFailure.MISTAKE, "could not be collected: ImportError: no x"),
        ([PASSED], 3, RunFailure.CRASHED, "ended early with exit status 3"),
        ([PASSED, {"no such": 1}], 0, RunFailure.CRASHED, "ended early with exit status 0"),
        ([failed("call")], 1, None, ""),
    ],
)  # fmt: skip
def test_a_report(
    tmp_path: Path,
    events: list[dict[str, object]],
    status: int,
    kind: RunFailure | None,
    detail: str,
) -> None:
    run = reported(tmp_path, b"", *events, {"status": status}, code=status)
    assert (run.kind, run.trouble) == (kind, detail)


def test_a_report_beyond_all_measure_is_not_read(tmp_path: Path) -> None:
    run = reported(tmp_path, b"", {"text": "x" * (65 << 20)})
    assert (run.kind, run.trouble) == (RunFailure.MEDDLED, "reported too much")


FULL = b"OSError: [Errno 28] No space left on device"


def test_a_disk_is_full_where_writing_fails_or_the_check_did(tmp_path: Path) -> None:
    end: dict[str, object] = {"status": 1}
    other = failed("call", "AssertionError: 5")
    # A check may print such words and mean nothing by it.
    assert reported(tmp_path, FULL, other, end).trouble == ""
    # What the test was ended by, or what ended before it could say so.
    for events in ((failed("call", FULL.decode()), end), (other,), ()):
        assert reported(tmp_path, FULL, *events).trouble == "the disk is full"
    with small_disk(tmp_path / "disk", "size=1m") as folder:
        assert reported(folder, FULL, other, end).trouble == "the disk is full"
        assert reported(folder, b"", other, end).trouble == ""


def test_what_installs_a_missing_module_is_said_where_it_is_known() -> None:
    broken = Judgement(Cause.BROKEN, "base", "No module named 'expecttest'")
    for missing in (("expecttest",), ("no_such", "expecttest")):
        said = reason_of(broken, [CheckRun(missing=missing), CheckRun()], laid=False, over="")
        assert said.endswith("; python -m pip install expecttest")


def test_a_record_shortens_what_later_failures_said_but_not_its_reason() -> None:
    run = red("E: " + 400 * "x", RunFailure.MISTAKE)
    run.failed *= 30
    for reason, lengths in (("x{250}", [403] * 30), ("^E", [403] * 20 + [200] * 10)):
        assert [len(row.message) for row in run.record(reason).failed] == lengths


def test_a_test_of_which_a_part_is_skipped_is_told_apart(tmp_path: Path) -> None:
    run = reported(tmp_path, b"", SKIPPED, PASSED, {"status": 0}, code=0)
    assert (run.passed, run.partly) == (["t.py::one"], ["t.py::one"])


IN_CHECKS = "/run/checks/test_red.py"
IN_TREE = "/tree/src/toy/area.py"
FALLBACK = "try:\n    import no_such\nexcept ImportError:\n    "


@pytest.mark.parametrize(
    ("code", "file", "broken"),
    [
        ("import no_such_module", IN_CHECKS, RunFailure.MISTAKE),
        ("import no_such_module", IN_TREE, RunFailure.IMPORTS),
        ("import no_such_module", "/python/lib/other.py", RunFailure.MISTAKE),
        ("raise ImportError(name='toy', path='/tree/src/toy/b.py')", IN_TREE, OWN),
        ("raise ImportError(name='toy', path='/tree/src/toy/b.py')", IN_CHECKS, RunFailure.MISTAKE),
        (f"{FALLBACK}raise RuntimeError('install it')", IN_CHECKS, RunFailure.MISTAKE),
        (f"{FALLBACK}raise RuntimeError('install it') from None", IN_CHECKS, RunFailure.MISTAKE),
        (f"{FALLBACK}__import__('pytest').fail('install it')", IN_CHECKS, RunFailure.MISTAKE),
        (f"def slow():\n    1 / 0\n\n{FALLBACK}slow()", IN_CHECKS, None),
        (f"{FALLBACK}assert 5 == 6", IN_CHECKS, None),
        ("raise ExceptionGroup('', [ImportError()])", IN_CHECKS, RunFailure.MISTAKE),
        ("__import__('subprocess').run(['no-such-tool'])", IN_CHECKS, RunFailure.MISTAKE),
        ("compile('def f(:', 'x', 'exec')", IN_CHECKS, RunFailure.MISTAKE),
        ("open('no-such-file')", IN_CHECKS, RunFailure.MISTAKE),
        ("__import__('ctypes').CDLL('libnosuch.so.1')", IN_CHECKS, RunFailure.MISTAKE),
        ("__import__('ctypes').CDLL(None).no_such", IN_CHECKS, RunFailure.MISTAKE),
        ("raise OSError(8, 'Exec format error')", IN_CHECKS, RunFailure.MISTAKE),
        ("import subprocess\nsubprocess.run('no-such', shell=True, check=True)", IN_CHECKS,
         RunFailure.MISTAKE),
        ("import subprocess\nsubprocess.run(['sh', '-c', 'exit 127'], check=True)", IN_CHECKS,
         RunFailure.MISTAKE),
        ("import subprocess\nsubprocess.run(['false'], check=True)", IN_CHECKS, None),
        ("assert 1 == 0, 'Traceback:\\nModuleNotFoundError: No module named x'", IN_CHECKS,
         RunFailure.MISTAKE),
        ("assert 0, 'where 1 = CompletedProcess(stderr=\\'…\\\\nImportError: no\\').returncode'",
         IN_CHECKS, RunFailure.MISTAKE),
        ("assert 0, 'where 127 = CompletedProcess(args=1).returncode'", IN_CHECKS,
         RunFailure.MISTAKE),
        ("assert 0, 'assert 127 == 0'", IN_CHECKS, None),
        ("raise __import__('socket').gaierror(-3, 'no name')", IN_TREE, RunFailure.NETWORK),
        ("raise OSError(101, 'Network is unreachable')", IN_TREE, RunFailure.NETWORK),
        ("raise ConnectionRefusedError(111, 'refused')", IN_TREE, None),
        ("raise OSError(30, 'Read-only file system', '/tree/x')", IN_TREE, RunFailure.READ_ONLY),
        ("raise PermissionError(13, 'denied', '/etc/x')", IN_TREE, RunFailure.READ_ONLY),
        ("raise PermissionError(13, 'denied', '/run/tmp/x')", IN_TREE, None),
        ("rectangel", IN_CHECKS, RunFailure.MISTAKE),
        ("rectangel", IN_TREE, None),
        ("1 / 0", IN_CHECKS, None),
        ("assert False", IN_CHECKS, None),
    ],
)  # fmt: skip
def test_what_breaks_a_check(code: str, file: str, broken: RunFailure | None) -> None:
    with pytest.raises(BaseException) as raised:  # noqa: PT011  any; pytest's own among them
        exec(compile(code, file, "exec"), {})  # noqa: S102  the text is the test's own
    assert why_broken(raised.value, "/run/checks", ["/tree"]) == broken


RED_BUILD = {"expect": "fail-to-pass", "reason": "heigth.* was not declared"}
ERROR = "csrc/area.cpp:4: heigth was not declared"


@pytest.mark.parametrize(
    ("stated", "base", "patched", "outcome", "reason"),
    [
        ({}, BuildSide(), BuildSide(), "passed", "the base and the patched tree build"),
        ({}, BuildSide(error=ERROR), BuildSide(), "failed", f"the base does not build: {ERROR}"),
        ({}, BuildSide(), BuildSide(error=ERROR), "failed",
         f"the patched tree does not build: {ERROR}"),
        (RED_BUILD, BuildSide(error=ERROR), BuildSide(), "passed",
         f"the base does not build, as stated, the patched tree does: {ERROR}"),
        (RED_BUILD, BuildSide(error="no member"), BuildSide(), "failed",
         "the base does not build for another reason than stated: no member"),
        (RED_BUILD, BuildSide(), BuildSide(), "failed", "the base builds, so it shows nothing"),
        (RED_BUILD, BuildSide(absent="csrc/new.cpp"), BuildSide(), "failed",
         "the base is broken there, not wrong: it has no csrc/new.cpp"),
    ],
)  # fmt: skip
def test_a_build(
    stated: dict[str, str], base: BuildSide, patched: BuildSide, outcome: str, reason: str
) -> None:
    build = Build.model_validate({
        "name": "area", "way": "extension", "sources": ["csrc/area.cpp"], "targets": ["cpu"],
        **stated,
    })  # fmt: skip
    assert judge_build(build, base, patched) == (Outcome(outcome), reason)


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("/short", "<home>"),
        ("in /short.", "in <home>."),
        ("'/short/a.py', line 3", "'<home>/a.py', line 3"),
        ("-I/short/x -L/short", "-I<home>/x -L<home>"),
        (r"'one\n/short/x'", r"'one\n<home>/x'"),
        ("PATH=/short:/short/bin", "PATH=<home>:<home>/bin"),
        ("file:///short/x", "file://<home>/x"),
        ("/shortfs /short-2 /short.d /short_", "/shortfs /short-2 /short.d /short_"),
        ("/srv/short src/short/x", "/srv/short src/short/x"),
        # pytest shows a file far from its root so.
        ("../../../short/x.py:9", "../../..<home>/x.py:9"),
        ("/short/runs/t/x /short/runs/t2", "<tree>/x <home>/runs/t2"),
    ],
)
def test_a_folder_is_hidden_and_nothing_else(text: str, scrubbed: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", "/short")
        scrub = Scrub(Path("/short/runs/t"), Path("/short/runs/r"))
    assert scrub(text) == scrubbed


# --- the verdict on a patch

INFO = CaseInfo(name="case", bytes_moved=None, flops=None)
HERE = frozenset({"any", "cpu"})
RED_TO_GREEN = seen("reproduce", red="5 == 6")
BENCH = seen("bench", outcome=Outcome.UNAVAILABLE, too_noisy=True)


def report(*stages: StageResult) -> PatchReport:
    return PatchReport(
        patch="area", upstream="toy", pin="v1.0", base_commit=None, patched_tree=None,
        verdict=judge(stages, HERE), stages=stages, open=tuple(open_targets(stages)),
    )  # fmt: skip


def test_a_bench_that_is_too_noisy_is_open_proves_nothing_and_takes_nothing_away() -> None:
    assert report(BENCH).verdict is Verdict.INCOMPLETE
    told = report(RED_TO_GREEN, BENCH)
    assert (told.verdict, told.open) == (Verdict.PROVED, ("bench:cpu",))
    assert unmet(told, ["reproduce:cpu", "bench:cpu", "cpu"]) == ["bench:cpu", "cpu"]
    assert [exit_code([told], needs) for needs in ([], ["bench:cpu"])] == [0, 1]
    assert verdict_line(told) == (
        "area: proved on cpu: fails without the patch, passes with it; too noisy to tell: bench:cpu"
    )


def test_red_to_green_proves_only_where_a_test_is_red_again_without_the_change() -> None:
    assert report(RED_TO_GREEN).verdict is Verdict.PROVED
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


@pytest.mark.parametrize("stage", ["bench", "reproduce"])
def test_what_is_unavailable_for_another_reason_still_counts(stage: str) -> None:
    told = report(RED_TO_GREEN, seen(stage, outcome=Outcome.UNAVAILABLE))
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
