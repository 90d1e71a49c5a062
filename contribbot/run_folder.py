"""Folders of running jobs, and what of the cache nobody has used for long."""

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

#: The file in a folder of entries whose time says when they were last looked through.
_STAMP: Final = ".swept"
_DAY: Final = 86400.0
#: Seconds after its last use in which an entry is kept.
_UNUSED: Final = 30 * _DAY


@dataclass(frozen=True)
class Kept:
    """A folder of entries that can be made again, and need not be kept for ever."""

    folder: Path
    entries: str = "*"
    marker: str = ""


@contextlib.contextmanager
def run_folder(*kept: Kept) -> Iterator[Path]:
    """Give a folder that is gone in the end; remove what killed runs left, and what is unused."""
    runs = cache_folder() / "runs"
    with lock(runs.with_name("runs.lock"), "the folder of running jobs"):
        runs.mkdir(exist_ok=True)
        if _remove_orphans(runs):
            for entries in kept:
                _sweep_unused(entries)
        # Short: the name of a socket in it has 107 characters at most (unix(7)).
        folder = runs / uuid.uuid4().hex[:8]
        guard = _guard(folder.with_suffix(".lock"))
        guard.acquire()
        folder.mkdir()
    try:
        yield folder
    finally:
        remove_tree(folder)
        folder.with_suffix(".lock").unlink(missing_ok=True)
        guard.release()


def _guard(path: Path) -> filelock.BaseFileLock:
    import filelock  # noqa: PLC0415  see lock

    # Released by whichever thread ends the run.
    return filelock.FileLock(path, thread_local=False)


def _remove_orphans(runs: Path) -> bool:
    """Remove the folders of runs that are no longer alive; say whether none is alive."""
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
    return alone


def _sweep_unused(kept: Kept) -> None:
    """Remove the entries that nobody used for long, once a day; what cannot be is passed over."""
    stamp, now = kept.folder / _STAMP, time.time()
    # A time in the future is a clock that was wrong once.
    if 0 <= now - _changed(stamp, absent=now + _DAY) < _DAY:
        return
    try:
        stamp.touch()
        entries = list(kept.folder.glob(kept.entries))
    except OSError:
        return  # there is no such folder, or it is somebody else's
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
    """Return when a file was changed, in seconds since the epoch. A link is looked at itself."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return absent
