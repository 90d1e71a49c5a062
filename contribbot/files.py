"""Atomic writes, locks, the cache's folders, and temporary folders for runs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import contribbot
from contribbot.errors import UsageError, check_stopping
from contribbot.process import remove_tree

if TYPE_CHECKING:
    from filelock import FileLock

_PARTIAL: Final = ".partial"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content in one step, through links; write directly to a terminal."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{_PARTIAL}")
    # The kernel applies the umask; a thread cannot read the umask without setting it.
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
    """Write a file that the user named; UsageError: the path is a folder, or lies in no folder."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: no file can be there", hint="name a file in an existing folder")
    try:
        write_atomically(path, content)
    except OSError as error:
        error.filename = str(path)
        raise


log: Final = logging.getLogger(__name__)

_registry: Final = threading.Lock()
_threads: Final[dict[Path, threading.Lock]] = {}


def _file_lock(path: Path) -> FileLock:
    """Return the lock of a lock file, which any thread may release."""
    import filelock  # noqa: PLC0415  the import takes 30 ms, which most commands save

    return filelock.FileLock(path, thread_local=False)


@contextlib.contextmanager
def lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file during a block; wait while another process or thread holds the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    guard = _file_lock(path)
    with _registry:
        thread_lock = _threads.setdefault(path.resolve(), threading.Lock())
    # The threads of this process wait for each other without a message.
    with thread_lock:
        try:
            guard.acquire(timeout=0)
        except TimeoutError:
            log.warning("waiting for another contribbot to finish with %s", what)
            # The wait has short steps, so that this process can be stopped.
            while not guard.is_locked:
                check_stopping()
                with contextlib.suppress(TimeoutError):
                    guard.acquire(timeout=0.5)
        try:
            yield
        finally:
            guard.release()


def make_private(folder: Path) -> None:
    """Make a folder that only this user can read; a failure shows at the first write."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        log.debug("%s cannot be made private: %s", folder, error)


def used(path: Path) -> None:
    """Set the modification time of a cache entry's file or marker: the time of the last use."""
    with contextlib.suppress(OSError):
        os.utime(path)


def log_path(folder: Path, sha256: str) -> Path:
    """Return the path of a log, whose name is the beginning of the log's digest."""
    return folder / f"{sha256[:16]}.log"


def cache_folder() -> Path:
    """Return the cache folder: `CONTRIBBOT_CACHE`, or the platform's cache folder of the user."""
    chosen = os.environ.get("CONTRIBBOT_CACHE", "")
    if os.pathsep in chosen or chosen.startswith("~"):
        hint = f"name a folder by its whole path, without {os.pathsep}"
        raise UsageError(f"CONTRIBBOT_CACHE={chosen}: not possible", hint=hint)
    if chosen:
        return Path(chosen).absolute()
    import platformdirs  # noqa: PLC0415  only needed without the variable

    return Path(platformdirs.user_cache_dir("contribbot", appauthor=False))


def stores_folder() -> Path:
    """Return the folder with one bare git store for each upstream."""
    return cache_folder() / "stores"


def downloads_folder() -> Path:
    """Return the folder of downloaded archives, which are named by digest."""
    return cache_folder() / "downloads"


@functools.cache
def folder_digest(folder: Path, *suffixes: str) -> str:
    """Return the SHA-256 over paths and contents of a package's files with some suffixes, or all.

    The files are read once: a process goes on with the code that it has loaded.
    """
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (not suffixes or path.suffix in suffixes):
            total.update(path.relative_to(folder).as_posix().encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def tool_digest() -> str:
    """Return the SHA-256 over contribbot's source: a version number alone hides changes."""
    return folder_digest(Path(contribbot.__file__).parent, ".py", ".toml")


#: The seconds since the last use after which an entry of a cache is removed.
_UNUSED: Final = 30 * 86400.0


class DiskCache(NamedTuple):
    """A cache folder, the pattern of its entries, and the file that notes an entry's last use."""

    folder: Path
    entries: str = "*"
    marker: str = ""


@contextlib.contextmanager
def run_folder(*caches: DiskCache) -> Iterator[Path]:
    """Yield a temporary folder; remove folders of killed runs, and unused entries of caches."""
    runs = cache_folder() / "runs"
    with lock(runs.with_name("runs.lock"), "the folder of running jobs"):
        runs.mkdir(exist_ok=True)
        if _remove_orphans(runs):
            for cache in caches:
                _remove_unused(cache)
        # The name is short: the path of a socket has at most 107 characters (unix(7)).
        folder = runs / uuid.uuid4().hex[:8]
        guard = _file_lock(folder.with_suffix(".lock"))
        guard.acquire()
        folder.mkdir()
    try:
        yield folder
    finally:
        remove_tree(folder, wait=False)
        folder.with_suffix(".lock").unlink(missing_ok=True)
        guard.release()


def _remove_orphans(runs: Path) -> bool:
    """Remove the folders of killed runs; return whether no other run is alive."""
    alone = True
    for path in runs.glob("*.lock"):
        try:
            with _file_lock(path).acquire(timeout=0):
                remove_tree(path.with_suffix(""))
                path.unlink(missing_ok=True)
        except TimeoutError:
            alone = False
    for folder in runs.iterdir():
        # The removal of an ended run's folder was killed.
        if not folder.with_suffix(".lock").exists():
            remove_tree(folder, wait=False)
    return alone


def _remove_unused(cache: DiskCache) -> None:
    """Remove the entries of a cache that no run has used for 30 days."""
    for entry in cache.folder.glob(cache.entries):
        marker = entry / cache.marker
        # An entry that belongs to another user, or has vanished meanwhile, is left.
        with contextlib.suppress(OSError):
            last = (marker if cache.marker and marker.exists() else entry).lstat().st_mtime
            if time.time() - last < _UNUSED:
                continue
            if entry.is_dir():
                remove_tree(entry)
            else:
                entry.unlink()
