from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from contribbot.contribute.attest import require
from contribbot.contribute.attested import read
from contribbot.model.attestation import Attestation
from contribbot.report.attest import visible
from tests.contribute.attesttoy import ANSWERS, attested, file, posted
from tests.contribute.gatetoy import CHANGES, Proved, Table, edit, make_proved, make_table
from tests.github.handle import GitHub
from tests.toy import AREA

#: The program as it is, with the two commands in it also before `main` names them.
RUN = """
import sys
from contribbot.cli import attest, gate, main
known = {one.name for one in main.app.registered_commands}
for name, function in (("attest", attest.attest), ("gate", gate.gate)):
    if name not in known:
        main.app.command(name)(function)
main.main()
"""
LATE = 30.0


@pytest.fixture
def table(proved: Proved, github: GitHub, tmp_path: Path) -> Table:
    return make_table(proved.copy(tmp_path), github)


@dataclass
class Terminal:
    """A person at a real pseudo-terminal, with the program in it."""

    master: int
    child: subprocess.Popen[bytes]
    seen: str = ""
    raw: bytearray = field(default_factory=bytearray)

    def until(self, pattern: str) -> None:
        """Read until something is on the screen."""
        start, deadline = len(self.seen), time.monotonic() + LATE
        while not re.search(pattern, self.seen[start:]):
            assert time.monotonic() < deadline, self.seen
            assert self._read(), f"ended before {pattern}: {self.seen}"

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def answer(self, *answers: str) -> None:
        """Type each answer once it is asked for."""
        for number, one in enumerate(answers, start=1):
            self.until(rf"\[{number}/\d\] [^\n]*\) $")
            self.type(f"{one}\n")

    def end(self) -> int:
        """Wait for the program to end, and return its exit status."""
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


@dataclass
class Seat:
    """Opens terminals, and closes them when the test is over."""

    table: Table
    opened: list[Terminal] = field(default_factory=list)

    def __call__(self, *args: str, program: str = RUN, **env: str) -> Terminal:
        master, slave = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-c", program, "--queue", str(self.table.toy.queue), "attest", *args],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, **self.table.env(), "TERM": "dumb", "PAGER": "", **env},
            preexec_fn=_control,  # noqa: PLW1509  a terminal must be the child's own for Ctrl-C
        )  # fmt: skip
        os.close(slave)
        made = Terminal(master, child)
        self.opened.append(made)
        return made


def _control() -> None:
    """Make standard input the terminal that controls this process."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def sit(table: Table) -> Iterator[Seat]:
    seat = Seat(table)
    yield seat
    for one in seat.opened:
        if one.child.poll() is None:
            one.child.kill()
            one.child.wait()
        os.close(one.master)


def leftovers(table: Table) -> list[str]:
    folder = file(table).parent
    return sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []


def test_a_person_reads_answers_and_what_they_saw_is_what_may_be_posted(
    table: Table, sit: Seat
) -> None:
    person = sit("area")
    person.answer(*ANSWERS)
    assert person.end() == 0
    text = posted(table)
    patch = table.queue.patch("area")
    shown = person.seen
    for row in patch.files[0].content.decode().splitlines():
        assert row in shown
    assert text.body in shown
    assert f"title: {text.title}\n" in shown
    assert re.search(r"\nsign-off +passed", shown)
    assert "[1/4] Have you read every changed line? (yes, or anything else to end)" in shown
    made = Attestation.model_validate_json(file(table).read_bytes())
    assert (made.person.name, made.person.email) == ("Ada Example", "ada@example.com")
    assert tuple(one.answer for one in made.answers) == ANSWERS
    assert leftovers(table) == ["area.json"]
    assert require(table.queue, patch, text) == made
    assert table.run("attest", "area", "--show").exit_code == 0
    assert table.run("attest", "area", "--show").stdout.startswith(
        "area: valid; attested by Ada Example <ada@example.com>"
    )


def test_a_program_cannot_attest(table: Table) -> None:
    before = len(table.github.requests)
    done = table.run("attest", "area")
    assert done.exit_code == 2
    assert "a person must run it" in done.stderr
    assert len(table.github.requests) == before


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_half_a_terminal_is_none(table: Table, stream: str) -> None:
    master, slave = pty.openpty()
    nowhere = subprocess.DEVNULL
    done = subprocess.run(
        [sys.executable, "-c", RUN, "--queue", str(table.toy.queue), "attest", "area"],
        stdin=nowhere if stream == "stdin" else slave,
        stdout=nowhere if stream == "stdout" else slave,
        stderr=subprocess.PIPE, env={**os.environ, **table.env()}, timeout=LATE, check=False,
    )  # fmt: skip
    os.close(slave)
    os.close(master)
    assert done.returncode == 2
    assert not file(table).exists()


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (("y",), "read: only yes, in full"),
        (("",), "read: only yes, in full"),
        (("yes please",), "read: only yes, in full"),
        (("yes", "   "), "ai: it was not answered"),
        (("yes", "a\x1bb"), "ai: not a line of plain text"),
        (("yes", "It drafted it.", "make", "no"), "stand: only yes, in full"),
    ],
)
def test_any_other_answer_ends_it_and_nothing_is_written(
    table: Table, sit: Seat, answers: tuple[str, ...], why: str
) -> None:
    person = sit("area")
    person.answer(*answers)
    assert person.end() == 1
    assert why in person.seen
    assert leftovers(table) == []


@pytest.mark.parametrize(
    ("keys", "code"), [("\x04", 1), ("\x03", 130), ("ye\x03", 130), ("ye\x04\x04", 1)]
)
def test_the_end_of_input_and_an_interrupt_write_nothing(
    table: Table, sit: Seat, keys: str, code: int
) -> None:
    person = sit("area")
    person.answer("yes")
    person.until(r"\[2/4\] [^\n]*\) $")
    person.type(keys)
    assert person.end() == code
    assert leftovers(table) == []


def test_what_was_typed_ahead_is_no_answer(table: Table, sit: Seat) -> None:
    person = sit("area")
    person.type("yes\nyes\nyes\nyes\n")
    person.until(r"\[1/4\] [^\n]*\) $")
    person.type("no\n")
    assert person.end() == 1
    assert leftovers(table) == []


@pytest.mark.parametrize("at", [1, 4])
def test_a_kill_leaves_nothing_half_written(table: Table, sit: Seat, at: int) -> None:
    person = sit("area")
    person.answer(*ANSWERS[: at - 1])
    person.until(rf"\[{at}/4\] [^\n]*\) $")
    person.child.send_signal(signal.SIGKILL)
    assert person.child.wait(LATE) == -signal.SIGKILL
    assert leftovers(table) == []


#: The kernel kills it when the attestation is about to be brought to the disk.
KILLED = """
import os, signal
real = os.fsync
def fsync(handle):
    if "/attestations/" in os.readlink(f"/proc/self/fd/{handle}"):
        os.kill(os.getpid(), signal.SIGKILL)
    real(handle)
