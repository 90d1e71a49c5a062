"""From what a run left to what became of each cell, and to records in the queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from pydantic import ValidationError

from contribbot.errors import ContribbotError, ExitCode, UsageError
from contribbot.files import lock, run_folder, write_atomically
from contribbot.model.evidence import HOST_TARGETS, SEEN, Details, Outcome, PatchReport, StageResult
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.runners.artifacts import (
    PLAN_FILE,
    Origin,
    Received,
    RefusedArtifactError,
    RunDownload,
    first_problem,
    from_folder,
    from_github,
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
    Hosted,
    Job,
    Plan,
    RecordEnd,
    RunJob,
    Runners,
    RunnerSet,
)
from contribbot.runners.plan import again, asked_cells, demands, read_facts
from contribbot.runners.records import Answer, Bases, Question, Sent, read_sent
from contribbot.verify.evidence import State, judge_record
from contribbot.verify.runner_fault import fault_of


def gather(
    queue: Queue, run_id: int | None, *, folder: Path | None = None, repository: str = ""
) -> Collected:
    """Fetch what a run left, judge it, and take into the queue what is good."""
    with run_folder() as scratch:
        if run_id is not None:
            download = _fetched(queue, run_id, folder, repository, scratch, attest=True)
        elif folder is not None:
            download = from_folder(folder)
        else:
            raise UsageError("neither a run nor a folder", hint="name one")
        return _Collection(queue, download, scratch / "records").collected()


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
        download = _fetched(queue, run_id, folder, repository, scratch, attest=False)
        return _Collection(queue, download, scratch / "records").again()


def _fetched(
    queue: Queue, run_id: int, folder: Path | None, repository: str, scratch: Path, *, attest: bool
) -> RunDownload:
    with connected(queue, repository) as (github, name):
        return from_github(Origin(github, name, scratch, folder, attest=attest), run_id)


def exit_code(collected: Collected) -> ExitCode:
    """Return what the shell is told: a runner that failed is not a patch that did."""
    if collected.complete:
        return ExitCode.OK
    return ExitCode.MACHINE if collected.runners_failed else ExitCode.NO


#: What the id of a job that tries again ends with. Which cells get a second try follows from the
#: plan and from what its jobs left, so that nobody hands a list of them on.
_SUFFIX: Final = "-again"
#: Jobs of the workflow that no plan has.
_OWN_JOBS: Final = frozenset({"plan", "compile", "gpu", "plan-again", "again", "attest", "collect"})
TREES_DISAGREE: Final = "two records say that the same base became different trees"


class _Result(NamedTuple):
    """A job, what it sent, and what became of all its cells where it sent nothing."""

    job: Job
    #: As GitHub has it.
    github: RunJob | None
    sent: Sent | None
    state: CellState = CellState.REFUSED
    why: str = ""


class _Collection:
    """What a run left, judged job by job: each job and each second try once."""

    def __init__(self, queue: Queue, download: RunDownload, scratch: Path) -> None:
        self._queue, self._download, self._scratch = queue, download, scratch
        self._notes = [*download.notes]
        #: Why nothing is taken of the artifacts of a name, beyond what was found as they came.
        self._refused: dict[str, str] = {}
        self._results: list[_Result] = []
        self._disputed: frozenset[str] = frozenset()
        self._plan, notes = plan_of(queue, download)
        self._notes += notes
        self._runners = runners_of(queue, self._plan) if self._plan else None
        if self._plan is None or download.source is None:
            return
        self._source, self._bases = download.source, Bases(queue)
        self._problems = plan_problems(queue, self._plan, self._runners)
        jobs = download.jobs or {}
        # Second tries of an earlier attempt of the run, whose first tries ran again since.
        pairs = [(jobs.get(job.id), jobs.get(f"{job.id}{_SUFFIX}")) for job in self._plan.jobs]
        self._stale = {
            second.name
            for first, second in pairs
            if first and second and second.run_attempt < first.run_attempt
        }
        self._jobs = {name: job for name, job in jobs.items() if name not in self._stale}
        self._results = [self._receive(job) for job in self._plan.jobs]

    def again(self) -> Again:
        """Say which cells runners failed so far, and what tries them once more."""
        faulty = tuple(end for end in self._ends() if end.state is CellState.FAULT)
        run = self._download.source.run_id if self._download.source else 0
        return Again(run=run, cells=faulty, jobs=self._second_tries(), notes=tuple(self._notes))

    def collected(self) -> Collected:
        """Take into the queue what is good, and say what became of each cell."""
        cells: list[CellEnd] = []
        strange: list[str] = []
        if self._plan is not None:
            first = len(self._results)
            self._results += [self._receive(job) for job in self._second_tries()]
            self._disputed = self._disagreeing()
            strange = self._refuse_others()
            jobs = {result.job.id: result.github for result in self._results}
            later = {end.key: end for end in self._ends(self._results[first:])}
            for end in self._ends(self._results[:first]):
                tried = later.get(end.key)
                cells.append(settled(end, tried, jobs[end.job], jobs[tried.job]) if tried else end)
        answers = [
            (result.job.id, self._refusal(result, answer), answer)
            for result in self._results
            for answer in (result.sent.answers.values() if result.sent else ())
        ]
        records = merge(self._queue, answers)
        if self._plan is not None:
            cells += not_run(self._queue, self._plan, self._runners)
            if not self._download.selected:
                cells += left_out(self._queue, self._plan, self._runners)
        self._notes += sorted(
            {f"{one.patch}: {one.note}" for _, refused, one in answers if one.note and not refused}
        )
        if self._download.running:
            self._notes.append("the run is not over: collect it again when it is")
        artifacts = tuple(
            ArtifactEnd(name=each.name, sha256=each.sha256, attested=each.attested,
                        refused=self._refused.get(each.name, each.refused))
            for each in self._download.received
        )  # fmt: skip
        doubtful = any(each.refused for each in artifacts) or any(
            record.merged == "refused" for record in records
        )
        sound = bool(self._plan) and not (self._download.running or strange or doubtful)
        ill = {cell.state for cell in cells if not _is_well(cell)}
        source = self._download.source
        return Collected(
            repository=source.repository if source else "",
            run=source.run_id if source else 0,
            commit=source.commit if source else "",
            cells=tuple(cells),
            records=records,
            artifacts=artifacts,
            notes=tuple(self._notes),
            complete=sound and not ill,
            runners_failed=sound and ill == {CellState.FAULT},
        )

    def _receive(self, job: Job) -> _Result:
        came = [
            each
            for each in self._download.received
            if each.name == job.artifact and job.id not in self._stale
        ]
        github = self._jobs.get(job.id)
        if came:
            try:
                if (sent := self._read(job, github, came)) is not None:
                    return _Result(job, github, sent)
            except RefusedArtifactError as error:
                self._refused[job.artifact] = str(error)
                return _Result(job, github, None, why=str(error))
            self._notes.append(f"left alone, as it is of an earlier attempt: {job.artifact}")
        asked = self._download.jobs is not None
        return _Result(job, github, None, *nothing_came(job, github, asked=asked))

    def _read(self, job: Job, github: RunJob | None, came: list[Received]) -> Sent | None:
        """Return what a job sent; None: it is of an earlier attempt than GitHub has of the job."""
        problem = "it came twice" if len(came) > 1 else came[0].refused
        if problem:
            raise RefusedArtifactError(problem)
        if github and github.labels and not set(job.labels) <= set(github.labels):
            raise RefusedArtifactError(
                f"it ran on {', '.join(github.labels)}, and the plan has it on "
                f"{', '.join(job.labels)}"
            )
        question = Question(job, self._source, self._bases, self._scratch / job.id)
        sent = read_sent(came[0].files, question)
        run, code = sent.done.run, sent.done.exit_code
        if came[0].early and run and github and run.attempt < github.run_attempt:
            return None
        if github and github.conclusion == "success" and code:
            raise RefusedArtifactError(f"it says exit code {code}, and GitHub says success")
        return sent

    def _second_tries(self) -> tuple[Job, ...]:
        if self._plan is None or self._runners is None:
            return ()
        faulty = [end.key for end in self._ends() if end.state is CellState.FAULT]
        return again(self._plan, faulty, self._runners)

    def _disagreeing(self) -> frozenset[str]:
        """Return the patches of which records say that the same base became different trees."""
        made: dict[tuple[str, str], set[str]] = {}
        for result in self._results:
            for answer in result.sent.answers.values() if result.sent else ():
                if answer.details is None or self._refusal(result, answer):
                    continue
                trees = (
                    str(stage.details.get("patched_tree"))
                    for stage in answer.details.stages
                    if stage.stage == "apply"
                )
                key = (answer.patch, answer.details.base_commit)
                made.setdefault(key, set()).add(next(trees, ""))
        return frozenset(patch for (patch, _), trees in made.items() if len(trees) > 1)

    def _refuse_others(self) -> list[str]:
        """Refuse what came for no job; return what ran and is in no plan."""
        jobs = {result.job.id for result in self._results}
        known = {f"{PREFIX}{name}" for name in jobs} | {PLAN_ARTIFACT}
        ran = {f"{PREFIX}{name}" for name in self._jobs}
        stale = {f"{PREFIX}{name}" for name in self._stale}
        if self._plan and self._source.attempts > 1:
            stale |= {f"{job.artifact}{_SUFFIX}" for job in self._plan.jobs} - known - ran
        for artifact in self._download.received:
            if artifact.name in stale:
                self._refused[artifact.name] = ""
                self._notes.append(f"left alone, as it is of an earlier attempt: {artifact.name}")
            elif artifact.name not in known and not artifact.refused:
                self._refused[artifact.name] = "no job of the plan sends it"
        strange = [
            f"job {name!a} ran, and the plan has none of this name"
            for name, job in sorted(self._jobs.items())
            if name not in jobs | _OWN_JOBS and job.conclusion != "skipped"
        ]
        self._notes += strange
        return strange

    def _refusal(self, result: _Result, answer: Answer) -> str:
        """Say why a record is not taken: for itself, for the plan, or for another record."""
        cells = [cell for cell in result.job.cells if cell.patch == answer.patch]
        problems = [self._problems[cell.key] for cell in cells if cell.key in self._problems]
        disputed = TREES_DISAGREE if answer.patch in self._disputed else ""
        return answer.refused or next(iter(problems), disputed)

    def _ends(self, results: Iterable[_Result] | None = None) -> list[CellEnd]:
        """Say what became of each cell of jobs."""
        chosen = self._results if results is None else results
        return [self._end(cell, result) for result in chosen for cell in result.job.cells]

    def _end(self, cell: Cell, result: _Result) -> CellEnd:
        job, github, sent, state, why = result
        problem = self._problems.get(cell.key, "")
        if sent is None:
            # A second try would run what the plan has made up.
            if problem and state is not CellState.REFUSED:
                state, why = CellState.REFUSED, problem
        elif problem:
            state, why = CellState.REFUSED, problem
        else:
            answer, done = sent.answers.get(cell.patch), sent.ended(cell.patch)
            if answer is not None and (refusal := self._refusal(result, answer)):
                state, why = CellState.REFUSED, refusal
            elif answer is not None and answer.details is not None:
                state, why = _seen(cell, answer.details)
            elif done is not None and done.faults:
                fault = done.faults[0].fault
                state, why = CellState.FAULT, f"{fault.kind}: {fault.said}"
            elif done is not None:
                state = CellState.FAILED
                why = done.error or f"exit code {done.exit_code}, and no record"
            else:
                state, why = _ended(job, github, "did not get to it")
        return cell.ended(state, why, job=job.id)


def _is_well(cell: CellEnd) -> bool:
    """Say whether a cell is as it was planned: what has no runner was not.

    A cell that a record was said to answer was, and is open where there is no such record.
    """
    unplanned = not (cell.job or cell.fresh)
    return cell.state is CellState.PROVED or (cell.state is CellState.OPEN and unplanned)


# The plan, held against the queue.


def plan_of(queue: Queue, download: RunDownload) -> tuple[Plan | None, list[str]]:
    """Return the plan of a run, None where there is none to go by; and what must be known of it."""
    came = [each for each in download.received if each.name == PLAN_ARTIFACT]
    if len(came) != 1 or download.source is None:
        what = "came twice" if came else "never came"
        job = (download.jobs or {}).get("plan")
        ended = f" (its job: {job.conclusion or job.status})" if job else ""
        if len(came) == 1:
            what = "came, and nothing says of which run"
        return None, [f"the plan {what}{ended}: nothing can be said of any cell"]
    if came[0].refused:
        return None, [f"the plan is refused: {came[0].refused}"]
    try:
        plan = Plan.model_validate_json(came[0].files[PLAN_FILE])
    except ValidationError as error:
        return None, [f"the plan is refused: not a plan: {first_problem(error)}"]
    here, commit = commit_of(queue.folder), download.source.commit
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
    return all(PurePosixPath(name).name != RUNNERS_FILE for name in uncommitted(queue.folder))


def runners_of(queue: Queue, plan: Plan) -> Runners | None:
    """Return the runners of the queue; None where the plan was made with others."""
    try:
        fleet = load_fleet(queue.folder)
    except ContribbotError:
        return None
    return fleet.runners if fleet.sha256 == plan.runners_sha256 else None


def plan_problems(queue: Queue, plan: Plan, runners: Runners | None) -> dict[str, str]:
    """Return what is wrong with cells of a plan, by key: what the queue never asked so."""
    found = {}
    for job in plan.jobs:
        odd = runners is not None and not _is_offered(job, runners)
        for cell in job.cells:
            spec = queue.specs.get(cell.patch)
            stated = demands(spec).get((cell.kind, cell.target), ()) if spec else ()
            others = (job.kind, job.rocm) != (cell.kind, cell.rocm)
            others |= job.kind == "gpu" and job.target != cell.target
            if spec is None:
                found[cell.key] = f"{cell.patch} is no patch of this queue"
            elif stated != cell.require:
                found[cell.key] = (
                    f"the plan asks for {', '.join(cell.require)}, and the patch for "
                    f"{', '.join(stated) or 'nothing there'}"
                )
            elif others:
                found[cell.key] = "the plan gives it to a job for something else"
            elif odd:
                found[cell.key] = (
                    "the plan names runners, an image or a limit that runners.toml does not"
                )
    return found


def _is_offered(job: Job, runners: Runners) -> bool:
    """Say whether a job's runners, image, flags and limit are those of `runners.toml`."""
    sets: list[RunnerSet | Hosted] = [
        each for each in runners.runners if (each.name, each.target) == (job.runners, job.target)
    ]
    if job.runners == HOSTED and runners.hosted is not None:
        sets.append(runners.hosted)
    return any(
        (job.rocm, job.image, job.flags)
        == (image.version, image.image, getattr(image, "flags", ()))
        and (job.labels, job.minutes) == (each.labels, each.minutes_limit)
        for each in sets
        for image in each.rocm
    )


