from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contribbot.cli import contribute
from contribbot.cli.contribute import visible
from contribbot.contribute.attest import ask_all, questions_of, read, require
from contribbot.contribute.body import rules_of
from contribbot.contribute.model import Attestation, Question
from contribbot.errors import AttestationError
from tests.conftest import Program, Ran
from tests.contribute.place import (
    ANSWERS,
    BESIDE,
    CHANGES,
    Table,
    edit,
    make_proved,
    make_table,
    nobody,
    written,
)
from tests.contribute.terminal import Terminal, sitting
from tests.github.handle import GitHub
from tests.tools import kinds

RUN = "from contribbot.cli.main import main\nmain()\n"
Sit = Callable[..., Terminal]
Say = Callable[..., Ran]


@pytest.fixture
def sit(table: Table) -> Iterator[Sit]:
    with ExitStack() as opened:

        def start(program: str = RUN, **env: str) -> Terminal:
            args = ("-c", program, "--queue", str(table.toy.queue), "attest", "area")
            return opened.enter_context(sitting(*args, env={**table.env(), **env}))

        yield start


def answering(table: Table, monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> Say:
    """Run `attest area` without a terminal, in this process; `asked` has what was asked."""
    typed: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return f"{typed.pop(0)}\n"

    def attest(*answers: str, **env: str) -> Ran:
        typed[:] = answers
        return table.run("attest", "area", **env)

    monkeypatch.setattr(contribute, "_refuse_programs", lambda: None)
    monkeypatch.setattr(contribute, "ask_line", ask)
    return attest


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def say(table: Table, monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> Say:
    return answering(table, monkeypatch, asked)


def leftovers(table: Table) -> list[str]:
    folder = table.attestation.parent
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_person_reads_answers_and_what_they_saw_is_what_may_be_posted(
    table: Table, sit: Sit
) -> None:
    person = sit()
    person.answer(*ANSWERS)
    assert person.end() == 0
    text, shown = table.body(), person.seen
    for row in table.queue.patch("area").files[0].content.decode().splitlines():
        assert row in shown
    assert text.text in shown
    assert f"title: {text.title}\n" in shown
    assert re.search(r"\ncommits +passed", shown)
    assert "[1/3] Have you read every changed line? (yes, or anything else to end)" in shown
    made = Attestation.model_validate_json(table.attestation.read_bytes())
    assert (made.person.name, made.person.email) == ("Ada Example", "ada@example.com")
    assert tuple(row.answer for row in made.answers) == ANSWERS
    assert leftovers(table) == ["area.json"]
    assert require(table.queue, text) == made
    assert "attestation" not in table.program("open-pr", "area", "--dry-run").out


def test_a_program_cannot_attest(table: Table) -> None:
    before = len(table.github.requests)
    done = table.program("attest", "area")
    assert done.code == 2
    assert "a person must run it" in done.err
    assert len(table.github.requests) == before


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (("y",), "read: only yes, in full"),
        (("",), "read: only yes, in full"),
        (("yes", "   "), "ai: it was not answered"),
        (("yes", "a\x1bb"), "ai: not a line of plain text"),
        (("yes", "It drafted it.", "no"), "stand: only yes, in full"),
    ],
)
def test_any_other_answer_ends_it_and_nothing_is_written(
    table: Table, say: Say, asked: list[str], answers: tuple[str, ...], why: str
) -> None:
    ended = say(*answers)
    assert ended.code == 1
    assert why in ended.output
    assert len(asked) == len(answers)
    assert leftovers(table) == []


@pytest.mark.parametrize(
    ("keys", "code"),
    kinds(
        [("\x04", 1), ("\x03", 130), ("ye\x03", 130), ("ye\x04\x04", 1)],
        lambda case: case[0][0] != "y",
    ),
)
def test_the_end_of_input_and_an_interrupt_write_nothing(
    table: Table, sit: Sit, keys: str, code: int
) -> None:
    person = sit()
    person.answer("yes")
    person.until(r"\[2/3\] [^\n]*\) $")
    person.type(keys)
    assert person.end() == code
    assert leftovers(table) == []


