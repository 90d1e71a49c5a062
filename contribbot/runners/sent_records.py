"""Records that a job sent: held against queue, plan and GitHub, and their way into the queue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic_core import from_json

from contribbot.errors import ContribbotError
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
from contribbot.runners.artifacts import FILE, RunDownload, first_problem
from contribbot.runners.documents import CiJob, RecordEnd, is_version
from contribbot.verify.evidence import State, judge_record
from contribbot.verify.signature import signature_path


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
    #: What could not be compared.
    note: str = ""
    #: The git id of its patched tree.
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


# The way into the queue.

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