def not_run(queue: Queue, plan: Plan, runners: Runners | None) -> list[CellEnd]:
    """Return the cells that no job had: without a runner, or answered by a record."""
    ends = []
    known: set[str] | None = None
    if runners is not None:
        known = {cell.key for cell in asked_cells(queue, list(queue.specs), runners, runners).open}
    for lacking in plan.open:
        state, why = CellState.OPEN, lacking.reason
        if known is not None and lacking.key not in known:
            state, why = CellState.REFUSED, "the plan calls it open, and by this queue it is not"
        ends.append(lacking.ended(state, why))
    names = dict.fromkeys(cell.patch for cell in plan.fresh if cell.patch in queue.specs)
    facts = read_facts(queue, list(names))
    for cell in plan.fresh:
        stated = demands(queue.specs[cell.patch]) if cell.patch in queue.specs else {}
        require = stated.get((cell.kind, cell.target), ())
        said = {
            record.says(require, cell.rocm)
            for record in facts.get(cell.patch, ())
            if require and record.path == cell.record
        }
        state, why = CellState.OPEN, f"its record is not here, or not fresh: {cell.record}"
        if "failed" in said or "passed" in said:
            state = CellState.REFUTED if "failed" in said else CellState.PROVED
            why = cell.record
        ends.append(cell.ended(state, why, fresh=True))
    return ends


