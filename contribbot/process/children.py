"""Starting other programs, knowing which run, and ending them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from contribbot.errors import CommandError, MachineError, NoSpaceError
from contribbot.process.environment import clean_environment

log: Final = logging.getLogger("contribbot.process")

_children: set[subprocess.Popen[bytes]] = set()
_children_lock = threading.Lock()
#: Programs that were killed and did not end. Nobody waits for them again.
_stuck: Final[list[subprocess.Popen[bytes]]] = []
#: Seconds that a killed program is waited for. The kernel may not let it go for as long as
#: a driver or a network's disk does not answer (uninterruptible sleep). Actions gives a
#: job that it cancels 7.5 seconds.
_LAST_WAIT: Final = 5.0
_stopping = threading.Event()
#: Starts a program that knows nothing of a lifeline. Beside it, and nobody's child, waits what
#: kills the group at the end of the pipe; a line in it says that nobody is left to be killed.
_TETHER: Final = (
    '( { read -r _ <"/proc/self/fd/$0" || kill -KILL 0; } >/dev/null 2>&1 </dev/null & )\nexec "$@"'
)


def describe(argv: Sequence[str | Path]) -> str:
    """Return a command as a person would type it."""
    return shlex.join(str(part) for part in argv)


@contextlib.contextmanager
def tracked(child: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Know a program while the block runs; after it, the program and its pipes are gone.

    But for a program that the kernel does not let go (see `reap`).
    """
    with _children_lock:
        _children.add(child)
    try:
        # Started just before `stop()` looked: it must not be missed.
        if _stopping.is_set():
            kill_group(child)
        yield child
    finally:
        if child.poll() is None and child not in _stuck:
            kill_group(child)
            reap(child)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        with _children_lock:
            _children.discard(child)


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the program and whatever it started (each has its own process group)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def reap(child: subprocess.Popen[bytes]) -> bool:
    """Wait for a program that was killed, but not for ever; say whether it ended."""
    try:
        child.wait(_LAST_WAIT)
    except subprocess.TimeoutExpired:
        log.warning("process %d was killed and does not end: the kernel holds it", child.pid)
        _stuck.append(child)
        return False
    return True


def stop() -> None:
    """End every program that is running, and let none start from now on.

    For a process that was told to end: the threads that wait for programs see
    them die, and clean up.
    """
    _stopping.set()
    with _children_lock:
        running = list(_children)
    for child in running:
        kill_group(child)


def resume() -> None:
    """Allow programs again after `stop()`, when all that waited for them has ended."""
    _stopping.clear()


def check_stopping() -> None:
    """Say no when this process was told to end; long loops call it now and then."""
    if _stopping.is_set():
        raise MachineError("interrupted")


@contextlib.contextmanager
def lifeline() -> Iterator[int]:
    """Give the reading end of a pipe whose other end is closed when this process ends."""
    read_end, write_end = os.pipe()
    try:
        yield read_end
    finally:
        os.write(write_end, b"\n")
        os.close(read_end)
        os.close(write_end)


def tether(argv: Sequence[str | Path], descriptor: int) -> list[str | Path]:
    """Return the command that runs a program which must not outlive this process."""
    return ["/bin/sh", "-c", _TETHER, str(descriptor), *argv]


def start(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: int | IO[bytes],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own."""
    check_stopping()
    log.debug("run: %s", describe(argv))
    try:
        return subprocess.Popen(  # noqa: S603  no shell; argv is a list
            [str(part) for part in argv],
            cwd=cwd,
            env=dict(env) if env is not None else clean_environment(),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise MachineError(f"no such folder: {cwd}") from error
        raise MachineError(
            f"{argv[0]}: program not found", hint=f"install {argv[0]} and put it on PATH"
        ) from error
    except PermissionError as error:
        raise MachineError(f"{argv[0]}: not allowed to run it") from error


def fail(argv: Sequence[str | Path], returncode: int, stderr: bytes) -> CommandError | NoSpaceError:
    """Return the error that says how a program failed."""
    text = stderr.decode("utf-8", "replace").strip()
    if re.search(r"no space left on device|out of diskspace", text, re.IGNORECASE):
        return no_space(text.splitlines()[-1])
    last = text.splitlines()[-1] if text else "it said nothing"
    how = f"killed by signal {-returncode}" if returncode < 0 else f"exit status {returncode}"
    return CommandError(f"{describe(argv)}: {how}: {last}", returncode=returncode, stderr=text)


def no_space(detail: str) -> NoSpaceError:
    """Return the error for a full disk."""
    return NoSpaceError(
        f"the disk is full: {detail}",
        hint="free some space, or point CONTRIBBOT_CACHE and TMPDIR at a larger disk",
    )


def signal_name(number: int) -> str:
    """Return what a signal is called, such as `SIGSEGV`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


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
            env=clean_environment(),
            check=False,
            capture_output=True,
        )