os.fsync = fsync
"""


def test_a_kill_while_it_is_written_leaves_the_old_one_whole(table: Table, sit: Seat) -> None:
    attested(table)
    before = file(table).read_bytes()
    person = sit("area", program=KILLED + RUN)
    person.answer(*ANSWERS)
    assert person.end() == -signal.SIGKILL
    assert len(leftovers(table)) == 2, "it was not killed where it writes"
    assert file(table).read_bytes() == before
    assert read(table.queue, "area").intact


def test_a_gate_that_says_no_lets_nobody_attest(table: Table, sit: Seat) -> None:
    changed = AREA.replace("base * height / 2", "0.5 * base * height")
    table.pull("beside", {"src/toy/area.py": changed})
    person = sit("area")
    assert person.end() == 1
    assert "example/toy#2" in person.seen
    assert "the gate does not let it through" in person.seen
    assert "[1/" not in person.seen
    edit(table.toy, "# What", '# W\n[contribution.different]\n"example/toy#2" = "no"\n# What')
    person = sit("area")
    assert person.end() == 1
    assert "no answer yet" in person.seen  # a word is no reason
    edit(table.toy, '"no"', '"It is about triangles, not rectangles."')
    person = sit("area")
    person.until(r"\[1/5\]")
    assert "different: It is about triangles" in person.seen


def test_without_github_nobody_attests(sit: Seat) -> None:
    person = sit("area", GITHUB_TOKEN="ghp_" + "x" * 36)
    assert person.end() == 3
    assert "[1/" not in person.seen


def test_whom_git_does_not_know_cannot_attest(table: Table, sit: Seat) -> None:
    person = sit("area", GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")
    assert person.end() == 2
    assert "git does not know your user.name" in person.seen
    assert leftovers(table) == []


def test_a_change_while_the_person_reads_is_noticed(table: Table, sit: Seat) -> None:
    person = sit("area")
    person.answer(*ANSWERS[:3])
    person.until(r"\[4/4\] [^\n]*\) $")
    edit(table.toy, "Areas are sums", "Areas were sums")
    person.type("yes\n")
    assert person.end() == 1
    assert "not what you were shown any more: the text of the pull request has changed" in (
        person.seen
    )
    assert leftovers(table) == []


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\u2066x\x9b31m"


def test_a_hostile_diff_does_nothing_to_the_terminal(
    github: GitHub, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spoiled = {**CHANGES, "tests/test_area.py": f"# {HOSTILE}\n{CHANGES['tests/test_area.py']!s}"}
    proved = make_proved(tmp_path_factory.mktemp("hostile"), spoiled)
    seat = Seat(make_table(proved.copy(tmp_path), github))
    person = seat("area")
    person.answer(*ANSWERS)
    assert person.end() == 0
    os.close(person.master)
    assert visible(f"+# {HOSTILE}") in person.seen
    assert all(char.isprintable() or char in "\r\n" for char in person.raw.decode())


def test_what_does_not_print_is_written_as_an_escape() -> None:
    assert visible(f"{HOSTILE}\tüß\r\ufeff") == (
        "\\x1b]0;owned\\x07\\x1b[2J\\u202e\\u2066x\\x9b31m\tüß\\r\\ufeff"
    )


def pager(folder: Path, status: int = 0) -> str:
    """Return a pager that keeps what it was given."""
    script = folder / "pager"
    script.write_text(
        f'#!/bin/sh\ncat >"{folder}/paged"\necho "paged ($GITHUB_TOKEN)"\nexit {status}\n'
    )
    script.chmod(0o755)
    return str(script)


def test_a_long_diff_goes_through_the_persons_pager_without_the_token(
    table: Table, sit: Seat, tmp_path: Path
) -> None:
    person = sit("area", PAGER=pager(tmp_path))
    person.answer(*ANSWERS)
    assert person.end() == 0
    paged = (tmp_path / "paged").read_text()
    assert posted(table).body in paged
    assert "return width * height" not in person.seen
    assert "paged ()" in person.seen


@pytest.mark.parametrize("name", ["fails", "not there", "'"])
def test_a_pager_that_does_not_work_is_done_without(sit: Seat, tmp_path: Path, name: str) -> None:
    person = sit("area", PAGER=pager(tmp_path, 3) if name == "fails" else name)
    person.until(r"(?s)diff --git.*\[1/4\]")
