"""Compare two versions of a patch, commit by commit; the versions may be on other pins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.errors import QueueError, UsageError
from contribbot.files import stores_folder
from contribbot.git.pins.source import Silent
from contribbot.git.repository import open_store
from contribbot.model.base import Model
from contribbot.model.patch import PatchFile
from contribbot.model.pin import Pin
from contribbot.queue.history import Version, below_of, version, versions
from contribbot.queue.load import Queue
from contribbot.queue.stack import PatchStack, fetch_pin
from contribbot.run_folder import run_folder

#: Per cent of a commit that may change before git treats it as another commit. Git's default,
#: 60, is for long branches; the commits of one patch belong together.
_CREATION_FACTOR: Final = 95
_RANGE: Final = re.compile(r"v?(?P<old>[1-9][0-9]{0,8})(?:\.\.(?:v?(?P<new>[1-9][0-9]{0,8}))?)?")


class VersionDiff(Model):
    """The JSON document of `queue diff`; `old` and `new`: such as `v1`, or `files` (present)."""

    patch: str
    old: str
    new: str
    #: Whether both versions have the same files on the same pin.
    same: bool
    range_diff: str


@dataclass(frozen=True)
class _DiffSide:
    title: str
    digest: str
    base: Pin
    below: tuple[tuple[PatchFile, ...], ...]
    files: tuple[PatchFile, ...]


def read_range(text: str | None) -> tuple[int | None, int | None]:
    """Return the version numbers in `v1..v2` or `v1`; None: the text does not name the version."""
    if text is None:
        return None, None
    ends = _RANGE.fullmatch(text)
    if ends is None:
        raise UsageError(
            f"{text}: not versions of a patch", hint="write v1..v2, or v1 to compare with now"
        )
    return int(ends["old"]), int(ends["new"]) if ends["new"] else None


def range_diff(
    queue: Queue, name: str, old: int | None = None, new: int | None = None
) -> VersionDiff:
    """Return git's range-diff of two versions, whose commits are made again in the store."""
    known = versions(queue.folder, name)
    if old is None and not known:
        raise UsageError(
            f"{name}: no version is recorded yet",
            hint="the first change by contribbot records what was there before, as v1",
        )
    left = _recorded(queue, known[-1] if old is None else version(queue.folder, name, old))
    if new is not None:
        right = _recorded(queue, version(queue.folder, name, new))
    elif name in queue.specs:
        patch = queue.patch(name)
        below = tuple(lower.files for lower in below_of(queue, name))
        right = _DiffSide("files", patch.digest, patch.pin, below, patch.files)
    else:
        raise UsageError(
            f"{name}: not in the queue any more, and without files to compare with",
            hint=f"name two versions: v1..v{known[-1].number}",
        )
    with run_folder() as scratch:
        ranges = [_commits(queue, side, scratch) for side in (left, right)]
        store = open_store(stores_folder(), left.base.upstream)
        factor = f"--creation-factor={_CREATION_FACTOR}"
        output = store.git("range-diff", "--no-color", factor, *ranges).stdout
    return VersionDiff(
        patch=name,
        old=left.title,
        new=right.title,
        same=(left.digest, left.base) == (right.digest, right.base),
        range_diff=output.decode("utf-8", "replace"),
    )


def _recorded(queue: Queue, recorded: Version) -> _DiffSide:
    event, title = recorded.event, f"v{recorded.number}"
    below = tuple(
        _lower(queue, f"{recorded.patch} {title}", name, digest)
        for name, digest in event.below.items()
    )
    return _DiffSide(title, event.digest, event.base, below, recorded.files())


def _lower(queue: Queue, whose: str, name: str, digest: str) -> tuple[PatchFile, ...]:
    """Return the files with a digest, of a dependency that may have been renamed."""
    # After a rename, the dependency's journal is in the folder of the new name.
    journals = sorted(path.parent.name for path in queue.folder.glob("history/*/journal.jsonl"))
    for known in (name, *(other for other in journals if other != name)):
        for recorded in versions(queue.folder, known):
            if recorded.event.digest == digest:
                return recorded.files()
    for patch in map(queue.patch, queue.specs):
        if patch.digest == digest:
            return patch.files
    raise QueueError(
        f"{whose} stood on {name} (sha256 {digest[:12]}), which is recorded nowhere",
        hint=f"restore that state of {name} from the queue's own git",
    )


def _commits(queue: Queue, side: _DiffSide, scratch: Path) -> str:
    """Write a version's commits into the store; return their range for git."""
    if side.base.upstream not in queue.upstreams:
        raise UsageError(
            f"the queue has no pin of {side.base.upstream} any more",
            hint=f"pin the release again: contribbot pin add {side.base.upstream} {side.base.tag}",
        )
    fetched = fetch_pin(queue, side.base, progress=Silent())
    tips = [fetched.commit]
    with fetched.store.exclusive():
        stack = PatchStack(queue, fetched, scratch)
        for files in (*side.below, side.files):
            series = stack.series(tips[-1], files)
            if series.conflicts:
                raise QueueError(
                    f"{side.title} does not apply: {series.conflicts[0].headline}",
                    hint="compare with a version that does",
                )
            tips.append(series.commit)
    return f"{tips[-2]}..{tips[-1]}"
