"""Judge the runs of a check: a table of causes, and functions without side effects.

The parts, in the order in which they act:

1. `judge_sides` judges the first run on the base and on the patched tree: a run that failed as a
   whole (`_troubled`), then a fault of the machine (`_machine_fault`), then the tests on the base
   (`_on_base`), then the tests on the patched tree (`_on_patched`).
2. `decide` asks for further runs (`RunAgain`): the deciding sides a second time, and after red to
   green the patched tree without the change once. In the mapping `Runs`, an empty list under
   `WITHOUT_CHANGE` means that a statement differs and that this side has not run yet; without
   the key, no statement differs.
3. `_without_change` adds to red to green whether the red comes back without the change.
4. `sentence` writes a judgement as a line for people, from the row of its `Cause`.

`judge_base` judges the two runs on the base of a patch that only reproduces a bug, and
`judge_side` judges one run on one tree.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from contribbot.model.checks import Check
from contribbot.model.evidence import HOST_TARGETS, Outcome
from contribbot.model.failure import RAISED, Blame, RunFailure
from contribbot.verify.pytest_run import CheckRun, FailedTest

#: A patched tree hangs if its run takes this many times as long as the base's run.
_HANGS: Final = 10

#: The sentence for red to green, unless the judgement has another sentence.
_RED: Final = "{detail}: fail on the base as stated, pass on the patched tree"
_NEEDED: Final = "red again without the change"
_BY_TEXT: Final = (
    "{red}; but it passes without the change, where names, signatures and text are as patched, "
    "so it shows no behaviour: import what is run (what `python -I` runs stays as patched), and "
    "assert what it does ({note})"
)
_BY_NAME: Final = (
    "{red}; but without the change, where names and signatures are as patched, it fails for "
    "another reason, so the base's red may be no more than an absent name: let the check do "
    "without the name on the base, and state how the result is wrong ({note})"
)
_NO_STATEMENT: Final = (
    "{red}; but whether the change does it is not known: it changes no Python statement that "
    "anything reads, and no build that the check loads"
)
_NOT_ALONE: Final = (
    "{red}; but whether the change does it is not known: the change cannot be taken out alone, "
    "because the check then {note}"
)


_NEW_KERNEL: Final = (
    "{red}; but each kernel of the base is as before, so the red may be no more than an absent "
    "name: have the check launch a kernel that both trees have"
)


class Cause(enum.StrEnum):
    """The result of a check: a record's word, the outcome, and the sentence for people."""

    outcome: Outcome
    sentence: str

    def __new__(cls, word: str, outcome: Outcome, sentence: str) -> Self:
        """Make a cause from its word, its outcome and its sentence."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.outcome, member.sentence = outcome, sentence
        return member

    RED_TO_GREEN = "red to green", Outcome.PASSED, "{red}"
    GREEN_ON_BOTH = (
        "green on both", Outcome.PASSED, "{detail}: pass on the base and on the patched tree"
    )  # fmt: skip
    # Checks of a patch without a change, which run on the base alone.
    REPRODUCED = "fails as stated", Outcome.PASSED, "fails as stated: {detail}"
    NOT_REPRODUCED = "passes without a change", Outcome.PASSED, "{detail}: pass without a change"
    # From red to green, without evidence that the change of behaviour is the cause.
    BY_TEXT = "passes without the change", Outcome.PASSED, _BY_TEXT
    BY_NAME = "fails otherwise without the change", Outcome.PASSED, _BY_NAME
    NO_STATEMENT = "no statement can be taken out", Outcome.PASSED, _NO_STATEMENT
    NOT_ALONE = "the change cannot be taken out alone", Outcome.PASSED, _NOT_ALONE
    NEW_KERNEL = "the base's kernels are as before", Outcome.PASSED, _NEW_KERNEL
    # The claim was tested, and is false.
    FAILS_PATCHED = "fails on the patched tree", Outcome.FAILED, "fails on the {side}: {detail}"
    DIES_PATCHED = "dies on the patched tree", Outcome.FAILED, "on the {side}: {detail}"
    FAILS_BASE = "fails on the base", Outcome.FAILED, "fails on the {side}: {detail}"
    PASSES_BASE = (
        "passes on the base", Outcome.FAILED, "passes on the {side}, so it shows nothing: {detail}"
    )  # fmt: skip
    OTHER_REASON = (
        "fails for another reason", Outcome.FAILED,
        "fails on the {side} for another reason than stated: {detail}",
    )  # fmt: skip
    # The claim could not be tested here, or the check is broken.
    SHOWS_NOTHING = (
        "shows nothing of numbers", Outcome.UNAVAILABLE, "it shows nothing of numbers: {detail}"
    )  # fmt: skip
    SKIPPED = (
        "skipped on one side", Outcome.UNAVAILABLE,
        "skipped on the {side}, so it shows nothing: {detail}",
    )  # fmt: skip
    DIFFERENT = (
        "different on the two trees", Outcome.UNAVAILABLE, "the check is broken: {detail}"
    )  # fmt: skip
    BROKEN = "broken", Outcome.UNAVAILABLE, ""  # `sentence` takes the failure's sentence
    FLAKY = "flaky", Outcome.UNAVAILABLE, "flaky: two runs on the {side} differ: {detail}"
    MACHINE = "the machine gave up", Outcome.UNAVAILABLE, "on the {side}, {detail}"


@dataclass(frozen=True)
class Judgement:
    """The result of judging runs: the cause, the side that shows the cause, and the failure."""

    cause: Cause
    side: str = ""
    detail: str = ""
    more: int = 0  # the number of further tests with the same cause
    words: str = ""  # a sentence in place of the cause's sentence, or of its `{red}`
    note: str = ""  # advice for the author of the check
    kind: RunFailure | None = None
    proof: bool = False  # whether a test fails again, as stated, without the change

    @property
    def outcome(self) -> Outcome:
        """The outcome that belongs to the cause."""
        return self.cause.outcome


class RunSide(enum.StrEnum):
    """The trees on which a check runs."""

    BASE = "base"
    PATCHED = "patched tree"
    #: The patched tree with the base's statements under patched names (`without_change.py`).
    WITHOUT_CHANGE = "patched tree without the change"
    #: A release without the patch, such as a later release.
    RELEASE = "release"


@dataclass(frozen=True)
class RunAgain:
    """The answer of `decide` that a check has to run on a side before a judgement."""

    side: RunSide


_GREEN: Final = {"fail-to-pass": Cause.RED_TO_GREEN, "pass-to-pass": Cause.GREEN_ON_BOTH}
#: The runs of a check by side, in order; no key `WITHOUT_CHANGE`: no statement differs.
Runs = Mapping[RunSide, Sequence[CheckRun]]


def judge_sides(check: Check, base: CheckRun, patched: CheckRun) -> Judgement:
    """Judge a check by its first run on each tree."""
    sides = ((RunSide.BASE, base, patched), (RunSide.PATCHED, patched, base))
    for side, run, other in sides:
        if run.kind is not None:
            return _troubled(check, side, run, other)
    for side, run, other in sides:
        if fault := _machine_fault(check, side, run, other):
            return fault
    return (
        _on_base(check, RunSide.BASE, base)
        or _on_patched(base, patched)
        or Judgement(_GREEN[check.expect], detail=_tests(patched))
    )


def judge_base(check: Check, run: CheckRun, again: CheckRun) -> Judgement:
    """Judge two runs on the base of a check whose patch has no change."""
    judgement = judge_side(check, RunSide.BASE, run)
    if judgement.outcome is not Outcome.PASSED:
        return judgement
    if detail := _differ(check, RunSide.BASE, run, again):
        return Judgement(Cause.FLAKY, RunSide.BASE, detail)
    if check.expect == "pass-to-pass":
        return replace(judgement, cause=Cause.NOT_REPRODUCED)
    return replace(judgement, cause=Cause.REPRODUCED, detail=_name(run.failed[0]))


def judge_side(check: Check, side: RunSide, run: CheckRun) -> Judgement:
    """Judge a check by a single run on a single tree."""
    if run.kind is not None:
        return _troubled(check, side, run, None)
    wrong = _machine_fault(check, side, run, None)
    if side is RunSide.PATCHED:
        wrong = wrong or (_failed(Cause.FAILS_PATCHED, side, run.failed) if run.failed else None)
    else:
        wrong = wrong or _on_base(check, side, run)
    return wrong or Judgement(_GREEN[check.expect], side, detail=_tests(run))


def _tests(run: CheckRun) -> str:
    number = len(run.ran)
    skipped = f", {len(run.skipped)} skipped" if run.skipped else ""
    return f"{number} test{'s' if number != 1 else ''}{skipped}"


def decide(
    check: Check,
    runs: Runs,
    judge: Callable[[Check, CheckRun, CheckRun], Judgement] = judge_sides,
) -> Judgement | RunAgain:
    """Return the judgement of a check's runs, or the side that has to run before a judgement."""
    # After red to green, the red has to come back without the change. The deciding sides run
    # twice; a run without the change that fails as stated replaces the base's second run.
    base, patched = runs[RunSide.BASE][0], runs[RunSide.PATCHED][0]
    first = judge(check, base, patched)
    # A check that hung, or for which this machine lacked something, does not run twice.
    kind = first.kind
    once = kind is RunFailure.TIMED_OUT or (kind is not None and kind.blame is Blame.MACHINE)
    again = [RunSide(first.side)] if first.outcome is Outcome.FAILED and not once else []
    without = next(iter(runs.get(RunSide.WITHOUT_CHANGE, ())), None)
    if red := first.cause is Cause.RED_TO_GREEN:
        again = [RunSide.PATCHED]
        if RunSide.WITHOUT_CHANGE in runs and without is None:
            again.append(RunSide.WITHOUT_CHANGE)
        elif without is None or _differ(check, RunSide.BASE, base, without):
            again.append(RunSide.BASE)
    for side in again:
        if side is RunSide.WITHOUT_CHANGE or len(runs[side]) < 2:  # noqa: PLR2004  twice
            return RunAgain(side)
        if detail := _differ(check, side, *runs[side]):
            return Judgement(Cause.FLAKY, side, detail)
    return _without_change(check, first, base, without) if red else first


