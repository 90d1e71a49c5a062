"""What each member of a stack contributes: its top, verified with each member left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from contribbot.errors import ExitCode, UsageError
from contribbot.model.evidence import Outcome, PatchReport, StageResult, Verdict
from contribbot.model.lifecycle import Loss, Share, StackReport
from contribbot.queue.load import Queue
from contribbot.verify.pipeline import Options, Watcher, verify

_PREPARING = frozenset({"source", "apply"})


def stacks(queue: Queue, names: Sequence[str]) -> list[str]:
    """Return those of some patches that depend on others."""
    tops = [name for name in names or queue.specs if queue.specs[name].depends_on]
    if not tops:
        which = ", ".join(names) if names else "the queue"
        raise UsageError(
            f"--leave-one-out: {which}: no patch with depends_on",
            hint="name one that depends on others",
        )
    return tops


def leave_one_out(
    queue: Queue, names: Sequence[str], *, options: Options, watcher: Watcher
) -> StackReport:
    """Verify the top of each stack whole, and without each member in turn; nothing is recorded."""
    whole = [done.report for done in verify(queue, names, options=options, watcher=watcher)]
    shares: list[Share] = []
    untold: dict[str, str] = {}
    for top, report in zip(names, whole, strict=True):
        if why := _untellable(report):
            untold[top] = why
            continue
        for member in queue.below(top):
            rest = verify(without(queue, member), [top], options=options, watcher=watcher)
            shares.append(share(top, member, report, rest[0].report))
    refuted = tuple(report.patch for report in whole if report.verdict is Verdict.REFUTED)
    return StackReport(shares=tuple(shares), untold=untold, refuted=refuted)


def without(queue: Queue, member: str) -> Queue:
    """Return the queue without a patch and benches; what depended on it is on what is below."""
    specs = {}
    for name, spec in queue.specs.items():
        below: list[str] = []
        for lower in spec.depends_on:
            below += queue.specs[member].depends_on if lower == member else (lower,)
        update = {"depends_on": tuple(dict.fromkeys(below)), "bench": ()}
        if name != member:
            specs[name] = spec.model_copy(update=update)
    return replace(queue, specs=specs)


def share(top: str, member: str, whole: PatchReport, rest: PatchReport) -> Share:
    """Say what passes with a member and not without it."""
    apply = next(result for result in rest.stages if result.stage == "apply")
    applies = apply.outcome is Outcome.PASSED
    after = {result.unit: result for result in rest.stages}
    before = [result for result in whole.stages if result.stage not in {*_PREPARING, "bench"}]
    # What has no outcome without the member (its stage was skipped) neither passes nor fails.
    pairs = [
        (result, after[result.unit])
        for result in before
        if result.outcome is Outcome.PASSED and result.unit in after
    ]
    losses = [
        Loss(what=_title(result), reason=then.sentence)
        for result, then in pairs
        if then.outcome is not Outcome.PASSED
    ]
    return Share(
        top=top,
        without=member,
        applies=applies,
        losses=tuple(losses) if applies else (Loss(what="apply", reason=apply.reason),),
        kept=len(pairs) - len(losses) if applies else 0,
        open=sum(result.outcome is Outcome.UNAVAILABLE for result in before),
    )


def exit_code(report: StackReport) -> ExitCode:
    """Return 0: all is known; 1: a whole stack is refuted; 3: this machine could not look."""
    if not report.untold:
        return ExitCode.OK
    return ExitCode.NO if report.refuted else ExitCode.MACHINE


def _untellable(report: PatchReport) -> str:
    """Say why nothing can be said of a stack's members, or nothing."""
    if report.verdict is Verdict.REFUTED:
        failed = next(result for result in report.stages if result.outcome is Outcome.FAILED)
        return f"the whole stack is refuted by {_title(failed)}: {failed.sentence}"
    for result in report.stages:
        if result.stage in _PREPARING and result.outcome is not Outcome.PASSED:
            return f"{result.stage}: {result.reason}"
    return ""


def _title(result: StageResult) -> str:
    return " ".join(part for part in result.unit if part not in {"", "any"})
