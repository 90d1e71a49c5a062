"""`contribbot runners dispatch` at a real terminal: what is drawn, and what it leaves behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from contribbot.errors import ExitCode
from tests.contribute.terminal import AT_TERMINAL
from tests.github.server import Hook
from tests.github.state_actions import Run, add_job
from tests.github.wire import Answer, Request
from tests.runners.desk import Desk
from tests.runners.homing import COMPILED, RAN, REPOSITORY

LATE, WIDTH = 60.0, 40
#: The program, whose seconds between two looks are shorter; it draws twice a second.
QUICK = """\
import time
from contribbot.cli.main import main
from contribbot.runners import dispatch
dispatch.sleep = lambda seconds: time.sleep(seconds * {pace} / 10)
main()
"""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Acts(Hook):
    """Lets the next thing happen at each look at the jobs."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def before(self, request: Request) -> Answer | None:
        if request.path.endswith("/jobs") and self._desk.script:
            step = self._desk.script.pop(0)
            with self._desk.home.github.state.lock:
                step(self._desk.runs()[-1])
        return None


@dataclass
class Screen:
    """A terminal with a program that has it for itself, and what came to it."""

    ours: int
    theirs: int
    running: subprocess.Popen[bytes]
    seen: bytearray = field(default_factory=bytearray)

    @property
    def text(self) -> str:
        """What came, without control sequences."""
        return _CONTROL.sub("", self.seen.decode())

    def until(self, word: str) -> None:
        """Wait for a word."""
        deadline = time.monotonic() + LATE
        while word not in self.text:
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)

    def end(self) -> int:
        """Wait for the end."""
        code = self.running.wait(LATE)
        time.sleep(0.2)
        return code


@contextlib.contextmanager
def dispatching(
    desk: Desk,
    *args: str,
    rows: int = 30,
    width: int = 150,
    pace: float = 0.5,
) -> Iterator[Screen]:
    """Start `contribbot runners dispatch` at a terminal."""
    desk.home.github.hooks.append(Acts(desk))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, width, 0, 0))
    clean = {name: value for name, value in os.environ.items()
             if name not in {"CI", "COLUMNS", "LINES"}}  # fmt: skip
    given = {
        "GITHUB_API_URL": desk.home.github.base,
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_TOKEN": desk.home.user.tokens[0].text,
        "TERM": "xterm",
    }
    with subprocess.Popen(
        [*AT_TERMINAL, "-c", QUICK.format(pace=pace), "runners", "dispatch", *args],
        cwd=desk.home.ranged.folder, env={**clean, **given}, stdin=theirs, stderr=theirs,
        stdout=theirs,
    ) as running:  # fmt: skip
        screen = Screen(ours, theirs, running)
        threading.Thread(target=_read, args=(screen,), daemon=True).start()
        try:
            yield screen
        finally:
            if running.poll() is None:
                running.kill()
            os.close(theirs)


def _read(screen: Screen) -> None:
    # On Linux, the end of a terminal is an error.
    with contextlib.suppress(OSError):
        while chunk := os.read(screen.ours, 65536):
            screen.seen += chunk
    os.close(screen.ours)


def after_the_drawing(screen: Screen) -> list[str]:
    """Return the lines that stay, and see that the cursor is there again."""
    shown = screen.seen.decode()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    return [_CONTROL.sub("", line).rstrip() for line in
            shown[shown.rindex("\x1b[?25h") :].replace("\r", "").split("\n")]  # fmt: skip


def slowly(_: Run) -> None:
    """Let some time pass."""


def test_it_is_drawn_and_its_end_stays(desk: Desk) -> None:
    desk.script = [desk.plan, desk.work, slowly, slowly, desk.judged("success")]
    with dispatching(desk, pace=1) as screen:
        assert screen.end() == ExitCode.OK
    (run,) = desk.runs()
    text = screen.text
    # Drawn anew: the clock goes on while GitHub says nothing new, and nothing is a line of its own.
    assert re.search(rf"in progress +\d+:\d\d:\d\d +{COMPILED} +node-1 +compile/area/", text)
    assert re.search(rf"queued +{RAN} +gpu/area/gfx942/rocm7.1", text)
    assert "cells, as their jobs are: 1 in progress, 1 queued" in text
    assert f"{COMPILED}: in progress" not in text
    assert text.count("in progress  ") > 2
    lines = [re.sub(r" +", " ", each) for each in after_the_drawing(screen)]
    assert f"failure 0:01:00 {RAN} runner-1 gpu/area/gfx942/rocm7.1" in lines
    assert f"success 0:01:00 {RAN}-again runner-1" in lines
    all_passed = "collect: success, so all that was planned came and passed"
    last = lines.index("cells, as their jobs are: 1 failure, 1 success") + 1
    assert re.sub(r"\s+", " ", " ".join(lines[last:])).strip() == (
        f"run {run.id} is over: {all_passed} (GitHub marks the run failure) "
        f"what each cell shows: contribbot runners collect {run.id}"
    )


def test_ctrl_c_leaves_the_terminal_as_it_was(desk: Desk) -> None:
    desk.script = [desk.plan, desk.work]
    with dispatching(desk) as screen:
        before = termios.tcgetattr(screen.theirs)
        screen.until("node-1")
        os.write(screen.ours, b"\x03")
        assert screen.end() == ExitCode.INTERRUPTED
        assert termios.tcgetattr(screen.theirs) == before
    lines = after_the_drawing(screen)
    (run,) = desk.runs()
    assert lines[-3:-1] == [
        f"the run goes on; watch it again: contribbot runners dispatch --resume {run.id}",
        f"when it is over: contribbot runners collect {run.id}",
    ]
    assert run.status == "in_progress"


def test_more_jobs_than_there_is_room_for(desk: Desk) -> None:
    def many(run: Run) -> None:
        for number in range(40):
            add_job(desk.home.github.state, run, f"more-{number}")

    desk.script = [desk.plan, many, desk.work, slowly, desk.end]
    with dispatching(desk, rows=10, width=WIDTH) as screen:
        assert screen.end() == ExitCode.OK
    shown = screen.seen.decode()
    # Never more lines than the terminal has: those that scroll away are drawn again and again.
    drawn = shown[shown.index("\x1b[?25l") : shown.rindex("\x1b[?25h")]
    rows = [_plain(row) for row in re.split(r"[\r\n]+", drawn)]
    assert any(row.endswith("…") for row in rows)
    assert max(map(len, rows)) <= WIDTH
    # How it stands is never cut off for what stands beside it.
    assert any(row.startswith("in progress") for row in rows)
    frames = re.split(r"(?:\x1b\[1A\x1b\[2K)+", drawn)
    assert max(frame.count("\n") for frame in frames) < 10
    assert "and 36 more jobs" in screen.text
    # What works is above what waits.
    frame = next(each for each in map(_plain, frames) if "in progress" in each)
    assert frame.lstrip().startswith("in progress")
    assert any(" more-39 " in f"{each} " for each in after_the_drawing(screen))


def _plain(text: str) -> str:
    return _CONTROL.sub("", text).replace("\r", "")
