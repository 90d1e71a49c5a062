"""From what a run left to what became of each cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from contribbot.errors import ExitCode
from contribbot.model.actions import (
    PLAN_ARTIFACT,
    PREFIX,
    Again,
    ArtifactEnd,
    CellEnd,
    CellState,
    Collected,
    RecordEnd,
    RunJob,
)
from contribbot.model.runners import Cell, Job, Plan
from contribbot.queue.load import Queue
from contribbot.runners import planned
from contribbot.runners.answer import Answer, Question, Sent, Source, read_sent
from contribbot.runners.artifacts import RefusedArtifactError
from contribbot.runners.bases import Bases
from contribbot.runners.fetching import Haul
from contribbot.runners.judging import TORN, cell_end, disputed, judged, nothing_came, without
from contribbot.runners.merge import merge
from contribbot.runners.retrying import SUFFIX, second_jobs, settled, stale_tries


@dataclass
class _Sheet:
    """What is filled in, job by job."""

    cells: list[CellEnd] = field(default_factory=list)
    artifacts: list[ArtifactEnd] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sent: list[tuple[str, Answer]] = field(default_factory=list)
    refused: bool = False


@dataclass(frozen=True)
class _Part:
    """A job: what it sent, or what became of all its cells."""

    job: Job
    ghost: RunJob | None
    sent: Sent | None
    state: CellState = CellState.REFUSED
    why: str = ""


@dataclass(frozen=True)
class _Judge:
    """What the jobs of a plan, and their second tries, are judged with."""

    queue: Queue
    plan: Plan
    source: Source
    haul: Haul
    sheet: _Sheet
    scratch: Path
    bases: Bases
    problems: Mapping[str, str]
    #: Second tries of an earlier attempt of the run, whose first tries ran again since.
    stale: frozenset[str]

    def receive(self, jobs: Iterable[Job]) -> list[_Part]:
        """Read what each job sent."""
        return [self._receive(job) for job in jobs]

    def _receive(self, job: Job) -> _Part:
        came = [one for one in self.haul.arrived
                if one.name == job.artifact and job.id not in self.stale]  # fmt: skip
        asked, ghost = self.haul.jobs is not None, (self.haul.jobs or {}).get(job.id)
        if not came:
            return _Part(job, ghost, None, *nothing_came(job, ghost, asked=asked))
        problem = "it came twice" if len(came) > 1 else came[0].refused
        problem = problem or _misplaced(job, ghost)
        if not problem:
            try:
                question = Question(job, self.source, self.bases, self.scratch / job.id)
                sent = read_sent(came[0].files, question)
            except RefusedArtifactError as error:
                problem = str(error)
            else:
                if came[0].early and _is_older(sent, ghost):
                    note = f"left alone, as it is of an earlier attempt: {job.artifact}"
                    self.sheet.notes.append(note)
                    return _Part(job, ghost, None, *nothing_came(job, ghost, asked=asked))
                if ghost is None or ghost.conclusion != "success" or sent.done.exit_code == 0:
                    return _Part(job, ghost, without(sent, self._problems(job)))
                problem = f"it says exit code {sent.done.exit_code}, and GitHub says success"
        self.refuse(job.artifact, problem)
        return _Part(job, ghost, None, why=problem)

    def _problems(self, job: Job) -> dict[str, str]:
        """Return what is wrong with the plan's words about a job, by patch."""
        problems = ((cell.patch, self.problems.get(cell.key)) for cell in job.cells)
        return {patch: problem for patch, problem in problems if problem}

    def refuse(self, name: str, problem: str) -> None:
        """Note why nothing is taken of the artifacts of a name."""
        for number, one in enumerate(self.sheet.artifacts):
            if one.name == name:
                self.sheet.artifacts[number] = one.model_copy(update={"refused": problem})

    def ends(self, parts: Sequence[_Part]) -> list[CellEnd]:
        """Say what became of each cell."""
        return [self._end(cell, one) for one in parts for cell in one.job.cells]

    def _end(self, cell: Cell, part: _Part) -> CellEnd:
        refused = part.sent is None and part.state is CellState.REFUSED
        # Also where nothing came: a second try would run what the plan has made up.
        if not refused and (problem := self.problems.get(cell.key)):
            return cell_end(cell, part.job.id, CellState.REFUSED, problem)
        if part.sent is None:
            return cell_end(cell, part.job.id, part.state, part.why)
        return judged(cell, part.job, part.sent, part.ghost)


def collect(queue: Queue, haul: Haul, *, scratch: Path) -> Collected:
    """Judge what a run left, take into the queue what is good, and say what became of each cell."""
    judge = _judge(queue, haul, scratch, sheet := _sheet_of(haul))
    if judge is not None:
        _answers(judge)
    records = merge(queue, sheet.sent)
    if judge is not None:
        sheet.cells += planned.not_run(queue, judge.plan)
        sheet.cells += planned.left_out(queue, judge.plan, selected=haul.selected)
    sheet.notes += sorted({f"{one.patch}: {one.note}" for _, one in sheet.sent if one.note})
    if haul.running:
        sheet.notes.append("the run is not over: collect it again when it is")
    source = haul.source
    sound = judge is not None and _is_sound(haul, sheet, records)
    ill = {one.state for one in sheet.cells if not _is_well(one)}
    return Collected(
        repository=source.repository if source else "",
        run=source.run_id if source else 0,
        commit=source.commit if source else "",
        cells=tuple(sheet.cells),
        records=records,
        artifacts=tuple(sheet.artifacts),
        notes=tuple(sheet.notes),
        complete=sound and not ill,
        runners_failed=sound and ill == {CellState.FAULT},
    )


