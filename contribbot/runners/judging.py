"""What became of a cell: what its job sent, and how GitHub says that the job ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from contribbot.model.actions import CellEnd, CellState, RunJob
from contribbot.model.evidence import HOST_TARGETS, Details, Outcome
from contribbot.model.runners import Cell, Job
from contribbot.runners.answer import Sent
from contribbot.verify.runner_fault import fault_of

#: Seconds before its limit at which GitHub's clock may have ended a job.
_SLACK: Final = 15.0
_MINUTE: Final = 60.0
#: How GitHub's runner calls the step in which it starts a job's container.
_CONTAINER_STEP: Final = "Initialize containers"

#: Why records are refused that `disputed` finds.
TORN: Final = "two records say that the same base became different trees"

#: How a job ends that nobody let begin, or end.
_UNTRIED: Final = {"cancelled": CellState.CANCELLED, "skipped": CellState.MISSING}


def cell_end(cell: Cell, job: str, state: CellState, why: str) -> CellEnd:
    """Say of a cell what became of it."""
    return CellEnd(kind=cell.kind, patch=cell.patch, target=cell.target, rocm=cell.rocm,
                   state=state, why=why, job=job)  # fmt: skip


def nothing_came(job: Job, ghost: RunJob | None, *, asked: bool) -> tuple[CellState, str]:
    """Say what became of a job that left nothing, and why."""
    if ghost is None:
        return CellState.MISSING, "the run has no such job" if asked else "nothing came"
    if ghost.conclusion == "success":
        return CellState.MISSING, "its job ended well, and what it sent is not there"
    return _ended(job, ghost, "sent nothing")


def judged(cell: Cell, job: Job, sent: Sent, ghost: RunJob | None) -> CellEnd:
    """Say what became of a cell whose job sent something."""
    answer, ended = sent.answers.get(cell.patch), sent.ended(cell.patch)
    if answer is not None and answer.refused:
        state, why = CellState.REFUSED, answer.refused
    elif answer is not None and answer.details is not None:
        state, why = _seen(cell, answer.details)
    elif ended is not None and ended.faults:
        fault = ended.faults[0].fault
        state, why = CellState.FAULT, f"{fault.kind}: {fault.said}"
    elif ended is not None:
        state, why = CellState.FAILED, ended.error or f"exit code {ended.exit_code}, and no record"
    else:
        state, why = _ended(job, ghost, "did not get to it")
    return cell_end(cell, job.id, state, why)


def _ended(job: Job, ghost: RunJob | None, seen: str) -> tuple[CellState, str]:
    """Say how a job ended of which nothing tells of a cell."""
    if ghost is None:
        return CellState.MISSING, f"its job {seen}"
    if not ghost.over:
        return CellState.RUNNING, f"its job is {ghost.status}"
    late = ghost.seconds >= job.minutes * _MINUTE - _SLACK
    if ghost.conclusion == "timed_out" or (late and ghost.conclusion != "success"):
        return CellState.TIMED_OUT, f"its job was ended after {job.minutes} minutes"
    if ghost.conclusion in _UNTRIED:
        return _UNTRIED[ghost.conclusion], f"its job was {ghost.conclusion}"
    if why := _runner_failed(ghost):
        return CellState.FAULT, why
    return CellState.FAILED, f"its job ended with {ghost.conclusion} and {seen}"


def _runner_failed(ghost: RunJob) -> str:
    """Say what in a job that failed, and sent nothing, was its runner's doing; or nothing.

    Of a runner that went away GitHub says that its job failed, and of the steps that none did
    and one never ended. Where a container does not start, the steps that run always fail, too.
    """
    if ghost.conclusion != "failure":
        return ""
    failed = [one.name for one in ghost.steps if one.conclusion == "failure"]
    if failed[:1] == [_CONTAINER_STEP]:
        return "its runner could not start the container"
    torn = [one.name for one in ghost.steps if one.status == "in_progress"]
    if torn and not failed:
        return f"its runner went away: step {torn[0]!a} never ended"
    return ""


def _seen(cell: Cell, details: Details) -> tuple[CellState, str]:
    """Say what a record says of a cell."""
    needs = {tuple(need.split(":")) for need in cell.require}
    mine = [one for one in details.stages if (one.stage, one.target) in needs]
    # A patch that does not apply, say, is refuted for every target.
    around = [one for one in details.stages if one.target in HOST_TARGETS]
    # A machine without the ROCm that was asked for neither proves nor refutes a cell of it.
    for one in (*(mine if details.machine.rocm else ()), *around):
        if one.outcome is Outcome.FAILED:
            return CellState.REFUTED, f"{one.stage}: {one.reason}"
    for one in mine:
        if (fault := fault_of(one)) is not None:
            return CellState.FAULT, f"{fault.kind}: {fault.said}"
    for one in mine:
        if one.outcome is Outcome.UNAVAILABLE:
            return CellState.OPEN, f"{one.stage}: {one.reason}"
    if not details.machine.rocm:
        return CellState.OPEN, f"its machine names no ROCm, and {cell.rocm} was asked"
    passed = {(one.stage, one.target) for one in mine if one.outcome is Outcome.PASSED}
    lacking = sorted(f"{stage}:{target}" for stage, target in needs - passed)
    if lacking or any(one.outcome is not Outcome.PASSED for one in mine):
        return CellState.INCOMPLETE, f"its record has no answer to {', '.join(lacking) or 'all'}"
    return CellState.PROVED, f"{', '.join(cell.require)} on {details.machine.slug}"


def disputed(sent: Iterable[Sent]) -> frozenset[str]:
    """Return the patches of which records say that the same base became different trees."""
    made: dict[tuple[str, str], set[str]] = {}
    for one in (answer for each in sent for answer in each.answers.values()):
        if one.details is None or one.refused:
            continue
        apply = next((each for each in one.details.stages if each.stage == "apply"), None)
        tree = str(apply.details.get("patched_tree")) if apply else ""
        made.setdefault((one.patch, one.details.base_commit), set()).add(tree)
    return frozenset(patch for (patch, _), trees in made.items() if len(trees) > 1)


def without(sent: Sent, why: Mapping[str, str]) -> Sent:
    """Return what a job sent, with the records of some patches refused."""
    return Sent(sent.done, {
        name: replace(one, refused=why[name], content=b"", note="")
        if name in why and not one.refused
        else one
        for name, one in sent.answers.items()
    })  # fmt: skip
