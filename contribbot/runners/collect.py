"""From what a run left to what became of each cell, and to records in the queue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError
from pydantic_core import from_json

from contribbot.errors import ContribbotError, ExitCode, UsageError
from contribbot.files import lock, stores_folder, write_atomically
from contribbot.git.repository import Store
from contribbot.git.source import ref_for
from contribbot.model.checks import is_emulated
from contribbot.model.evidence import (
    HOST_TARGETS,
    ON_HARDWARE,
    SEEN,
    Details,
    Outcome,
    PatchReport,
    StageResult,
    Statement,
)
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.stack import FetchedPin, series_of
from contribbot.run_folder import run_folder
from contribbot.runners.actions import (
    FILE,
    JOB_FILE,
    PLAN_FILE,
    RefusedArtifactError,
    RunDownload,
    attempt_of,
    commit_of,
    connected,
    first_problem,
    from_github,
    is_over,
    read_done,
    steps_of,
)
from contribbot.runners.documents import (
    AGAIN,
    PLAN_ARTIFACT,
    PREFIX,
    Again,
    CellEnd,
    CellState,
    CiJob,
    Collected,
    JobDone,
    Plan,
    PlannedCell,
    RecordEnd,
    Runners,
    is_version,
    load_fleet,
)
from contribbot.runners.plan import asked_cells, demands, record_says, second_try
from contribbot.verify.evidence import State, judge_record
from contribbot.verify.runner_fault import fault_of
from contribbot.verify.signature import signature_path

if TYPE_CHECKING:
    from github.WorkflowJob import WorkflowJob


@dataclass
class SentRecord:
    """A record that came, judged."""

    patch: str
    file: str
    #: Why it is not taken; empty: it is.
    refused: str = ""
    #: None where it cannot be read.
    details: Details | None = None
    #: What is written where it is taken.
    content: bytes = b""
    note: str = ""
    tree: str = ""


def judge_sent(
    name: str, content: bytes, job: CiJob, download: RunDownload, trees: PatchedTrees
) -> SentRecord:
    """Judge `records/PATCH/MACHINE.json`: the first rule that it breaks refuses it."""
    _, patch, file = name.split("/")
    sent = SentRecord(patch, file)
    try:
        document = from_json(content, allow_inf_nan=False)
        statement = Statement.model_validate(document)
        sent.content = written(document)
    except (ValidationError, ValueError) as error:
        sent.refused = f"not a record that contribbot writes: {first_problem(error)}"
        return sent
    sent.details = details = statement.predicate.contribbot
    sent.tree = statement.subject[1].digest.gitTree or ""
    sent.refused = next(_problems(details, job, download), "")
    try:
        if not sent.refused:
            # Patch, checks, pin, what is below and the seal, as the queue is here.
            with run_folder() as scratch:
                write_atomically(scratch / patch / file, sent.content)
                record = judge_record(trees.queue, scratch / patch / file)
            sent.refused = "" if record.state is State.FRESH else f"{record.state}: {record.why}"
        if not sent.refused:
            sent.refused, sent.note = trees.compare(patch, details.base_commit, sent.tree)
    except ContribbotError as error:
        sent.refused = error.message
    return sent


def written(document: object) -> bytes:
    """Write JSON for people, in ASCII; indents can make a gigabyte of a deeply nested megabyte."""
    parts, size = [], 0
    for part in json.JSONEncoder(indent=2, allow_nan=False).iterencode(document):
        size += len(part)
        if size > FILE:
            raise ValueError(f"written out it has more than {FILE} characters")
        parts.append(part)
    return "".join(parts).encode() + b"\n"


#: A name that `Machine.slug` may make: it becomes a file's.
_SLUG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")
#: Stages whose outcomes are of the hardware that something ran on.
_RAN: Final = ON_HARDWARE | {"witness"}


def _problems(details: Details, job: CiJob, download: RunDownload) -> Iterator[str]:
    """Give what a record claims that its job was not asked."""
    machine, container = details.machine, details.container
    if not (machine.system.split() and _SLUG.fullmatch(machine.slug)):
        yield "its machine has a name that cannot be a file's"
    if problem := download.problem(details.run, job.id):
        yield problem
    if details.patch not in job.asks:
        yield f"job {job.id} was not asked for {details.patch}"
    if container is None or (container.image, container.flags) != (job.image, job.flags):
        yield f"its container is not the plan's: {container.image if container else 'none'}"
    if machine.rocm and not is_version(job.rocm, machine.rocm):
        yield f"it was made with ROCm {machine.rocm}, and {job.rocm} was asked"
    yield from _hardware_problems(details, job)


def _hardware_problems(details: Details, job: CiJob) -> Iterator[str]:
    """Give what a record claims that its machine cannot have seen, or nobody asked it about."""
    machine = details.machine
    amd = sorted({gpu.target for gpu in machine.gpus if gpu.vendor == "amd"})
    if job.target and amd and job.target not in amd:
        yield f"it was made on {', '.join(amd)}, and {job.target} was asked"
    for result in details.stages:
        if result.stage not in _RAN or result.outcome not in SEEN:
            continue
        if is_emulated(result.target):
            continue
        if result.target not in machine.targets:
            yield f"it says what ran on {result.target}, and its machine has none"
        # Else a machine could speak for others that nobody asked it about.
        if result.target not in {job.target, *HOST_TARGETS}:
            yield f"it says what ran on {result.target}, and {job.target or 'no GPU'} was asked"


@dataclass
class PatchedTrees:
    """What the patches of a queue make of the commits of their pins, found out once each."""

    queue: Queue
    #: By patch: the patched tree by base commit, empty where it was not made here; and whether
    #: no other commit can be a base.
    _known: dict[str, tuple[dict[str, str], bool]] = field(default_factory=dict)

    def compare(self, name: str, base: str, tree: str) -> tuple[str, str]:
        """Return what is wrong with base and patched tree of a record, or what is not known."""
        if name not in self._known:
            self._known[name] = self._make(name)
        trees, complete = self._known[name]
        if base not in trees and complete:
            return f"base commit {base[:12]} is none of its pin's", ""
        if not trees.get(base):
            return "", "its patched tree was not made again here: the store has no such base"
        wrong = f"patched tree {tree[:12]} is not what the patch makes of its base"
        return "" if tree == trees[base] else wrong, ""

    def _make(self, name: str) -> tuple[dict[str, str], bool]:
        """Apply a patch here to each commit of its pin: a runner had one kind of its sources."""
        patch = self.queue.patch(name)
        store = Store(stores_folder() / f"{patch.upstream.name}.git")
        here = (store.path / "HEAD").is_file()
        trees, complete = dict[str, str](), True
        for source in patch.pin.sources:
            commit = store.resolve(ref_for(patch.pin, source, patch.upstream)) if here else None
            commit = commit or (patch.pin.commit if source.kind == "git" else None)
            made = (
                self._apply(name, FetchedPin(patch.pin, commit, store)) if here and commit else None
            )
            if made:
                trees |= made
            elif commit and not self.queue.below(name):
                trees[commit] = ""
            else:
                # What stands on others has a base that only the store can make.
                complete = False
            # Another machine may have another build of it.
            complete &= source.kind != "installed"
        return trees, complete

    def _apply(self, name: str, fetched: FetchedPin) -> dict[str, str]:
        """Return the patched tree by its base commit; nothing where it cannot be told."""
        try:
            if not fetched.store.has(fetched.commit):
                return {}
            with run_folder() as scratch:
                series = series_of(self.queue, [name], fetched, scratch=scratch)[name]
        except ContribbotError:
            return {}
        made = series.applied and not series.conflicts
        return {series.base: series.applied[-1].tree} if made else {}


#: So many units are named that a record lacks.
_MANY: Final = 3


def merge(queue: Queue, records: Iterable[tuple[str, SentRecord]]) -> tuple[RecordEnd, ...]:
    """Take records into the queue: the newer, unless it saw less or the old is made by hand."""
    queue.local.mkdir(parents=True, exist_ok=True)
    with lock(queue.local / "collect.lock", "the merging of records"):
        return tuple(_merge(queue, job, sent) for job, sent in records)


def _merge(queue: Queue, job: str, sent: SentRecord) -> RecordEnd:
    place = queue.evidence / sent.patch / sent.file
    inside = place.relative_to(queue.folder).as_posix()
    details = sent.details
    refused = sent.refused or _no_place(queue, place)
    if refused or details is None:
        return RecordEnd(path=inside, job=job, merged="refused", why=refused)
    end = RecordEnd(path=inside, job=job, merged="new",
                    why=f"{details.verdict} on {details.machine.slug}")  # fmt: skip
    signature = signature_path(place)
    if not place.exists():
        signature.unlink(missing_ok=True)
        write_atomically(place, sent.content)
    elif place.read_bytes() == sent.content:
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
        signature.unlink(missing_ok=True)
        write_atomically(place, sent.content)
        end = end.model_copy(update={"merged": "replaced", "why": f"{end.why}; {what}"})
    # Also where it is there already: whoever was killed after writing it did not note it.
    report = PatchReport.of_record(details)
    history.note_verified(queue.folder, queue.patch(sent.patch), report, details.machine)
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
    # What fails now is news; what was not seen now is not. A witness adds up what checks saw.
    lost = [
        "/".join(filter(None, key))
        for key, outcome in before.items()
        if outcome in SEEN and after.get(key) not in SEEN and key[0] != "witness"
    ]
    more = f" and {len(lost) - _MANY} more" if len(lost) > _MANY else ""
    return f"the one that is there saw more: {', '.join(lost[:_MANY])}{more}" if lost else ""


def _outcomes(stages: Iterable[StageResult]) -> Mapping[tuple[str, str, str], Outcome]:
    return {result.unit: result.outcome for result in stages}


def gather(queue: Queue, run_id: int | None, *, folder: Path | None = None) -> Collected:
    """Fetch what a run left, judge it, and take into the queue what is good."""
    run = _needed(run_id)
    with run_folder() as scratch, connected(queue) as (github, name):
        download = from_github(github, name, run, folder=folder, attest_in=scratch)
        return _Collection(queue, download).collected()


def gather_again(queue: Queue, run_id: int | None, *, folder: Path | None = None) -> Again:
    """Fetch what a run has left so far, and say what is to be tried again; write nothing."""
    run = _needed(run_id)
    # Nothing is attested before all is there.
    with connected(queue) as (github, name):
        return _Collection(queue, from_github(github, name, run, folder=folder)).again()


def _needed(run_id: int | None) -> int:
    if run_id is None:
        raise UsageError(
            "no run is named: GitHub says what its jobs sent, and how they ended",
            hint="name the run's number, which its page has",
        )
    return run_id


def exit_code(collected: Collected) -> ExitCode:
    """Return what the shell is told: a runner that failed is not a patch that did."""
    if collected.complete:
        return ExitCode.OK
    return ExitCode.MACHINE if collected.runners_failed else ExitCode.NO


#: Jobs of the workflow that no plan has.
_OWN_JOBS: Final = frozenset({"plan", "compile", "gpu", "plan-again", "again", "attest", "collect"})


@dataclass
class _Try:
    job: CiJob
    github: WorkflowJob | None
    #: What it says of itself; None: it sent nothing that counts, and `state` says what became of
    #: all its cells.
    done: JobDone | None = None
    records: dict[str, SentRecord] = field(default_factory=dict)
    state: CellState = CellState.REFUSED
    why: str = ""


class _Collection:
    """What a run left, judged job by job; second tries follow from the plan and what jobs left."""

    def __init__(self, queue: Queue, download: RunDownload) -> None:
        self._queue, self._download, self._trees = queue, download, PatchedTrees(queue)
        #: Why nothing is taken of the artifacts of a name, beyond what was found as they came.
        self._refused: dict[str, str] = {}
        # Not the second tries of an earlier attempt, whose first tries ran again since.
        jobs = download.jobs
        self._jobs = {
            name: job
            for name, job in jobs.items()
            if attempt_of(job) >= attempt_of(jobs.get(name.removesuffix(AGAIN), job))
        }
        self._notes = list(download.notes)
        #: Each job of the plan, and what tries again what its runner failed.
        self._tries: list[tuple[_Try, CiJob | None]] = []
        self._plan: Plan | None = None
        try:
            self._plan, self._runners = read_plan(queue, download)
        except RefusedArtifactError as error:
            self._notes.append(f"the plan {error}")
            return
        if (here := commit_of(queue.folder)) != download.commit:
            self._notes.append(
                f"the run was of the queue's commit {download.commit[:12]}, and here is "
                f"{here[:12] or 'none'}: what came is judged by what is here"
            )
        for job in self._plan.jobs:
            first = self._receive(job)
            faulty = [end.key for end in self._ends(first) if end.state is CellState.FAULT]
            self._tries.append((first, second_try(self._plan, job, faulty, self._runners)))

    def again(self) -> Again:
        """Say which cells runners failed so far, and what tries them once more."""
        ends = [end for first, _ in self._tries for end in self._ends(first)]
        return Again(
            run=self._download.run_id,
            cells=tuple(end for end in ends if end.state is CellState.FAULT),
            jobs=tuple(second for _, second in self._tries if second),
            notes=tuple(self._notes),
        )

    def collected(self) -> Collected:
        """Take into the queue what is good, and say what became of each cell."""
        pairs = [(first, self._receive(job) if job else None) for first, job in self._tries]
        tries = [each for pair in pairs for each in pair if each]
        sent = [(each.job.id, record) for each in tries for record in each.records.values()]
        _refuse_different_trees([record for _, record in sent])
        strange = self._refuse_others({each.job.id for each in tries}) if self._plan else []
        cells: list[CellEnd] = []
        for first, second in pairs:
            later = {end.key: end for end in self._ends(second)} if second else {}
            for end in self._ends(first):
                again = later.get(end.key)
                github = second.github if second else None
                cells.append(settled(end, again, first.github, github) if again else end)
        records = merge(self._queue, sent)
        if self._plan is not None:
            selected = self._download.selected
            cells += not_run(self._queue, self._plan, self._runners, selected=selected)
        notes = {f"{each.patch}: {each.note}" for _, each in sent if each.note and not each.refused}
        self._notes += sorted(notes)
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
        return Collected(
            repository=self._download.repository, run=self._download.run_id,
            commit=self._download.commit, cells=tuple(cells), records=records,
            artifacts=artifacts, notes=tuple(self._notes), complete=sound and not ill,
            runners_failed=sound and ill == {CellState.FAULT},
        )  # fmt: skip

    def _receive(self, job: CiJob) -> _Try:
        this = _Try(job, self._jobs.get(job.id))
        try:
            self._read(this)
        except RefusedArtifactError as error:
            self._refused[job.artifact] = this.why = str(error)
        return this

    def _read(self, this: _Try) -> None:
        """Read what a job says of itself, and judge its records; where it sent any."""
        job, github = this.job, this.github
        came = [each for each in self._download.artifacts
                if each.name == job.artifact and not each.early]  # fmt: skip
        if not came:
            this.state, this.why = how_it_ended(job, github, "sent nothing")
            return
        if problem := "it came twice" if len(came) > 1 else came[0].refused:
            raise RefusedArtifactError(problem)
        if github and github.labels and not set(job.labels) <= set(github.labels):
            raise RefusedArtifactError(
                f"it ran on {', '.join(github.labels)}, and the plan has it on "
                f"{', '.join(job.labels)}"
            )
        files = came[0].files
        done = read_done(files)
        asked = {entry.patch: entry.require for entry in done.asked}
        problem = self._download.problem(done.run, job.id)
        if not problem and done.job != job.id:
            problem = f"it is of job {done.job}, not {job.id}"
        if not problem and (asked != job.asks or len(asked) != len(done.asked)):
            problem = "it was asked something else than the plan asks"
        if problem:
            raise RefusedArtifactError(f"{JOB_FILE}: {problem}")
        records: dict[str, SentRecord] = {}
        for name in sorted(files.keys() - {JOB_FILE}):
            sent = judge_sent(name, files[name], job, self._download, self._trees)
            if sent.patch in records:
                raise RefusedArtifactError(f"it has two records of {sent.patch}")
            records[sent.patch] = sent
        if github and github.conclusion == "success" and done.exit_code:
            raise RefusedArtifactError(
                f"it says exit code {done.exit_code}, and GitHub says success"
            )
        this.done, this.records = done, records

    def _refuse_others(self, jobs: set[str]) -> list[str]:
        """Refuse what came for no job; return what ran and is in no plan."""
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
        return [cell.ended(*self._end(cell, this), job=this.job.id) for cell in this.job.cells]

    def _end(self, cell: PlannedCell, this: _Try) -> tuple[CellState, str]:
        if this.done is None:
            return this.state, this.why
        if sent := this.records.get(cell.patch):
            if sent.refused or sent.details is None:
                return CellState.REFUSED, sent.refused
            return _shown(cell, sent.details)
        done = next((done for done in this.done.patches if done.patch == cell.patch), None)
        if done is None:
            return how_it_ended(this.job, this.github, "did not get to it")
        if done.faults:
            fault = done.faults[0].fault
            return CellState.FAULT, f"{fault.kind}: {fault.said}"
        return CellState.FAILED, done.error or f"exit code {done.exit_code}, and no record"


def _refuse_different_trees(records: list[SentRecord]) -> None:
    """Refuse the records of a patch that say that the same base became different trees."""
    trees: dict[tuple[str, str], set[str]] = {}
    for sent in records:
        if sent.details and not sent.refused:
            trees.setdefault((sent.patch, sent.details.base_commit), set()).add(sent.tree)
    disputed = {patch for (patch, _), several in trees.items() if len(several) > 1}
    for sent in records:
        if sent.patch in disputed and not sent.refused:
            sent.refused = "two records say that the same base became different trees"


def _is_well(cell: CellEnd) -> bool:
    """Return whether a cell is as planned: good, or open where neither job nor record has it."""
    unplanned = not (cell.job or cell.fresh)
    return cell.state is cell.good or (cell.state is CellState.OPEN and unplanned)


def read_plan(queue: Queue, download: RunDownload) -> tuple[Plan, Runners]:
    """Return the plan of a run, and the runners that it was made with."""
    came = [each for each in download.artifacts if each.name == PLAN_ARTIFACT]
    if len(came) != 1:
        what = "came twice" if came else "never came"
        job = download.jobs.get("plan")
        ended = f" (its job: {job.conclusion or job.status})" if job else ""
        raise RefusedArtifactError(f"{what}{ended}: nothing can be said of any cell")
    if came[0].refused:
        raise RefusedArtifactError(f"is refused: {came[0].refused}")
    try:
        plan = Plan.model_validate_json(came[0].files.get(PLAN_FILE, b""))
    except ValidationError as error:
        raise RefusedArtifactError(f"is refused: not a plan: {first_problem(error)}") from error
    fleet = load_fleet(queue.folder)
    problem = "it was not made with the runners.toml that is here"
    if fleet.sha256 == plan.runners_sha256:
        problem = next(_plan_problems(queue, plan, fleet.runners), "")
    if problem:
        raise RefusedArtifactError(
            f"is refused: {problem}; check out the run's commit, {download.commit[:12]}"
        )
    return plan, fleet.runners


def _plan_problems(queue: Queue, plan: Plan, runners: Runners) -> Iterator[str]:
    """Give what a plan says that the queue never asked so."""
    offered = {
        (each.name, each.target, each.labels, each.minutes_limit, image.version, image.image,
         image.flags)
        for each in runners.sets
        for image in each.rocm
    }  # fmt: skip
    _, lacking = asked_cells(queue, list(queue.specs), runners, runners)
    known = {cell.key for cell in lacking}
    yield from (f"it calls {cell.key} open, and by this queue it is not"
                for cell in plan.open if cell.key not in known)  # fmt: skip
    for job in plan.jobs:
        shape = (job.runners, job.target, job.labels, job.minutes, job.rocm, job.image, job.flags)
        if shape not in offered:
            yield f"{job.id} names runners, an image or a limit that runners.toml does not"
        for cell in job.cells:
            spec = queue.specs.get(cell.patch)
            stated = demands(spec, runners).get((cell.kind, cell.target), ()) if spec else ()
            target = cell.target if cell.kind == "gpu" else ""
            if stated != cell.require:
                asked = ", ".join(stated) or "nothing there"
                yield f"{cell.key} asks for {', '.join(cell.require)}, and the patch for {asked}"
            if (job.kind, job.rocm, job.target) != (cell.kind, cell.rocm, target):
                yield f"{cell.key} is given to a job for something else"


def not_run(queue: Queue, plan: Plan, runners: Runners, *, selected: bool) -> list[CellEnd]:
    """Return the cells that no job had: without a runner, answered by a record, or left out."""
    ends = [cell.ended(CellState.OPEN, cell.reason) for cell in plan.open]
    for fresh in plan.fresh:
        stated = demands(queue.specs[fresh.patch], runners) if fresh.patch in queue.specs else {}
        require = stated.get((fresh.kind, fresh.target), ())
        # A path that a plan names may lead anywhere.
        paths = {path.relative_to(queue.folder).as_posix(): path
                 for path in (queue.evidence / fresh.patch).glob("*.json")}  # fmt: skip
        state, why = CellState.OPEN, f"its record is not here, or not fresh: {fresh.record}"
        if require and fresh.record in paths:
            record = judge_record(queue, paths[fresh.record])
            if answer := record_says(record, require, fresh.rocm):
                state = CellState.REFUTED if answer == "failed" else fresh.good
                why = fresh.record
        ends.append(fresh.ended(state, why, fresh=True))
    if not selected:
        wanted, _ = asked_cells(queue, list(queue.specs), runners, runners)
        planned = {cell.key for cell in (*plan.cells, *plan.open, *plan.fresh)}
        ends += [cell.ended(CellState.MISSING, "the plan leaves it out")
                 for cell in wanted if cell.key not in planned]  # fmt: skip
    return ends


#: Seconds before its limit at which GitHub's clock may have ended a job.
_SLACK: Final = 15.0
#: How GitHub's runner calls the step in which it starts a job's container.
_CONTAINER_STEP: Final = "Initialize containers"


def how_it_ended(job: CiJob, github: WorkflowJob | None, what: str) -> tuple[CellState, str]:
    """Return how a job ended of which nothing tells of a cell."""
    if github is None:
        return CellState.MISSING, f"nothing tells of its job, which {what}"
    if not is_over(github):
        return CellState.RUNNING, f"its job is {github.status}"
    end = github.conclusion
    # Of a runner that went away GitHub says that its job failed, and of the steps that none did
    # and one never ended. Where a container does not start, the steps that run always fail, too.
    failed, torn = steps_of(github, failed=True), steps_of(github, failed=False)
    times = github.started_at, github.completed_at
    seconds = (times[1] - times[0]).total_seconds() if all(times) else 0.0
    late = seconds >= job.minutes * 60 - _SLACK and end != "success"
    ended = f"its job ended with {end} and {what}"
    ways = {
        "success": (CellState.MISSING, ended),
        "cancelled": (CellState.CANCELLED, "its job was cancelled"),
        "skipped": (CellState.MISSING, "its job was skipped"),
    }
    if late or end == "timed_out":
        way = CellState.TIMED_OUT, f"its job was ended after {job.minutes} minutes"
    elif end == "failure" and failed[:1] == [_CONTAINER_STEP]:
        way = CellState.FAULT, "its runner could not start the container"
    elif end == "failure" and torn and not failed:
        way = CellState.FAULT, f"its runner went away: step {torn[0]!a} never ended"
    else:
        way = ways.get(end or "", (CellState.FAILED, ended))
    return way


def _shown(cell: PlannedCell, details: Details) -> tuple[CellState, str]:
    needs = {tuple(need.partition(":")[::2]) for need in cell.require}
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
    return cell.good, f"{', '.join(cell.require)} on {details.machine.slug}"


def settled(
    first: CellEnd, second: CellEnd, before: WorkflowJob | None, after: WorkflowJob | None
) -> CellEnd:
    """Return what became of a cell whose first runner was at fault."""
    if first.state is CellState.REFUSED:
        return first
    if second.state is CellState.MISSING and (after is None or after.conclusion == "skipped"):
        return first.model_copy(update={"why": f"{first.why}; no second try: {second.why}"})
    where = [f" on {job.runner_name}" if job and job.runner_name else "" for job in (before, after)]
    why = f"{second.why}; second try{where[1]}; the first{where[0]} was a runner fault: {first.why}"
    return second.model_copy(update={"why": why})