def left_out(queue: Queue, plan: Plan, runners: Runners | None) -> list[CellEnd]:
    """Return the cells that the patches ask for and that the plan is silent about."""
    if runners is None:
        return []
    there = {cell.key for cell in (*plan.cells, *plan.open, *plan.fresh)}
    return [
        cell.ended(CellState.MISSING, "the plan leaves it out")
        for cell in asked_cells(queue, list(queue.specs), runners, runners).wanted
        if cell.key not in there
    ]


# What became of a cell.

#: Seconds before its limit at which GitHub's clock may have ended a job.
_SLACK: Final = 15.0
#: How GitHub's runner calls the step in which it starts a job's container.
_CONTAINER_STEP: Final = "Initialize containers"


def nothing_came(job: Job, github: RunJob | None, *, asked: bool) -> tuple[CellState, str]:
    """Say what became of a job that left nothing, and why."""
    if github is None:
        return CellState.MISSING, "the run has no such job" if asked else "nothing came"
    if github.conclusion == "success":
        return CellState.MISSING, "its job ended well, and what it sent is not there"
    return _ended(job, github, "sent nothing")


def _ended(job: Job, github: RunJob | None, what: str) -> tuple[CellState, str]:
    """Say how a job ended of which nothing tells of a cell."""
    if github is None:
        return CellState.MISSING, f"its job {what}"
    if not github.over:
        return CellState.RUNNING, f"its job is {github.status}"
    end = github.conclusion
    late = github.seconds >= job.minutes * 60 - _SLACK
    if end == "timed_out" or (late and end != "success"):
        return CellState.TIMED_OUT, f"its job was ended after {job.minutes} minutes"
    if end in {"cancelled", "skipped"}:
        state = CellState.CANCELLED if end == "cancelled" else CellState.MISSING
        return state, f"its job was {end}"
    # Of a runner that went away GitHub says that its job failed, and of the steps that none did
    # and one never ended. Where a container does not start, the steps that run always fail, too.
    failed = [step.name for step in github.steps if step.conclusion == "failure"]
    torn = [step.name for step in github.steps if step.status == "in_progress"]
    state, why = CellState.FAILED, f"its job ended with {end} and {what}"
    if end == "failure" and failed[:1] == [_CONTAINER_STEP]:
        state, why = CellState.FAULT, "its runner could not start the container"
    elif end == "failure" and torn and not failed:
        state, why = CellState.FAULT, f"its runner went away: step {torn[0]!a} never ended"
    return state, why