def _without_change(
    check: Check, first: Judgement, base: CheckRun, without: CheckRun | None
) -> Judgement:
    """Add to red to green whether a test is red again, as stated, without the change."""
    if without is None:
        return replace(first, cause=Cause.NO_STATEMENT)
    if without.kind is not None:
        return replace(first, cause=Cause.NOT_ALONE, note=without.detail)
    red = {failure.test: failure for failure in without.failed}
    again = [red[failure.test] for failure in base.failed if failure.test in red]
    if any(not each.by_machine and unlike_stated(check, [each]) is None for each in again):
        return replace(first, proof=True, note=_NEEDED)
    if without.failed:
        note = f"{base.failed[0].first}, and then: {without.failed[0].first}"
        return replace(first, cause=Cause.BY_NAME, note=note)
    return replace(first, cause=Cause.BY_TEXT, note=base.failed[0].first)


def _differ(check: Check, side: RunSide, run: CheckRun, again: CheckRun) -> str:
    """Return the first difference between two runs on one side; empty: equal outcomes."""
    tests = sorted({**run.outcomes, **again.outcomes})
    differ = [test for test in tests if run.outcomes.get(test) != again.outcomes.get(test)]
    if again.kind is not run.kind or differ:
        return again.detail or run.detail or differ[0]
    if side is RunSide.PATCHED:
        return ""
    first, second = (unlike_stated(check, each.failed) for each in (run, again))
    other = second or first
    return other.detail if other and not (first and second) else ""


