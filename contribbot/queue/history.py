"""The history of a patch: `history/NAME/journal.jsonl`, one event a line, only ever added to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot.errors import QueueError, UsageError
from contribbot.files import lock, write_atomically
from contribbot.model.evidence import ON_HARDWARE, Machine, Outcome, PatchReport, StageResult
from contribbot.model.history import EVENT, Event, VerifiedEvent, VersionEvent, VersionFile
from contribbot.model.patch import Patch, PatchFile, digest_of
from contribbot.queue.load import Queue, no_such_patch, patch_name
from contribbot.queue.transaction import sync

#: From what decides to what does not.
_WORST_FIRST: Final = (Outcome.FAILED, Outcome.UNAVAILABLE, Outcome.PASSED, Outcome.SKIPPED)


def history_folder(queue_folder: Path, name: str) -> Path:
    """Return the folder that holds a patch's journal and versions."""
    return queue_folder / "history" / name


def journal_file(queue_folder: Path, name: str) -> Path:
    """Return the journal of a patch; need not be there."""
    return history_folder(queue_folder, name) / "journal.jsonl"


def past_name(queue: Queue, item: str) -> str:
    """Return the patch that a user means; one that left the queue counts while it has a history."""
    name = patch_name(queue, item)
    if name not in queue.specs and not journal_file(queue.folder, name).is_file():
        raise no_such_patch(item, queue.specs)
    return name


def now() -> datetime:
    """Return the time for an event: UTC, in whole seconds, as people read it."""
    return datetime.now(UTC).replace(microsecond=0)


def append(queue_folder: Path, name: str, event: Event) -> None:
    """Add an event to the journal of a patch, down to the disk.

    One write, so that a kill leaves the line or a torn part of it, which is passed over
    by `read` and taken away by the next `append`.
    """
    with held(queue_folder):
        append_held(queue_folder, name, event)


@contextlib.contextmanager
def held(queue_folder: Path) -> Iterator[None]:
    """Hold the history of a queue: nobody else adds to it meanwhile."""
    with lock(queue_folder / ".contribbot" / "history.lock", f"the history of {queue_folder}"):
        yield


def append_held(queue_folder: Path, name: str, event: Event) -> None:
    """Do what `append` does, inside `held`."""
    path = journal_file(queue_folder, name)
    line = EVENT.dump_json(event, exclude_none=True) + b"\n"
    fresh = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        start = _mend(handle)
        try:
            _write(handle, line)
            os.fsync(handle)
        except OSError:
            # A full disk: no part of the line stays.
            with contextlib.suppress(OSError):
                os.ftruncate(handle, start)
            raise
    finally:
        os.close(handle)
    if fresh:
        for folder in (path.parent, path.parent.parent, queue_folder):
            sync(folder)


def _mend(handle: int) -> int:
    """Take away a last line that was cut short, or end one that only lacks its end."""
    size = os.fstat(handle).st_size
    content = os.pread(handle, size, 0)
    torn = content[content.rfind(b"\n") + 1 :]
    if not torn:
        return size
    if _parse(torn) is None:
        os.ftruncate(handle, size - len(torn))
        return size - len(torn)
    _write(handle, b"\n")
    return size + 1


def _write(handle: int, content: bytes) -> None:
    written = os.write(handle, content)
    while written < len(content):
        written += os.write(handle, content[written:])


def _parse(line: bytes) -> Event | None:
    try:
        return EVENT.validate_json(line)
    except ValidationError:
        return None


def read(queue_folder: Path, name: str) -> list[Event]:
    """Read the journal of a patch, oldest first; empty where there is none.

    A last line that was cut short by a crash is passed over.
    """
    path = journal_file(queue_folder, name)
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    rows = content.split(b"\n")
    events: list[Event] = []
    for number, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        event = _parse(row)
        if event is not None:
            events.append(event)
        elif number < len(rows):
            raise QueueError(
                f"{path}:{number}: not an event of a history",
                hint="restore the line, or take it out",
            )
    return events


def note_verified(
    queue_folder: Path, patch: Patch, report: PatchReport, machine: Machine
) -> VerifiedEvent | None:
    """Note a verification in the journal, unless this machine saw the same the last time."""
    targets = outcomes_by_target(report.stages)
    event = VerifiedEvent(
        time=now(),
        summary=f"{report.verdict} on {machine.slug}{_listed(targets)}",
        digest=patch.digest,
        pin=report.pin,
        machine=machine.slug,
        verdict=report.verdict,
        targets=targets,
    )
    before = [
        one
        for one in read(queue_folder, patch.name)
        if isinstance(one, VerifiedEvent) and one.machine == event.machine
    ]
    if before and before[-1].model_copy(update={"time": event.time}) == event:
        return None
    append(queue_folder, patch.name, event)
    return event


