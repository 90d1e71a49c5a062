"""Where contribbot keeps what it can make again: the cache, and folders that live for one run."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from contribbot import process
from contribbot.errors import UsageError
from contribbot.locks import lock

if TYPE_CHECKING:
    import filelock


def cache_folder() -> Path:
    """Return the cache folder: `CONTRIBBOT_CACHE`, or the platform's user cache folder.

    Raises:
        UsageError: Its name cannot stand in a list of folders, such as Python's path.
    """
    chosen = os.environ.get("CONTRIBBOT_CACHE", "")
    if os.pathsep in chosen:
        raise UsageError(
            f"CONTRIBBOT_CACHE={chosen}: a folder with {os.pathsep} in its name cannot be searched",
            hint="name another folder",
        )
    if chosen:
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError as error:
            raise UsageError(
                f"CONTRIBBOT_CACHE={chosen}: no such home", hint="name another folder"
            ) from error
    import platformdirs  # noqa: PLC0415  only needed where the variable is not set

    return Path(platformdirs.user_cache_dir("contribbot", appauthor=False))


def stores_folder() -> Path:
    """Return the folder that holds one bare git store per upstream."""
    return cache_folder() / "stores"


def downloads_folder() -> Path:
    """Return the folder that holds downloaded archives, named by their digest."""
    return cache_folder() / "downloads"


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Give a folder that is gone when the block ends.

    A run that was killed cannot remove its folder. Each folder is locked by its
    run, so the next one can tell which are orphans, and removes them.
    """
    runs = cache_folder() / "runs"
    with lock(runs.with_name("runs.lock"), "the folder of running jobs"):
        runs.mkdir(exist_ok=True)
        _sweep(runs)
        folder = runs / uuid.uuid4().hex
        guard = _guard(folder)
        guard.acquire()
        folder.mkdir()
    try:
        yield folder
    finally:
        process.remove_tree(folder)
        _lock_path(folder).unlink(missing_ok=True)
        guard.release()


def _sweep(runs: Path) -> None:
    """Remove the folders of runs that are no longer alive."""
    import filelock  # noqa: PLC0415  see locks.lock

    for lock_path in runs.glob("*.lock"):
        guard = _guard(lock_path.with_suffix(""))
        try:
            guard.acquire(timeout=0)
        except filelock.Timeout:
            continue
        process.remove_tree(lock_path.with_suffix(""))
        lock_path.unlink(missing_ok=True)
        guard.release()


def _lock_path(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")


def _guard(folder: Path) -> filelock.BaseFileLock:
    import filelock  # noqa: PLC0415  see locks.lock

    # Released by whichever thread ends the run.
    return filelock.FileLock(_lock_path(folder), thread_local=False)
