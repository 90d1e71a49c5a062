"""Fetch a run's records, check each against the queue, and merge good records into the queue."""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import ValidationError

from contribbot.errors import ContribbotError, ExitCode, UsageError
from contribbot.files import lock, run_folder, write_atomically
from contribbot.github.auth import Server
from contribbot.github.client import whole
from contribbot.model.base import Loose, Many, Model
from contribbot.model.evidence import HOST_TARGETS, ON_HARDWARE, SEEN, Details, Outcome
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.runners.actions import (
    ArtifactError,
    commit_of,
    connected,
    gh_denial,
    read_artifact,
    read_run,
)
from contribbot.runners.plan import (
    CELL,
    PLAN_ARTIFACT,
    CellName,
    CiJob,
    Plan,
    PlannedCell,
    answer_of,
    demands,
    is_version,
    load_fleet,
)
from contribbot.verify.evidence import State, event_of, judge_record, read_records

if TYPE_CHECKING:
    from github.WorkflowJob import WorkflowJob
    from github.WorkflowRun import WorkflowRun

    from contribbot.github.client import GitHub

#: The path of a record in a job's artifact.
_RECORD: Final = re.compile(
    r"(?P<patch>[a-z0-9][a-z0-9._-]{0,79})/(?P<file>[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}\.json)"
)
#: The name of the job of verify.yml that attests records.
_ATTEST: Final = "attest"


class CellState(enum.StrEnum):
    """The outcome of a cell: of a patch on a target under a ROCm version."""

    PROVED = "proved"
    REFUTED = "refuted"
    #: The record lacks the outcome of a required stage.
    INCOMPLETE = "incomplete"
    #: No runner could run the cell.
    OPEN = "open"
    #: The job left no record.
    MISSING = "missing"
    #: The runner's machine was at fault: nothing is known about the patch.
    FAULT = "runner fault"
    #: The record is not about this queue, this job or its machine.
    REFUSED = "refused"
    RUNNING = "running"


class CellEnd(CellName):
    """A cell and its outcome; `why` gives the reason and may quote text from a job."""

    state: Loose[CellState]
    why: str
    #: Empty: no job had the cell.
    job: str = ""


class RecordEnd(Model):
    """The result of merging a record into the queue; `kept`: the queue's old record stays."""

    path: str
    job: str
    merged: Literal["new", "replaced", "unchanged", "kept", "refused"]
    why: str


class Collected(Model):
    """The JSON of `runners collect`."""

    type: Literal["contribbot/collected/v2"] = "contribbot/collected/v2"
    repository: str
    run: int
    commit: str
    cells: Many[CellEnd] = ()
    records: Many[RecordEnd] = ()
    notes: Many[str] = ()
    #: Whether every planned cell passed.
    complete: bool
    #: Whether only runner faults kept planned cells from passing.
    runners_failed: bool

    @property
    def exit_code(self) -> ExitCode:
        """The exit code: OK if complete, MACHINE if only runner faults are in the way, else NO."""
        if self.complete:
            return ExitCode.OK
        return ExitCode.MACHINE if self.runners_failed else ExitCode.NO


@dataclass(frozen=True)
class JobRecord:
    """A record from a job's artifact, with its details, or the reason why it is refused."""

    job: CiJob
    patch: str
    file: str
    content: bytes
    details: Details | None = None
    refused: str = ""


def collect(queue: Queue, run_id: int) -> Collected:
    """Fetch the records of a run, and merge the good records into the queue."""
    with connected(queue) as (github, repository):
        run = read_run(github, repository, run_id)
        return _Collection(queue, github, repository, run).collected()


