"""Running a program to its end, or feeding it while it works."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from contribbot.errors import CommandTimeoutError
from contribbot.process.children import (
    describe,
    fail,
    kill_group,
    lifeline,
    start,
    tether,
    tracked,
)


@dataclass(frozen=True)
class Completed:
    """How a program ended.

    Attributes:
        returncode: Its exit status (negative: killed by that signal).
        stdout: What it wrote to standard output.
        stderr: What it wrote to standard error.
    """

    returncode: int
    stdout: bytes
    stderr: bytes


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
            tether(argv, descriptor) if tethered else argv, cwd=cwd, env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            pass_fds=(descriptor,) if tethered else (),
        )  # fmt: skip
        with tracked(child):
            try:
                stdout, stderr = child.communicate(stdin, timeout=timeout)
            except subprocess.TimeoutExpired as error:
                raise CommandTimeoutError(
                    f"{describe(argv)}: not finished after {timeout:g} s",
                    hint="try again; if it hangs again, run it by hand",
                ) from error
    if child.returncode not in accept:
        raise fail(argv, child.returncode, stderr)
    return Completed(child.returncode, stdout, stderr)


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
    """
    child = start(
        argv, cwd=cwd, env=env,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    # A program that complains at length must not block on a full pipe while we write.
    complaint = bytearray()
    drain = threading.Thread(target=_drain, args=(child.stderr, complaint), daemon=True)
    with tracked(child):
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
            kill_group(child)
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
