"""Whether what a job sent answers what it was asked.

Nothing in it is believed that cannot be held against the queue, the plan, or what GitHub says
of the run. What a record says was seen on the runner is believed: nobody else was there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot.errors import ContribbotError
from contribbot.files import write_atomically
from contribbot.model.evidence import HOST_TARGETS, ON_HARDWARE, SEEN, Details, RunOf, Statement
from contribbot.model.jobdone import JobDone, PatchDone
from contribbot.model.runners import Job, is_version
from contribbot.queue.load import Queue
from contribbot.runners.artifacts import JOB_FILE, LIMITS, RefusedArtifactError
from contribbot.runners.bases import Bases
from contribbot.runners.strictjson import parse, written
from contribbot.verify.evidence import State, judge_record

#: A name that `Machine.slug` may make: it becomes a file's.
_SLUG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")
#: How far a runner's clock may be ahead.
_AHEAD: Final = timedelta(hours=1)
_LONGEST: Final = 300
#: Stages whose outcomes are of the hardware that something ran on.
_RAN: Final = ON_HARDWARE | {"witness"}


@dataclass(frozen=True)
class Source:
    """The run that answers are to be from.

    Attributes:
        repository: The queue's repository.
        run_id: Its number.
        attempts: How many attempts it had.
        commit: The queue's commit that it was of.
    """

    repository: str
    run_id: int
    attempts: int
    commit: str

    def problem(self, run: RunOf | None, job: str) -> str:
        """Say what is wrong with where something says that it is from; or nothing."""
        if run is None:
            return "it names no run"
        told = (
            (run.run_id == self.run_id, f"it is of run {run.run_id}, not {self.run_id}"),
            (run.attempt <= self.attempts, f"it is of attempt {run.attempt}, which was not yet"),
            (run.job == job, f"it is of job {run.job}, not {job}"),
            (
                run.repository.casefold() == self.repository.casefold(),
                f"it is of {run.repository}, not {self.repository}",
            ),
            (
                run.commit == self.commit,
                f"it is of commit {run.commit[:12]}, not {self.commit[:12]}",
            ),
        )  # fmt: skip
        return next((problem for holds, problem in told if not holds), "")


@dataclass(frozen=True)
class Answer:
    """A record that came, judged.

    Attributes:
        patch: The patch whose folder it came in.
        file: Its file's name.
        refused: Why it is not taken; empty: it is.
        details: What it says; None where it cannot be read.
        content: Its bytes as they are kept.
        note: What could not be compared; may be empty.
    """

    patch: str
    file: str
    refused: str
    details: Details | None = None
    content: bytes = b""
    note: str = ""


@dataclass(frozen=True)
class Sent:
    """All that a job sent.

    Attributes:
        done: What it says of itself.
        answers: Its records by patch.
    """

    done: JobDone
    answers: Mapping[str, Answer]

    def ended(self, patch: str) -> PatchDone | None:
        """Return how it says that the proof of a patch ended; None: it was not begun."""
        return next((one for one in self.done.patches if one.patch == patch), None)


def read_done(files: Mapping[str, bytes]) -> JobDone:
    """Read the `job.json` of an artifact."""
    if JOB_FILE not in files:
        raise RefusedArtifactError(f"it has no {JOB_FILE}")
    try:
        parse(files[JOB_FILE])
        return JobDone.model_validate_json(files[JOB_FILE])
    except (ValidationError, ValueError, RecursionError) as error:
        raise RefusedArtifactError(f"{JOB_FILE}: {_first(error)}") from error


@dataclass(frozen=True)
class Question:
    """What a job was asked, and what its answers are held against.

    Attributes:
        job: The job.
        source: The run.
        bases: What is known of the patches; names the queue.
        scratch: An empty folder.
    """

    job: Job
    source: Source
    bases: Bases
    scratch: Path


def read_sent(files: Mapping[str, bytes], question: Question) -> Sent:
    """Judge what a job sent."""
    job, source = question.job, question.source
    done = read_done(files)
    asked = {one.patch: one.require for one in done.asked}
    problem = source.problem(done.run, job.id)
    if not problem and done.job != job.id:
        problem = f"it is of job {done.job}, not {job.id}"
    if not problem and (asked != job.asks or len(asked) != len(done.asked)):
        problem = "it was asked something else than the plan asks"
    if problem:
        raise RefusedArtifactError(f"{JOB_FILE}: {problem}")
    answers: dict[str, Answer] = {}
    for name in sorted(files):
        if name == JOB_FILE:
            continue
        _, patch, file = name.split("/")
        if patch in answers:
            raise RefusedArtifactError(f"it has two records of {patch}")
        answers[patch] = _judge(files[name], (patch, file), question)
    return Sent(done, answers)


def _judge(content: bytes, place: tuple[str, str], question: Question) -> Answer:
    """Judge one record."""
    (patch, file), bases = place, question.bases
    try:
        statement, kept = _statement(content)
    except (ValidationError, ValueError, RecursionError) as error:
        return Answer(patch, file, f"not a record that contribbot writes: {_first(error)}")
    details = statement.predicate.contribbot
    try:
        refused = (
            _odd(details)
            or _elsewhere(details, question.job, question.source)
            or _not_of_queue(bases.queue, content, question.scratch / patch / file)
            or bases.problem(patch, details.base_commit, _tree(statement))
        )
    except ContribbotError as error:
        refused = error.message
    note = ""
    if not refused and not bases.compared(patch, details.base_commit):
        note = "its patched tree was not made again here: the store has no such base"
    return Answer(patch, file, refused, details, b"" if refused else kept, note)


def _statement(content: bytes) -> tuple[Statement, bytes]:
    """Return a record, and its bytes as they are kept."""
    document = parse(content)
    return Statement.model_validate(document), written(document, LIMITS.file)


def _odd(details: Details) -> str:
    """Say what in a record no runner writes, and what reads it could not stand."""
    if details.started.tzinfo is None or details.finished.tzinfo is None:
        return "its times name no time zone"
    if details.finished > datetime.now(UTC) + _AHEAD:
        return f"it was seen in the future: {details.finished.isoformat()}"
    if not details.machine.system.split() or not _SLUG.fullmatch(details.machine.slug):
        return "its machine has a name that cannot be a file's"
    return ""


def _elsewhere(details: Details, job: Job, source: Source) -> str:
    """Say what of a record is not of this job, its container, or its GPU."""
    if problem := source.problem(details.run, job.id):
        return problem
    if details.patch not in job.asks:
        return f"job {job.id} was not asked for {details.patch}"
    there = details.container
    if there is None or (there.image, there.flags) != (job.image, job.flags):
        return f"its container is not the plan's: {there.image if there else 'none'}"
    return _another_machine(details, job)


def _another_machine(details: Details, job: Job) -> str:
    """Say what of a record is not of the GPU and the ROCm version of this job."""
    amd = sorted({gpu.target for gpu in details.machine.gpus if gpu.vendor == "amd"})
    if job.target and amd and job.target not in amd:
        return f"it was made on {', '.join(amd)}, and {job.target} was asked"
    for one in details.stages:
        if one.stage not in _RAN or one.outcome not in SEEN:
            continue
        if one.target not in details.machine.targets:
            return f"it says what ran on {one.target}, and its machine has none"
        # Else a machine could speak for others that nobody asked it about.
        if one.target not in {job.target, *HOST_TARGETS}:
            return f"it says what ran on {one.target}, and {job.target or 'no GPU'} was asked"
    rocm = details.machine.rocm
    if rocm and not is_version(job.rocm, rocm):
        return f"it was made with ROCm {rocm}, and {job.rocm} was asked"
    return ""


def _not_of_queue(queue: Queue, content: bytes, path: Path) -> str:
    """Say what of a record is not of the queue as it is here: patch, checks, pin, what is below."""
    write_atomically(path, content)
    record = judge_record(queue, path)
    return "" if record.state is State.FRESH else f"{record.state}: {record.why}"


def _tree(statement: Statement) -> str:
    return statement.subject[1].digest.gitTree or ""


def _first(error: Exception) -> str:
    """Return what is wrong, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}"[:_LONGEST]
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)[:_LONGEST]
