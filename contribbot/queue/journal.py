"""The history of a patch: `history/NAME/journal.jsonl`, one event a line, only ever added to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot.errors import QueueError
from contribbot.locks import lock
from contribbot.model.history import EVENT, Event, VerifiedEvent
from contribbot.model.machine import Machine
from contribbot.model.outcome import ON_HARDWARE, Outcome, StageResult
from contribbot.model.patch import Patch
from contribbot.model.report import PatchReport
from contribbot.queue.exchange import sync
from contribbot.queue.load import Queue, no_such_patch, patch_name

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
