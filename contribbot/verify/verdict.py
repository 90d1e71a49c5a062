"""The judge: what the runs of a check come to, as a pure function with a typed cause."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Judgement:
    """What a check came to: the cause, the side and test that it was seen in, and the words.

    `more` counts further tests of the same kind; `words` say more than the cause does; `trouble`
    is how a run died, `broken` why nothing could be tested.
    """

    cause: Cause
    side: str = ""
    told: str = ""
    more: int = 0
    words: str = ""
    trouble: Trouble | None = None
    broken: Broken | None = None

    @property
    def outcome(self) -> Outcome:
        """The outcome that the cause stands for."""
        if self.cause in {Cause.RED_TO_GREEN, Cause.GREEN_ON_BOTH}:
            return Outcome.PASSED
        return Outcome.FAILED if self.cause in _REFUTES else Outcome.UNAVAILABLE


def judge_check(
    check: Check, base: CheckRun, patched: CheckRun, again: CheckRun | None = None
) -> Judgement:
    """Judge a check by its runs; `again` is the second one of the side that is run again."""
    first = _judge_two(check, base, patched)
    if again is None:
        return first
    return confirmed(check, first, base if side_to_repeat(first) == "base" else patched, again)


def _judge_two(check: Check, base: CheckRun, patched: CheckRun) -> Judgement:
    for side, run, other in (("base", base, patched), ("patched tree", patched, base)):
        if run.trouble is not None:
            return _troubled(side, run, other)
    number = len(patched.ran)
    skipped = f", {len(patched.skipped)} skipped" if patched.skipped else ""
    tests = f"{number} test{'s' if number != 1 else ''}{skipped}"
    red = check.expect == "fail-to-pass"
    return (
        _machine_fault(check, base, patched)
        or _on_base(check, base)
        or _on_patched(base, patched)
        or Judgement(Cause.RED_TO_GREEN if red else Cause.GREEN_ON_BOTH, told=tests)
    )


def side_to_repeat(first: Judgement) -> str:
    """Return the side that has to do the same again for a judgement to stand, or nothing.

    A hang is not waited for twice.
    """
    if first.cause is Cause.RED_TO_GREEN:
        return "base"
    hung = first.trouble is Trouble.TIMED_OUT
    return first.side if first.cause in _REFUTES - {Cause.WANTS_MORE} and not hung else ""


def confirmed(check: Check, first: Judgement, run: CheckRun, again: CheckRun) -> Judgement:
    """Return what the first two runs came to, if the run that decided comes out the same again."""
    side = side_to_repeat(first)
    differ = sorted(
        test
        for test in {**run.outcomes, **again.outcomes}
        if run.outcomes.get(test) != again.outcomes.get(test)
    )
    if again.trouble is not run.trouble or differ:
        return Judgement(Cause.FLAKY, side, again.told or run.told or differ[0])
    red = first.cause is Cause.RED_TO_GREEN
    other = unlike_stated(check, again.failed) if red else None
    return Judgement(Cause.FLAKY, side, other.told) if other else first


def _troubled(side: str, run: CheckRun, other: CheckRun) -> Judgement:
    """Judge a run that shows nothing as a whole."""
    if run.trouble in {Trouble.DISK_FULL, Trouble.NO_MEMORY}:
        cause = Cause.MACHINE if run.lacked else Cause.WANTS_MORE
        return Judgement(cause, side, run.told)
    if side != "base" and other.trouble is None:
        hangs = run.trouble is Trouble.TIMED_OUT and other.seconds * _HANGS < run.limit
        if hangs or run.trouble in _DIES or run.broken is Broken.OWN_IMPORT:
            return Judgement(Cause.DIES_PATCHED, side, run.told, trouble=run.trouble)
    died = run.trouble in {*_DIES, Trouble.TIMED_OUT, Trouble.MEDDLED} - {Trouble.FIXTURE}
    cause = Cause.DIED if died else Cause.BROKEN
    return Judgement(cause, side, run.told, broken=run.broken)


def _machine_fault(check: Check, base: CheckRun, patched: CheckRun) -> Judgement | None:
    """Judge runs in which this machine gave up, which says nothing of the patch.

    Memory that lacks on the patched tree alone is the patch's doing, and so is a device
    that is missed where none was asked for.
    """
    for side, run in (("base", base), ("patched tree", patched)):
        for failure in run.failed:
            if not failure.fault or (run.cleared and _own(check, failure, base, patched)):
                continue
            what = "ran out of memory" if failure.fault == "memory" else "lost its device"
            said = f"this machine {what}: {_name(failure)}"
            if run is patched and (failure.fault == "memory" or check.target in HOST_TARGETS):
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


def _on_base(check: Check, base: CheckRun) -> Judgement | None:
    if check.expect == "pass-to-pass":
        return _failed(Cause.FAILS_BASE, "base", base.failed) if base.failed else None
    if base.passed:
        return Judgement(Cause.PASSES_BASE, "base", base.passed[0], len(base.passed) - 1)
    return unlike_stated(check, base.failed)


def unlike_stated(
    check: Check, failed: Sequence[FailedTest], where: str = "base"
) -> Judgement | None:
    """Judge failures by the one that is another than a fail-to-pass check states; None: none is."""
    for failure in failed:
        if failure.broken:
            return Judgement(Cause.BROKEN, where, _name(failure), broken=failure.broken)
        if not re.search(check.reason, failure.message):
            return Judgement(Cause.OTHER_REASON, where, _name(failure))
    return None


def _on_patched(base: CheckRun, patched: CheckRun) -> Judgement | None:
    if patched.failed:
        return _failed(Cause.FAILS_PATCHED, "patched tree", patched.failed)
    skipped = sorted({*patched.partly, *(base.ran & set(patched.skipped))})
    if skipped:
        return Judgement(Cause.SKIPPED, "patched tree", skipped[0], len(skipped) - 1)
    differing = sorted(base.ran ^ patched.ran)
    if differing:
        side = "base" if differing[0] in base.ran else "patched tree"
        return Judgement(Cause.DIFFERENT_TESTS, side, differing[0])
    if patched.status:
        told = f"no test failed, and pytest ended with status {patched.status}"
        return Judgement(Cause.BROKEN, "patched tree", told)
    return None


def _failed(cause: Cause, side: str, failed: Sequence[FailedTest]) -> Judgement:
    for failure in failed:
        # That the patched tree imports from itself what it has not is the patch's doing.
        if failure.broken and (failure.broken is not Broken.OWN_IMPORT or side == "base"):
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


def sentence(judgement: Judgement) -> str:
    """Return one line for people; nothing reads it back."""
    if judgement.words:
        return judgement.words
    broken = judgement.cause is Cause.BROKEN
    words = _BROKEN[judgement.broken or Broken.CHECK] if broken else _SENTENCES[judgement.cause]
    said = words.format(side=judgement.side, told=judgement.told)
    return f"{said} (and {judgement.more} more)" if judgement.more else said
