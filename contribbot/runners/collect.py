"""From what a run left to what became of each cell, and to records in the queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import ValidationError

from contribbot.errors import ContribbotError, ExitCode, UsageError
from contribbot.files import lock, run_folder, write_atomically
from contribbot.model.evidence import HOST_TARGETS, SEEN, Details, Outcome, PatchReport, StageResult
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.runners.actions import RunJob, commit_of, connected, uncommitted
from contribbot.runners.artifacts import (
    PLAN_FILE,
    RefusedArtifactError,
    RunDownload,
    first_problem,
    from_folder,
    from_github,
)
from contribbot.runners.model import (
    AGAIN,
    PLAN_ARTIFACT,
    PREFIX,
    RUNNERS_FILE,
    Again,
    ArtifactEnd,
    CellEnd,
    CellState,
    CiJob,
    Collected,
    JobDone,
    Plan,
    PlannedCell,
    RecordEnd,
    Runners,
    load_fleet,
)
from contribbot.runners.plan import asked_cells, demands, record_says, second_try
from contribbot.runners.records import Bases, RecordAnswer, RecordQuestion, read_sent
from contribbot.verify.evidence import State, judge_record
from contribbot.verify.runner_fault import fault_of


def gather(
    queue: Queue, run_id: int | None, *, folder: Path | None = None, repository: str = ""
) -> Collected:
    """Fetch what a run left, judge it, and take into the queue what is good."""
    with run_folder() as scratch:
        if run_id is not None:
            with connected(queue, repository) as (github, name):
                download = from_github(github, name, run_id, scratch, folder=folder, attest=True)
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
    # Nothing is attested before all is there.
    with run_folder() as scratch, connected(queue, repository) as (github, name):
        download = from_github(github, name, run_id, scratch, folder=folder)
        return _Collection(queue, download, scratch / "records").again()


def exit_code(collected: Collected) -> ExitCode:
    """Return what the shell is told: a runner that failed is not a patch that did."""
    if collected.complete:
        return ExitCode.OK
    return ExitCode.MACHINE if collected.runners_failed else ExitCode.NO


#: Jobs of the workflow that no plan has.
_OWN_JOBS: Final = frozenset({"plan", "compile", "gpu", "plan-again", "again", "attest", "collect"})


@dataclass
class _Try:
    """A job of the plan, or a second try of one, and what it sent."""

    job: CiJob
    #: As GitHub has it.
    github: RunJob | None
    #: What it says of itself; None: it sent nothing that counts, and `state` says what became of
    #: all its cells.
    done: JobDone | None = None
    answers: dict[str, RecordAnswer] = field(default_factory=dict)
    state: CellState = CellState.REFUSED
    why: str = ""


class _Collection:
    """What a run left, judged job by job.

    Which cells get a second try follows from the plan and from what its jobs left, so that nobody
    hands a list of them on.
    """

    def __init__(self, queue: Queue, download: RunDownload, scratch: Path) -> None:
        self._queue, self._download, self._scratch = queue, download, scratch
        #: Why nothing is taken of the artifacts of a name, beyond what was found as they came.
        self._refused: dict[str, str] = {}
        #: Each job of the plan, and what tries again what its runner failed.
        self._tries: list[tuple[_Try, CiJob | None]] = []
        # Not the second tries of an earlier attempt, whose first tries ran again since.
        jobs = download.jobs or {}
        self._jobs = {
            name: job
            for name, job in jobs.items()
            if job.run_attempt >= jobs.get(name.removesuffix(AGAIN), job).run_attempt
        }
        self._plan, notes = plan_of(queue, download)
        self._notes = [*download.notes, *notes]
        if self._plan is None or download.source is None:
            return
        self._source, self._bases = download.source, Bases(queue)
        self._runners = runners_of(queue, self._plan)
        self._problems = plan_problems(queue, self._plan, self._runners)
        for job in self._plan.jobs:
            first = self._receive(job)
            faulty = [end.key for end in self._ends(first) if end.state is CellState.FAULT]
            second = second_try(self._plan, job, faulty, self._runners) if self._runners else None
            self._tries.append((first, second))

    def again(self) -> Again:
        """Say which cells runners failed so far, and what tries them once more."""
        ends = [end for first, _ in self._tries for end in self._ends(first)]
        run = self._download.source.run_id if self._download.source else 0
        return Again(
            run=run,
            cells=tuple(end for end in ends if end.state is CellState.FAULT),
            jobs=tuple(second for _, second in self._tries if second),
            notes=tuple(self._notes),
        )

    def collected(self) -> Collected:
        """Take into the queue what is good, and say what became of each cell."""
        pairs = [(first, self._receive(job) if job else None) for first, job in self._tries]
        tries = [each for pair in pairs for each in pair if each]
        self._refuse_different_trees(tries)
        strange = self._refuse_others(tries) if self._plan else []
        cells: list[CellEnd] = []
        for first, second in pairs:
            later = {end.key: end for end in self._ends(second)} if second else {}
            for end in self._ends(first):
                again = later.get(end.key)
                github = second.github if second else None
                cells.append(settled(end, again, first.github, github) if again else end)
        answers = [(each.job.id, answer) for each in tries for answer in each.answers.values()]
        records = merge(self._queue, answers)
        if self._plan is not None:
            cells += not_run(self._queue, self._plan, self._runners)
            if not self._download.selected:
                cells += left_out(self._queue, self._plan, self._runners)
        self._notes += sorted(
            {f"{each.patch}: {each.note}" for _, each in answers if each.note and not each.refused}
        )
        if self._download.running:
            self._notes.append("the run is not over: collect it again when it is")
        artifacts = tuple(
            each.model_copy(update={"refused": self._refused.get(each.name, each.refused)})
            for each in self._download.artifacts
        )
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

    def _receive(self, job: CiJob) -> _Try:
        """Judge what a job sent."""
        this = _Try(job, self._jobs.get(job.id))
        came = [each for each in self._download.artifacts
                if each.name == job.artifact and not each.early]  # fmt: skip
        if not came:
            asked = self._download.jobs is not None
            this.state, this.why = nothing_came(job, this.github, asked=asked)
            return this
        try:
            done, answers = self._read(job, this.github, came)
        except RefusedArtifactError as error:
            self._refused[job.artifact] = this.why = str(error)
            return this
        for cell in job.cells:
            if cell.patch in answers and cell.key in self._problems:
                answers[cell.patch].refused = (
                    answers[cell.patch].refused or self._problems[cell.key]
                )
        this.done, this.answers = done, answers
        return this

    def _read(
        self, job: CiJob, github: RunJob | None, came: list[ArtifactEnd]
    ) -> tuple[JobDone, dict[str, RecordAnswer]]:
        """Return what a job says of itself, and its records, judged."""
        if problem := "it came twice" if len(came) > 1 else came[0].refused:
            raise RefusedArtifactError(problem)
        if github and github.labels and not set(job.labels) <= set(github.labels):
            raise RefusedArtifactError(
                f"it ran on {', '.join(github.labels)}, and the plan has it on "
                f"{', '.join(job.labels)}"
            )
        question = RecordQuestion(job, self._source, self._bases, self._scratch / job.id)
        done, answers = read_sent(came[0].files, question)
        if github and github.conclusion == "success" and done.exit_code:
            raise RefusedArtifactError(
                f"it says exit code {done.exit_code}, and GitHub says success"
            )
        return done, answers

    def _refuse_different_trees(self, tries: Iterable[_Try]) -> None:
        """Refuse the records of a patch that say that the same base became different trees."""
        good = [
            (answer, details, tree)
            for each in tries
            for answer in each.answers.values()
            if (details := answer.details) and not answer.refused
            for tree in [_patched_tree(details)]
        ]
        trees: dict[tuple[str, str], set[str]] = {}
        for answer, details, tree in good:
            trees.setdefault((answer.patch, details.base_commit), set()).add(tree)
        disputed = {patch for (patch, _), several in trees.items() if len(several) > 1}
        for answer, _, _ in good:
            if answer.patch in disputed:
                answer.refused = "two records say that the same base became different trees"

    def _refuse_others(self, tries: Iterable[_Try]) -> list[str]:
        """Refuse what came for no job; return what ran and is in no plan."""
        jobs = {each.job.id for each in tries}
        known = {f"{PREFIX}{name}" for name in jobs} | {PLAN_ARTIFACT}
        for artifact in self._download.artifacts:
            if artifact.name not in known and not artifact.refused and not artifact.early:
                self._refused[artifact.name] = "no job of the plan sends it"
        strange = [
            f"job {name!a} ran, and the plan has none of this name"
            for name, job in sorted(self._jobs.items())
            if name not in jobs | _OWN_JOBS and job.conclusion != "skipped"
        ]
        self._notes += strange
        return strange

    def _ends(self, this: _Try) -> list[CellEnd]:
        """Return what became of each cell of a job."""
        return [cell.ended(*self._end(cell, this), job=this.job.id) for cell in this.job.cells]

    def _end(self, cell: PlannedCell, this: _Try) -> tuple[CellState, str]:
        problem = self._problems.get(cell.key, "")
        answer = this.answers.get(cell.patch)
        if this.done is None:
            # A second try would run what the plan has made up.
            made_up = problem and this.state is not CellState.REFUSED
            return (CellState.REFUSED, problem) if made_up else (this.state, this.why)
        if refused := problem or (answer.refused if answer else ""):
            return CellState.REFUSED, refused
        if answer is not None and answer.details is not None:
            return _shown(cell, answer.details)
        done = next((done for done in this.done.patches if done.patch == cell.patch), None)
        if done is None:
            return _ended(this.job, this.github, "did not get to it")
        state, why = CellState.FAILED, done.error or f"exit code {done.exit_code}, and no record"
        for at in done.faults[:1]:
            state, why = CellState.FAULT, f"{at.fault.kind}: {at.fault.said}"
        return state, why


def _patched_tree(details: Details) -> str:
    applied = (stage for stage in details.stages if stage.stage == "apply")
    return next((str(stage.details.get("patched_tree")) for stage in applied), "")


def _is_well(cell: CellEnd) -> bool:
    """Return whether a cell is as it was planned: what has no runner was not.

    A cell that a record was said to answer was, and is open where there is no such record.
    """
    unplanned = not (cell.job or cell.fresh)
    return cell.state is CellState.PROVED or (cell.state is CellState.OPEN and unplanned)


# The plan, held against the queue.


def plan_of(queue: Queue, download: RunDownload) -> tuple[Plan | None, list[str]]:
    """Return the plan of a run, None where there is none to go by; and what must be known of it."""
    came = [each for each in download.artifacts if each.name == PLAN_ARTIFACT]
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
        plan = Plan.model_validate_json(came[0].files.get(PLAN_FILE, b""))
    except ValidationError as error:
        return None, [f"the plan is refused: not a plan: {first_problem(error)}"]
    here, commit = commit_of(queue.folder), download.source.commit
    # Runners that are not committed here are not what the run had.
    changed = RUNNERS_FILE in {PurePosixPath(name).name for name in uncommitted(queue.folder)}
    path = queue.folder / RUNNERS_FILE
    same = path.is_file() and sha256(path.read_bytes()).hexdigest() == plan.runners_sha256
    if here == commit and not same and not changed:
        why = "it was not made with the runners.toml of the run's commit"
        return None, [f"the plan is refused: {why}"]
    notes = []
    if here != commit:
        notes.append(
            f"the run was of the queue's commit {commit[:12]}, and here is {here[:12] or 'none'}: "
            "what came is judged by what is here"
        )
    if runners_of(queue, plan) is None:
        notes.append(
            "runners.toml here is not the one that the run was planned with, or is not valid: "
            "images, flags, what is open, what is left out and second tries are not held against "
            "it; check out the run's commit for that"
        )
    return plan, notes


def runners_of(queue: Queue, plan: Plan) -> Runners | None:
    """Return the runners of the queue; None where the plan was made with others."""
    try:
        fleet = load_fleet(queue.folder)
    except ContribbotError:
        return None
    return fleet.runners if fleet.sha256 == plan.runners_sha256 else None


def plan_problems(queue: Queue, plan: Plan, runners: Runners | None) -> dict[str, str]:
    """Return what is wrong with cells of a plan, by key: what the queue never asked so."""
    offered = {
        (each.name, each.target, each.labels, each.minutes_limit, image.version, image.image,
         image.flags)
        for each in (runners.sets if runners else ())
        for image in each.rocm
    }  # fmt: skip
    problems = {}
    for job in plan.jobs:
        shape = (job.runners, job.target, job.labels, job.minutes, job.rocm, job.image, job.flags)
        for cell in job.cells:
            spec = queue.specs.get(cell.patch)
            stated = demands(spec).get((cell.kind, cell.target), ()) if spec else ()
            others = (job.kind, job.rocm) != (cell.kind, cell.rocm)
            others |= job.kind == "gpu" and job.target != cell.target
            if spec is None:
                problems[cell.key] = f"{cell.patch} is no patch of this queue"
            elif stated != cell.require:
                problems[cell.key] = (
                    f"the plan asks for {', '.join(cell.require)}, and the patch for "
                    f"{', '.join(stated) or 'nothing there'}"
                )
            elif others:
                problems[cell.key] = "the plan gives it to a job for something else"
            elif runners is not None and shape not in offered:
                problems[cell.key] = (
                    "the plan names runners, an image or a limit that runners.toml does not"
                )
    return problems


def not_run(queue: Queue, plan: Plan, runners: Runners | None) -> list[CellEnd]:
    """Return the cells that no job had: without a runner, or answered by a record."""
    ends = []
    known: set[str] | None = None
    if runners is not None:
        known = {cell.key for cell in asked_cells(queue, list(queue.specs), runners, runners)[1]}
    for lacking in plan.open:
        state, why = CellState.OPEN, lacking.reason
        if known is not None and lacking.key not in known:
            state, why = CellState.REFUSED, "the plan calls it open, and by this queue it is not"
        ends.append(lacking.ended(state, why))
    for fresh in plan.fresh:
        stated = demands(queue.specs[fresh.patch]) if fresh.patch in queue.specs else {}
        require = stated.get((fresh.kind, fresh.target), ())
        # A path that a plan names may lead anywhere.
        paths = {path.relative_to(queue.folder).as_posix(): path
                 for path in (queue.evidence / fresh.patch).glob("*.json")}  # fmt: skip
        state, why = CellState.OPEN, f"its record is not here, or not fresh: {fresh.record}"
        if require and fresh.record in paths:
            record = judge_record(queue, paths[fresh.record])
            if answer := record_says(record, require, fresh.rocm):
                state = CellState.REFUTED if answer == "failed" else CellState.PROVED
                why = fresh.record
        ends.append(fresh.ended(state, why, fresh=True))
    return ends


def left_out(queue: Queue, plan: Plan, runners: Runners | None) -> list[CellEnd]:
    """Return the cells that the patches ask for and that the plan is silent about."""
    if runners is None:
        return []
    planned = {cell.key for cell in (*plan.cells, *plan.open, *plan.fresh)}
    wanted, _ = asked_cells(queue, list(queue.specs), runners, runners)
    return [
        cell.ended(CellState.MISSING, "the plan leaves it out")
        for cell in wanted
        if cell.key not in planned
    ]


# What became of a cell.

#: Seconds before its limit at which GitHub's clock may have ended a job.
_SLACK: Final = 15.0
#: How GitHub's runner calls the step in which it starts a job's container.
_CONTAINER_STEP: Final = "Initialize containers"


def nothing_came(job: CiJob, github: RunJob | None, *, asked: bool) -> tuple[CellState, str]:
    """Return what became of a job that left nothing, and why."""
    if github is None:
        return CellState.MISSING, "the run has no such job" if asked else "nothing came"
    if github.conclusion == "success":
        return CellState.MISSING, "its job ended well, and what it sent is not there"
    return _ended(job, github, "sent nothing")


def _ended(job: CiJob, github: RunJob | None, what: str) -> tuple[CellState, str]:
    """Return how a job ended of which nothing tells of a cell."""
    if github is None:
        return CellState.MISSING, f"its job {what}"
    if not github.over:
        return CellState.RUNNING, f"its job is {github.status}"
    end = github.conclusion
    # Of a runner that went away GitHub says that its job failed, and of the steps that none did
    # and one never ended. Where a container does not start, the steps that run always fail, too.
    failed = [step.name for step in github.steps if step.conclusion == "failure"]
    torn = [step.name for step in github.steps if step.status == "in_progress"]
    late = github.seconds >= job.minutes * 60 - _SLACK
    state, why = CellState.FAILED, f"its job ended with {end} and {what}"
    if end == "timed_out" or (late and end != "success"):
        state, why = CellState.TIMED_OUT, f"its job was ended after {job.minutes} minutes"
    elif end in {"cancelled", "skipped"}:
        state = CellState.CANCELLED if end == "cancelled" else CellState.MISSING
        why = f"its job was {end}"
    elif end == "failure" and failed[:1] == [_CONTAINER_STEP]:
        state, why = CellState.FAULT, "its runner could not start the container"
    elif end == "failure" and torn and not failed:
        state, why = CellState.FAULT, f"its runner went away: step {torn[0]!a} never ended"
    return state, why


def _shown(cell: PlannedCell, details: Details) -> tuple[CellState, str]:
    """Return what a record says of a cell."""
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


def merge(queue: Queue, answers: Iterable[tuple[str, RecordAnswer]]) -> tuple[RecordEnd, ...]:
    """Take records of jobs into the queue, and note news in patches' histories.

    Where a record has the place, the newer one gets it; but never one that saw less, and the
    place of a record that no run made only one that saw something fail.
    """
    queue.local.mkdir(parents=True, exist_ok=True)
    with lock(queue.local / "collect.lock", "the merging of records"):
        return tuple(_merge(queue, job, answer) for job, answer in answers)


def _merge(queue: Queue, job: str, answer: RecordAnswer) -> RecordEnd:
    place = queue.evidence / answer.patch / answer.file
    inside = place.relative_to(queue.folder).as_posix()
    details = answer.details
    refused = answer.refused or _no_place(queue, place)
    if refused or details is None:
        return RecordEnd(path=inside, job=job, merged="refused", why=refused)
    end = RecordEnd(path=inside, job=job, merged="new",
                    why=f"{details.verdict} on {details.machine.slug}")  # fmt: skip
    if not place.exists():
        write_atomically(place, answer.content)
    elif place.read_bytes() == answer.content:
        end = end.model_copy(update={"merged": "unchanged"})
    else:
        kept = judge_record(queue, place)
        what = f"the one that was there was {kept.state}: {kept.why}"
        if kept.state is State.FRESH and kept.statement is not None:
            old = kept.statement.predicate.contribbot
            if problem := _worse(old, details):
                return end.model_copy(update={"merged": "kept", "why": problem})
            whose = "" if old.run else ", which no run made,"
            what = f"the one of {old.finished:%Y-%m-%d %H:%M}{whose} said {old.verdict}"
        write_atomically(place, answer.content)
        end = end.model_copy(update={"merged": "replaced", "why": f"{end.why}; {what}"})
    # Also where it is there already: whoever was killed after writing it did not note it.
    report = PatchReport(
        patch=details.patch, upstream=details.upstream, pin=details.pin,
        base_commit=details.base_commit, patched_tree=None, verdict=details.verdict,
        stages=details.stages, open=details.open,
    )  # fmt: skip
    history.note_verified(queue.folder, queue.patch(answer.patch), report, details.machine)
    return end


def _no_place(queue: Queue, place: Path) -> str:
    """Return why nothing is written to a place: it would be written elsewhere."""
    for path in (queue.evidence, place.parent, place):
        if path.is_symlink():
            return f"{path.relative_to(queue.folder)} is a link"
    if place.exists() and not place.is_file():
        return "there is something at its place that is no file"
    return ""


def _worse(old: Details, new: Details) -> str:
    """Return why the record that is there stays; or nothing."""
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
