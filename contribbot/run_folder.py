"""Temporary folders for runs, and the removal of unused entries of the cache."""

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

#: A file in a folder of entries; the file's time is the time of the last removal.
_STAMP: Final = ".swept"
_DAY: Final = 86400.0
#: The seconds since the last use after which an entry is removed.
_UNUSED: Final = 30 * _DAY


@dataclass(frozen=True)
class Kept:
    """A cache folder, its entries' pattern and marker; entries unused for 30 days are removed."""

    folder: Path
    entries: str = "*"
    marker: str = ""


@contextlib.contextmanager
def run_folder(*kept: Kept) -> Iterator[Path]:
    """Yield a temporary folder; remove folders of killed runs, and unused entries of `kept`."""
    runs = cache_folder() / "runs"
    with lock(runs.with_name("runs.lock"), "the folder of running jobs"):
        runs.mkdir(exist_ok=True)
        if _remove_orphans(runs):
            for entries in kept:
                _sweep_unused(entries)
        # The name is short: the path of a socket has at most 107 characters (unix(7)).
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
    import filelock  # noqa: PLC0415  start-up time

    # Any thread may end the run and release the lock.
    return filelock.FileLock(path, thread_local=False)


def _remove_orphans(runs: Path) -> bool:
    """Remove the folders of killed runs; return whether no other run is alive."""
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
        # A folder without a lock file is left from a run that has ended.
        if not folder.with_suffix(".lock").exists():
            remove_tree(folder, wait=False)
    return alone


def _sweep_unused(kept: Kept) -> None:
    """Remove unused entries, at most once a day; an entry whose removal fails is left."""
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
    """Return when a file or link last changed, in seconds since the epoch; `absent`: no file."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return absent
