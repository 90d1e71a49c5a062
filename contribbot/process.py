"""Run other programs: without a shell, with a time limit, an environment and a line in the log."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import resource
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from contribbot.errors import (
    STOPPING,
    CommandError,
    CommandTimeoutError,
    ContribbotError,
    MachineError,
    NoSpaceError,
    check_stopping,
)

#: The variables that programs need, also to find an accelerator; all other variables are
#: withheld, because tokens may be among them.
_ALLOWED: Final = frozenset(
    {
        "PATH",
        "LD_LIBRARY_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "TZ",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    }
)
_ALLOWED_PREFIXES: Final = ("CUDA_", "HIP_", "HSA_", "ROCM_", "ROCR_", "PYTORCH_ROCM_")
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a program: variables that programs need, and no secrets."""
    allowed = {
        name: value
        for name, value in os.environ.items()
        if (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)) and not _SECRET.search(name)
    }
    return {**allowed, "LC_ALL": "C.UTF-8", **(extra or {})}


@contextlib.contextmanager
def secrets_hidden() -> Iterator[None]:
    """Remove secrets from this process's environment while a block imports foreign code."""
    hidden = {name: os.environ.pop(name) for name in [*os.environ] if _SECRET.search(name)}
    try:
        yield
    finally:
        os.environ.update(hidden)


def user_environment() -> dict[str, str]:
    """Return this process's environment without secrets, for programs that act for the user."""
    return {name: value for name, value in os.environ.items() if not _SECRET.search(name)}


def accelerator_environment() -> dict[str, str]:
    """Return the variables that decide how programs see an accelerator."""
    return {
        name: value
        for name, value in sorted(clean_environment().items())
        if name.startswith((*_ALLOWED_PREFIXES, "NVIDIA_", "LD_LIBRARY_PATH"))
    }


def own_path() -> str:
    """Return the entries of sys.path outside Python's installation, joined for PYTHONPATH."""
    installed = (sys.prefix, sys.base_prefix)
    return os.pathsep.join(place for place in sys.path if place and not place.startswith(installed))


log: Final = logging.getLogger("contribbot.process")

_children: set[subprocess.Popen[bytes]] = set()
_children_lock = threading.Lock()
#: Killed programs that did not end; Python would warn if the object of a program were lost.
_stuck: Final[list[subprocess.Popen[bytes]]] = []
#: The limit in seconds of the wait for a killed program, which the kernel keeps while a driver or
#: a network disk does not answer. GitHub Actions gives a cancelled job 7.5 seconds.
LAST_WAIT: Final = 5.0
#: A shell script that starts a program which knows no lifeline. A watcher process kills the
#: program's group when the lifeline's pipe closes; a line in the pipe ends the watcher alone.
_TETHER: Final = (
    '( { read -r _ <"/proc/self/fd/$0" || kill -KILL 0; } >/dev/null 2>&1 </dev/null & )\nexec "$@"'
)


def describe(argv: Sequence[str | Path]) -> str:
    """Return a command in the syntax of a shell."""
    return shlex.join(str(part) for part in argv)


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a program."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def reap(child: subprocess.Popen[bytes]) -> None:
    """Wait a limited time for the end of a killed program."""
    try:
        child.wait(LAST_WAIT)
    except subprocess.TimeoutExpired:
        log.warning("process %d was killed and does not end: the kernel holds it", child.pid)
        _stuck.append(child)


def stop() -> None:
    """Kill all running programs and refuse new programs; the waiting threads clean up."""
    STOPPING.set()
    with _children_lock:
        running = list(_children)
    for child in running:
        kill_group(child)


def resume() -> None:
    """Allow new programs again after `stop()`, when all waiting threads have ended."""
    STOPPING.clear()


@contextlib.contextmanager
def _lifeline() -> Iterator[int]:
    """Yield a pipe's reading end; its writing end closes when the block or this process ends."""
    read_end, write_end = os.pipe()
    try:
        yield read_end
    finally:
        os.write(write_end, b"\n")
        os.close(read_end)
        os.close(write_end)


