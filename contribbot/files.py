"""Writing files so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import logging
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import contribbot
from contribbot.errors import UsageError, check_stopping

if TYPE_CHECKING:
    import filelock


_PARTIAL: Final = ".partial"
#: Seconds after which a partial file can only be one that a killed process left.
_ABANDONED: Final = 3600.0


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content in one step.

    A link is followed, and what is no regular file (a terminal, a pipe) is
    written to as it is.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{_PARTIAL}")
    # The kernel applies the umask, which no thread can read without setting it.
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_named(path: Path, content: bytes) -> None:
    """Write a file that a user names: it is no folder, and stands in one that is there."""
    if path.is_dir():
        raise UsageError(f"{path}: a folder", hint="name a file")
    if path.parent.is_file():
        raise UsageError(f"{path.parent}: not a folder", hint="name a folder")
    if not path.absolute().parent.is_dir():
        hint = f"make it first: mkdir -p {path.parent}"
        raise UsageError(f"{path.parent}: no such folder", hint=hint)
    try:
        write_atomically(path, content)
    except OSError as error:
        error.filename = str(path)
        raise


def _sweep(path: Path) -> None:
    """Remove the partial files that killed processes left beside a file."""
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*{_PARTIAL}"):
        with contextlib.suppress(FileNotFoundError):  # its writer was quicker
            if time.time() - partial.stat().st_mtime > _ABANDONED:
                partial.unlink()


log: Final = logging.getLogger(__name__)

_registry: Final = threading.Lock()
_threads: Final[dict[Path, threading.Lock]] = {}


@contextlib.contextmanager
def lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file; wait for whoever has it, for the kernel frees it when that one dies."""
    import filelock  # noqa: PLC0415  30 ms that reading commands need not pay

    path.parent.mkdir(parents=True, exist_ok=True)
    guard = filelock.FileLock(path)
    with _registry:
        thread_lock = _threads.setdefault(path.resolve(), threading.Lock())
    # The threads of this process line up among themselves, without a word.
    with thread_lock:
        try:
            guard.acquire(timeout=0)
        except filelock.Timeout:
            log.warning("waiting for another contribbot to finish with %s", what)
            # In short steps, so that this process can still be told to end.
            while not guard.is_locked:
                check_stopping()
                with contextlib.suppress(filelock.Timeout):
                    guard.acquire(timeout=0.5)
        try:
            yield
        finally:
            guard.release()


_DAY: Final = 86400.0
#: Seconds after its last use in which an entry is kept.
_UNUSED: Final = 30 * _DAY
#: The file in a folder of entries whose time says when they were last looked through.
_STAMP: Final = ".swept"


@dataclass(frozen=True)
class Kept:
    """A folder of entries that can be made again, and need not be kept for ever."""

    folder: Path
    entries: str = "*"
    marker: str = ""


def used(path: Path) -> None:
    """Note that an entry is used now: an entry that is a file, or the marker of one."""
    with contextlib.suppress(OSError):
        os.utime(path)


def log_path(folder: Path, sha256: str) -> Path:
    """Return where the log with a digest lies: its first digits are enough to tell it by."""
    return folder / f"{sha256[:16]}.log"


def cache_folder() -> Path:
    """Return the cache folder: `CONTRIBBOT_CACHE`, or the platform's user cache folder."""
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
def run_folder(*kept: Kept) -> Iterator[Path]:
    """Give a folder that is gone when the block ends.

    A run that was killed cannot remove its folder. Each folder is locked by its
    run, so the next one can tell which are orphans, and removes them.

    A run that starts while no other runs also removes what nobody has used for 30
    days, at most once a day. No run can start meanwhile, so nobody loses what they use.
    """
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
    import filelock  # noqa: PLC0415  see lock

    alone = True
    for path in runs.glob("*.lock"):
        guard = _guard(path)
        try:
            guard.acquire(timeout=0)
        except filelock.Timeout:
            alone = False
            continue
        remove_tree(path.with_suffix(""))
        path.unlink(missing_ok=True)
        guard.release()
    return alone


def _sweep_unused(kept: Kept) -> None:
    """Remove the entries that nobody used for long, unless that was done today.

    What vanishes meanwhile, or cannot be removed, is passed over: other caches may share a
    queue's entries.
    """
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


@functools.cache
def tool_digest() -> str:
    """Return the SHA-256 over contribbot's own source, in hexadecimal.

    The version alone would keep outcomes of a development tree that has changed.
    """
    root = Path(contribbot.__file__).parent
    total = hashlib.sha256(contribbot.__version__.encode())
    for path in sorted(root.rglob("*")):
        if path.suffix in {".py", ".toml"}:
            total.update(path.relative_to(root).as_posix().encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep; errors are passed over.

    It works also when no other program may start any more.
    """
    if not folder.is_dir():
        return
    # Not shutil.rmtree: it fails on folders that are nested some hundred deep.
    with contextlib.suppress(OSError):
        subprocess.run(  # noqa: S603  no shell; the folder is one that contribbot made
            ["rm", "-rf", "--", folder],  # noqa: S607  POSIX has it
            env={"PATH": os.defpath},
            check=False,
            capture_output=True,
        )
