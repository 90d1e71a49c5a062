"""The only door to other programs: no shell, a time limit, a built environment, a log line each."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
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

#: Variables that programs need to run at all and to find an accelerator.
#: Everything else, tokens first of all, stays outside.
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
    """Return an environment with what programs need, and nothing personal."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)) and not _SECRET.search(name)
    }
    return {**kept, "LC_ALL": "C.UTF-8", **(extra or {})}


@contextlib.contextmanager
def secrets_hidden() -> Iterator[None]:
    """Let this process have no secrets for a moment: what is loaded then may start programs."""
    hidden = {name: os.environ.pop(name) for name in [*os.environ] if _SECRET.search(name)}
    try:
        yield
    finally:
        os.environ.update(hidden)


def user_environment() -> dict[str, str]:
    """Return this process's own environment, for what stands for a user's program; no secret."""
    return {name: value for name, value in os.environ.items() if not _SECRET.search(name)}


def accelerator_environment() -> dict[str, str]:
    """Return the variables that decide how programs see an accelerator."""
    return {
        name: value
        for name, value in sorted(clean_environment().items())
        if name.startswith((*_ALLOWED_PREFIXES, "NVIDIA_", "LD_LIBRARY_PATH"))
    }


def own_path() -> str:
    """Return where only this process looks for modules: contribbot may lie there."""
    installed = (sys.prefix, sys.base_prefix)
    return os.pathsep.join(place for place in sys.path if place and not place.startswith(installed))


log: Final = logging.getLogger("contribbot.process")

_children: set[subprocess.Popen[bytes]] = set()
_children_lock = threading.Lock()
#: Programs that were killed and did not end. Nobody waits for them again.
_stuck: Final[list[subprocess.Popen[bytes]]] = []
#: Seconds that a killed program is waited for: the kernel holds it as long as a driver or a
#: network's disk does not answer. Actions gives a job that it cancels 7.5 seconds.
LAST_WAIT: Final = 5.0
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
    """Know a program while the block runs; after it, it and its pipes are gone (but see `reap`)."""
    with _children_lock:
        _children.add(child)
    try:
        # Started just before `stop()` looked: it must not be missed.
        if STOPPING.is_set():
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
        child.wait(LAST_WAIT)
    except subprocess.TimeoutExpired:
        log.warning("process %d was killed and does not end: the kernel holds it", child.pid)
        _stuck.append(child)
        return False
    return True


def stop() -> None:
    """End every program that is running, and let none start; the threads that wait clean up."""
    STOPPING.set()
    with _children_lock:
        running = list(_children)
    for child in running:
        kill_group(child)


def resume() -> None:
    """Allow programs again after `stop()`, when all that waited for them has ended."""
    STOPPING.clear()


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