class _Collection:
    def __init__(self, queue: Queue, github: GitHub, repository: str, run: WorkflowRun) -> None:
        self._queue, self._github, self._repository, self._run = queue, github, repository, run
        jobs = sorted(whole(run.jobs("all")), key=lambda job: job.run_attempt or 1)
        self._jobs: Mapping[str, WorkflowJob] = {job.name: job for job in jobs}
        # Every attempt of a job leaves an artifact of the same name; the latest artifact wins.
        listed = sorted(run.get_artifacts(), key=lambda artifact: artifact.id)
        self._artifacts = {artifact.name: artifact for artifact in listed}
        self._notes: list[str] = []

    def collected(self) -> Collected:
        """Judge the artifact of each planned job, merge the records, and return the result."""
        if (here := commit_of(self._queue.folder)) != self._run.head_sha:
            self._notes.append(
                f"the run is of commit {self._run.head_sha[:12]}, and the queue here is at "
                f"{here[:12] or 'none'}: records are judged by the queue here"
            )
        plan = self._plan()
        records = {
            (job.id, record.patch): record for job in plan.jobs for record in self._records(job)
        }
        cells = [
            self._end(cell, job, records.get((job.id, cell.patch)))
            for job in plan.jobs
            for cell in job.cells
        ]
        cells += self._fresh(plan)
        # A cell without a runner keeps no run from being complete.
        bad = {cell.state for cell in cells} - {CellState.PROVED}
        cells += [_end(cell, CellState.OPEN, cell.reason) for cell in plan.open]
        merged = merge(self._queue, records.values())
        # A job that runs again may still refute what its earlier attempt proved.
        jobs = [self._jobs[job.id] for job in plan.jobs if job.id in self._jobs]
        over = all(job.status == "completed" for job in jobs)
        sound = over and all(record.merged != "refused" for record in merged)
        return Collected(
            repository=self._repository,
            run=self._run.id,
            commit=self._run.head_sha,
            cells=tuple(cells),
            records=merged,
            notes=tuple(self._notes),
            complete=sound and not bad,
            runners_failed=sound and bad == {CellState.FAULT},
        )

    def _plan(self) -> Plan:
        """Return the plan from the run's artifact; UsageError: the plan does not fit this queue."""
        commit = self._run.head_sha[:12]
        try:
            plan = Plan.model_validate_json(self._files(PLAN_ARTIFACT).get("plan.json", b""))
            _check_plan(self._queue, plan)
        except (ArtifactError, ValidationError) as error:
            raise UsageError(
                f"run {self._run.id}: its plan: {' '.join(str(error).splitlines()[:3])}",
                hint=f"see how its job `plan` ended, and check out the run's commit, {commit}",
            ) from error
        return plan

    def _files(self, name: str) -> Mapping[str, bytes]:
        if name not in self._artifacts:
            raise ArtifactError("no such artifact")
        return read_artifact(self._github, self._repository, self._artifacts[name])

    def _records(self, job: CiJob) -> Iterator[JobRecord]:
        """Yield the records of a job's artifact, each with details or a reason for refusal."""
        if job.artifact not in self._artifacts:
            return
        try:
            files = self._files(job.artifact)
        except ArtifactError as error:
            self._notes.append(f"{job.artifact}: {error}")
            return
        for name, content in sorted(files.items()):
            if match := _RECORD.fullmatch(name):
                yield self._judged(job, match["patch"], match["file"], content)
            else:
                self._notes.append(f"{job.artifact}: {name[:80]!a} is no record")

    def _judged(self, job: CiJob, patch: str, file: str, content: bytes) -> JobRecord:
        """Return a record, refused if the queue, its job or gh's attestation contradicts it."""
        with run_folder() as scratch:
            path = scratch / patch / file
            write_atomically(path, content)
            record = judge_record(self._queue, path)
            details = record.details
            if record.state is not State.FRESH or details is None:
                return JobRecord(job, patch, file, content, None, f"{record.state}: {record.why}")
            problem = next(self._problems(details, job), "") or self._denial(path)
        return JobRecord(job, patch, file, content, details, problem)

    def _problems(self, details: Details, job: CiJob) -> Iterator[str]:
        """Yield each contradiction between a record and its planned job, in words."""
        run, machine, container = details.run, details.machine, details.container
        this = (self._run.id, job.id, self._repository.casefold(), self._run.head_sha)
        if run is None or (run.run_id, run.job, run.repository.casefold(), run.commit) != this:
            yield f"it is not of job {job.id} of run {self._run.id} at its commit"
        if details.patch not in job.patches:
            yield f"job {job.id} has no patch {details.patch}"
        if container is None or (container.image, container.flags) != (job.image, job.flags):
            yield f"its container is not the plan's: {container.image if container else 'none'}"
        if machine.rocm and not is_version(job.rocm, machine.rocm):
            yield f"it was made with ROCm {machine.rocm}, and the plan has {job.rocm}"
        targets = {job.target, *HOST_TARGETS} & {"", *machine.targets}
        for row in details.stages:
            ran = row.stage in ON_HARDWARE and row.outcome in SEEN
            if ran and row.target not in targets:
                yield f"it ran on {row.target}, and the plan has {job.target or 'no GPU'}"

    def _denial(self, path: Path) -> str:
        """Return why gh denies that the run attested a record; empty: gh does not deny it."""
        attest = self._jobs.get(_ATTEST)
        note, denial = "the run attested no records", None
        if attest is not None and attest.conclusion == "success":
            server: Server = self._github.server
            denial = gh_denial(path, self._run.head_sha, repository=self._repository, server=server)
            note = "attestations not verified: gh is not installed" if denial is None else ""
        self._notes += {note} - {"", *self._notes}
        return f"gh attestation verify: {denial}" if denial else ""

    def _end(self, cell: PlannedCell, job: CiJob, record: JobRecord | None) -> CellEnd:
        """Return the state of a planned cell, from its job's record or the state of its job."""
        github = self._jobs.get(job.id)
        if record is not None and (record.refused or record.details is None):
            state, why = CellState.REFUSED, record.refused
        elif record is not None and record.details is not None:
            state, why = shown(cell, record.details)
        elif github is None or github.status != "completed":
            state = CellState.RUNNING
            why = f"its job is {github.status if github else 'not begun'}"
        else:
            state = CellState.MISSING
            why = f"its job ended with {github.conclusion} and left no record"
        return _end(cell, state, why, job.id)

    def _fresh(self, plan: Plan) -> Iterator[CellEnd]:
        """Yield the cells that the plan left out because a record of the queue answers them."""
        for cell in plan.fresh:
            spec = self._queue.specs.get(cell.patch)
            require = demands(spec).get((cell.kind, cell.target), ()) if spec else ()
            records = read_records(self._queue, self._queue.evidence, cell.patch)
            answer = answer_of(self._queue, cell, require, records) if require else None
            if answer is None:
                yield _end(cell, CellState.INCOMPLETE, f"{cell.record}: not here, or not fresh")
            else:
                state = CellState.PROVED if answer.passed else CellState.REFUTED
                yield _end(cell, state, answer.record)


