"""Judge the runs of a check, and a patch by all outcomes: functions without side effects.

The parts, in the order in which they act:

1. `judge_sides` judges the first run on the base and on the patched tree: a run that failed as a
   whole (`_troubled`), then a fault of the machine (`_machine_fault`), then the tests on the base
   (`_on_base`), then the tests on the patched tree (`_on_patched`).
2. `decide` asks for further runs (a `RunSide`): a side that decides a second time, and after red to
   green the patched tree without the change once. In the mapping `Runs`, an empty list under
   `WITHOUT_CHANGE` means that a statement differs and that this side has not run yet; without
   the key, no statement differs.
3. `_without_change` judges, after red to green, whether a test fails again without the change.
4. `sentence` writes a judgement as a line for people, from the row of its `Cause`.

`judge_base` judges the two runs on the base of a patch that only reproduces a bug, and
`judge_side` judges one run on one tree. Below, `judge` gives a patch's verdict, and `verdict_line`
writes the verdict as a line for people.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from contribbot.model.checks import EMULATED, Check
from contribbot.model.evidence import (
    HOST_TARGETS,
    ON_HARDWARE,
    RAN,
    SEEN,
    Outcome,
    PatchFault,
    PatchReport,
    StageResult,
    Verdict,
    need_of,
)
from contribbot.model.failure import RAISED, Blame, RunFailure
from contribbot.model.record import BenchDetails, CheckDetails
from contribbot.queue.history import Refutation
from contribbot.verify.pytest_run import CheckRun, FailedTest
from contribbot.verify.runner_fault import at_fault

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
    """The result of judging a check's runs, the tree that shows the result, and the failure."""

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


_GREEN: Final = {"fail-to-pass": Cause.RED_TO_GREEN, "pass-to-pass": Cause.GREEN_ON_BOTH}
#: The runs of a check by side, in order; no key `WITHOUT_CHANGE`: no statement differs.
Runs = Mapping[RunSide, Sequence[CheckRun]]


