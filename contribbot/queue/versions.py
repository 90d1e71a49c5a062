"""Versions of a patch: what its files were, kept in `history/NAME/vN.mbox`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contribbot.errors import QueueError, UsageError
from contribbot.files import write_atomically
from contribbot.model.history import VersionEvent, VersionFile
from contribbot.model.patch import Patch, PatchFile, digest_of
from contribbot.queue import journal
from contribbot.queue.exchange import sync
from contribbot.queue.load import Queue


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
    folder = journal.history_folder(queue_folder, name)
    # Where a number is there twice (two branches of the queue's own git, merged), the later
    # line wins: it is the one whose mbox was written last.
    found = {
        event.version: Version(name, event, folder / f"v{event.version}.mbox")
        for event in journal.read(queue_folder, name)
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
    with journal.held(queue.folder):
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
    path = journal.history_folder(queue.folder, name) / f"v{number}.mbox"
    write_atomically(path, b"".join(file.content for file in patch.files))
    sync(path.parent)
    count = len(patch.files)
    event = VersionEvent(
        time=journal.now(),
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
    journal.append_held(queue.folder, name, event)
    return number


def below_of(queue: Queue, name: str) -> list[Patch]:
    """Return the patches that a patch stands on, lowest first; none where it is not there."""
    return [queue.patch(lower) for lower in queue.below(name)] if name in queue.specs else []


def digests(patches: Sequence[Patch]) -> dict[str, str]:
    """Return the digests of patches, by name."""
    return {patch.name: patch.digest for patch in patches}