def _end(cell: CellName, state: CellState, why: str, job: str = "") -> CellEnd:
    return CellEnd(**cell.model_dump(include=CELL), state=state, why=why, job=job)


def _check_plan(queue: Queue, plan: Plan) -> None:
    """Raise ArtifactError for a plan of another runners.toml, image or set of demands."""
    fleet = load_fleet(queue.folder)
    if fleet.sha256 != plan.runners_sha256:
        raise ArtifactError("it was made with another runners.toml")
    images = {
        (each.name, image.version, image.image)
        for each in fleet.runners.sets
        for image in each.rocm
    }
    for job in plan.jobs:
        if (job.runners, job.rocm, job.image) not in images:
            raise ArtifactError(f"{job.id} has an image that runners.toml lacks")
        for cell in job.cells:
            spec = queue.specs.get(cell.patch)
            if spec is None or demands(spec).get((cell.kind, cell.target)) != cell.require:
                raise ArtifactError(f"{cell.key} has other demands than the queue here")


def shown(cell: PlannedCell, details: Details) -> tuple[CellState, str]:
    """Return the state of a cell by the record of its patch, and the reason."""
    mine = [row for row in details.stages if f"{row.stage}:{row.target}" in cell.require]
    # A failure on the host, such as a patch that does not apply, refutes every target.
    around = [row for row in details.stages if row.target in HOST_TARGETS]
    for row in (*mine, *around):
        if row.outcome is Outcome.FAILED:
            return CellState.REFUTED, f"{row.stage}: {row.reason}"
    for row in mine:
        if (fault := row.runner_fault) is not None:
            return CellState.FAULT, f"{fault.kind}: {fault.said}"
    for row in mine:
        if row.outcome is not Outcome.PASSED:
            return CellState.INCOMPLETE, f"{row.stage}: {row.reason}"
    if not details.machine.rocm:
        return CellState.INCOMPLETE, f"its machine has no ROCm, and the plan has {cell.rocm}"
    if missing := {*cell.require} - {f"{row.stage}:{row.target}" for row in mine}:
        return CellState.INCOMPLETE, f"its record lacks {', '.join(sorted(missing))}"
    return CellState.PROVED, f"{', '.join(cell.require)} on {details.machine.slug}"


def merge(queue: Queue, records: Iterable[JobRecord]) -> tuple[RecordEnd, ...]:
    """Write good records into the queue, unless the queue's record is newer or more complete."""
    queue.local.mkdir(parents=True, exist_ok=True)
    with lock(queue.local / "collect.lock", "the merging of records"):
        return tuple(_merge(queue, record) for record in records)


def _merge(queue: Queue, record: JobRecord) -> RecordEnd:
    place = queue.evidence / record.patch / record.file
    path, details = place.relative_to(queue.folder).as_posix(), record.details
    merged: Literal["new", "replaced", "unchanged", "kept", "refused"] = "refused"
    why = record.refused
    if details is not None and not record.refused:
        try:
            merged, why = "new", f"{details.verdict} on {details.machine.slug}"
            history.note_verified(queue.folder, record.patch, event_of(details), ran=True)
            if place.exists():
                old = judge_record(queue, place)
                known = old.statement if old.state is State.FRESH else None
                superior = _superior(known.predicate.contribbot, details) if known else ""
                same = place.read_bytes() == record.content
                merged = "unchanged" if same else "kept" if superior else "replaced"
                why = superior if merged == "kept" else why
            if merged in {"new", "replaced"}:
                write_atomically(place, record.content)
        except ContribbotError as error:
            merged, why = "refused", error.message
    return RecordEnd(path=path, job=record.job.id, merged=merged, why=why)


def _superior(old: Details, new: Details) -> str:
    """Return why the old record stays; empty: the new record replaces the old record."""
    if old.finished >= new.finished:
        return f"the record here is as new or newer: {old.finished.isoformat()}"
    outcomes = {row.unit: row.outcome for row in new.stages}
    lost = Counter(
        row.stage
        for row in old.stages
        if row.outcome in SEEN and row.label and outcomes.get(row.unit) not in SEEN
    )
    return f"the record here saw more: {', '.join(lost)}" if lost else ""
