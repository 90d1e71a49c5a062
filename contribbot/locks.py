"""Locks between processes and threads, on the `filelock` library."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot import process
from contribbot.errors import MachineError

if TYPE_CHECKING:
    import filelock

log: Final = logging.getLogger(__name__)

#: Longer than any import on a slow disk; a lock dies with the process that holds it.
_PATIENCE: Final = 1800.0

_registry: Final = threading.Lock()
_threads: Final[dict[Path, threading.Lock]] = {}


def _wait(guard: filelock.BaseFileLock, path: Path, what: str) -> None:
    """Wait in short steps, so that this process can still be told to end."""
    import filelock  # noqa: PLC0415  see lock

    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        process.check_stopping()
        try:
            guard.acquire(timeout=0.5)
        except filelock.Timeout:
            continue
        return
    raise MachineError(
        f"{what} is held by another contribbot for too long", hint=f"see who holds {path}"
    )


@contextlib.contextmanager
def lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file; wait for whoever has it.

    The kernel frees the lock of a process that was killed, so a leftover file
    means nothing.

    Args:
        path: The lock file.
        what: What it guards, for messages.

    Raises:
        MachineError: Nobody let go in half an hour.
    """
    import filelock  # noqa: PLC0415  30 ms that reading commands need not pay

    path.parent.mkdir(parents=True, exist_ok=True)
    guard = filelock.FileLock(path)
    # The threads of this process line up among themselves, without a word.
    with _thread_lock(path):
        try:
            guard.acquire(timeout=0)
        except filelock.Timeout:
            log.warning("waiting for another contribbot to finish with %s", what)
            _wait(guard, path, what)
        try:
            yield
        finally:
            guard.release()


def _thread_lock(path: Path) -> threading.Lock:
    with _registry:
        return _threads.setdefault(path.resolve(), threading.Lock())