def test_what_was_typed_ahead_is_no_answer(table: Table, sit: Sit) -> None:
    person = sit()
    person.type("yes\nyes\nyes\n")
    person.until(r"\[1/3\] [^\n]*\) $")
    person.type("no\n")
    assert person.end() == 1
    assert leftovers(table) == []


#: A program that is killed at the fsync of the attestation.
KILLED = """
import os, signal
real = os.fsync
def fsync(handle):
    if "/attestations/" in os.readlink(f"/proc/self/fd/{handle}"):
        os.kill(os.getpid(), signal.SIGKILL)
    real(handle)
os.fsync = fsync
"""


def test_a_kill_while_it_is_written_leaves_the_old_one_whole(table: Table, sit: Sit) -> None:
    table.attest()
    before = table.attestation.read_bytes()
    person = sit(program=KILLED + RUN)
    person.answer(*ANSWERS)
    assert person.end() == -signal.SIGKILL
    assert len(leftovers(table)) == 2, "it was not killed where it writes"
    assert table.attestation.read_bytes() == before
    assert read(table.queue, "area").answers


def test_a_gate_that_says_no_lets_nobody_attest(table: Table, say: Say, asked: list[str]) -> None:
    assert say(GITHUB_TOKEN="ghp_" + "x" * 36).code == 3
    table.pull("beside", BESIDE, title="Multiply")
    ended = say()
    assert ended.code == 1
    assert "example/toy#2" in ended.output
    assert "nothing to attest yet; first: duplicates (failed)" in ended.output
    edit(table.toy, "# What", '# W\n[contribution.different]\n"example/toy#2" = "no"\n# What')
    ended = say()
    assert ended.code == 1
    assert "no answer yet" in ended.output  # a word is no reason
    assert asked == []
    edit(table.toy, '"no"', '"It is about triangles, not rectangles."')
    ended = say("")
    assert asked[0].startswith("[1/4]")
    assert "different: It is about triangles" in ended.output