def _troubled(check: Check, side: RunSide, run: CheckRun, other: CheckRun | None) -> Judgement:
    """Judge a run that failed as a whole; `other`: the other tree's run, if any."""
    # The base's run is no measure of time and memory if a test failed in it.
    kind, beside = run.kind, other if side is RunSide.PATCHED and other and not other.kind else None
    measured = beside is not None and not beside.failed
    assert kind is not None  # noqa: S101  callers pass only runs with a kind
    if kind.blame is Blame.MACHINE:
        cause = Cause.DIES_PATCHED if measured and not run.lacked else Cause.MACHINE
        return Judgement(cause, side, run.detail, kind=kind)
    late = kind is RunFailure.TIMED_OUT
    if (
        beside is not None
        and kind.blame is Blame.TREE
        and (not late or (measured and beside.seconds * _HANGS < run.limit))
    ):
        return Judgement(Cause.DIES_PATCHED, side, run.detail, kind=kind)
    note = "give it a longer `timeout`, or less to do" if late else ""
    if kind in RAISED and not run.missing and check.reason:
        note = "if that is the bug, import within a test and name the exception in `reason`"
    return Judgement(Cause.BROKEN, side, run.detail, kind=kind, note=note)


def _machine_fault(
    check: Check, side: RunSide, run: CheckRun, other: CheckRun | None
) -> Judgement | None:
    """Judge a run by a fault of this machine; None: no such fault, or the patch is to blame."""
    # If the base passed, a fault on the patched tree alone comes from the patch.
    patched = side is RunSide.PATCHED
    for failure in run.failed:
        if not failure.by_machine:
            continue
        if other and run.cleared:
            sides = (other, run) if patched else (run, other)
            if _own(check, failure, *sides):
                continue
        memory = failure.kind is RunFailure.NO_MEMORY
        what = "ran out of memory" if memory else "lost its device"
        said = f"this machine {what}: {_name(failure)}"
        own = memory or check.target in HOST_TARGETS
        if patched and own and other and not other.failed:
            detail = f"{said}; the base did not"
            return Judgement(Cause.DIES_PATCHED, side, detail, kind=failure.kind)
        return Judgement(Cause.MACHINE, side, said, kind=failure.kind)
    return None


