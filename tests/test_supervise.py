"""Ending programs that do not want to end, and telling why one ended."""

from __future__ import annotations

import contextlib
import selectors
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot import process

CGROUPS = Path("/sys/fs/cgroup")
#: Enters a control group, then becomes the program.
ENTER = "echo $$ > {group}/cgroup.procs && exec {python} -c '{code}'"


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a new control group of a controller (cgroup v1), where this may be made."""
    folder = CGROUPS / str(request.param) / f"contribbot-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        if not (folder / "cgroup.procs").exists():
            pytest.skip(f"{request.param} is no controller of cgroup v1 here")
        yield folder
    finally:
        with contextlib.suppress(OSError):
            (folder / "freezer.state").write_text("THAWED")
        end = time.monotonic() + 30
        while (folder / "cgroup.procs").read_text().strip() and time.monotonic() < end:
            time.sleep(0.05)
        folder.rmdir()


def supervised(argv: list[str], tmp_path: Path, timeout: float = 60) -> process.Supervised:
    return process.supervise(argv, cwd=tmp_path, env=process.clean_environment(), timeout=timeout)


def within(group: Path, code: str) -> list[str]:
    return ["sh", "-c", ENTER.format(group=group, python=sys.executable, code=code)]


@pytest.mark.parametrize("group", ["memory"], indirect=True)
def test_killed_for_memory_is_told_from_killed(tmp_path: Path, group: Path) -> None:
    (group / "memory.limit_in_bytes").write_text(str(64 * 2**20))
    ended = supervised(within(group, "len(bytes(256 << 20).upper())"), tmp_path)
    assert (ended.returncode, ended.starved, ended.timed_out) == (-9, True, False)
    itself = "import os; os.kill(os.getpid(), 9)"
    ended = supervised([sys.executable, "-c", itself], tmp_path)
    assert (ended.returncode, ended.starved) == (-9, False)


@pytest.mark.parametrize("group", ["freezer"], indirect=True)
def test_what_the_kernel_holds(
    tmp_path: Path, group: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A frozen process is in uninterruptible sleep: not even SIGKILL ends it.
    code = f'import time; open("{group}/freezer.state", "w").write("FROZEN"); time.sleep(60)'
    started = time.monotonic()
    ended = supervised(within(group, code), tmp_path, timeout=3)
    assert time.monotonic() - started < 30
    assert (ended.timed_out, ended.returncode) == (True, -9)
    assert (group / "cgroup.procs").read_text().strip()
    assert "does not end: the kernel holds it" in caplog.text


def test_last_words_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may let a program write and end while nobody looks."""

    class Late(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            found = super().select(0 if not (tmp_path / "ended").exists() else timeout)
            if not found:
                (tmp_path / "begin").touch()
                while not (tmp_path / "ended").exists():
                    time.sleep(0.01)
                time.sleep(0.2)
            return found

    monkeypatch.setattr(selectors, "DefaultSelector", Late)
    # The child in the background keeps the output open, so that no end of file is read.
    script = (
        "while ! test -e begin; do sleep 0.01; done; sleep 3 & echo last words; touch ended; exit 0"
    )

    ended = supervised(["sh", "-c", script], tmp_path)

    assert ended.output == b"last words\n"
    assert ended.returncode == 0
