"""The only door to other programs.

No shell, a time limit on everything, an environment that is built and never
inherited by accident, and a log line for each command (`--debug` shows them).
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from contribbot.errors import CommandError, CommandTimeoutError, MachineError, NoSpaceError

log: Final = logging.getLogger(__name__)

#: Variables that programs need to run at all and to find an accelerator.
#: Everything else, tokens first of all, stays outside.
_ALLOWED: Final = frozenset(
    {"PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "SSL_CERT_FILE", "SSL_CERT_DIR", "TZ"}
)
_ALLOWED_PREFIXES: Final = ("CUDA_", "HIP_", "HSA_", "NVIDIA_", "ROCM_", "ROCR_", "PYTORCH_ROCM_")

_children: set[subprocess.Popen[bytes]] = set()
_children_lock = threading.Lock()
_stopping = threading.Event()


@dataclass(frozen=True)
class Completed:
    """How a program ended.

    Attributes:
        argv: What was run.
        returncode: Its exit status (negative: killed by that signal).
        stdout: What it wrote to standard output.
        stderr: What it wrote to standard error.
        seconds: Wall-clock time.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float


@dataclass(frozen=True)
class Supervised:
    """How a program that may crash, hang or shout came to its end.

    Attributes:
        returncode: Its exit status (negative: killed by that signal).
        timed_out: Whether it was killed for running past its limit.
        flooded: Whether it was killed for writing more than was allowed.
        output: Standard output and error together, as written.
        seconds: Wall-clock time.
    """

    returncode: int
    timed_out: bool
    flooded: bool
    output: bytes
    seconds: float


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with what programs need, and nothing personal.

    Args:
        extra: Variables to add on top.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)
    }
    return {**kept, "LC_ALL": "C.UTF-8", **(extra or {})}


def describe(argv: Sequence[str | Path]) -> str:
    """Return a command as a person would type it."""
    return shlex.join(str(part) for part in argv)