def _own(check: Check, failure: FailedTest, base: CheckRun, patched: CheckRun) -> bool:
    """Return whether a failure is the check's own, after a known-good kernel passed."""
    # The free memory before the run is unknown. A lack of memory is the check's own only where the
    # patch states this lack, and the patched tree had enough memory.
    if failure.kind is not RunFailure.NO_MEMORY:
        return True
    stated = check.expect == "fail-to-pass" and re.search(check.reason, failure.message)
    return failure in base.failed and bool(stated) and not patched.starved


def _on_base(check: Check, side: RunSide, base: CheckRun) -> Judgement | None:
    if check.expect == "pass-to-pass":
        return _failed(Cause.FAILS_BASE, side, base.failed) if base.failed else None
    # On a release, one failing test is enough.
    if base.passed and (side is RunSide.BASE or not base.failed):
        return Judgement(Cause.PASSES_BASE, side, base.passed[0], len(base.passed) - 1)
    return unlike_stated(check, base.failed, side)


def unlike_stated(
    check: Check, failed: Sequence[FailedTest], where: RunSide = RunSide.BASE
) -> Judgement | None:
    """Judge the first failure that is not as the patch states; None: all are as stated."""
    for failure in failed:
        if failure.kind and not failure.by_machine:
            raised = failure.message.partition(":")[0]
            note = f"if the tree raises {raised} and that is the bug, name {raised} in `reason`"
            note = "" if failure.kind is RunFailure.UNMODELLED else note
            return Judgement(Cause.BROKEN, where, _name(failure), kind=failure.kind, note=note)
        if not re.search(check.reason, failure.message):
            step = "if what is seen is the fault, correct `reason`, else the check"
            note = f"stated is {check.reason} ({step})"
            return Judgement(Cause.OTHER_REASON, where, _name(failure), note=note)
    return None


def _on_patched(base: CheckRun, patched: CheckRun) -> Judgement | None:
    if patched.failed:
        return _failed(Cause.FAILS_PATCHED, RunSide.PATCHED, patched.failed)
    skipped = sorted({*patched.partly, *(base.ran & set(patched.skipped))})
    if skipped:
        return Judgement(Cause.SKIPPED, RunSide.PATCHED, skipped[0], len(skipped) - 1)
    differing = sorted(base.ran ^ patched.ran)
    if differing:
        side = RunSide.BASE if differing[0] in base.ran else RunSide.PATCHED
        return Judgement(Cause.DIFFERENT, side, f"runs on the {side} only: {differing[0]}")
    if patched.status:
        detail = f"no test failed, and pytest ended with status {patched.status}"
        return Judgement(Cause.BROKEN, RunSide.PATCHED, detail, kind=RunFailure.MISTAKE)
    return None


def _failed(cause: Cause, side: RunSide, failed: Sequence[FailedTest]) -> Judgement:
    for failure in failed:
        # If the patched tree imports a name that the tree lacks, the patch is to blame.
        own = failure.kind is RunFailure.OWN_IMPORT and side is RunSide.PATCHED
        if failure.kind and not failure.by_machine and not own:
            return Judgement(Cause.BROKEN, side, _name(failure), kind=failure.kind)
    return Judgement(cause, side, _name(failed[0]), len(failed) - 1)


def _name(failure: FailedTest) -> str:
    return f"{failure.test}: {failure.first}"


def sentence(judgement: Judgement) -> str:
    """Return the judgement as a line for people; no code reads the line."""
    cause, kind, words = judgement.cause, judgement.kind, judgement.words
    row = cause.sentence
    if kind and (cause is Cause.BROKEN or kind.blame is Blame.MACHINE):
        row = kind.sentence
    if words and "{red}" not in row:
        return words
    red = words or _RED.format(detail=judgement.detail)
    said = row.format(side=judgement.side, detail=judgement.detail, red=red, note=judgement.note)
    said += f" (and {judgement.more} more)" if judgement.more else ""
    return f"{said}; {judgement.note}" if judgement.note and "{note}" not in row else said