def test_whom_git_does_not_know_cannot_attest(table: Table, say: Say) -> None:
    ended = say(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")
    assert ended.code == 2
    assert "git does not know your user.name" in ended.output
    assert leftovers(table) == []


def test_a_change_while_the_person_reads_is_noticed(table: Table, sit: Sit) -> None:
    person = sit()
    person.answer(*ANSWERS[:2])
    person.until(r"\[3/3\] [^\n]*\) $")
    edit(table.toy, "Areas are sums", "Areas were sums")
    person.type("yes\n")
    assert person.end() == 1
    reason = "the text or the patch is not what you were shown any more"
    assert reason in person.seen
    assert leftovers(table) == []


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\u2066x\x9b31m"


def test_a_hostile_diff_does_nothing_to_the_terminal(
    github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled = {**CHANGES, "tests/test_area.py": f"# {HOSTILE}\n{CHANGES['tests/test_area.py']}"}
    table = make_table(make_proved(tmp_path, spoiled).toy, github)
    ended = answering(table, monkeypatch, [])(*ANSWERS)
    assert ended.code == 0
    assert visible(f"+# {HOSTILE}") in ended.output
    assert all(char.isprintable() or char in "\r\n" for char in ended.output)
    assert visible(f"{HOSTILE}\tüß\r\ufeff") == (
        "\\x1b]0;owned\\x07\\x1b[2J\\u202e\\u2066x\\x9b31m\tüß\\r\\ufeff"
    )


PATCH, TOML = "patches/area/0001-change.patch", "patches/area/patch.toml"


VOID = "void: the text, the patch or an answer changed"


@pytest.mark.parametrize(
    ("words", "path", "before", "after"),
    [
        ("area: no fresh evidence", PATCH, "no area", "no areas"),
        (VOID, TOML, "Multiply the sides", "Multiply"),
        (VOID, "attestations/area.json", "It drafted the change.", "It drafted nothing."),
        (VOID, "attestations/area.json", "ada@example.com", "eve@example.com"),
        (VOID, "upstreams/contributing/toy.toml", "every changed line", "a changed line"),
    ],
)
def test_what_changes_afterwards_makes_it_void(
    table: Table, words: str, path: str, before: str, after: str
) -> None:
    table.attest()
    edit(table.toy, before, after, path)
    assert words in table.program("open-pr", "area", "--dry-run").out
    with pytest.raises(AttestationError, match=VOID) as caught:
        require(table.queue, written("t", "b"))
    assert (caught.value.exit_code, caught.value.hint) == (1, "contribbot attest area")


def test_another_text_than_the_attested_one_is_not_posted(table: Table) -> None:
    made = table.attest()
    queue, text = table.queue, table.body()
    assert require(queue, text) == made
    for other in (
        written(text.title, text.text + " "),
        text.model_copy(update={"title": text.title + "!"}),
    ):
        with pytest.raises(AttestationError, match=VOID):
            require(queue, other)
    # After a day, the answers of GitHub no longer hold.
    assert require(queue, text, now=made.looked + timedelta(hours=23, minutes=59)) == made
    with pytest.raises(AttestationError, match=r"its gate asked GitHub .* holds for 24 hours"):
        require(queue, text, now=made.looked + timedelta(hours=24, seconds=1))
    with pytest.raises(AttestationError, match="void: its gate asked GitHub"):
        require(queue, text, now=made.looked - timedelta(hours=1))
    # A new record with the same figures changes nothing in the text.
    Program(table.toy.queue).ok("verify", "area")
    require(table.queue, table.body())


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 5000, b'{"kind": "other"}'])
def test_what_is_no_attestation_is_said(table: Table, content: bytes) -> None:
    table.attestation.parent.mkdir()
    table.attestation.write_bytes(content)
    done = table.program("open-pr", "area", "--dry-run")
    assert "no attestation that can be read" in done.out


def test_the_upstreams_questions_come_first_and_ours_are_not_asked_twice(table: Table) -> None:
    rules = rules_of(table.queue, "toy")
    gate = table.gate(now=datetime.now(UTC))
    assert [row.name for row in questions_of(rules, gate)] == ["read", "ai", "stand"]
    stand = Question(name="stand", text="Do you?", answer="text")
    asked = questions_of(rules.model_copy(update={"questions": (stand,)}), gate)
    assert [row.text for row in asked] == ["Do you?"]
    with pytest.raises(AttestationError, match="at most 2000 characters"):
        ask_all([stand], lambda _: "a" * 2001)


def test_who_has_not_said_what_they_ran_where_is_asked_and_the_text_says_it(
    table: Table, say: Say, asked: list[str]
) -> None:
    nobody(table)
    assert "**Nobody stands behind this text yet**" in table.body().text
    ended = say("make test", "evidence/area/none.json")
    assert (ended.code, "is none of R1 = evidence/area/" in ended.output) == (1, True)
    assert table.queue.specs["area"].contribution.person is None
    asked.clear()
    ended = say("make test", "R1", *ANSWERS)
    assert ended.code == 0, ended.output
    assert [line[:5] for line in asked] == ["[1/2]", "[2/2]", "[1/3]", "[2/3]", "[3/3]"]
    text = table.body().text
    assert re.search(r"^Ada Example read every changed line and ran `make test` on .+\.$",
                     text, re.MULTILINE)  # fmt: skip
    assert require(table.queue, table.body()).person.name == "Ada Example"


def test_nobody_attests_for_another(table: Table, say: Say) -> None:
    table.attest()
    edit(table.toy, 'name = "Ada Example"', 'name = "Eve Example"')
    ended = say(*ANSWERS)
    assert ended.code == 1
    assert "Eve Example <ada@example.com> stands for it, and you are Ada Example" in ended.output
    with pytest.raises(AttestationError, match=VOID):
        require(table.queue, table.body())
