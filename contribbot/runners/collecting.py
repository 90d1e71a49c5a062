"""From what a run left to what became of each cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot.model.actions import (
    PLAN_ARTIFACT,
    PREFIX,
    ArtifactEnd,
    CellEnd,
    CellState,
    Collected,
    RunJob,
)
from contribbot.model.evidence import Details
from contribbot.model.outcome import HOST_TARGETS, Outcome
from contribbot.model.runners import Cell, Job, Plan
from contribbot.queue.load import Queue
from contribbot.runners import planned
from contribbot.runners.answer import Answer, Question, Sent, read_sent
from contribbot.runners.artifacts import PLAN_FILE, RefusedArtifactError
from contribbot.runners.bases import Bases
from contribbot.runners.fetching import Haul
from contribbot.runners.merge import merge
from contribbot.runners.where import commit_of
from contribbot.verify.runnerfault import fault_of

#: Seconds before its limit at which GitHub's clock may have ended a job.
_SLACK: Final = 15.0
_MINUTE: Final = 60.0


@dataclass
class _Sheet:
    """What is filled in, job by job."""

    cells: list[CellEnd] = field(default_factory=list)
    artifacts: list[ArtifactEnd] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sent: list[tuple[Job, Sent]] = field(default_factory=list)
    refused: bool = False

    def put(self, job: Job, cells: Iterable[Cell], state: CellState, why: str) -> None:
        """Note the same of several cells."""
        self.cells += [_cell(one, job.id, state, why) for one in cells]


def collect(queue: Queue, haul: Haul, *, scratch: Path) -> Collected:
    """Judge what a run left, take into the queue what is good, and say what became of each cell.

    Args:
        queue: The queue.
        haul: What the run left.
        scratch: An empty folder.

    Raises:
        QueueError: A file of the queue is invalid.
        MachineError: The records cannot be written.
    """
    sheet = _Sheet(notes=list(haul.notes))
    sheet.artifacts += [
        ArtifactEnd(name=one.name, sha256=one.sha256, refused=one.refused, attested=one.attested)
        for one in haul.arrived
    ]
    plan = _plan_of(haul, sheet)
    if plan is not None:
        _compare_commits(queue, haul, sheet)
        _answers(queue, plan, haul, sheet, scratch)
    taken = [(job.id, answer) for job, sent in sheet.sent for answer in sent.answers.values()]
    records = merge(queue, taken)
    if plan is not None:
        sheet.cells += planned.not_run(queue, plan)
        sheet.cells += planned.left_out(queue, plan, selected=haul.selected)
    sheet.notes += sorted({f"{one.patch}: {one.note}" for _, one in taken if one.note})
    if haul.running:
        sheet.notes.append("the run is not over: collect it again when it is")
    source = haul.source
    return Collected(
        repository=source.repository if source else "",
        run=source.run_id if source else 0,
        commit=source.commit if source else "",
        cells=tuple(sheet.cells),
        records=records,
        artifacts=tuple(sheet.artifacts),
        notes=tuple(sheet.notes),
        complete=plan is not None
        and not haul.running
        and not sheet.refused
        and not any(one.refused for one in sheet.artifacts)
        and not any(one.merged == "refused" for one in records)
        and all(_is_well(one) for one in sheet.cells),
    )


def _is_well(cell: CellEnd) -> bool:
    """Say whether a cell is as it was planned: what has no runner was not."""
    return cell.state is CellState.PROVED or (cell.state is CellState.OPEN and not cell.job)


def _plan_of(haul: Haul, sheet: _Sheet) -> Plan | None:
    """Return the plan of the run; None, and why, where there is none."""
    came = [one for one in haul.arrived if one.name == PLAN_ARTIFACT]
    if len(came) != 1 or haul.source is None:
        what = "came twice" if came else "never came"
        plan_job = (haul.jobs or {}).get("plan")
        ended = f" (its job: {_how(plan_job)})" if plan_job else ""
        if len(came) == 1:
            what = "came, and nothing says of which run"
        sheet.notes.append(f"the plan {what}{ended}: nothing can be said of any cell")
        return None
    if came[0].refused:
        sheet.notes.append(f"the plan is refused: {came[0].refused}")
        return None
    try:
        return Plan.model_validate_json(came[0].files[PLAN_FILE])
    except (ValidationError, ValueError, KeyError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "not there"
        sheet.notes.append(f"the plan is refused: not a plan: {what}")
        return None


def _compare_commits(queue: Queue, haul: Haul, sheet: _Sheet) -> None:
    here = commit_of(queue.folder)
    if haul.source is not None and here != haul.source.commit:
        sheet.notes.append(
            f"the run was of the queue's commit {haul.source.commit[:12]}, and here is "
            f"{here[:12] or 'none'}: what came is judged by what is here"
        )


def _answers(queue: Queue, plan: Plan, haul: Haul, sheet: _Sheet, scratch: Path) -> None:
    """Judge each job, and what came for no job."""
    assert haul.source is not None  # noqa: S101  _plan_of has seen to it
    named = {job.artifact for job in plan.jobs} | {PLAN_ARTIFACT}
    for number, one in enumerate(sheet.artifacts):
        if one.name.startswith(PREFIX) and one.name not in named and not one.refused:
            told = {"refused": "no job of the plan sends it"}
            sheet.artifacts[number] = one.model_copy(update=told)
    problems = planned.problems(queue, plan)
    strange = planned.unplanned(plan, haul.jobs)
    sheet.notes += strange
    sheet.refused |= bool(strange)
    bases = Bases(queue)
    waiting: list[tuple[Job, Sent]] = []
    for number, job in enumerate(plan.jobs):
        question = Question(job, haul.source, bases, scratch / str(number))
        sent = _receive(question, haul, sheet)
        if sent is not None:
            waiting.append((job, sent))
    torn = _disputed(one for _, sent in waiting for one in sent.answers.values())
    for job, sent in waiting:
        answers = {name: _dispute(one, torn) for name, one in sent.answers.items()}
        whole = Sent(sent.done, answers)
        sheet.sent.append((job, whole))
        ghost = (haul.jobs or {}).get(job.id)
        sheet.cells += [_judged(one, job, whole, ghost, problems.get(one.key, ""))
                        for one in job.cells]  # fmt: skip


def _disputed(answers: Iterable[Answer]) -> frozenset[str]:
    """Return the patches of which records say that the same base became different trees."""
    made: dict[tuple[str, str], set[str]] = {}
    for one in answers:
        if one.details is None or one.refused:
            continue
        apply = next((each for each in one.details.stages if each.stage == "apply"), None)
        tree = str(apply.details.get("patched_tree")) if apply else ""
        made.setdefault((one.patch, one.details.base_commit), set()).add(tree)
    return frozenset(patch for (patch, _), trees in made.items() if len(trees) > 1)


def _dispute(answer: Answer, torn: frozenset[str]) -> Answer:
    if answer.patch not in torn or answer.refused:
        return answer
    why = "two records say that the same base became different trees"
    return Answer(answer.patch, answer.file, why, answer.details)


def _receive(question: Question, haul: Haul, sheet: _Sheet) -> Sent | None:
    """Return what a job sent; else note what became of its cells."""
    job = question.job
    came = [one for one in haul.arrived if one.name == job.artifact]
    ghost = (haul.jobs or {}).get(job.id)
    if not came:
        state, why = _nothing_came(job, ghost, asked=haul.jobs is not None)
        sheet.put(job, job.cells, state, why)
        return None
    problem = "it came twice" if len(came) > 1 else came[0].refused
    if not problem:
        try:
            sent = read_sent(came[0].files, question)
        except RefusedArtifactError as error:
            problem = str(error)
        else:
            if ghost is None or ghost.conclusion != "success" or sent.done.exit_code == 0:
                return sent
            problem = f"it says exit code {sent.done.exit_code}, and GitHub says success"
    for number, one in enumerate(sheet.artifacts):
        if one.name == job.artifact:
            sheet.artifacts[number] = one.model_copy(update={"refused": problem})
    sheet.put(job, job.cells, CellState.REFUSED, problem)
    return None


def _nothing_came(job: Job, ghost: RunJob | None, *, asked: bool) -> tuple[CellState, str]:
    """Say what became of a job that left nothing."""
    if ghost is None:
        return CellState.MISSING, "the run has no such job" if asked else "nothing came"
    if ghost.conclusion == "success":
        return CellState.MISSING, "its job ended well, and what it sent is not there"
    return _ended(job, ghost)


def _ended(job: Job, ghost: RunJob | None) -> tuple[CellState, str]:
    """Say how a job ended that did not get to a cell."""
    if ghost is None:
        return CellState.MISSING, "its job did not get to it"
    if not ghost.over:
        return CellState.RUNNING, f"its job is {ghost.status}"
    late = ghost.seconds >= job.minutes * _MINUTE - _SLACK
    if ghost.conclusion == "timed_out" or (late and ghost.conclusion != "success"):
        return CellState.TIMED_OUT, f"its job was ended after {job.minutes} minutes"
    if ghost.conclusion == "cancelled":
        return CellState.CANCELLED, "its job was cancelled"
    if ghost.conclusion == "skipped":
        return CellState.MISSING, "its job was skipped"
    return CellState.FAILED, f"its job ended with {ghost.conclusion} and did not get to it"


def _how(ghost: RunJob) -> str:
    return ghost.conclusion or ghost.status


def _cell(cell: Cell, job: str, state: CellState, why: str) -> CellEnd:
    return CellEnd(kind=cell.kind, patch=cell.patch, target=cell.target, rocm=cell.rocm,
                   state=state, why=why, job=job)  # fmt: skip


def _judged(cell: Cell, job: Job, sent: Sent, ghost: RunJob | None, problem: str) -> CellEnd:
    """Say what became of a cell whose job sent something."""
    answer, ended = sent.answers.get(cell.patch), sent.ended(cell.patch)
    if problem:
        state, why = CellState.REFUSED, problem
    elif answer is not None and answer.refused:
        state, why = CellState.REFUSED, answer.refused
    elif answer is not None and answer.details is not None:
        state, why = _seen(cell, answer.details)
    elif ended is not None and ended.faults:
        fault = ended.faults[0].fault
        state, why = CellState.FAULT, f"{fault.kind}: {fault.said}"
    elif ended is not None:
        state, why = CellState.FAILED, ended.error or f"exit code {ended.exit_code}, and no record"
    else:
        state, why = _ended(job, ghost)
    return _cell(cell, job.id, state, why)


def _seen(cell: Cell, details: Details) -> tuple[CellState, str]:
    """Say what a record says of a cell."""
    needs = {tuple(need.split(":")) for need in cell.require}
    mine = [one for one in details.stages if (one.stage, one.target) in needs]
    # A patch that does not apply, say, is refuted for every target.
    around = [one for one in details.stages if one.target in HOST_TARGETS]
    for one in (*mine, *around):
        if one.outcome is Outcome.FAILED:
            return CellState.REFUTED, f"{one.stage}: {one.reason}"
    for one in mine:
        if (fault := fault_of(one)) is not None:
            return CellState.FAULT, f"{fault.kind}: {fault.said}"
    for one in mine:
        if one.outcome is Outcome.UNAVAILABLE:
            return CellState.OPEN, f"{one.stage}: {one.reason}"
    passed = {(one.stage, one.target) for one in mine if one.outcome is Outcome.PASSED}
    lacking = sorted(f"{stage}:{target}" for stage, target in needs - passed)
    if lacking or any(one.outcome is not Outcome.PASSED for one in mine):
        return CellState.INCOMPLETE, f"its record has no answer to {', '.join(lacking) or 'all'}"
    if not details.machine.rocm:
        return CellState.OPEN, f"its machine names no ROCm, and {cell.rocm} was asked"
    return CellState.PROVED, f"{', '.join(cell.require)} on {details.machine.slug}"


def faults(collected: Collected) -> Sequence[CellEnd]:
    """Return the cells that failed for the runners' reasons."""
    return [one for one in collected.cells if one.state is CellState.FAULT]