def _seen(cell: Cell, details: Details) -> tuple[CellState, str]:
    """Say what a record says of a cell."""
    needs = {tuple(need.split(":")) for need in cell.require}
    mine = [result for result in details.stages if (result.stage, result.target) in needs]
    # A patch that does not apply, say, is refuted for every target.
    around = [result for result in details.stages if result.target in HOST_TARGETS]
    # A machine without the ROCm that was asked for neither proves nor refutes a cell of it.
    for result in (*(mine if details.machine.rocm else ()), *around):
        if result.outcome is Outcome.FAILED:
            return CellState.REFUTED, f"{result.stage}: {result.reason}"
    for result in mine:
        if (fault := fault_of(result)) is not None:
            return CellState.FAULT, f"{fault.kind}: {fault.said}"
    for result in mine:
        if result.outcome is Outcome.UNAVAILABLE:
            return CellState.OPEN, f"{result.stage}: {result.reason}"
    if not details.machine.rocm:
        return CellState.OPEN, f"its machine names no ROCm, and {cell.rocm} was asked"
    passed = {(each.stage, each.target) for each in mine if each.outcome is Outcome.PASSED}
    lacking = sorted(f"{stage}:{target}" for stage, target in needs - passed)
    if lacking or any(result.outcome is not Outcome.PASSED for result in mine):
        return CellState.INCOMPLETE, f"its record has no answer to {', '.join(lacking) or 'all'}"
    return CellState.PROVED, f"{', '.join(cell.require)} on {details.machine.slug}"


