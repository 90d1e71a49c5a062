"""The judge: what the runs of a check come to, as a pure function with a typed cause."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from contribbot.model.checks import Check
from contribbot.model.evidence import HOST_TARGETS, Outcome
from contribbot.verify.pytest_run import Broken, CheckRun, FailedTest, Trouble

#: A patched tree that needs so many times longer than the base's run hangs, on any machine.
_HANGS: Final = 10


class Cause(enum.StrEnum):
    """Why a check came to its outcome."""

    RED_TO_GREEN = "red to green"
    GREEN_ON_BOTH = "green on both"
    #: The claim was tested, and is false.
    FAILS_PATCHED = "fails on the patched tree"
    DIES_PATCHED = "dies on the patched tree"
    WANTS_MORE = "wants more of the machine on the patched tree"
    FAILS_BASE = "fails on the base"
    PASSES_BASE = "passes on the base"
    OTHER_REASON = "fails for another reason"
    #: It could not be tested here, or the check is broken.
    SHOWS_NOTHING = "shows nothing of numbers"
    REFERENCES_DIFFER = "references differ"
    BROKEN = "broken"
    DIED = "died"
    SKIPPED = "skipped on one side"
    DIFFERENT_TESTS = "different tests"
    FLAKY = "flaky"
    MACHINE = "the machine gave up"


_REFUTES: Final = frozenset({
    Cause.FAILS_PATCHED, Cause.DIES_PATCHED, Cause.WANTS_MORE, Cause.FAILS_BASE,
    Cause.PASSES_BASE, Cause.OTHER_REASON,
})  # fmt: skip
#: Troubles by which a patched tree refutes itself where the base ends well.
_DIES: Final = frozenset({Trouble.FLOODED, Trouble.CRASHED, Trouble.ENDED_EARLY, Trouble.FIXTURE})


class Shows(enum.StrEnum):
    """Why a check that goes from red to green shows nothing of what the patch does."""

    TEXT = "passes with the added statements undone"
    ABSENT = "fails otherwise with the added statements undone"
    LOOSENED = "the red is an assertion of the patch's own file"
    NOTHING_UNDONE = "nothing can be undone"
    UNKNOWN = "the run with the added statements undone did not end well"


@dataclass(frozen=True)
class Judgement:
    """What a check came to: the cause, the side and test that it was seen in, and the words.

    `more` counts further tests of the same kind; `words` say more than the cause does; `note` is
    what would help; `trouble` is how a run died, `broken` why nothing could be tested.
    `returned` are the tests that fail again where the added statements are undone; where none
    does, `shows` says why.
    """

    cause: Cause
    side: str = ""
    told: str = ""
    more: int = 0
    words: str = ""
    note: str = ""
    trouble: Trouble | None = None
    broken: Broken | None = None
    returned: tuple[str, ...] = ()
    shows: Shows | None = None

    @property
    def refutes(self) -> bool:
        """Whether the claim was tested, and is false."""
        return self.cause in _REFUTES

    @property
    def outcome(self) -> Outcome:
        """The outcome that the cause stands for."""
        if self.cause in {Cause.RED_TO_GREEN, Cause.GREEN_ON_BOTH}:
            return Outcome.PASSED
        return Outcome.FAILED if self.refutes else Outcome.UNAVAILABLE


class RunSide(enum.StrEnum):
    """What a check is run on."""

    BASE = "base"
    PATCHED = "patched tree"
    #: The patched tree, with what the patch adds undone and its text kept (`undo.py`).
    UNDONE = "patched tree with the added statements undone"
    #: A later release, without the patch.
    RELEASE = "release"


@dataclass(frozen=True)
class RunAgain:
    """The side that has to run for a judgement to stand."""

    side: RunSide


_GREEN: Final = {"fail-to-pass": Cause.RED_TO_GREEN, "pass-to-pass": Cause.GREEN_ON_BOTH}
#: The runs of a check by side, in their order; without `UNDONE` where nothing can be undone.
Runs = Mapping[RunSide, Sequence[CheckRun]]


def judge_sides(check: Check, base: CheckRun, patched: CheckRun) -> Judgement:
    """Judge a check by its first run on each tree."""
    sides = ((RunSide.BASE, base, patched), (RunSide.PATCHED, patched, base))
    for side, run, other in sides:
        if run.trouble is not None:
            return _troubled(check, side, run, other)
    for side, run, other in sides:
        if fault := _machine_fault(check, side, run, other):
            return fault
    return (
        _on_base(check, RunSide.BASE, base)
        or _on_patched(base, patched)
        or Judgement(_GREEN[check.expect], told=_tests(patched))
    )


def judge_side(check: Check, side: RunSide, run: CheckRun) -> Judgement:
    """Judge a check by one run on one tree, with nothing to compare it with."""
    if run.trouble is not None:
        return _troubled(check, side, run, None)
    wrong = _machine_fault(check, side, run, None)
    if side is RunSide.PATCHED:
        wrong = wrong or (_failed(Cause.FAILS_PATCHED, side, run.failed) if run.failed else None)
    else:
        wrong = wrong or _on_base(check, side, run)
    return wrong or Judgement(_GREEN[check.expect], side, told=_tests(run))


def _tests(run: CheckRun) -> str:
    number = len(run.ran)
    skipped = f", {len(run.skipped)} skipped" if run.skipped else ""
    return f"{number} test{'s' if number != 1 else ''}{skipped}"


def decide(
    check: Check,
    runs: Runs,
    judge: Callable[[Check, CheckRun, CheckRun], Judgement] = judge_sides,
) -> Judgement | RunAgain:
    """Return what the runs of a check come to, or which side has to run first.

    From red to green the red has to come back where the added statements are undone. What decides
    is run twice; a red that came back as stated is the base's second.
    """
    base, patched = runs[RunSide.BASE][0], runs[RunSide.PATCHED][0]
    first = judge(check, base, patched)
    # A hang is not waited for twice, and what a machine lacks is not asked for twice.
    once = first.trouble is Trouble.TIMED_OUT or first.cause is Cause.WANTS_MORE
    again = [RunSide(first.side)] if first.refutes and not once else []
    red, undone = first.cause is Cause.RED_TO_GREEN, next(iter(runs.get(RunSide.UNDONE, ())), None)
    if red:
        again = [RunSide.PATCHED, *([RunSide.UNDONE] if RunSide.UNDONE in runs else [])]
        if undone is None or not _same_red(check, base, undone):
            again.append(RunSide.BASE)
    for side in again:
        if len(runs[side]) < (1 if side is RunSide.UNDONE else 2):
            return RunAgain(side)
        if side is not RunSide.UNDONE and (flaky := _unlike(check, side, *runs[side])):
            return flaky
    return _by_what_is_undone(check, first, base, undone) if red else first


def _by_what_is_undone(
    check: Check, first: Judgement, base: CheckRun, undone: CheckRun | None
) -> Judgement:
    """Add to a judgement which tests are red again, as stated, with the added statements undone."""
    loosened = next((failure.raised for failure in base.failed if failure.raised), "")
    if undone is None:
        shows = Shows.LOOSENED if loosened else Shows.NOTHING_UNDONE
        return replace(first, shows=shows, note=loosened)
    if undone.trouble is not None:
        return replace(first, shows=Shows.UNKNOWN, note=undone.told)
    red = {failure.test: failure for failure in undone.failed}
    returned = tuple(
        failure.test
        for failure in base.failed
        if (again := red.get(failure.test)) and unlike_stated(check, [again]) is None
        and failure.test not in undone.dissected and not again.fault
    )  # fmt: skip
    if returned:
        return replace(first, returned=returned)
    if loosened:
        return replace(first, shows=Shows.LOOSENED, note=loosened)
    if undone.failed and not undone.dissected:
        note = f"{base.failed[0].first}, and then: {undone.failed[0].first}"
        return replace(first, shows=Shows.ABSENT, note=note)
    return replace(first, shows=Shows.TEXT, note=base.failed[0].first)


def _same_red(check: Check, base: CheckRun, other: CheckRun) -> bool:
    """Say whether two runs fail in the same tests, and both as stated."""
    same = other.trouble is None and base.outcomes == other.outcomes
    return same and unlike_stated(check, other.failed) is None


def _unlike(check: Check, side: RunSide, run: CheckRun, again: CheckRun) -> Judgement | None:
    """Judge two runs on one side that differ; None: they do not."""
    differ = sorted(
        test
        for test in {**run.outcomes, **again.outcomes}
        if run.outcomes.get(test) != again.outcomes.get(test)
    )
    if again.trouble is not run.trouble or differ:
        return Judgement(Cause.FLAKY, side, again.told or run.told or differ[0])
    if side is RunSide.BASE and not unlike_stated(check, run.failed):
        other = unlike_stated(check, again.failed)
        return Judgement(Cause.FLAKY, side, other.told) if other else None
    return None


def _troubled(check: Check, side: RunSide, run: CheckRun, other: CheckRun | None) -> Judgement:
    """Judge a run that shows nothing as a whole, beside the other tree's if there is one.

    A base that fails is no yardstick for how long the patched tree may work, nor with how much.
    """
    beside = other if side is RunSide.PATCHED and other and other.trouble is None else None
    measured = beside is not None and not beside.failed
    if run.trouble in {Trouble.DISK_FULL, Trouble.NO_MEMORY}:
        wants = measured and not run.lacked
        return Judgement(Cause.WANTS_MORE if wants else Cause.MACHINE, side, run.told)
    if beside is not None:
        hangs = run.trouble is Trouble.TIMED_OUT and beside.seconds * _HANGS < run.limit
        if (hangs and measured) or run.trouble in _DIES or run.broken is Broken.OWN_IMPORT:
            return Judgement(Cause.DIES_PATCHED, side, run.told, trouble=run.trouble)
    died = run.trouble in {*_DIES, Trouble.TIMED_OUT, Trouble.MEDDLED} - {Trouble.FIXTURE}
    cause = Cause.DIED if died else Cause.BROKEN
    advice = ""
    if run.trouble is Trouble.TIMED_OUT:
        advice = "give it a longer `timeout`, or less to do"
    elif run.trouble is Trouble.UNCOLLECTED and not run.missing and check.reason:
        advice = "if that is the bug, import within a test and name the exception in `reason`"
    return Judgement(cause, side, run.told, broken=run.broken, note=advice)


def _machine_fault(
    check: Check, side: RunSide, run: CheckRun, other: CheckRun | None
) -> Judgement | None:
    """Judge a run in which this machine gave up, which says nothing of the patch.

    What the patched tree alone lacks is the patch's doing where the base passed: memory, or a
    device where none was asked for.
    """
    patched = side is RunSide.PATCHED
    for failure in run.failed:
        if not failure.fault:
            continue
        if other and run.cleared:
            sides = (other, run) if patched else (run, other)
            if _own(check, failure, *sides):
                continue
        what = "ran out of memory" if failure.fault == "memory" else "lost its device"
        said = f"this machine {what}: {_name(failure)}"
        own = failure.fault == "memory" or check.target in HOST_TARGETS
        if patched and own and other and not other.failed:
            return Judgement(Cause.WANTS_MORE, side, f"{said}; the base did not")
        return Judgement(Cause.MACHINE, side, said)
    return None


def _own(check: Check, failure: FailedTest, base: CheckRun, patched: CheckRun) -> bool:
    """Say whether a failure is the check's own, since a known-good kernel ran well after it.

    How much memory there was before the check cannot be known for sure: it counts as what
    the patch mends only where that is what it states, and the patched tree had enough.
    """
    if failure.fault != "memory":
        return True
    stated = check.expect == "fail-to-pass" and re.search(check.reason, failure.message)
    return failure in base.failed and bool(stated) and not patched.starved


def _on_base(check: Check, side: RunSide, base: CheckRun) -> Judgement | None:
    if check.expect == "pass-to-pass":
        return _failed(Cause.FAILS_BASE, side, base.failed) if base.failed else None
    # On a release it counts that a part still fails.
    if base.passed and (side is RunSide.BASE or not base.failed):
        return Judgement(Cause.PASSES_BASE, side, base.passed[0], len(base.passed) - 1)
    return unlike_stated(check, base.failed, side)


def unlike_stated(
    check: Check, failed: Sequence[FailedTest], where: RunSide = RunSide.BASE
) -> Judgement | None:
    """Judge failures on the base by one that is not as stated; None: all are."""
    for failure in failed:
        if failure.broken:
            kind = failure.message.partition(":")[0]
            advice = f"if the tree raises {kind} and that is the bug, name {kind} in `reason`"
            note = "" if failure.broken is Broken.UNMODELLED else advice
            return Judgement(Cause.BROKEN, where, _name(failure), broken=failure.broken, note=note)
        if not re.search(check.reason, failure.message):
            return Judgement(Cause.OTHER_REASON, where, _name(failure))
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
        return Judgement(Cause.DIFFERENT_TESTS, side, differing[0])
    if patched.status:
        told = f"no test failed, and pytest ended with status {patched.status}"
        return Judgement(Cause.BROKEN, RunSide.PATCHED, told)
    return None


def _failed(cause: Cause, side: RunSide, failed: Sequence[FailedTest]) -> Judgement:
    for failure in failed:
        # That the patched tree imports from itself what it has not is the patch's doing.
        if failure.broken and (failure.broken is not Broken.OWN_IMPORT or side is RunSide.BASE):
            return Judgement(Cause.BROKEN, side, _name(failure), broken=failure.broken)
    return Judgement(cause, side, _name(failed[0]), len(failed) - 1)


def _name(failure: FailedTest) -> str:
    return f"{failure.test}: {failure.first}"


_SENTENCES: Final = {
    Cause.RED_TO_GREEN: "{told}: fail on the base as stated, pass on the patched tree",
    Cause.GREEN_ON_BOTH: "{told}: pass on the base and on the patched tree",
    Cause.FAILS_PATCHED: "fails on the {side}: {told}",
    Cause.DIES_PATCHED: "on the {side}: {told}",
    Cause.WANTS_MORE: "on the {side}, {told}",
    Cause.FAILS_BASE: "fails on the {side}: {told}",
    Cause.PASSES_BASE: "passes on the {side}, so it shows nothing: {told}",
    Cause.OTHER_REASON: "fails on the {side} for another reason than stated: {told}",
    Cause.SHOWS_NOTHING: "it shows nothing of numbers: {told}",
    Cause.REFERENCES_DIFFER: (
        "the check is broken: inputs and references must be the same on both trees: {told}"
    ),
    Cause.DIED: "the check did not end well on the {side}: {told}",
    Cause.SKIPPED: "skipped on the {side}, so it shows nothing: {told}",
    Cause.DIFFERENT_TESTS: "the check is broken: runs on the {side} only: {told}",
    Cause.FLAKY: "flaky: two runs on the {side} differ: {told}",
    Cause.MACHINE: "on the {side}, {told}",
}
_BROKEN: Final = {
    Broken.IMPORTS: "the {side} imports what is not installed here: {told}",
    Broken.OWN_IMPORT: "the {side} imports what it does not have: {told}",
    Broken.NETWORK: "it needs the network on the {side}: {told}",
    Broken.READ_ONLY: "it writes where no check may on the {side}: {told}",
    Broken.UNMODELLED: "on the {side} it cannot be told: {told}",
    Broken.CHECK: "the check is broken on the {side}: {told}",
}


_SHOWS: Final = {
    Shows.TEXT: (
        "but it passes as well, or looks at code alone, where the added statements are undone and "
        "names, signatures and text are as patched, so it shows no behaviour: import what is run "
        "(what `python -I` runs stays as patched), and assert what it does ({note})"
    ),
    Shows.ABSENT: (
        "but where names and signatures are as patched and the added statements are undone, it "
        "fails for another reason, so the base's red may be no more than an absent name: let the "
        "check do without the name on the base, and state how the result is wrong ({note})"
    ),
    Shows.LOOSENED: (
        "but {note}, which the patch changes, raised the base's AssertionError itself, and nothing "
        "else that it changes brings the red back; assert in the check what the code returns"
    ),
    Shows.NOTHING_UNDONE: (
        "but the patch changes no Python statement, and no build that the check loads, by which "
        "that could be told"
    ),
    Shows.UNKNOWN: (
        "but whether the added statements did it is not known: with them undone, the check {note}"
    ),
}


def sentence(judgement: Judgement) -> str:
    """Return one line for people; nothing reads it back."""
    side, told, note = judgement.side, judgement.told, judgement.note
    broken = judgement.cause is Cause.BROKEN
    words = _BROKEN[judgement.broken or Broken.CHECK] if broken else _SENTENCES[judgement.cause]
    said = judgement.words or words.format(side=side, told=told)
    said += f" (and {judgement.more} more)" if judgement.more and not judgement.words else ""
    if judgement.shows is not None:
        return f"{said}; {_SHOWS[judgement.shows].format(note=note)}"
    return f"{said}; {note}" if note else said