@contextlib.contextmanager
def started(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: int | IO[bytes],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    pass_fds: Sequence[int] = (),
    tethered: bool = True,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program for a block; afterwards end the program and close its pipes.

    `tethered`: the program also ends if this process is killed.
    """
    with contextlib.ExitStack() as stack:
        tether: tuple[str, ...] = ()
        if tethered:
            end = stack.enter_context(_lifeline())
            tether, pass_fds = ("/bin/sh", "-c", _TETHER, str(end)), (*pass_fds, end)
        child = _start(argv, cwd, env, (stdin, stdout, stderr), tether=tether, pass_fds=pass_fds)
        with _children_lock:
            _children.add(child)
        try:
            # `stop()` may have run between the start of this program and the lines above.
            if STOPPING.is_set():
                kill_group(child)
            yield child
        finally:
            if child.poll() is None:
                kill_group(child)
                reap(child)
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
            with _children_lock:
                _children.discard(child)


def _start(
    argv: Sequence[str | Path],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    streams: tuple[int | IO[bytes], int | IO[bytes], int | IO[bytes]],
    *,
    tether: Sequence[str] = (),
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in a new session and process group."""
    check_stopping()
    log.debug("run: %s", describe(argv))
    stdin, stdout, stderr = streams
    try:
        return subprocess.Popen(  # noqa: S603  no shell; argv is a list
            [*tether, *map(str, argv)],
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


def converse(
    argv: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program that answers requests until its input ends."""
    return _start(argv, cwd, env, (subprocess.PIPE, subprocess.PIPE, subprocess.DEVNULL))


def fail(argv: Sequence[str | Path], returncode: int, stderr: bytes) -> CommandError | NoSpaceError:
    """Return the error for a program that failed."""
    text = stderr.decode("utf-8", "replace").strip()
    if re.search(r"no space left on device|out of diskspace", text, re.IGNORECASE):
        return no_space(text.splitlines()[-1])
    last = text.splitlines()[-1] if text else "it said nothing"
    how = f"killed by signal {-returncode}" if returncode < 0 else f"exit status {returncode}"
    return CommandError(f"{describe(argv)}: {how}: {last}", returncode=returncode, stderr=text)


def _late(argv: Sequence[str | Path], timeout: float) -> CommandTimeoutError:
    return CommandTimeoutError(
        f"{describe(argv)}: not finished after {timeout:g} s",
        hint="try again; if it hangs again, run it by hand",
    )


def no_space(detail: str) -> NoSpaceError:
    """Return the error for a full disk."""
    return NoSpaceError(
        f"the disk is full: {detail}",
        hint="free some space, or point CONTRIBBOT_CACHE and TMPDIR at a larger disk",
    )


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGSEGV`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def remove_tree(folder: Path, *, wait: bool = True) -> None:
    """Remove a folder, also after `stop()`; ignore errors; without `wait`, in the background."""
    if not folder.is_dir():
        return
    # shutil.rmtree fails on folders that are nested some hundred levels deep.
    script = 'rm -rf -- "$1"' if wait else 'rm -rf -- "$1" >&- 2>&- &'
    with contextlib.suppress(OSError):
        subprocess.run(  # noqa: S603  contribbot made the folder
            ["sh", "-c", script, "sh", folder],  # noqa: S607  POSIX has this program
            env=clean_environment(),
            check=False,
            capture_output=True,
        )


Completed = subprocess.CompletedProcess[bytes]


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = 120.0,
    accept: Sequence[int] = (0,),
    tethered: bool = False,
) -> Completed:
    """Run a program to its end, and return the exit status and the output."""
    pipe = subprocess.PIPE
    with started(
        argv, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, tethered=tethered
    ) as child:
        try:
            stdout, stderr = child.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise _late(argv, timeout) from error
    if child.returncode not in accept:
        raise fail(argv, child.returncode, stderr)
    return Completed(argv, child.returncode, stdout, stderr)


@contextlib.contextmanager
def feed(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> Iterator[IO[bytes]]:
    """Start a program and yield its standard input; an error in the block kills the program."""
    # Standard error is a file: a program with many messages must not block on a full pipe.
    with tempfile.TemporaryFile() as complaint:
        with started(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaint,
        ) as child:
            assert child.stdin is not None  # noqa: S101  `stdin` is PIPE above
            try:
                with contextlib.suppress(BrokenPipeError):
                    yield child.stdin
                    child.stdin.close()
            except BaseException:
                # Kill first: a closed pipe would tell the program that all was written.
                kill_group(child)
                raise
            try:
                child.wait(timeout)
            except subprocess.TimeoutExpired as error:
                raise _late(argv, timeout) from error
        if child.returncode != 0:
            complaint.seek(0)
            raise fail(argv, child.returncode, complaint.read())


def attached(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str],
    sandbox: Path | None = None,
    stdout: int | None = None,
    grace: float | None = None,
) -> int:
    """Run a program in this terminal, pass signals on, and return the exit status.

    `grace`: the seconds in which the program must end after SIGINT or SIGTERM.
    """
    check_stopping()
    command = list(argv)
    if sandbox:
        inside = sandboxed(argv, folder=sandbox, env=env)
        # SIGINT would end bubblewrap; the program in the sandbox may set a handler for SIGINT.
        command = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", *map(str, inside)]
    log.debug("run: %s", describe(command))
    try:
        child = subprocess.Popen(command, cwd=cwd, env=dict(env), stdout=stdout)  # noqa: S603  no shell; argv is a list
    except OSError as error:
        raise MachineError(
            f"{command[0]}: cannot be run: {error.strerror}",
            hint="give its path, or put it on PATH",
        ) from error

    ended = list[int]()

    def pass_on(number: int, _frame: object) -> None:
        if number not in _TERMINAL:
            child.send_signal(number)
        if grace is not None and number in {signal.SIGINT, signal.SIGTERM}:
            ended.append(number)
            timer = threading.Timer(grace, child.kill)
            timer.daemon = True
            timer.start()

    before = {number: signal.signal(number, pass_on) for number in (*_TERMINAL, *_FORWARDED)}
    try:
        with child:
            status = child.wait()
        return -ended[0] if ended and status == -signal.SIGKILL else status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def shell_status(status: int) -> int:
    """Return an exit status as a shell does: 128 plus the signal's number for a killed program."""
    return status if status >= 0 else 128 - status


#: Signals that a terminal sends to all its programs, and signals that reach this process only.
_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: The variable that names the folder of compiled kernels to a process in a sandbox.
KERNELS: Final = "CONTRIBBOT_KERNELS"
#: In a sandbox, all files can be read and none written, and devices such as GPUs exist. Shared
#: folders are empty, so that no run finds files of another run or sockets of a daemon.
_SHARED: Final = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108  hidden, not used
_VIEW: Final = (
    # The kernel ends the sandbox's processes with the program that waits for the sandbox.
    "--die-with-parent",
    "--unshare-all",
    *("--cap-drop", "ALL"),
    *("--cap-add", "CAP_DAC_OVERRIDE"),
    *("--ro-bind", "/", "/"),
    *("--dev", "/dev"),
    *("--proc", "/proc"),
    *(
        part
        for pattern in ("nvidia*", "kfd", "dri", "dxg", "infiniband")
        for device in map(str, sorted(Path("/dev").glob(pattern)))
        for part in ("--dev-bind", device, device)
    ),
    *(part for folder in _SHARED if Path(folder).is_dir() for part in ("--tmpfs", folder)),
)


@functools.cache
def no_sandbox() -> str:
    """Return why programs cannot run in a sandbox here; empty: the sandbox works."""
    if os.environ.get("CONTRIBBOT_SANDBOX") == "off":
        return "CONTRIBBOT_SANDBOX=off"
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    try:
        run([program, *_VIEW, "true"], timeout=10)
    except ContribbotError as error:
        return f"bubblewrap does not work here: {error.message.rpartition(': ')[2]}"
    return ""


def sandboxed(
    argv: Sequence[str | Path], *, folder: Path, env: Mapping[str, str]
) -> list[str | Path]:
    """Return the command that runs a program in a sandbox where only `folder` can be written.

    The variable `KERNELS` may name a second folder that can be written.
    """
    writable = [folder, *map(Path, filter(None, [env.get(KERNELS)]))]
    hidden = [folder.parent, *map(Path, _SHARED)]
    named = [part for value in env.values() for part in value.split(os.pathsep)]
    needed = {
        Path(part)
        for part in (*named, *sys.path, sys.prefix, sys.base_prefix)
        if part.startswith("/") and not folder.is_relative_to(part)
    }
    shown = sorted(
        path
        for path in needed
        if path.exists() and any(path.is_relative_to(place) for place in hidden)
    )
    return [
        # bubblewrap is called by path, because the program may have another PATH.
        shutil.which("bwrap") or "bwrap",
        *_VIEW,
        "--tmpfs",
        str(folder.parent),
        *(part for path in shown for part in ("--ro-bind", str(path), str(path))),
        *(part for path in writable for part in ("--bind", str(path), str(path))),
        *argv,
    ]


#: A larger exit status of bubblewrap means this number plus the signal that ended the program.
_BY_SIGNAL: Final = 128


@dataclass(frozen=True)
class Supervised:
    """How a program ended, and its output; `starved`: killed for lack of memory."""

    returncode: int
    timed_out: bool
    flooded: bool
    starved: bool
    output: bytes
    seconds: float


def supervise(
    argv: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    max_output: int = 16 * 2**20,
    sandbox: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Supervised:
    """Run an untrusted program, in a sandbox if asked, within limits of time and output."""
    begin = time.monotonic()
    command = sandboxed(argv, folder=sandbox, env=env) if sandbox else argv
    starved_before = _killed_for_memory()
    with started(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
    ) as child:
        output = bytearray()
        ended = _collect(child, output, deadline=begin + timeout, max_output=max_output)
        # Processes that the program left running are killed, even after success.
        kill_group(child)
        reap(child)
    returncode = -signal.SIGKILL if child.returncode is None else child.returncode
    if sandbox and returncode > _BY_SIGNAL:
        returncode = _BY_SIGNAL - returncode
    killed = ended == "ended" and returncode == -signal.SIGKILL
    return Supervised(
        returncode=returncode,
        timed_out=ended == "late",
        flooded=ended == "flood",
        starved=killed and _killed_for_memory() > starved_before,
        output=bytes(output),
        seconds=time.monotonic() - begin,
    )


def _killed_for_memory() -> int:
    """Return the number of processes that the kernel has killed for lack of memory since boot."""
    with contextlib.suppress(OSError):
        kills = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        return int(kills[1]) if kills else 0
    return 0


def _collect(
    child: subprocess.Popen[bytes], output: bytearray, *, deadline: float, max_output: int
) -> str:
    """Read a program's output to its end or a limit; return `ended`, `late` or `flood`."""
    stream = child.stdout
    assert stream is not None  # noqa: S101  the caller has asked for PIPE
    with stream, selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return "late"
            # The program's end is tested before the read, so that its last output is read.
            gone = child.poll() is not None
            # The short wait notices a program that ended while a process keeps the pipe open.
            if selector.select(min(left, 0.1)):
                chunk = os.read(stream.fileno(), 65536)
                if not chunk:
                    break
                output += chunk
                if len(output) > max_output:
                    return "flood"
            elif gone:
                return "ended"
    try:
        child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "late"
    return "ended"


#: The largest size of a file in bytes; pytest writes the output of a test to a file.
_LARGEST: Final = 2 * 2**30


def limit_files() -> None:
    """Limit the size of files that this process writes, unless a lower limit is set."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == resource.RLIM_INFINITY or soft > _LARGEST:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST, hard))
