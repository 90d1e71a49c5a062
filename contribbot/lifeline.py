"""The first steps of a Python child: end with its parent, and write no endless file."""

from __future__ import annotations

import os
import resource
import signal

#: The largest size of a file in bytes; pytest keeps the output of a test in a file.
_LARGEST = 2 * 2**30


def limit_files() -> None:
    """Limit the size of files that this process writes, unless a lower limit is set."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == resource.RLIM_INFINITY or soft > _LARGEST:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST, hard))


def guard_group(descriptor: int) -> None:
    """Have this process's group killed when contribbot is gone, whatever runs here then."""
    # A thread would wait for native code that hangs; prctl(2) ends this process alone.
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        os.close(descriptor)
        return
    # The watcher is an orphan: a program that waits for its children must not wait for the watcher.
    if not os.fork():
        # The watcher closes all pipes: readers of these pipes must not wait for the watcher either.
        os.closerange(0, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        while os.read(descriptor, 1):
            pass
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