def second_tries(queue: Queue, haul: Haul, *, scratch: Path) -> Again:
    """Say which cells runners failed so far, and what tries them once more; write nothing."""
    judge = _judge(queue, haul, scratch, sheet := _sheet_of(haul))
    faulty: list[CellEnd] = []
    jobs: tuple[Job, ...] = ()
    if judge is not None:
        first = judge.receive(judge.plan.jobs)
        ends = judge.ends(_agreeing(first))
        faulty = [one for one in ends if one.state is CellState.FAULT]
        jobs = second_jobs(queue, judge.plan, ends)
    return Again(run=haul.source.run_id if haul.source else 0, cells=tuple(faulty), jobs=jobs,
                 notes=tuple(sheet.notes))  # fmt: skip


def exit_code(collected: Collected) -> ExitCode:
    """Return what the shell is told: a runner that failed is not a patch that did."""
    if collected.complete:
        return ExitCode.OK
    return ExitCode.MACHINE if collected.runners_failed else ExitCode.NO


def _is_well(cell: CellEnd) -> bool:
    """Say whether a cell is as it was planned: what has no runner was not.

    A cell that a record was said to answer was, and is open where there is no such record.
    """
    unplanned = not (cell.job or cell.fresh)
    return cell.state is CellState.PROVED or (cell.state is CellState.OPEN and unplanned)


def _is_sound(haul: Haul, sheet: _Sheet, records: Iterable[RecordEnd]) -> bool:
    """Say whether all is over, and nothing that came is in doubt."""
    refused = any(one.refused for one in sheet.artifacts)
    refused |= any(one.merged == "refused" for one in records)
    return not (haul.running or sheet.refused or refused)


def _sheet_of(haul: Haul) -> _Sheet:
    artifacts = [
        ArtifactEnd(name=one.name, sha256=one.sha256, refused=one.refused, attested=one.attested)
        for one in haul.arrived
    ]
    return _Sheet(artifacts=artifacts, notes=list(haul.notes))


def _judge(queue: Queue, haul: Haul, scratch: Path, sheet: _Sheet) -> _Judge | None:
    """Return what the jobs are judged with; None, and a note, where there is no plan."""
    plan, notes = planned.plan_of(queue, haul)
    sheet.notes += notes
    if plan is None or haul.source is None:
        return None
    problems = planned.problems(queue, plan)
    stale = stale_tries(plan, haul.jobs)
    jobs = {name: job for name, job in (haul.jobs or {}).items() if name not in stale}
    now = replace(haul, jobs=None if haul.jobs is None else jobs)
    return _Judge(queue, plan, haul.source, now, sheet, scratch, Bases(queue), problems, stale)


def _answers(judge: _Judge) -> None:
    """Judge each job and its second try, and what came for no job."""
    sheet, haul = judge.sheet, judge.haul
    first = judge.receive(judge.plan.jobs)
    # As the run itself saw it, which had no second try to compare with.
    tries = second_jobs(judge.queue, judge.plan, judge.ends(_agreeing(first)))
    parts = _agreeing([*first, *judge.receive(tries)])
    jobs = [one.job for one in parts]
    _refuse_others(judge, jobs)
    strange = planned.unplanned(jobs, haul.jobs)
    sheet.notes += strange
    sheet.refused |= bool(strange)
    first, second = parts[: len(first)], parts[len(first) :]
    ghosts = {one.job.id: one.ghost for one in parts}
    later = {one.key: one for one in judge.ends(second)}
    for end in judge.ends(first):
        tried = later.get(end.key)
        sheet.cells.append(
            settled(end, tried, ghosts[end.job], ghosts[tried.job]) if tried else end
        )
    for one in parts:
        if one.sent is not None:
            sheet.sent += [(one.job.id, answer) for answer in one.sent.answers.values()]


def _agreeing(parts: Iterable[_Part]) -> list[_Part]:
    """Refuse, in what jobs sent, the records of which others say something else."""
    parts = list(parts)
    torn = dict.fromkeys(disputed(one.sent for one in parts if one.sent), TORN)
    return [replace(one, sent=without(one.sent, torn)) if one.sent else one for one in parts]


def _refuse_others(judge: _Judge, jobs: Sequence[Job]) -> None:
    """Refuse what came for no job."""
    named = {job.artifact for job in jobs} | {PLAN_ARTIFACT}
    again = {f"{job.artifact}{SUFFIX}" for job in judge.plan.jobs}
    ran = {f"{PREFIX}{name}" for name in judge.haul.jobs or ()}
    stale = {f"{PREFIX}{name}" for name in judge.stale}
    for one in list(judge.sheet.artifacts):
        if one.name in stale or (one.name in again - named - ran and judge.source.attempts > 1):
            judge.refuse(one.name, "")
            judge.sheet.notes.append(f"left alone, as it is of an earlier attempt: {one.name}")
        elif one.name.startswith(PREFIX) and one.name not in named and not one.refused:
            judge.refuse(one.name, "no job of the plan sends it")


def _is_older(sent: Sent, ghost: RunJob | None) -> bool:
    """Say whether what came says that it is of an earlier attempt than GitHub says of its job."""
    run = sent.done.run
    return run is not None and ghost is not None and run.attempt < ghost.run_attempt


def _misplaced(job: Job, ghost: RunJob | None) -> str:
    """Say by what GitHub says that a job did not run where the plan has it; or nothing."""
    if ghost is None or not ghost.labels or set(job.labels) <= set(ghost.labels):
        return ""
    return f"it ran on {', '.join(ghost.labels)}, and the plan has it on {', '.join(job.labels)}"
