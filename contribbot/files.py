"""Write files so that a reader sees the whole old or the whole new content; paths of the cache."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import contribbot
from contribbot.errors import UsageError, check_stopping

_PARTIAL: Final = ".partial"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content in one step, through links; write directly to a terminal."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{_PARTIAL}")
    # The kernel applies the umask, which no thread can read without a change of the umask.
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


log: Final = logging.getLogger(__name__)

_registry: Final = threading.Lock()
_threads: Final[dict[Path, threading.Lock]] = {}


@contextlib.contextmanager
def lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file during a block; wait while another process or thread holds the lock."""
    import filelock  # noqa: PLC0415  the import takes 30 ms, which most commands save

    path.parent.mkdir(parents=True, exist_ok=True)
    guard = filelock.FileLock(path)
    with _registry:
        thread_lock = _threads.setdefault(path.resolve(), threading.Lock())
    # The threads of this process wait for each other without a message.
    with thread_lock:
        try:
            guard.acquire(timeout=0)
        except filelock.Timeout:
            log.warning("waiting for another contribbot to finish with %s", what)
            # The wait has short steps, so that this process can be stopped.
            while not guard.is_locked:
                check_stopping()
                with contextlib.suppress(filelock.Timeout):
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
    """Note the use of a cache entry in the time of the entry's file or marker."""
    with contextlib.suppress(OSError):
        os.utime(path)


def log_path(folder: Path, sha256: str) -> Path:
    """Return the path of a log, whose name is the beginning of the log's digest."""
    return folder / f"{sha256[:16]}.log"


def cache_folder() -> Path:
    """Return the cache folder: `CONTRIBBOT_CACHE`, or the platform's cache folder of the user."""
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
    import platformdirs  # noqa: PLC0415  only needed without the variable

    return Path(platformdirs.user_cache_dir("contribbot", appauthor=False))


def stores_folder() -> Path:
    """Return the folder with one bare git store for each upstream."""
    return cache_folder() / "stores"


def downloads_folder() -> Path:
    """Return the folder of downloaded archives, which are named by digest."""
    return cache_folder() / "downloads"


@functools.cache
def tool_digest() -> str:
    """Return the SHA-256 over contribbot's source: a version number alone hides changes."""
    root = Path(contribbot.__file__).parent
    total = hashlib.sha256(contribbot.__version__.encode())
    for path in sorted(root.rglob("*")):
        if path.suffix in {".py", ".toml"}:
            total.update(path.relative_to(root).as_posix().encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