def settled(
    first: CellEnd, second: CellEnd, before: RunJob | None, after: RunJob | None
) -> CellEnd:
    """Return what became of a cell whose first runner was at fault."""
    if first.state is CellState.REFUSED:
        return first
    if second.state is CellState.MISSING and (after is None or after.conclusion == "skipped"):
        return first.model_copy(update={"why": f"{first.why}; no second try: {second.why}"})
    names = [job.runner_name or "" if job else "" for job in (before, after)]
    at_first, then = (f" on {name}" if name else "" for name in names)
    if then and then == at_first:
        then += ", the same runner again"
    if second.state is CellState.FAULT:
        why = f"tried twice;{then or ' then'}: {second.why}; before{at_first}: {first.why}"
    else:
        why = f"{second.why}; second try{then}; the first{at_first} was a runner fault: {first.why}"
    return second.model_copy(update={"why": why})


# Records that go into the queue.

#: So many units are named that a record lacks.
_MANY: Final = 3


def merge(queue: Queue, answers: Iterable[tuple[str, str, Answer]]) -> tuple[RecordEnd, ...]:
    """Take records of jobs (with why not) into the queue, and note news in patches' histories.

    Where a record has the place, the newer one gets it; but never one that saw less, and the
    place of a record that no run made only one that saw something fail.
    """
    queue.local.mkdir(parents=True, exist_ok=True)
    with lock(queue.local / "collect.lock", "the merging of records"):
        return tuple(_merge(queue, job, refused, answer) for job, refused, answer in answers)


