"""Whether the records that a job sent answer what it was asked.

Nothing in them is believed that cannot be held against the queue, the plan, or what GitHub says
of the run. What a record says was seen on the runner is believed: nobody else was there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from contribbot.errors import ContribbotError
from contribbot.files import run_folder, stores_folder, write_atomically
from contribbot.git.apply import apply_series
from contribbot.git.repository import Store
from contribbot.git.source import ref_for
from contribbot.model.evidence import HOST_TARGETS, ON_HARDWARE, SEEN, Details, Statement
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue
from contribbot.runners.artifacts import (
    FILE,
    JOB_FILE,
    ArtifactSource,
    RefusedArtifactError,
    first_problem,
    read_done,
)
from contribbot.runners.model import CiJob, JobDone, is_version
from contribbot.verify.evidence import State, judge_record


@dataclass
class RecordAnswer:
    """A record that came, judged."""

    patch: str
    file: str
    #: Why it is not taken; empty: it is.
    refused: str = ""
    #: None where it cannot be read.
    details: Details | None = None
    #: What is written where it is taken.
    content: bytes = b""
    #: What could not be compared.
    note: str = ""


@dataclass(frozen=True)
class RecordQuestion:
    """What a job was asked, of a run, and what its answers are held against."""

    job: CiJob
    source: ArtifactSource
    bases: Bases
    scratch: Path


def read_sent(
    files: Mapping[str, bytes], question: RecordQuestion
) -> tuple[JobDone, dict[str, RecordAnswer]]:
    """Return what a job says of itself, and its records by patch, judged."""
    job, done = question.job, read_done(files)
    asked = {entry.patch: entry.require for entry in done.asked}
    problem = question.source.problem(done.run, job.id)
    if not problem and done.job != job.id:
        problem = f"it is of job {done.job}, not {job.id}"
    if not problem and (asked != job.asks or len(asked) != len(done.asked)):
        problem = "it was asked something else than the plan asks"
    if problem:
        raise RefusedArtifactError(f"{JOB_FILE}: {problem}")
    answers: dict[str, RecordAnswer] = {}
    for name in sorted(files.keys() - {JOB_FILE}):
        _, patch, file = name.split("/")
        if patch in answers:
            raise RefusedArtifactError(f"it has two records of {patch}")
        answers[patch] = _judge(files[name], patch, file, question)
    return done, answers


def _judge(content: bytes, patch: str, file: str, question: RecordQuestion) -> RecordAnswer:
    """Judge one record: the first rule that it breaks refuses it."""
    answer = RecordAnswer(patch, file)
    try:
        document = from_json(content, allow_inf_nan=False)
        statement = Statement.model_validate(document)
        answer.content = written(document)
    except (ValidationError, ValueError) as error:
        answer.refused = f"not a record that contribbot writes: {first_problem(error)}"
        return answer
    answer.details = details = statement.predicate.contribbot
    path = question.scratch / patch / file
    write_atomically(path, answer.content)
    tree = statement.subject[1].digest.gitTree or ""
    try:
        answer.refused = next(_problems(details, question.job, question.source), "")
        if not answer.refused:
            # Patch, checks, pin, what is below and the seal, as the queue is here.
            record = judge_record(question.bases.queue, path)
            if record.state is not State.FRESH:
                answer.refused = f"{record.state}: {record.why}"
        if not answer.refused:
            answer.refused, answer.note = question.bases.compare(patch, details.base_commit, tree)
    except ContribbotError as error:
        answer.refused = error.message
    return answer


def written(document: object) -> bytes:
    """Write JSON for a file that people look at, in ASCII: nothing in it moves a terminal.

    Indents can make a gigabyte of a megabyte that is nested deeply.
    """
    parts, size = [], 0
    for part in json.JSONEncoder(indent=2, allow_nan=False).iterencode(document):
        size += len(part)
        if size > FILE:
            raise ValueError(f"written out it has more than {FILE} characters")
        parts.append(part)
    return "".join(parts).encode() + b"\n"


#: A name that `Machine.slug` may make: it becomes a file's.
_SLUG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")
#: How far a runner's clock may be ahead.
_AHEAD: Final = timedelta(hours=1)
#: Stages whose outcomes are of the hardware that something ran on.
_RAN: Final = ON_HARDWARE | {"witness"}


def _problems(details: Details, job: CiJob, source: ArtifactSource) -> Iterator[str]:
    """Give what a record claims that its job was not asked."""
    machine, container = details.machine, details.container
    if details.started.tzinfo is None or details.finished.tzinfo is None:
        yield "its times name no time zone"
    elif details.finished > datetime.now(UTC) + _AHEAD:
        yield f"it was seen in the future: {details.finished.isoformat()}"
    if not (machine.system.split() and _SLUG.fullmatch(machine.slug)):
        yield "its machine has a name that cannot be a file's"
    if problem := source.problem(details.run, job.id):
        yield problem
    if details.patch not in job.asks:
        yield f"job {job.id} was not asked for {details.patch}"
    if container is None or (container.image, container.flags) != (job.image, job.flags):
        yield f"its container is not the plan's: {container.image if container else 'none'}"
    yield from _hardware_problems(details, job)
    if machine.rocm and not is_version(job.rocm, machine.rocm):
        yield f"it was made with ROCm {machine.rocm}, and {job.rocm} was asked"


def _hardware_problems(details: Details, job: CiJob) -> Iterator[str]:
    """Give what a record claims that its machine cannot have seen, or nobody asked it about."""
    machine = details.machine
    amd = sorted({gpu.target for gpu in machine.gpus if gpu.vendor == "amd"})
    if job.target and amd and job.target not in amd:
        yield f"it was made on {', '.join(amd)}, and {job.target} was asked"
    for result in details.stages:
        if result.stage not in _RAN or result.outcome not in SEEN:
            continue
        if result.target not in machine.targets:
            yield f"it says what ran on {result.target}, and its machine has none"
        # Else a machine could speak for others that nobody asked it about.
        if result.target not in {job.target, *HOST_TARGETS}:
            yield f"it says what ran on {result.target}, and {job.target or 'no GPU'} was asked"


class _Trees(NamedTuple):
    """The patched tree by base commit, None where it was not made here; and whether that is all."""

    by_base: dict[str, str | None]
    complete: bool


@dataclass
class Bases:
    """The bases of the patches of a queue and what patches make of them, found out once each."""

    queue: Queue
    _known: dict[str, _Trees] = field(default_factory=dict)

    def compare(self, name: str, base: str, tree: str) -> tuple[str, str]:
        """Return what is wrong with base and patched tree of a record, or what is not known."""
        if name not in self._known:
            self._known[name] = self._trees(name)
        by_base, complete = self._known[name]
        if base not in by_base and complete:
            return f"base commit {base[:12]} is none of its pin's", ""
        known = by_base.get(base)
        if known is None:
            return "", "its patched tree was not made again here: the store has no such base"
        wrong = f"patched tree {tree[:12]} is not what the patch makes of its base"
        return ("", "") if tree == known else (wrong, "")

    def _trees(self, name: str) -> _Trees:
        """Apply a patch here to each commit of its pin: a runner had one kind of its sources."""
        patch = self.queue.patch(name)
        below = [self.queue.patch(low) for low in self.queue.below(name)]
        path = stores_folder() / f"{patch.upstream.name}.git"
        store = Store(path) if (path / "HEAD").is_file() else None
        commits: set[str | None] = set()
        for source in patch.pin.sources:
            commit = store.resolve(ref_for(patch.pin, source, patch.upstream)) if store else None
            commits.add(commit or (patch.pin.commit if source.kind == "git" else None))
            if source.kind == "installed":
                commits.add(None)  # another machine may have another build of it
        by_base: dict[str, str | None] = {}
        known = [commit for commit in commits if commit]
        for commit in known:
            if pair := _apply(store, commit, [*below, patch]) if store else None:
                by_base[pair[0]] = pair[1]
            elif not below:
                by_base[commit] = None
        # What stands on others has a base that only the store can make.
        return _Trees(by_base, None not in commits and (not below or len(by_base) == len(known)))


def _apply(store: Store, commit: str, stack: list[Patch]) -> tuple[str, str] | None:
    """Return the base commit and the patched tree of the last of a stack; None: cannot tell."""
    base = tree = commit
    try:
        if not store.has(commit):
            return None
        with run_folder() as scratch, store.exclusive():
            for number, patch in enumerate(stack):
                place = scratch / str(number)
                place.mkdir()
                base = commit
                series = apply_series(store, base, patch.files, pin=patch.pin.title, scratch=place)
                if series.conflicts or not series.applied:
                    return None
                tree, commit = series.applied[-1].tree, series.commit
    except ContribbotError:
        return None
    return base, tree
