"""Whether the records that a job sent answer what it was asked.

Nothing in them is believed that cannot be held against the queue, the plan, or what GitHub says
of the run. What a record says was seen on the runner is believed: nobody else was there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic_core import from_json

from contribbot.errors import ContribbotError
from contribbot.files import run_folder, stores_folder, write_atomically
from contribbot.git.apply import apply_series
from contribbot.git.repository import Store
from contribbot.git.source import ref_for
from contribbot.model.evidence import (
    HOST_TARGETS,
    ON_HARDWARE,
    SEEN,
    Details,
    Statement,
)
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue
from contribbot.runners.artifacts import (
    FILE,
    JOB_FILE,
    RefusedArtifactError,
    Source,
    first_problem,
    read_done,
)
from contribbot.runners.model import Job, JobDone, PatchDone, is_version
from contribbot.verify.evidence import State, judge_record


@dataclass(frozen=True)
class Answer:
    """A record that came, judged; `content` is what is kept of it."""

    patch: str
    file: str
    #: Why it is not taken; empty: it is.
    refused: str
    #: None where it cannot be read.
    details: Details | None = None
    content: bytes = b""
    #: What could not be compared.
    note: str = ""


@dataclass(frozen=True)
class Sent:
    """What a job says of itself, and its records by patch."""

    done: JobDone
    answers: Mapping[str, Answer]

    def ended(self, patch: str) -> PatchDone | None:
        """Return how it says that the proof of a patch ended; None: it was not begun."""
        return next((done for done in self.done.patches if done.patch == patch), None)


@dataclass(frozen=True)
class Question:
    """What a job was asked, of a run, and what its answers are held against."""

    job: Job
    source: Source
    bases: Bases
    scratch: Path


def read_sent(files: Mapping[str, bytes], question: Question) -> Sent:
    """Judge what a job sent."""
    job, done = question.job, read_done(files)
    asked = {entry.patch: entry.require for entry in done.asked}
    problem = question.source.problem(done.run, job.id)
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
        answers[patch] = _judge(files[name], patch, file, question)
    return Sent(done, answers)


@dataclass(frozen=True)
class _Claim:
    """A record that can be read, where it came, and the question that it answers."""

    statement: Statement
    patch: str
    path: Path
    question: Question

    @property
    def details(self) -> Details:
        return self.statement.predicate.contribbot


def _judge(content: bytes, patch: str, file: str, question: Question) -> Answer:
    """Judge one record: the first rule that it breaks refuses it."""
    try:
        document = from_json(content, allow_inf_nan=False)
        statement = Statement.model_validate(document)
        kept = written(document)
    except (ValidationError, ValueError) as error:
        return Answer(patch, file, f"not a record that contribbot writes: {first_problem(error)}")
    path = question.scratch / patch / file
    write_atomically(path, kept)
    claim = _Claim(statement, patch, path, question)
    try:
        refused = next(filter(None, (rule(claim) for rule in RULES)), "")
    except ContribbotError as error:
        refused = error.message
    note = ""
    if not refused and not question.bases.compared(patch, claim.details.base_commit):
        note = "its patched tree was not made again here: the store has no such base"
    return Answer(patch, file, refused, claim.details, b"" if refused else kept, note)


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


# The rules.

#: A name that `Machine.slug` may make: it becomes a file's.
_SLUG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")
#: How far a runner's clock may be ahead.
_AHEAD: Final = timedelta(hours=1)
#: Stages whose outcomes are of the hardware that something ran on.
_RAN: Final = ON_HARDWARE | {"witness"}


def _times(claim: _Claim) -> str:
    details = claim.details
    if details.started.tzinfo is None or details.finished.tzinfo is None:
        return "its times name no time zone"
    if details.finished > datetime.now(UTC) + _AHEAD:
        return f"it was seen in the future: {details.finished.isoformat()}"
    return ""


def _name(claim: _Claim) -> str:
    machine = claim.details.machine
    good = machine.system.split() and _SLUG.fullmatch(machine.slug)
    return "" if good else "its machine has a name that cannot be a file's"


def _run(claim: _Claim) -> str:
    return claim.question.source.problem(claim.details.run, claim.question.job.id)


def _patch(claim: _Claim) -> str:
    job, patch = claim.question.job, claim.details.patch
    return "" if patch in job.asks else f"job {job.id} was not asked for {patch}"


def _container(claim: _Claim) -> str:
    container, job = claim.details.container, claim.question.job
    if container is not None and (container.image, container.flags) == (job.image, job.flags):
        return ""
    return f"its container is not the plan's: {container.image if container else 'none'}"


def _gpu(claim: _Claim) -> str:
    machine, target = claim.details.machine, claim.question.job.target
    amd = sorted({gpu.target for gpu in machine.gpus if gpu.vendor == "amd"})
    if target and amd and target not in amd:
        return f"it was made on {', '.join(amd)}, and {target} was asked"
    for result in claim.details.stages:
        if result.stage not in _RAN or result.outcome not in SEEN:
            continue
        if result.target not in machine.targets:
            return f"it says what ran on {result.target}, and its machine has none"
        # Else a machine could speak for others that nobody asked it about.
        if result.target not in {target, *HOST_TARGETS}:
            return f"it says what ran on {result.target}, and {target or 'no GPU'} was asked"
    return ""


def _rocm(claim: _Claim) -> str:
    rocm, asked = claim.details.machine.rocm, claim.question.job.rocm
    if not rocm or is_version(asked, rocm):
        return ""
    return f"it was made with ROCm {rocm}, and {asked} was asked"


def _queue(claim: _Claim) -> str:
    """Compare it with the queue as it is here: patch, checks, pin, what is below, its seal."""
    record = judge_record(claim.question.bases.queue, claim.path)
    return "" if record.state is State.FRESH else f"{record.state}: {record.why}"


def _base(claim: _Claim) -> str:
    tree = claim.statement.subject[1].digest.gitTree or ""
    return claim.question.bases.problem(claim.patch, claim.details.base_commit, tree)


#: What each record is held against, in order; each says what is wrong, or nothing.
RULES: Final[tuple[Callable[[_Claim], str], ...]] = (
    _times, _name, _run, _patch, _container, _gpu, _rocm, _queue, _base,
)  # fmt: skip


@dataclass(frozen=True)
class _Trees:
    """The patched tree by base commit, None where it was not made here; and whether that is all."""

    made: dict[str, str | None]
    complete: bool


@dataclass
class Bases:
    """The bases of the patches of a queue and what patches make of them, found out once each.

    A pin has one commit for each kind of source; a record names the one that its runner had.
    """

    queue: Queue
    _known: dict[str, _Trees] = field(default_factory=dict)

    def problem(self, name: str, base: str, tree: str) -> str:
        """Say what a record has wrong; or nothing."""
        known = self._of(name)
        if base not in known.made:
            return f"base commit {base[:12]} is none of its pin's" if known.complete else ""
        if known.made[base] not in {None, tree}:
            return f"patched tree {tree[:12]} is not what the patch makes of its base"
        return ""

    def compared(self, name: str, base: str) -> bool:
        """Say whether the patched tree could be made here to compare it."""
        return self._of(name).made.get(base) is not None

    def _of(self, name: str) -> _Trees:
        if name not in self._known:
            self._known[name] = self._find_out(name)
        return self._known[name]

    def _find_out(self, name: str) -> _Trees:
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
        made: dict[str, str | None] = {}
        known = commits - {None}
        for commit in filter(None, commits):
            tree = _make(store, commit, [*below, patch]) if store else None
            if tree is not None:
                made[tree[0]] = tree[1]
            elif not below:
                made[commit] = None
        # What stands on others has a base that only the store can make.
        return _Trees(made, None not in commits and (not below or len(made) == len(known)))


def _make(store: Store, commit: str, stack: list[Patch]) -> tuple[str, str] | None:
    """Return the base commit and the patched tree of the last of a stack; None: cannot tell."""
    base = tree = commit
    try:
        if not store.has(commit):
            return None
        with run_folder() as scratch, store.exclusive():
            after = commit
            for number, patch in enumerate(stack):
                place = scratch / str(number)
                place.mkdir()
                base = after
                series = apply_series(store, base, patch.files, pin=patch.pin.title, scratch=place)
                if series.conflicts or not series.applied:
                    return None
                tree, after = series.applied[-1].tree, series.commit
    except ContribbotError:
        return None
    return base, tree