def _merge(queue: Queue, job: str, refused: str, answer: Answer) -> RecordEnd:
    place = queue.evidence / answer.patch / answer.file
    inside = place.relative_to(queue.folder).as_posix()
    details = answer.details
    refused = refused or _no_place(queue, place)
    if refused or details is None:
        return RecordEnd(path=inside, job=job, merged="refused", why=refused)
    end = RecordEnd(path=inside, job=job, merged="new",
                    why=f"{details.verdict} on {details.machine.slug}")  # fmt: skip
    if place.exists():
        if place.read_bytes() == answer.content:
            # Whoever was killed after the record was written did not note it.
            _note(queue, answer.patch, details)
            return end.model_copy(update={"merged": "unchanged"})
        kept = judge_record(queue, place)
        what = f"the one that was there was {kept.state}: {kept.why}"
        if kept.state is State.FRESH and kept.statement is not None:
            old = kept.statement.predicate.contribbot
            if problem := _worse(old, details):
                return end.model_copy(update={"merged": "kept", "why": problem})
            whose = "" if old.run else ", which no run made,"
            what = f"the one of {old.finished:%Y-%m-%d %H:%M}{whose} said {old.verdict}"
        end = end.model_copy(update={"merged": "replaced", "why": f"{end.why}; {what}"})
    write_atomically(place, answer.content)
    _note(queue, answer.patch, details)
    return end


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
    if old.run is None and Outcome.FAILED not in {result.outcome for result in new.stages}:
        # Whoever made it saw it; of one that came, only that it was sent is known.
        return "the one that is there was made by hand, by no run"
    before, after = _outcomes(old.stages), _outcomes(new.stages)
    # What fails now is news; what was not seen now is not.
    lost = [
        "/".join(filter(None, key))
        for key, outcome in before.items()
        if outcome in SEEN and after.get(key) not in SEEN
    ]
    more = f" and {len(lost) - _MANY} more" if len(lost) > _MANY else ""
    return f"the one that is there saw more: {', '.join(lost[:_MANY])}{more}" if lost else ""


def _outcomes(stages: Iterable[StageResult]) -> Mapping[tuple[str, str, str], Outcome]:
    return {
        (result.stage, str(result.details.get("check", "")), result.target): result.outcome
        for result in stages
    }


def _note(queue: Queue, patch: str, details: Details) -> None:
    """Note it in the history of its patch, unless it is there."""
    report = PatchReport(
        patch=details.patch, upstream=details.upstream, pin=details.pin,
        base_commit=details.base_commit, patched_tree=None, verdict=details.verdict,
        stages=details.stages, open=details.open,
    )  # fmt: skip
    history.note_verified(queue.folder, queue.patch(patch), report, details.machine)
