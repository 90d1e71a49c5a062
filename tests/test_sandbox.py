"""What a check can do in its sandbox."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot import process
from tests.conftest import Program, dig
from tests.hiptoy import program_file
from tests.test_verify import put
from tests.toy import Toy


@pytest.fixture
def bubblewrap() -> None:
    """Skip where namespaces are forbidden, as in many containers."""
    if why := process.no_sandbox():
        pytest.skip(why)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def supervised(folder: Path, code: str, *, timeout: float = 30) -> process.Supervised:
    return process.supervise(
        ["sh", "-c", code], cwd=folder, env=process.clean_environment({"FOLDER": str(folder)}),
        timeout=timeout, sandbox=folder,
    )  # fmt: skip


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
        done = supervised(folder, f"test ! -e /tmp/left || exit 9; {code}")
        assert (done.returncode == 0) is works, done.output
        assert done.returncode != 9


@pytest.mark.tool("bwrap")
@pytest.mark.parametrize(
    ("code", "status"), [("exit 3", 3), ("kill -SEGV $$", -signal.SIGSEGV), ("kill $$", -15)]
)
def test_how_a_program_ended_is_told_as_without_one(folder: Path, code: str, status: int) -> None:
    assert supervised(folder, code).returncode == status


@pytest.mark.tool("bwrap")
def test_what_a_program_leaves_running_ends_with_it(folder: Path) -> None:
    done = supervised(folder, "setsid sleep 607 & sleep 0.2")
    assert (done.returncode, done.timed_out) == (0, False)
    late = supervised(folder, "setsid sleep 607 & sleep 607", timeout=0.5)
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
    ran = program("verify", "area", "--json")
    assert ran.code == 0, ran.out
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