def judge_sides(check: Check, base: CheckRun, patched: CheckRun) -> Judgement:
    """Judge a check by its first run on each tree."""
    sides = ((RunSide.BASE, base, patched), (RunSide.PATCHED, patched, base))
    return (
        next(filter(None, (_troubled(check, *each) for each in sides)), None)
        or next(filter(None, (_machine_fault(check, *each) for each in sides)), None)
        or _on_base(check, RunSide.BASE, base)
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
    patched = side is RunSide.PATCHED
    return (
        _troubled(check, side, run, None)
        or _machine_fault(check, side, run, None)
        or (_failed(Cause.FAILS_PATCHED, side, run) if patched else _on_base(check, side, run))
        or Judgement(_GREEN[check.expect], side, detail=_tests(run))
    )


def _tests(run: CheckRun) -> str:
    number = len(run.ran)
    skipped = f", {len(run.skipped)} skipped" if run.skipped else ""
    return f"{number} test{'s' if number != 1 else ''}{skipped}"


def decide(
    check: Check,
    runs: Runs,
    judge: Callable[[Check, CheckRun, CheckRun], Judgement] = judge_sides,
) -> Judgement | RunSide:
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
            return side
        if detail := _differ(check, side, *runs[side]):
            return Judgement(Cause.FLAKY, side, detail)
    return _without_change(check, first, base, without) if red else first


def _without_change(
    check: Check, first: Judgement, base: CheckRun, without: CheckRun | None
) -> Judgement:
    """Return the judgement of red to green; a test that fails again without the change is proof."""
    if without is None:
        return replace(first, cause=Cause.NO_STATEMENT)
    if without.kind is not None:
        return replace(first, cause=Cause.NOT_ALONE, note=without.trouble)
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
        return again.trouble or run.trouble or differ[0]
    if side is RunSide.PATCHED:
        return ""
    first, second = (unlike_stated(check, each.failed) for each in (run, again))
    other = second or first
    return other.detail if other and not (first and second) else ""


def _troubled(
    check: Check, side: RunSide, run: CheckRun, other: CheckRun | None
) -> Judgement | None:
    """Judge a run by its failure as a whole (`other`: the other tree's run); None: no failure."""
    if (kind := run.kind) is None:
        return None
    # The base's run is no measure of time and memory if a test failed in it.
    beside = other if side is RunSide.PATCHED and other and not other.kind else None
    measured = beside is not None and not beside.failed
    if kind.blame is Blame.MACHINE:
        cause = Cause.DIES_PATCHED if measured and not run.lacked else Cause.MACHINE
        return Judgement(cause, side, run.trouble, kind=kind)
    late = kind is RunFailure.TIMED_OUT
    if (
        beside is not None
        and kind.blame is Blame.TREE
        and (not late or (measured and beside.seconds * _HANGS < run.limit))
    ):
        return Judgement(Cause.DIES_PATCHED, side, run.trouble, kind=kind)
    note = "give it a longer `timeout`, or less to do" if late else ""
    if kind in RAISED and not run.missing and check.reason:
        note = "if that is the bug, import within a test and name the exception in `reason`"
    return Judgement(Cause.BROKEN, side, run.trouble, kind=kind, note=note)


def _machine_fault(
    check: Check, side: RunSide, run: CheckRun, other: CheckRun | None
) -> Judgement | None:
    """Judge a run by a fault of this machine; None: no fault, or the check's own fault."""
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
    """Return whether the check caused a failure after which a known-good kernel passed."""
    # The free memory before the run is unknown. A lack of memory is the check's own only where the
    # patch states this lack, and the patched tree had enough memory.
    if failure.kind is not RunFailure.NO_MEMORY:
        return True
    stated = check.expect == "fail-to-pass" and re.search(check.reason, failure.message)
    return failure in base.failed and bool(stated) and not patched.starved


def _on_base(check: Check, side: RunSide, base: CheckRun) -> Judgement | None:
    if check.expect == "pass-to-pass":
        return _failed(Cause.FAILS_BASE, side, base)
    # On a release, one failing test is enough.
    if base.passed and (side is RunSide.BASE or not base.failed):
        return Judgement(Cause.PASSES_BASE, side, base.passed[0], len(base.passed) - 1)
    return unlike_stated(check, base.failed, side)


def unlike_stated(
    check: Check, failed: Sequence[FailedTest], where: RunSide = RunSide.BASE
) -> Judgement | None:
    """Judge the first failure that is not as the patch states; None: all failures are as stated."""
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
    if failed := _failed(Cause.FAILS_PATCHED, RunSide.PATCHED, patched):
        return failed
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


def _failed(cause: Cause, side: RunSide, run: CheckRun) -> Judgement | None:
    """Judge the failed tests of a run where no test may fail; None: no test failed."""
    for failure in run.failed:
        # If the patched tree imports a name that the tree lacks, the patch is to blame.
        own = failure.kind is RunFailure.OWN_IMPORT and side is RunSide.PATCHED
        if failure.kind and not failure.by_machine and not own:
            return Judgement(Cause.BROKEN, side, _name(failure), kind=failure.kind)
    failed = run.failed
    return Judgement(cause, side, _name(failed[0]), len(failed) - 1) if failed else None


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


# The verdict on a patch from the outcomes of its stages.

#: How a stage proves on a target, in words.
_HOW: Final = {
    **dict.fromkeys(sorted(ON_HARDWARE - {"bench"}), "on"),
    "bench": "faster on",
    "compile": "by compiling for",
    "emulate": "by emulating",
}
#: The largest number of characters of a reason in a verdict.
_SHORT: Final = 160


def too_noisy(result: StageResult) -> bool:
    """Return whether a bench was measured, but the times were too noisy for an answer."""
    noisy = isinstance(result.details, BenchDetails) and result.details.too_noisy
    return noisy and result.outcome is Outcome.UNAVAILABLE


def unavailable_here(result: StageResult, targets: Collection[str]) -> bool:
    """Return whether a target is on this machine, but its entry could not run."""
    lacking = result.outcome is Outcome.UNAVAILABLE and result.target in targets
    return lacking and not too_noisy(result)


def went_red_to_green(result: StageResult) -> bool:
    """Return whether an outcome is the pass of a fail-to-pass entry."""
    red = result.stated is not None and result.stated.expect == "fail-to-pass"
    return red and result.outcome is Outcome.PASSED


def proves(result: StageResult) -> bool:
    """Return whether an outcome proves a patch alone: red to green by the change, or faster."""
    if isinstance(result.details, BenchDetails):
        return result.details.proof and result.outcome is Outcome.PASSED
    return went_red_to_green(result) and result.stated is not None and result.stated.proof


def judge(results: Sequence[StageResult], targets: Collection[str]) -> Verdict:
    """Return the verdict on a patch from its results, on a machine with these targets."""
    if any(result.outcome is Outcome.FAILED for result in results):
        return Verdict.REFUTED
    unavailable = any(unavailable_here(result, targets) for result in results)
    causes = [row.details.cause for row in results if isinstance(row.details, CheckDetails)]
    if not unavailable and Cause.REPRODUCED in causes:
        return Verdict.REPRODUCED
    if not unavailable and causes and {*causes} == {Cause.NOT_REPRODUCED}:
        return Verdict.NOT_REPRODUCED
    red_to_green = any(proves(result) for result in results)
    return Verdict.PROVED if red_to_green and not unavailable else Verdict.INCOMPLETE


def open_targets(results: Sequence[StageResult]) -> list[str]:
    """Return the targets without an answer: `cuda`, `compile:gfx950`, `bench:cpu` if too noisy."""
    seen = dict.fromkeys(
        result.target
        if result.stage in RAN and not too_noisy(result)
        else f"{result.stage}:{result.target}"
        for result in results
        # `any` is no target: the stage is unavailable for another reason than hardware.
        if result.outcome is Outcome.UNAVAILABLE and result.target != "any"
    )
    return list(seen)


def results_for(stages: Iterable[StageResult], need: str) -> list[StageResult]:
    """Return the results that decide on a target named in `--require`."""
    stage, target = need_of(need)
    among = {stage} if stage else RAN
    return [row for row in stages if row.target == target and row.stage in among]


def is_at_fault(stages: Iterable[StageResult], need: str) -> bool:
    """Return whether a result on a target named in `--require` has a runner fault."""
    stage, target = need_of(need)
    return at_fault(row for row in stages if row.target == target and stage in {"", row.stage})


def unmet(report: PatchReport, required: Sequence[str]) -> list[str]:
    """Return which of the required targets a report does not prove."""
    missing = []
    for need in required:
        results = results_for(report.stages, need)
        shown = need_of(need)[0] or any(map(proves, results))
        if {result.outcome for result in results} != {Outcome.PASSED} or not shown:
            missing.append(need)
    return missing


def verdict_line(report: PatchReport) -> str:
    """Return a line on a patch: the verdict, the targets of the proof, and the open targets."""
    return f"{report.patch}: {report.verdict}{verdict_rest(report)}"


def verdict_rest(report: PatchReport, *, where: str = "here") -> str:
    """Return the part of `verdict_line` after the verdict; `where`: words for the machine."""
    shown = _where(report)
    if report.verdict is Verdict.PROVED:
        red = any(proves(result) and went_red_to_green(result) for result in report.stages)
        how = "fails without the patch, passes with it" if red else "the same results in less time"
        said = f" {shown}: {how}"
    elif report.verdict.settled:
        rows = [row for row in report.stages if isinstance(row.details, CheckDetails)]
        some = [row for row in rows if went_red_to_green(row)] or rows
        said = " on " + ", ".join(dict.fromkeys(row.target.replace(":", " ") for row in some))
    elif report.verdict is Verdict.REFUTED:
        failed = dict.fromkeys(
            result.stage + ("" if result.target == "any" else f" on {result.target}")
            for result in report.stages
            if result.outcome is Outcome.FAILED
        )
        said = f": {', '.join(failed)} failed"
    elif shown:
        said = f": proved {shown}, but not everything could run {where}"
    elif any(map(went_red_to_green, report.stages)):
        said = ": what passes with the patch was not shown to hang on what it adds"
    elif any(row.outcome is Outcome.PASSED and row.stage in RAN for row in report.stages):
        said = f": what ran {where} passed and does not prove the patch alone{_obstacle(report)}"
    else:
        said = f": nothing could be proved {where}{_obstacle(report)}"
    noisy = dict.fromkeys(f"{row.stage}:{row.target}" for row in report.stages if too_noisy(row))
    unavailable = (row for row in report.stages if row.outcome is Outcome.UNAVAILABLE)
    here = dict.fromkeys(
        f"{row.stage} {row.label}".rstrip() for row in unavailable if not too_noisy(row)
    )
    half = report.verdict is Verdict.INCOMPLETE
    # A target with one check that ran and another that could not is open, but was run.
    seen = (row for row in report.stages if half and row.outcome in SEEN)
    known = {*noisy, *(row.target for row in seen if row.stage in RAN)}
    not_run = [
        f"{name} (runner fault)" if is_at_fault(report.stages, name) else name
        for name in report.open
        if name not in known
    ]
    for title, names in (
        ("could not run", [*here] if half else []),
        ("too noisy to tell", [*noisy]),
        ("not run", not_run),
    ):
        said += f"; {title}: {', '.join(names)}" if names else ""
    return said


def refuted_words(refutations: Sequence[Refutation]) -> str:
    """Return the targets or stages that refute a patch, in words; empty: no refutation."""
    if not refutations:
        return ""
    on = dict.fromkeys(each.target for each in refutations if each.target != "any")
    by = dict.fromkeys(each.stage for each in refutations)
    return f"refuted on {', '.join(on)}" if on else f"refuted by {', '.join(by)}"


def refutation_line(refutation: Refutation) -> str:
    """Return a line with the failed unit, the machine and the day."""
    unit = " ".join(filter(None, (refutation.stage, refutation.entry))) or "a check"
    where = "" if refutation.target == "any" else f" on {refutation.target}"
    return f"{unit} failed{where} ({refutation.machine}, {refutation.time:%Y-%m-%d})"


def _obstacle(report: PatchReport) -> str:
    """Return the first reason for which a unit could not run; empty: all units ran."""
    reasons = dict.fromkeys(
        result.sentence
        for result in report.stages
        if result.patch_fault is PatchFault.UNFINISHED
        or (result.outcome is Outcome.UNAVAILABLE and not too_noisy(result))
    )
    first = next(iter(reasons), "")
    first = first if len(first) <= _SHORT else f"{first[:_SHORT]}…"
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f": {first}{more}" if first else ""


def _where(report: PatchReport) -> str:
    """Return the targets of a proof in words, grouped by how the proof was made."""
    parts: dict[str, list[str]] = {how: [] for how in (*_HOW.values(), "by")}
    for row in filter(proves, report.stages):
        names = parts[_HOW.get(row.stage, "by")]
        name = row.target.removeprefix(EMULATED) if row.stage in _HOW else row.stage
        names += [] if name in names else [name]
    return " and ".join(f"{how} {', '.join(names)}" for how, names in parts.items() if names)
