"""Programs that contribbot runs: how each ends, and what a program can do in a sandbox."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot import process
from contribbot.errors import CommandError, CommandTimeoutError, MachineError
from tests.conftest import Program, dig
from tests.hiptoy import program_file
from tests.test_verify import put
from tests.toy import Toy


def test_run_says_how_a_program_failed() -> None:
    with pytest.raises(CommandError, match=r"^sh -c .*: exit status 3: oh no$") as caught:
        process.run(["sh", "-c", "echo first >&2; echo oh no >&2; exit 3"])
    assert caught.value.returncode == 3
    with pytest.raises(CommandError, match="killed by signal 9"):
        process.run(["sh", "-c", "kill -9 $$"])
    with pytest.raises(CommandTimeoutError, match=r"not finished after 0\.2 s"):
        process.run(["sleep", "5"], timeout=0.2)
    with pytest.raises(MachineError, match="no-such-program: program not found"):
        process.run(["no-such-program"])


def test_feed_reports_what_the_program_said(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with process.feed(["sh", "-c", f"cat > {out}"]) as stdin:
        stdin.write(b"x" * 100_000)
    assert out.stat().st_size == 100_000
    with pytest.raises(CommandError, match="enough"), process.feed(
        ["sh", "-c", "echo enough >&2; exit 1"]
    ) as stdin:  # fmt: skip
        stdin.write(b"x" * 1_000_000)
    with pytest.raises(ZeroDivisionError), process.feed(["sh", "-c", f"cat > {out}.2; sleep 9"]):
        raise ZeroDivisionError


def test_supervise_ends_a_program_that_closes_its_output_and_stays(tmp_path: Path) -> None:
    ended = supervised(["sh", "-c", "exec >&- 2>&-; sleep 9"], tmp_path, timeout=0.5)
    assert ended.timed_out
    assert ended.seconds < 5


def test_what_stands_for_a_users_program_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for name in ("VLLM_API_KEY", "HF_TOKEN", "VLLM_USE_V1"):
            patch.setenv(name, "1")
        given = process.user_environment()
    assert "VLLM_USE_V1" in given
    assert not {"VLLM_API_KEY", "HF_TOKEN"} & given.keys()


#: Enters a control group, then becomes the program.
ENTER = "echo $$ > {group}/cgroup.procs && exec {python} -c '{code}'"


def supervised(
    argv: list[str], folder: Path, *, timeout: float = 60, sandbox: bool = False
) -> process.Supervised:
    env = process.clean_environment({"FOLDER": str(folder)})
    inside = folder if sandbox else None
    return process.supervise(argv, cwd=folder, env=env, timeout=timeout, sandbox=inside)


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


@pytest.fixture
def bubblewrap() -> None:
    """Skip where namespaces are forbidden, as in many containers."""
    if why := process.no_sandbox():
        pytest.skip(why)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def sandboxed(folder: Path, code: str, *, timeout: float = 30) -> process.Supervised:
    return supervised(["sh", "-c", code], folder, timeout=timeout, sandbox=True)


@pytest.fixture
def folder(tmp_path: Path, bubblewrap: None) -> Path:
    """A run's folder, with another run's beside it."""
    del bubblewrap
    (tmp_path / "runs/another").mkdir(parents=True)
    (tmp_path / "runs/own").mkdir()
    (tmp_path / "outside").touch()
    return tmp_path / "runs/own"


@pytest.mark.tool("bwrap")
@pytest.mark.parametrize(
    ("code", "works"),
    [
        ("touch $FOLDER/file", True),
        ("touch /tmp/file && touch /var/tmp/file && touch /dev/shm/file", True),
        ("echo > /dev/null && test -e /dev/urandom", True),
        ("touch $FOLDER/../file; touch /tmp/left", True),
        ("ls $FOLDER/../another", False),
        ("ls $FOLDER/../../outside", False),
        ("touch /etc/contribbot-test", False),
        ("mount -o remount,rw,bind / && touch /etc/contribbot-test", False),
        ("kill -0 $PARENT", False),
        ("ls /run/*", False),
        ("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", $PORT), 5)'", False),
    ],
)
def test_what_a_program_sees_and_can_write(folder: Path, port: int, code: str, works: bool) -> None:
    code = code.replace("$PARENT", str(os.getpid())).replace("$PORT", str(port))
    # What one run leaves, no other finds.
    for _ in range(2):
        done = sandboxed(folder, f"test ! -e /tmp/left || exit 9; {code}")
        assert (done.returncode == 0) is works, done.output
        assert done.returncode != 9


@pytest.mark.tool("bwrap")
@pytest.mark.parametrize(
    ("code", "status"), [("exit 3", 3), ("kill -SEGV $$", -signal.SIGSEGV), ("kill $$", -15)]
)
def test_how_a_program_ended_is_told_as_without_one(folder: Path, code: str, status: int) -> None:
    assert sandboxed(folder, code).returncode == status


@pytest.mark.tool("bwrap")
def test_what_a_program_leaves_running_ends_with_it(folder: Path) -> None:
    done = sandboxed(folder, "setsid sleep 607 & sleep 0.2")
    assert (done.returncode, done.timed_out) == (0, False)
    late = sandboxed(folder, "setsid sleep 607 & sleep 607", timeout=0.5)
    assert late.timed_out
    assert process.run(["sh", "-c", "pgrep -f 'sleep 60[7]'; true"]).stdout == b""


@pytest.mark.tool("bwrap")
@pytest.mark.usefixtures("bubblewrap")
def test_a_record_says_that_its_checks_ran_in_a_sandbox(toy: Toy, program: Program) -> None:
    text = (
        "import os, pathlib\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        "    assert not pathlib.Path('/tmp/contribbot-left').exists()\n"
        "    pathlib.Path('/tmp/contribbot-left').touch()\n"
        "    assert rectangle(2, 3) == 6\n"
    )
    put(toy, text)
    ran = program.ok("verify", "area", "--json")
    assert dig(ran.stages()["reproduce red"].details, "sandbox") == "bubblewrap"


def test_why_there_is_none_is_told(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert "bubblewrap is not installed" in process.no_sandbox.__wrapped__()
        program_file(tmp_path / "bwrap", "echo 'bwrap: No permissions' >&2; exit 1")
        assert "No permissions" in process.no_sandbox.__wrapped__()


@pytest.mark.usefixtures("unsandboxed")
def test_without_a_sandbox_the_record_says_why(toy: Toy, program: Program) -> None:
    toy.put_area()
    details = program("verify", "area", "--json").stages()["reproduce red"].details
    assert dig(details, "sandbox") == "CONTRIBBOT_SANDBOX=off"
