"""From what a run left to what became of each cell."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import ValidationError

from contribbot.errors import ContribbotError, ExitCode, UsageError
from contribbot.files import lock, run_folder, write_atomically
from contribbot.model.evidence import HOST_TARGETS, SEEN, Details, Outcome, PatchReport, StageResult
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.runners.artifacts import (
    PLAN_FILE,
    Answer,
    Attest,
    Bases,
    Haul,
    Origin,
    Question,
    RefusedArtifactError,
    Sent,
    Source,
    attested,
    from_folder,
    from_github,
    read_sent,
)
from contribbot.runners.config import commit_of, connected, load_fleet, uncommitted
from contribbot.runners.model import (
    HOSTED,
    PLAN_ARTIFACT,
    PREFIX,
    RUNNERS_FILE,
    Again,
    ArtifactEnd,
    Cell,
    CellEnd,
    CellState,
    Collected,
    Job,
    Plan,
    RecordEnd,
    RunJob,
    Runners,
)
from contribbot.runners.plan import again, asked_cells, demands, read_facts
from contribbot.verify.evidence import State, judge_record
from contribbot.verify.runner_fault import fault_of

#: Jobs of the workflow that no plan has.
_OWN_JOBS = frozenset({"plan", "compile", "gpu", "plan-again", "again", "attest", "collect"})


def plan_of(queue: Queue, haul: Haul) -> tuple[Plan | None, list[str]]:
    """Return the plan of a run, None where there is none to go by; and what must be known of it."""
    came = [one for one in haul.arrived if one.name == PLAN_ARTIFACT]
    if len(came) != 1 or haul.source is None:
        what = "came twice" if came else "never came"
        job = (haul.jobs or {}).get("plan")
        ended = f" (its job: {job.conclusion or job.status})" if job else ""
        if len(came) == 1:
            what = "came, and nothing says of which run"
        return None, [f"the plan {what}{ended}: nothing can be said of any cell"]
    if came[0].refused:
        return None, [f"the plan is refused: {came[0].refused}"]
    try:
        plan = Plan.model_validate_json(came[0].files[PLAN_FILE])
    except (ValidationError, ValueError, KeyError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "not there"
        return None, [f"the plan is refused: not a plan: {what}"]
    here, commit = commit_of(queue.folder), haul.source.commit
    notes = []
    if here != commit:
        notes.append(
            f"the run was of the queue's commit {commit[:12]}, and here is {here[:12] or 'none'}: "
            "what came is judged by what is here"
        )
    elif _is_strange(queue, plan):
        why = "it was not made with the runners.toml of the run's commit"
        return None, [f"the plan is refused: {why}"]
    if runners_of(queue, plan) is None:
        notes.append(
            "runners.toml here is not the one that the run was planned with, or is not valid: "
            "images, flags, what is open, what is left out and second tries are not held against "
            "it; check out the run's commit for that"
        )
    return plan, notes


def _is_strange(queue: Queue, plan: Plan) -> bool:
    """Say whether a plan of the commit that is here was not made with its `runners.toml`."""
    path = queue.folder / RUNNERS_FILE
    if path.is_file() and sha256(path.read_bytes()).hexdigest() == plan.runners_sha256:
        return False
    # What is not committed here is not what the run had.
    return all(PurePosixPath(one).name != RUNNERS_FILE for one in uncommitted(queue.folder))


def plan_problems(queue: Queue, plan: Plan) -> dict[str, str]:
    """Return what is wrong with cells of a plan, by key: what the queue never asked so."""
    runners = runners_of(queue, plan)
    found = {}
    for job in plan.jobs:
        odd = "" if runners is None else _job_problem(job, runners)
        for cell in job.cells:
            spec = queue.specs.get(cell.patch)
            stated = demands(spec).get((cell.kind, cell.target)) if spec else None
            if spec is None:
                found[cell.key] = f"{cell.patch} is no patch of this queue"
            elif stated != cell.require:
                found[cell.key] = (
                    f"the plan asks for {', '.join(cell.require)}, and the patch for "
                    f"{', '.join(stated or ()) or 'nothing there'}"
                )
            elif (job.kind, job.rocm) != (cell.kind, cell.rocm) or (
                job.kind == "gpu" and job.target != cell.target
            ):
                found[cell.key] = "the plan gives it to a job for something else"
            elif odd:
                found[cell.key] = odd
    return found


def runners_of(queue: Queue, plan: Plan) -> Runners | None:
    """Return the runners of the queue; None where the plan was made with others."""
    try:
        fleet = load_fleet(queue.folder)
    except ContribbotError:
        return None
    return fleet.runners if fleet.sha256 == plan.runners_sha256 else None


def _job_problem(job: Job, runners: Runners) -> str:
    """Say what of a job is not in `runners.toml`; or nothing."""
    offered: set[tuple[str, str, tuple[str, ...], tuple[str, ...], int]] = set()
    if job.runners == HOSTED and runners.hosted is not None:
        host = runners.hosted
        offered = {
            (one.version, one.image, (), host.labels, host.minutes_limit) for one in host.rocm
        }
    for own in runners.runners:
        if own.name == job.runners and own.target == job.target:
            limit = own.minutes_limit
            offered = {(one.version, one.image, one.flags, own.labels, limit) for one in own.rocm}
    if (job.rocm, job.image, job.flags, job.labels, job.minutes) not in offered:
        return "the plan names runners, an image or a limit that runners.toml does not"
    return ""


def unplanned(planned: Iterable[Job], jobs: Mapping[str, RunJob] | None) -> list[str]:
    """Return what ran and is in no plan: the plan that came is not the one that was run."""
    known = {job.id for job in planned} | _OWN_JOBS
    return [
        f"job {name!a} ran, and the plan has none of this name"
        for name, job in sorted((jobs or {}).items())
        if name not in known and job.conclusion != "skipped"
    ]


def not_run(queue: Queue, plan: Plan) -> list[CellEnd]:
    """Return the cells that no job had: without a runner, or answered by a record."""
    ends = _open(queue, plan)
    names = [one.patch for one in plan.fresh if one.patch in queue.specs]
    facts = read_facts(queue, list(dict.fromkeys(names)))
    for one in plan.fresh:
        stated = demands(queue.specs[one.patch]) if one.patch in queue.specs else {}
        require = stated.get((one.kind, one.target), ())
        said = {
            known.says(require, one.rocm)
            for known in facts.get(one.patch, ())
            if require and known.path == one.record
        }
        state, why = CellState.OPEN, f"its record is not here, or not fresh: {one.record}"
        if "failed" in said:
            state, why = CellState.REFUTED, one.record
        elif "passed" in said:
            state, why = CellState.PROVED, one.record
        ends.append(
            CellEnd(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                    state=state, why=why, fresh=True)
        )  # fmt: skip
    return ends


def _open(queue: Queue, plan: Plan) -> list[CellEnd]:
    """Return the cells that a plan calls open: that they are, the queue must say as well."""
    runners = runners_of(queue, plan)
    known: set[str] | None = None
    if runners is not None:
        known = {one.key for one in asked_cells(queue, list(queue.specs), runners, runners).open}
    ends = []
    for one in plan.open:
        state, why = CellState.OPEN, one.reason
        if known is not None and one.key not in known:
            state, why = CellState.REFUSED, "the plan calls it open, and by this queue it is not"
        ends.append(
            CellEnd(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                    state=state, why=why)
        )  # fmt: skip
    return ends


def left_out(queue: Queue, plan: Plan, *, selected: bool) -> list[CellEnd]:
    """Return the cells that the patches ask for and that the plan is silent about."""
    runners = runners_of(queue, plan)
    if selected or runners is None:
        return []
    there = {one.key for one in plan.cells}
    there |= {one.key for one in plan.open} | {one.key for one in plan.fresh}
    asked = asked_cells(queue, list(queue.specs), runners, runners)
    return [
        CellEnd(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                state=CellState.MISSING, why="the plan leaves it out")
        for one in asked.wanted
        if one.key not in there
    ]  # fmt: skip


_LOCK: Final = "collect.lock"
_MANY: Final = 3


def merge(queue: Queue, answers: Iterable[tuple[str, Answer]]) -> tuple[RecordEnd, ...]:
    """Take records into the queue, and note what is news in the histories of patches.

    Where a record has the place, the newer one gets it; but never one that saw less, and the
    place of a record that no run made only one that saw something fail.
    """
    queue.local.mkdir(parents=True, exist_ok=True)
    with lock(queue.local / _LOCK, "the merging of records"):
        return tuple(_merge(queue, job, answer) for job, answer in answers)


def _merge(queue: Queue, job: str, answer: Answer) -> RecordEnd:
    place = queue.evidence / answer.patch / answer.file
    inside = place.relative_to(queue.folder).as_posix()
    details = answer.details
    if answer.refused or details is None:
        return RecordEnd(path=inside, job=job, merged="refused", why=answer.refused)
    if problem := _no_place(queue, place):
        return RecordEnd(path=inside, job=job, merged="refused", why=problem)
    said = f"{details.verdict} on {details.machine.slug}"
    if not place.exists():
        _write(queue, place, answer, details)
        return RecordEnd(path=inside, job=job, merged="new", why=said)
    if place.read_bytes() == answer.content:
        # Whoever was killed after the record was written did not note it.
        _note(queue, answer, details)
        return RecordEnd(path=inside, job=job, merged="unchanged", why=said)
    there = judge_record(queue, place)
    if there.state is State.FRESH and there.statement is not None:
        old = there.statement.predicate.contribbot
        if problem := _worse(old, details):
            return RecordEnd(path=inside, job=job, merged="kept", why=problem)
        whose = "" if old.run else ", which no run made,"
        why = f"{said}; the one of {old.finished:%Y-%m-%d %H:%M}{whose} said {old.verdict}"
    else:
        why = f"{said}; the one that was there was {there.state}: {there.why}"
    _write(queue, place, answer, details)
    return RecordEnd(path=inside, job=job, merged="replaced", why=why)


def _no_place(queue: Queue, place: Path) -> str:
    """Say why nothing is written to a place: it would be written elsewhere."""
    for path in (queue.evidence, place.parent, place):
        if path.is_symlink():
            return f"{path.relative_to(queue.folder)} is a link"
    if place.exists() and not place.is_file():
        return "there is something at its place that is no file"
    return ""


def _worse(old: Details, new: Details) -> str:
    """Say why the record that is there stays; or nothing."""
    if old.finished >= new.finished:
        return f"the one that is there is as new or newer: {old.finished.isoformat()}"
    if old.run is None and Outcome.FAILED not in {one.outcome for one in new.stages}:
        # Whoever made it saw it; of one that came, only that it was sent is known.
        return "the one that is there was made by hand, by no run"
    before, after = _outcomes(old.stages), _outcomes(new.stages)
    # What fails now is news; what was not seen now is not.
    lost = [
        "/".join(part for part in key if part)
        for key, outcome in before.items()
        if outcome in SEEN and after.get(key) not in SEEN
    ]
    if not lost:
        return ""
    more = f" and {len(lost) - _MANY} more" if len(lost) > _MANY else ""
    return f"the one that is there saw more: {', '.join(lost[:_MANY])}{more}"


def _outcomes(stages: Iterable[StageResult]) -> Mapping[tuple[str, str, str], Outcome]:
    return {(one.stage, str(one.details.get("check", "")), one.target): one.outcome
            for one in stages}  # fmt: skip


def _write(queue: Queue, place: Path, answer: Answer, details: Details) -> None:
    write_atomically(place, answer.content)
    _note(queue, answer, details)


def _note(queue: Queue, answer: Answer, details: Details) -> None:
    """Note it in the history of its patch, unless it is there."""
    report = PatchReport(
        patch=details.patch, upstream=details.upstream, pin=details.pin,
        base_commit=details.base_commit, patched_tree=None, verdict=details.verdict,
        stages=details.stages, open=details.open,
    )  # fmt: skip
    history.note_verified(queue.folder, queue.patch(answer.patch), report, details.machine)


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


#: What the id of a job that tries again ends with.
SUFFIX = "-again"


def second_jobs(queue: Queue, plan: Plan, ends: Iterable[CellEnd]) -> tuple[Job, ...]:
    """Return what tries the cells again that a runner failed."""
    faulty = [one.key for one in ends if one.state is CellState.FAULT]
    runners = runners_of(queue, plan)
    return again(plan, faulty, runners) if runners is not None else ()


def stale_tries(plan: Plan, jobs: Mapping[str, RunJob] | None) -> frozenset[str]:
    """Return the second tries whose first tries ran again since: they tell of what is no more."""
    there = jobs or {}
    pairs = ((there.get(job.id), there.get(f"{job.id}{SUFFIX}")) for job in plan.jobs)
    return frozenset(
        second.name
        for first, second in pairs
        if first and second and second.run_attempt < first.run_attempt
    )


def settled(
    first: CellEnd, second: CellEnd, before: RunJob | None, after: RunJob | None
) -> CellEnd:
    """Return what became of a cell whose first runner was at fault."""
    if second.state is CellState.MISSING and (after is None or after.conclusion == "skipped"):
        return first.model_copy(update={"why": f"{first.why}; no second try: {second.why}"})
    names = [job.runner_name or "" if job else "" for job in (before, after)]
    at_first, then = (f" on {name}" if name else "" for name in names)
    if then and then == at_first:
        then += ", the same runner again"
    if second.state is CellState.FAULT:
        why = f"tried twice;{then or ' then'}: {second.why}; before{at_first}: {first.why}"
    else:
        why = (f"{second.why}; second try{then}; the first{at_first} was a runner fault: "
               f"{first.why}")  # fmt: skip
    return second.model_copy(update={"why": why})


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
        sheet.cells += not_run(queue, judge.plan)
        sheet.cells += left_out(queue, judge.plan, selected=haul.selected)
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
    plan, notes = plan_of(queue, haul)
    sheet.notes += notes
    if plan is None or haul.source is None:
        return None
    problems = plan_problems(queue, plan)
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
    strange = unplanned(jobs, haul.jobs)
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


def gather(
    queue: Queue, run_id: int | None, *, folder: Path | None = None, repository: str = ""
) -> Collected:
    """Fetch what a run left, judge it, and take into the queue what is good."""
    with run_folder() as scratch:
        if run_id is not None:
            haul = _fetched(queue, run_id, folder, repository, scratch)
        elif folder is not None:
            haul = from_folder(folder, scratch=scratch)
        else:
            raise UsageError("neither a run nor a folder", hint="name one")
        return collect(queue, haul, scratch=scratch / "records")


def gather_again(
    queue: Queue, run_id: int | None, *, folder: Path | None = None, repository: str = ""
) -> Again:
    """Fetch what a run has left so far, and say what is to be tried again; write nothing."""
    if run_id is None:
        raise UsageError(
            "--again without a run: GitHub says how its jobs ended", hint="name the run's number"
        )
    with run_folder() as scratch:
        # Nothing is attested before all is there.
        haul = _fetched(queue, run_id, folder, repository, scratch, attest=lambda *_: "")
        return second_tries(queue, haul, scratch=scratch / "records")


def _fetched(
    queue: Queue,
    run_id: int,
    folder: Path | None,
    repository: str,
    scratch: Path,
    *,
    attest: Attest | None = None,
) -> Haul:
    """Return what a run left."""
    with connected(queue, repository) as (github, name):
        asked = functools.partial(attested, repository=name, server=github.server)
        origin = Origin(
            github=github,
            repository=name,
            scratch=scratch,
            attest=attest or asked,
            folder=folder,
        )
        return from_github(origin, run_id)