def converse(
    argv: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program that answers what it is asked, and ends with its input."""
    pipe = subprocess.PIPE
    return start(argv, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def fail(argv: Sequence[str | Path], returncode: int, stderr: bytes) -> CommandError | NoSpaceError:
    """Return the error that says how a program failed."""
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
    """Return what a signal is called, such as `SIGSEGV`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def remove_tree(folder: Path, *, wait: bool = True) -> None:
    """Remove a folder, however deep, errors passed over, also after `stop`; or let `rm` go on."""
    if not folder.is_dir():
        return
    # Not shutil.rmtree: it fails on folders that are nested some hundred deep.
    script = 'rm -rf -- "$1"' if wait else 'rm -rf -- "$1" >&- 2>&- &'
    with contextlib.suppress(OSError):
        subprocess.run(  # noqa: S603  the folder is one that contribbot made
            ["sh", "-c", script, "sh", folder],  # noqa: S607  POSIX has it
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
    """Run a program to its end."""
    with lifeline() as descriptor:
        child = start(
            tether(argv, descriptor) if tethered else argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(descriptor,) if tethered else (),
        )
        with tracked(child):
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
    """Run a program and write to its input while it works; it is killed if the block raises."""
    # In a file: one that complains at length must not block on a full pipe while we write.
    with lifeline() as descriptor, tempfile.TemporaryFile() as complaint:
        child = start(
            tether(argv, descriptor),
            cwd=cwd,
            env=env,
            pass_fds=(descriptor,),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaint,
        )
        assert child.stdin is not None  # noqa: S101  asked for with PIPE
        with tracked(child):
            try:
                with contextlib.suppress(BrokenPipeError):
                    yield child.stdin
                    child.stdin.close()
            except BaseException:
                # Kill first: closing the pipe would tell the program that all was written.
                kill_group(child)
                raise
            try:
                child.wait(timeout)
            except subprocess.TimeoutExpired as error:
                raise _late(argv, timeout) from error
        if child.returncode != 0:
            complaint.seek(0)
            raise fail(argv, child.returncode, complaint.read())


def foreground(argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes) -> bool:
    """Run a program in this terminal with something to read; an interrupt is the program's own."""
    check_stopping()
    log.debug("run: %s", describe(argv))
    # A handler, unlike "ignore", is not inherited by the program.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        with subprocess.Popen(list(argv), env=dict(env), stdin=subprocess.PIPE) as child:  # noqa: S603  no shell; argv is a list
            with contextlib.suppress(BrokenPipeError):
                child.communicate(stdin)
            return child.wait() == 0
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def attached(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str],
    sandbox: Path | None = None,
    stdout: int | None = None,
    grace: float | None = None,
) -> int:
    """Run a program in this terminal, signals passed on, and return its status.

    `grace`: the seconds that it has to end after SIGINT or SIGTERM.
    """
    check_stopping()
    command = list(argv)
    if sandbox:
        inside = sandboxed(argv, folder=sandbox, env=env)
        # A program asks for SIGINT there itself: bubblewrap would end by it.
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
    """Return a status as a shell has it, where a signal ended the program."""
    return status if status >= 0 else 128 - status


#: Signals that a terminal sends to all that run in it, and signals for this process alone.
_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: Everything can be read and nothing written; devices (GPUs among them) are there. Folders that
#: processes share are empty: what one run leaves, or a daemon offers, no other finds.
_SHARED: Final = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108  they are hidden, not used
_VIEW: Final = (
    # The kernel then ends all that is left in the sandbox with the program that waits for it.
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
    """Say why nothing runs in a sandbox here; empty: all checks do."""
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
    """Return the command that runs a program with `folder` as all that it can write.

    Beside it the variable `CONTRIBBOT_KERNELS` may name a folder of compiled kernels.
    """
    writable = [folder, *map(Path, filter(None, [env.get("CONTRIBBOT_KERNELS")]))]
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
        # By its path: a check's PATH may be another.
        shutil.which("bwrap") or "bwrap",
        *_VIEW,
        "--tmpfs",
        str(folder.parent),
        *(part for path in shown for part in ("--ro-bind", str(path), str(path))),
        *(part for path in writable for part in ("--bind", str(path), str(path))),
        *argv,
    ]


#: The variable that tells what a program has started, also where that left its group.
_FAMILY: Final = "CONTRIBBOT_FAMILY"
_PROC: Final = Path("/proc")
#: The longest time that the kernel needs from one to the other.
_EXEC_SECONDS: Final = 0.02
#: bubblewrap's exit status for a program that a signal ended, less the signal's number.
_BY_SIGNAL: Final = 128


@dataclass(frozen=True)
class Supervised:
    """How a program that may crash, hang or shout came to its end."""

    returncode: int
    timed_out: bool
    flooded: bool
    starved: bool
    stuck: bool
    output: bytes
    seconds: float


def supervise(
    argv: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    max_output: int = 16 * 2**20,
    tethered: bool = False,
    sandbox: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Supervised:
    """Run a program that is not trusted to end well, in a sandbox if asked; end it when it must."""
    # It reads the end of file at the descriptor CONTRIBBOT_LIFELINE when nobody waits any more.
    started = time.monotonic()
    deadline = started + timeout
    # A compiler cache's server may serve another build, too; that ends by itself.
    # The processes in a sandbox end with the sandbox.
    mark = {} if tethered or sandbox else {_FAMILY: uuid.uuid4().hex}
    command = sandboxed(argv, folder=sandbox, env=env) if sandbox else argv
    starved_before = _killed_for_memory()
    with lifeline() as descriptor:
        child = start(
            tether(command, descriptor) if tethered else command,
            cwd=cwd,
            env={**env, "CONTRIBBOT_LIFELINE": str(descriptor), **mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(descriptor, *pass_fds),
        )
        with tracked(child):
            output = bytearray()
            ended = _collect(child, output, deadline=deadline, max_output=max_output)
            # Also after a good end: what the program left running is of no use to anyone.
            kill_group(child)
            ended_at_last = reap(child)
            for variable, family in mark.items():
                _kill_family(f"{variable}={family}".encode())
    returncode = child.returncode if ended_at_last else -signal.SIGKILL
    if sandbox and returncode > _BY_SIGNAL:
        returncode = _BY_SIGNAL - returncode
    killed = ended == "ended" and returncode == -signal.SIGKILL
    return Supervised(
        returncode=returncode,
        timed_out=ended == "late",
        flooded=ended == "flood",
        starved=killed and _killed_for_memory() > starved_before,
        stuck=not ended_at_last,
        output=bytes(output),
        seconds=time.monotonic() - started,
    )


def _killed_for_memory() -> int:
    """Return how many processes the kernel has killed for want of memory since it started."""
    with contextlib.suppress(OSError):
        kills = re.search(r"^oom_kill (\d+)$", (_PROC / "vmstat").read_text(), re.MULTILINE)
        return int(kills[1]) if kills else 0
    return 0


def _kill_family(mark: bytes) -> None:
    """Kill what a program started in another group or session: it may hold a GPU's memory."""
    for entry in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes()
            if not environment:
                # A thread of the kernel's has no program; another's exec is under way.
                (entry / "exe").readlink()
                time.sleep(_EXEC_SECONDS)
                environment = (entry / "environ").read_bytes()
            if mark in environment.split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


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
            # Looked at first: what it wrote before its end is then there to be read.
            gone = child.poll() is not None
            # The short wait notices a program that ended while a grandchild keeps the pipe open.
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
