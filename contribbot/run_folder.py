"""The folders of running jobs, and the removal of unused entries of the cache."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.files import cache_folder, lock
from contribbot.process import remove_tree

if TYPE_CHECKING:
    import filelock

#: The file in a folder of entries whose time is the time of the last removal.
_STAMP: Final = ".swept"
_DAY: Final = 86400.0
#: The age in seconds, since the last use, from which an entry is removed.
_UNUSED: Final = 30 * _DAY


@dataclass(frozen=True)
class Kept:
    """A folder of reproducible entries, from which a run removes unused entries."""

    folder: Path
    entries: str = "*"
    marker: str = ""


@contextlib.contextmanager
def run_folder(*kept: Kept) -> Iterator[Path]:
    """Give a temporary folder; remove folders of killed runs, and unused entries of the cache."""
    runs = cache_folder() / "runs"
    with lock(runs.with_name("runs.lock"), "the folder of running jobs"):
        runs.mkdir(exist_ok=True)
        if _remove_orphans(runs):
            for entries in kept:
                _sweep_unused(entries)
        # The name is short: the path of a socket has 107 characters at most (unix(7)).
        folder = runs / uuid.uuid4().hex[:8]
        guard = _guard(folder.with_suffix(".lock"))
        guard.acquire()
        folder.mkdir()
    try:
        yield folder
    finally:
        remove_tree(folder, wait=False)
        folder.with_suffix(".lock").unlink(missing_ok=True)
        guard.release()


def _guard(path: Path) -> filelock.BaseFileLock:
    import filelock  # noqa: PLC0415  see lock

    # Any thread may end the run and release the lock.
    return filelock.FileLock(path, thread_local=False)


def _remove_orphans(runs: Path) -> bool:
    """Remove the folders of killed runs; return whether no run is alive."""
    alone = True
    for path in runs.glob("*.lock"):
        guard = _guard(path)
        try:
            guard.acquire(timeout=0)
        except TimeoutError:
            alone = False
            continue
        remove_tree(path.with_suffix(""))
        path.unlink(missing_ok=True)
        guard.release()
    for folder in runs.iterdir():
        # A folder without a lock belongs to a run that has ended, or whose removal was stopped.
        if not folder.with_suffix(".lock").exists():
            remove_tree(folder, wait=False)
    return alone


def _sweep_unused(kept: Kept) -> None:
    """Remove unused entries, once a day; entries that cannot be removed are left."""
    stamp, now = kept.folder / _STAMP, time.time()
    if now - _changed(stamp, absent=0) < _DAY:
        return
    try:
        stamp.touch()
        entries = list(kept.folder.glob(kept.entries))
    except OSError:
        return  # the folder is missing, or belongs to another user
    for entry in entries:
        last = _changed(entry, absent=now)
        if kept.marker:
            last = _changed(entry / kept.marker, absent=last)
        if now - last > _UNUSED and entry.is_dir():
            remove_tree(entry)
        elif now - last > _UNUSED:
            with contextlib.suppress(OSError):
                entry.unlink()


def _changed(path: Path, *, absent: float) -> float:
    """Return the time of a file's or link's last change, in seconds since the epoch."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return absent
