"""Running a program that may crash, hang or shout."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.process.children import kill_group, lifeline, reap, start, tether, tracked
from contribbot.process.sandbox import sandboxed

#: The variable that tells what a program has started, also where that left its group.
_FAMILY: Final = "CONTRIBBOT_FAMILY"
_PROC: Final = Path("/proc")
#: What the kernel needs at most from one to the other.
_EXEC_SECONDS: Final = 0.02
#: bubblewrap's exit status for a program that a signal ended, less the signal's number.
_BY_SIGNAL: Final = 128


@dataclass(frozen=True)
class Supervised:
    """How a program that may crash, hang or shout came to its end.

    Attributes:
        returncode: Its exit status (negative: killed by that signal).
        timed_out: Whether it was killed for running past its limit.
        flooded: Whether it was killed for writing more than was allowed.
        starved: Whether the kernel killed it because memory had run out.
        stuck: Whether it was killed and did not end: the kernel holds it.
        output: Standard output and error together, as written.
        seconds: Wall-clock time.
    """

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
) -> Supervised:
    """Run a program that is not trusted to end well, and end it when it must.

    With `sandbox` it can write to that folder alone (see `sandbox.sandboxed`).

    The program gets, as a file descriptor named by the variable
    `CONTRIBBOT_LIFELINE`, the reading end of a pipe whose other end dies with this
    process: when it reads the end of file there, nobody waits for it any more.
    """
    started = time.monotonic()
    deadline = started + timeout
    # A compiler cache's server may serve another build, too; that ends by itself.
    # What is in a sandbox ends with it.
    mark = {} if tethered or sandbox else {_FAMILY: uuid.uuid4().hex}
    command = sandboxed(argv, folder=sandbox, env=env) if sandbox else argv
    starved_before = _killed_for_memory()
    with lifeline() as descriptor:
        child = start(
            tether(command, descriptor) if tethered else command,
            cwd=cwd, env={**env, "CONTRIBBOT_LIFELINE": str(descriptor), **mark},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=(descriptor,),
        )  # fmt: skip
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
        found = re.search(r"^oom_kill (\d+)$", (_PROC / "vmstat").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def _kill_family(mark: bytes) -> None:
    """Kill what a program started in another group or session: it may hold a GPU's memory."""
    for entry in _PROC.glob("[0-9]*"):
        # Gone meanwhile, or somebody else's.
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