@contextlib.contextmanager
def _tracked(child: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    with _children_lock:
        _children.add(child)
    try:
        # Started just before `stop()` looked: it must not be missed.
        if _stopping.is_set():
            _kill_group(child)
        yield child
    finally:
        if child.poll() is None:
            _kill_group(child)
            child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        with _children_lock:
            _children.discard(child)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the program and whatever it started (each has its own process group)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def stop() -> None:
    """End every program that is running, and let none start from now on.

    For a process that was told to end: the threads that wait for programs see
    them die, and clean up.
    """
    _stopping.set()
    with _children_lock:
        running = list(_children)
    for child in running:
        _kill_group(child)


def resume() -> None:
    """Allow programs again after `stop()`, when all that waited for them has ended."""
    _stopping.clear()


def check_stopping() -> None:
    """Say no when this process was told to end; long loops call it now and then.

    Raises:
        MachineError: It was.
    """
    if _stopping.is_set():
        raise MachineError("interrupted")


def _start(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: int | IO[bytes],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
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
    if "No space left on device" in text:
        return no_space(text.splitlines()[-1])
    last = text.splitlines()[-1] if text else "it said nothing"
    how = f"killed by signal {-returncode}" if returncode < 0 else f"exit status {returncode}"
    return CommandError(f"{describe(argv)}: {how}: {last}", returncode=returncode, stderr=text)


def no_space(detail: str) -> NoSpaceError:
    """Return the error for a full disk.

    Args:
        detail: What could not be written.
    """
    return NoSpaceError(
        f"the disk is full: {detail}",
        hint="free some space, or point CONTRIBBOT_CACHE and TMPDIR at a larger disk",
    )


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = 120.0,
    accept: Sequence[int] = (0,),
) -> Completed:
    """Run a program to its end.

    Args:
        argv: Program and arguments.
        cwd: Folder to run it in.
        env: Its whole environment; by default `clean_environment()`.
        stdin: What it reads from standard input.
        timeout: Seconds after which it is killed.
        accept: Exit statuses that are no error.

    Raises:
        CommandError: It ended with another status.
        CommandTimeoutError: It ran past the limit.
        MachineError: It could not be started.
        NoSpaceError: It failed because a disk is full.
    """
    started = time.monotonic()
    child = _start(
        argv, cwd=cwd, env=env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with _tracked(child):
        try:
            stdout, stderr = child.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise CommandTimeoutError(
                f"{describe(argv)}: not finished after {timeout:g} s",
                hint="try again; if it hangs again, run it by hand",
            ) from error
    if child.returncode not in accept:
        raise fail(argv, child.returncode, stderr)
    seconds = time.monotonic() - started
    argv_text = tuple(str(part) for part in argv)
    return Completed(argv_text, child.returncode, stdout, stderr, seconds)


@contextlib.contextmanager
def feed(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> Iterator[IO[bytes]]:
    """Run a program and write to its standard input while it works.

    On leaving the block the input is closed and the program is waited for; when
    the block raises, the program is killed.

    Args:
        argv: Program and arguments.
        cwd: Folder to run it in.
        env: Its whole environment; by default `clean_environment()`.
        timeout: Seconds that it may take after its input is closed.

    Raises:
        CommandError: It did not end with 0.
        CommandTimeoutError: It ran past the limit.
        NoSpaceError: It failed because a disk is full.
    """
    child = _start(
        argv, cwd=cwd, env=env,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    # A program that complains at length must not block on a full pipe while we write.
    complaint = bytearray()
    drain = threading.Thread(target=_drain, args=(child.stderr, complaint), daemon=True)
    with _tracked(child):
        drain.start()
        stdin = child.stdin
        assert stdin is not None  # noqa: S101  asked for with PIPE above
        try:
            yield stdin
            stdin.close()
        except BrokenPipeError:
            # The program ended early; its own words, below, say why.
            pass
        except BaseException:
            # Kill first: closing the pipe would tell the program that all was written.
            _kill_group(child)
            with contextlib.suppress(BrokenPipeError):
                stdin.close()
            raise
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise CommandTimeoutError(
                f"{describe(argv)}: not finished after {timeout:g} s"
            ) from error
        drain.join(timeout)
    if child.returncode != 0:
        raise fail(argv, child.returncode, bytes(complaint))


def _drain(stream: IO[bytes] | None, into: bytearray) -> None:
    if stream is None:
        return
    with stream:
        for chunk in iter(lambda: stream.read(65536), b""):
            into += chunk


def supervise(
    argv: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    max_output: int = 16 * 2**20,
    lifeline: str = "CONTRIBBOT_LIFELINE",
) -> Supervised:
    """Run a program that is not trusted to end well, and end it when it must.

    The program gets, as a file descriptor named by the variable `lifeline`, the
    reading end of a pipe whose other end dies with this process: when it reads
    the end of file there, nobody waits for it any more.

    Args:
        argv: Program and arguments.
        cwd: Folder to run it in.
        env: Its whole environment.
        timeout: Seconds after which it and all that it started are killed.
        max_output: Bytes of output after which they are killed.
        lifeline: The variable that holds the number of the file descriptor.

    Raises:
        MachineError: It could not be started.
    """
    started = time.monotonic()
    deadline = started + timeout
    read_end, write_end = os.pipe()
    try:
        child = _start(
            argv, cwd=cwd, env={**env, lifeline: str(read_end)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=(read_end,),
        )  # fmt: skip
        with _tracked(child):
            output = bytearray()
            ended = _collect(child, output, deadline=deadline, max_output=max_output)
            # Also after a good end: what the program left running is of no use to anyone.
            _kill_group(child)
            child.wait()
    finally:
        os.close(read_end)
        os.close(write_end)
    return Supervised(
        returncode=child.returncode,
        timed_out=ended == "late",
        flooded=ended == "flood",
        output=bytes(output),
        seconds=time.monotonic() - started,
    )


def _collect(
    child: subprocess.Popen[bytes], output: bytearray, *, deadline: float, max_output: int
) -> str:
    """Read until the program ends, is late or floods; return which."""
    stream = child.stdout
    assert stream is not None  # noqa: S101  asked for with PIPE by the caller
    with stream, selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return "late"
            # The short wait notices a program that ended while a grandchild keeps the pipe open.
            if selector.select(min(left, 0.1)):
                chunk = os.read(stream.fileno(), 65536)
                if not chunk:
                    break
                output += chunk
                if len(output) > max_output:
                    return "flood"
            elif child.poll() is not None:
                return "ended"
    try:
        child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "late"
    return "ended"