def outcomes_by_target(stages: Sequence[StageResult]) -> dict[str, Outcome]:
    """Return the outcome on each piece of hardware, and of each other stage with targets.

    Where several differ, `failed` counts before `unavailable` before `passed`.
    """
    found: dict[str, Outcome] = {}
    for one in stages:
        if one.target == "any":
            continue
        key = one.target if one.stage in ON_HARDWARE else f"{one.stage}:{one.target}"
        both = (one.outcome, found.get(key, one.outcome))
        found[key] = min(both, key=_WORST_FIRST.index)
    return found


def _listed(targets: dict[str, Outcome]) -> str:
    """Say which targets had which outcome, those that decide first."""
    parts = []
    for outcome in _WORST_FIRST:
        names = [name for name, seen in targets.items() if seen is outcome]
        if names:
            parts.append(f"{outcome}: {', '.join(names)}")
    return f"; {'; '.join(parts)}" if parts else ""


@dataclass(frozen=True)
class Version:
    """One version of a patch.

    Attributes:
        patch: The patch's name.
        event: What the journal says of it.
        mbox: The file that holds its patch files.
    """

    patch: str
    event: VersionEvent
    mbox: Path

    @property
    def number(self) -> int:
        """N, from 1."""
        return self.event.version

    def files(self) -> tuple[PatchFile, ...]:
        """Read its patch files."""
        try:
            content = self.mbox.read_bytes()
        except FileNotFoundError as error:
            raise QueueError(
                f"{self.mbox}: no such file, and the journal of {self.patch} names it",
                hint="restore it",
            ) from error
        files, start = [], 0
        for one in self.event.files:
            files.append(PatchFile(one.name, content[start : start + one.size]))
            start += one.size
        if start != len(content) or digest_of(tuple(files)) != self.event.digest:
            raise QueueError(
                f"{self.mbox}: not what was recorded as v{self.number} of {self.patch}",
                hint="restore it",
            )
        return tuple(files)


def versions(queue_folder: Path, name: str) -> list[Version]:
    """Return the recorded versions of a patch, oldest first."""
    folder = history_folder(queue_folder, name)
    # Where a number is there twice (two branches of the queue's own git, merged), the later
    # line wins: it is the one whose mbox was written last.
    found = {
        event.version: Version(name, event, folder / f"v{event.version}.mbox")
        for event in read(queue_folder, name)
        if isinstance(event, VersionEvent)
    }
    return [found[number] for number in sorted(found)]


def version(queue_folder: Path, name: str, number: int) -> Version:
    """Return one version of a patch."""
    known = versions(queue_folder, name)
    for one in known:
        if one.number == number:
            return one
    has = f"it has v1 to v{known[-1].number}" if known else "none is recorded yet"
    raise UsageError(f"{name}: there is no version v{number}", hint=has)


def record(
    queue: Queue,
    name: str,
    *,
    before: Patch | None,
    after: Patch,
    why: str,
    earlier: Queue | None = None,
) -> int | None:
    """Record what a patch has become, and what it was where that is not recorded yet.

    Call it after the change is on the disk: a version is never recorded that was not there.
    A kill between the two is made good by the next call, to which it is `before`.
    """
    with held(queue.folder):
        # One that was only just begun has nothing to compare with.
        if before is not None and before.files:
            _note(earlier or queue, name, before, f"before {why}")
        return _note(queue, name, after, why)


def _note(queue: Queue, name: str, patch: Patch, why: str) -> int | None:
    """Record a version, unless it is the last one."""
    known = versions(queue.folder, name)
    last = known[-1].event if known else None
    if last is not None and (last.digest, last.base) == (patch.digest, patch.pin):
        return None
    number = last.version + 1 if last else 1
    path = history_folder(queue.folder, name) / f"v{number}.mbox"
    write_atomically(path, b"".join(file.content for file in patch.files))
    sync(path.parent)
    count = len(patch.files)
    event = VersionEvent(
        time=now(),
        summary=(
            f"v{number}: {count} commit{'s' if count > 1 else ''} on {patch.pin.title}, {why}"
        ),
        version=number,
        digest=patch.digest,
        upstream=patch.upstream.name,
        pin=patch.pin.tag,
        why=why,
        files=tuple(VersionFile(name=one.name, size=len(one.content)) for one in patch.files),
        base=patch.pin,
        below=digests(below_of(queue, name)),
    )
    append_held(queue.folder, name, event)
    return number


def below_of(queue: Queue, name: str) -> list[Patch]:
    """Return the patches that a patch stands on, lowest first; none where it is not there."""
    return [queue.patch(lower) for lower in queue.below(name)] if name in queue.specs else []


def digests(patches: Sequence[Patch]) -> dict[str, str]:
    """Return the digests of patches, by name."""
    return {patch.name: patch.digest for patch in patches}
