"""What runs and builds come to, judged as data; tests/test_verify.py runs one of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.model.check import Check
from contribbot.model.outcome import Outcome
from contribbot.model.proofs import Build
from contribbot.verify import child
from contribbot.verify.buildside import Side
from contribbot.verify.buildverdict import judge_build
from contribbot.verify.childrun import CheckRun, Failure
from contribbot.verify.redgreen import judge_check
from tests.test_faults import reported

CHECK = Check(name="red", file="test_red.py", expect="fail-to-pass", reason="^AssertionError")
SAME = Check(name="same", file="test_same.py", expect="pass-to-pass")


def red(message: str = "AssertionError: assert 5 == 6", *, broken: bool = False) -> CheckRun:
    """Return a run whose only test failed."""
    return CheckRun(failed=[Failure("t.py::one", "call", message, broken)])


GREEN = CheckRun(passed=["t.py::one"])


@pytest.mark.parametrize(
    ("check", "base", "patched", "outcome", "reason"),
    [
        (CHECK, red(), GREEN, "passed",
         "1 test: fail on the base as stated, pass on the patched tree"),
        (SAME, GREEN, GREEN, "passed", "1 test: pass on the base and on the patched tree"),
        (CHECK, GREEN, GREEN, "failed", "passes on the base, so it shows nothing: t.py::one"),
        (CHECK, red("ZeroDivisionError: 1"), GREEN, "failed",
         "fails on the base for another reason than stated: t.py::one: ZeroDivisionError: 1"),
        (CHECK, red(broken=True), GREEN, "failed",
         "the base is broken there, not wrong: t.py::one: AssertionError: assert 5 == 6"),
        (CHECK, red(), red(), "failed",
         "fails on the patched tree: t.py::one: AssertionError: assert 5 == 6"),
        (SAME, red(), GREEN, "failed",
         "fails on the base: t.py::one: AssertionError: assert 5 == 6"),
        (CHECK, red(), CheckRun(passed=["t.py::one", "t.py::two"]), "failed",
         "runs on the patched tree only: t.py::two"),
        (SAME, CheckRun(passed=["t.py::one", "t.py::two"]),
         CheckRun(passed=["t.py::one"], skipped=["t.py::two"]), "failed",
         "runs on the base only: t.py::two"),
        (CHECK, CheckRun(trouble="executed no test"), GREEN, "failed",
         "on the base: executed no test"),
        (CHECK, red(), CheckRun(trouble="hung"), "failed", "on the patched tree: hung"),
    ],
)  # fmt: skip
def test_a_check(
    check: Check, base: CheckRun, patched: CheckRun, outcome: str, reason: str
) -> None:
    assert judge_check(check, base, patched) == (outcome, reason)


TEST = {"test": "t.py::one"}
FAILED = {"event": "phase", **TEST, "outcome": "failed", "message": "fixture 'x' not found"}


@pytest.mark.parametrize(
    ("events", "trouble"),
    [
        ([{**FAILED, "when": "setup"}], "error in setup of t.py::one: fixture 'x' not found"),
        ([{**FAILED, "when": "teardown"}], "error in teardown of t.py::one: fixture 'x' not found"),
        ([{"event": "phase", **TEST, "when": "setup", "outcome": "skipped"}],
         "executed no test (1 skipped)"),
        ([], "executed no test"),
        ([{"event": "collected", "tests": ["t.py::one"]}], "stopped before t.py::one had run"),
        ([{"event": "uncollected", **TEST, "message": "E   No module named 'x'\n"}],
         "could not be collected: No module named 'x'"),
        ([{**FAILED, "when": "call"}], ""),
    ],
)  # fmt: skip
def test_a_report(tmp_path: Path, events: list[dict[str, object]], trouble: str) -> None:
    assert reported(tmp_path, b"", *events, {"event": "end", "status": 1}).trouble == trouble


@pytest.mark.parametrize(
    ("code", "broken"),
    [
        ("import no_such_module_anywhere", True),
        ("__import__('subprocess').run(['no-such-tool'])", True),
        ("compile('def f(:', 'x', 'exec')", True),
        ("open('no-such-file')", True),
        ("1 / 0", False),
        ("assert False", False),
    ],
)
def test_what_is_missing_is_broken_and_not_wrong(code: str, *, broken: bool) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  any
        exec(code, {})  # noqa: S102  the text is the test's own
    assert child._failure(raised.value)["broken"] is broken


RED_BUILD = {"expect": "fail-to-pass", "reason": "heigth.* was not declared"}
ERROR = "csrc/area.cpp:4: heigth was not declared"


@pytest.mark.parametrize(
    ("stated", "base", "patched", "outcome", "reason"),
    [
        ({}, Side(), Side(), "passed", "the base and the patched tree build"),
        ({}, Side(error=ERROR), Side(), "failed", f"the base does not build: {ERROR}"),
        ({}, Side(), Side(error=ERROR), "failed", f"the patched tree does not build: {ERROR}"),
        (RED_BUILD, Side(error=ERROR), Side(), "passed",
         f"the base does not build, as stated, the patched tree does: {ERROR}"),
        (RED_BUILD, Side(error="no member"), Side(), "failed",
         "the base does not build for another reason than stated: no member"),
        (RED_BUILD, Side(), Side(), "failed", "the base builds, so it shows nothing"),
        (RED_BUILD, Side(absent="csrc/new.cpp"), Side(), "failed",
         "the base is broken there, not wrong: it has no csrc/new.cpp"),
    ],
)  # fmt: skip
def test_a_build(
    stated: dict[str, str], base: Side, patched: Side, outcome: str, reason: str
) -> None:
    build = Build.model_validate({
        "name": "area", "way": "extension", "sources": ["csrc/area.cpp"], "targets": ["cpu"],
        **stated,
    })  # fmt: skip
    assert judge_build(build, base, patched) == (Outcome(outcome), reason)
