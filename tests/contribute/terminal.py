"""A person at a real pseudo-terminal, with a program in it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LATE: Final = 30.0
#: Starts a program with its standard input as controlling terminal, so that Ctrl-C reaches it; a
#: test suite in the background would hand down that SIGINT is ignored.
AT_TERMINAL: Final = ("setsid", "--ctty", "env", "--default-signal=INT", sys.executable)


@dataclass
class Terminal:
    master: int
    child: subprocess.Popen[bytes]
    seen: str = ""
    raw: bytearray = field(default_factory=bytearray)

    def until(self, pattern: str) -> None:
        start, deadline = len(self.seen), time.monotonic() + LATE
        while not re.search(pattern, self.seen[start:]):
            assert time.monotonic() < deadline, self.seen
            assert self._read(), f"ended before {pattern}: {self.seen}"

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def answer(self, *answers: str) -> None:
        for number, text in enumerate(answers, start=1):
            self.until(rf"\[{number}/\d\] [^\n]*\) $")
            self.type(f"{text}\n")

    def end(self) -> int:
        while self._read():
            pass
        return self.child.wait(LATE)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], LATE)
        assert ready, self.seen
        try:
            chunk = os.read(self.master, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self.raw += chunk
        self.seen = self.raw.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(chunk)


@contextlib.contextmanager
def sitting(*args: str, env: Mapping[str, str], cwd: Path | None = None) -> Iterator[Terminal]:
    """Start Python with arguments at a terminal, and kill the program at the end."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [*AT_TERMINAL, *args], stdin=slave, stdout=slave, stderr=slave, cwd=cwd,
        env={**os.environ, "TERM": "dumb", **env},
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(master, child)
    finally:
        child.kill()
        child.wait()
        os.close(master)
