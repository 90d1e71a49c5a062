"""Runs a program that must not outlive contribbot.

Started as a script, `lifeline.py DESCRIPTOR PROGRAM ARGUMENT…`, by `process.run`.
The descriptor is the reading end of a pipe whose other end only contribbot holds:
its end of file means that contribbot is gone, however it went, and then this
process, the program and all that it started in its group are killed.
"""

import os
import signal
import sys
import threading


def end_with_parent(descriptor: int) -> None:
    """Wait for the end of file, then kill this process's group.

    Args:
        descriptor: The reading end of the pipe.
    """
    while os.read(descriptor, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def guard_group(descriptor: int) -> None:
    """Have this process's group killed when contribbot is gone, whatever runs here then.

    A process of its own waits for the end of file. A thread would need the interpreter,
    which native code that hangs does not give; a signal at the parent's death
    (prctl(2)) ends this process alone, and leaves what it has started.

    Args:
        descriptor: The reading end of the pipe; closed here.
    """
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        os.close(descriptor)
        return
    # Nobody's child: what waits for all its children must not wait for this one.
    if not os.fork():
        # Nor must those who wait for the ends of this process's pipes.
        os.closerange(0, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        end_with_parent(descriptor)
    os._exit(0)


def main() -> None:
    """Run the program and end with its status (128 and more: a signal ended it)."""
    descriptor, *argv = sys.argv[1:]
    threading.Thread(target=end_with_parent, args=(int(descriptor),), daemon=True).start()
    status = os.spawnvp(os.P_WAIT, argv[0], argv)  # noqa: S606  no shell is what is wanted
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
