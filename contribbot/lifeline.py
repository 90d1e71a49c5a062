"""The first steps of a Python process: end with contribbot, and limit the size of files."""

from __future__ import annotations

import os
import resource
import signal

#: The largest size of a file in bytes; pytest writes the output of a test to a file.
_LARGEST = 2 * 2**30


def limit_files() -> None:
    """Limit the size of files that this process writes, unless a lower limit is set."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == resource.RLIM_INFINITY or soft > _LARGEST:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST, hard))


def guard_group(descriptor: int) -> None:
    """Fork a watcher that kills this process's group when contribbot's end of the pipe closes."""
    # A thread could not run while native code hangs; prctl(2) would end this process only.
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        os.close(descriptor)
        return
    # The watcher is an orphan, so that no program that waits for children waits for it.
    if not os.fork():
        # The watcher closes all other pipes, so that no reader waits for the watcher.
        os.closerange(0, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        while os.read(descriptor, 1):
            pass
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
