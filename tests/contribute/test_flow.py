"""From an empty queue to a merged and retired patch, through the command line alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from contribbot.contribute.model import Followed, FollowReport
from tests.conftest import Program, Ran
from tests.contribute.bodytoy import OWN, TEMPLATE
from tests.contribute.place import CHANGES, RULES, TITLE, Table, make_table
from tests.contribute.place import TEST as RED
from tests.contribute.terminal import Terminal, sitting
from tests.github.handle import GitHub
from tests.github.state import Pull, Repository
from tests.toy import AREA, FIXED, Toy, git

SHORTER = {"src/toy/area.py": AREA.replace("return width + height", "return width * height")}
LINE = FIXED.splitlines().index("    area = width * height") + 1
#: The texts that a person writes into the patch.toml of `contribbot new`.
PROSE = {
    "what goes wrong": "Areas are sums.",
    "why:": "A plus.",
    "what the patch": "A times, on ROCm too.",
}
STATED = """
[[checks]]
name = "red"
file = "test_red.py"
expect = "fail-to-pass"
reason = '^AssertionError: '

[contribution]
issue = "example/toy#1"
tests = { red = "tests/test_area.py::test_area" }
ai = "A machine drafted it."
docs = "none needed: nothing that users see."
"""
MESSAGE = "Multiply the sides of a rectangle\n\nAdding is no area.\n\nAssisted-by: A model"
#: A question of `attest`; the third group: the question wants a yes.
_QUESTION = re.compile(r"\[(\d+)/(\d+)\] [^\n]*\((yes)?[^\n]*\) $")


@dataclass
class Person:
    """A person with a new queue, at the local GitHub."""

    table: Table

    @property
    def folder(self) -> Path:
        return self.table.toy.queue

    @property
    def fork(self) -> Repository:
        return self.table.fork

    def env(self) -> dict[str, str]:
        return {**self.table.env(), "GITHUB_SERVER_URL": self.table.github.base}

    def __call__(self, *args: str | Path, code: int = 0) -> Ran:
        ran = Program(self.folder, self.env())(*args)
        assert ran.code == code, f"{args}: {ran.code}\n{ran.out}\n{ran.err}"
        return ran

    def attest(self, name: str = "area") -> str:
        """Sit at a terminal and answer each question; return what was on the screen."""
        args = ("-m", "contribbot", "attest", name)
        with sitting(*args, env=self.env(), cwd=self.folder) as terminal:
            return _answered(terminal)

    def begin(self, changes: dict[str, str], name: str = "area") -> None:
        """Begin a patch, commit changes, and say what it is for and what proves it."""
        self("new", name, "--title", TITLE)
        self("edit", name)
        self.commit(changes, name)
        self("refresh", name)
        file = self.folder / "patches" / name / "patch.toml"
        text = file.read_text()
        for start, said in PROSE.items():
            text, count = re.subn(rf"TODO: {start}[^\n]*", said, text)
            assert count == 1
        file.write_text(text + STATED)

    def commit(self, changes: dict[str, str], name: str = "area", *, amend: bool = False) -> None:
        tree = self.folder / ".contribbot/edit" / name
        for path, content in changes.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(content)
        git(tree, "add", "-A")
        how = ("--amend", "--no-edit") if amend else ("-s", "-m", MESSAGE)
        git(tree, "commit", "-q", *how)

    def followed(self, name: str = "area") -> Followed:
        report = FollowReport.model_validate_json(self("follow", "--json").out)
        return next(each for each in report.contributions if each.patch == name)

    def log(self, name: str = "area") -> list[str]:
        """Return the events that `log` shows, without the times."""
        rows = [row[18:].strip() for row in self("queue", "log", name).out.splitlines()]
        return [row for row in rows if not row.startswith("operation")]


def _answered(terminal: Terminal) -> str:
    number, total, last = 0, 1, ""
    while number < total or last != "stand":
        terminal.until(r"\[\d+/\d+\] [^\n]*\) $")
        found = _QUESTION.search(terminal.seen)
        assert found is not None
        assert int(found[1]) == number % total + 1
        number, total = int(found[1]), int(found[2])
        last = "stand" if "stand for this" in found[0] else ""
        typed = "yes" if found[3] else "R1" if "record is of" in found[0] else "python -m pytest"
        terminal.type(f"{typed}\n")
    assert terminal.end() == 0, terminal.seen
    return terminal.seen


@pytest.fixture
def person(github: GitHub, tmp_path: Path) -> Person:
    """Give somebody a queue with a pin and no patch, and an upstream with an issue."""
    toy = Toy(tmp_path / "toy")
    toy.put("upstreams/contributing/toy.toml", RULES + "\n[ci.targets]\ngfx942 = 'mi300'\n")
    toy.put(OWN, TEMPLATE)
    git(toy.queue, "init", "-q")
    return Person(make_table(toy, github))


@pytest.fixture
def ready(person: Person) -> Person:
    person.begin(CHANGES)
    person.table.toy.put("patches/area/checks/test_red.py", RED)
    person("verify", "area")
    return person


def test_from_an_empty_queue_to_a_retired_patch(ready: Person) -> None:
    person, table = ready, ready.table
    assert "nobody has read it and run it" in person("gate", "area", code=1).out
    refused = person("open-pr", "area", code=1).err
    assert "nobody has attested it" in refused
    assert "contribbot attest area" in refused
    # The shown text is the attested text, and the posted text.
    shown, body = person.attest(), person("body", "area").out
    assert "| `test_area` | CPU | fails: `AssertionError: assert 5 == 6`" in body
    assert "ran `python -m pytest` on" in body
    assert body.strip() in shown
    person("open-pr", "area")
    (pull,) = table.upstream.pulls()
    assert (pull.issue.title, (pull.issue.body or "").strip()) == (TITLE, body.strip())
    assert pull.draft
    assert person.followed().state == "draft"

    answer_reviewer(person, pull)
    bring_up_to_date(person, pull)

    # The pull request is squashed onto the default branch, and the patch is retired.
    commit = table.github.merge(pull, "squash")
    found = person.followed()
    assert (found.state, found.commit, found.change) == ("merged", commit, "draft")
    assert "#2 merged" in person("status").out
    person("edit", "--abort", "area")
    retired = person("queue", "retire", "area")
    assert retired.out == f"area: retired: example/toy#2 merged as {commit[:12]}\n"
    assert_gone(person)
    assert "nothing to follow" in person("follow").out
    log = person.log()
    assert log[-2:] == [
        f"pull-request  example/toy#2 was merged as {commit[:12]}",
        f"retired       retired: example/toy#2 merged as {commit[:12]}",
    ]
    assert len(log) == len(set(log)) + 1  # the same verdict, of two versions


def answer_reviewer(person: Person, pull: Pull) -> None:
    """Let a reviewer comment; check that `follow` shows each remark once, and answer."""
    table = person.table
    github, other = table.github, table.other
    github.add_check(pull, "mi300: kernels", "success")
    github.add_review_comment(pull, other, "Why the name?", path="src/toy/area.py", line=LINE)
    github.add_comment(pull.issue, other, "Thanks!")
    table.upstream.members[other.login] = "write"  # who may not write decides nothing
    github.add_review(pull, other, "CHANGES_REQUESTED", body="Shorter, please.")
    told = person("follow").out
    assert f"bob src/toy/area.py:{LINE}: Why the name?" in told
    assert "gfx942 passed (1 job)" in told
    assert "changes requested by bob; threads: 1 open" in told
    assert "new: " not in person("follow").out
    (root,) = pull.review_comments
    github.add_review_comment(pull, table.me, "It goes.\n", root=root)
    assert "threads: 0 open, 1 answered" in person("follow").out


def bring_up_to_date(person: Person, pull: Pull) -> None:
    """Change the patch as the reviewer asks, prove and attest the patch, and open-pr again."""
    upstream = person.table.upstream
    person.commit(SHORTER, amend=True)
    person("refresh", "area")
    assert "the patch has changed since" in person("open-pr", "area", code=1).err
    person("verify", "area")
    assert "void: the text" in person("open-pr", "area", code=1).err
    person.attest()
    person("open-pr", "area")
    assert upstream.pulls() == [pull]
    assert person.fork.git.ref("refs/heads/contribbot/area") == pull.head_sha
    person("open-pr", "area")
    assert len(pull.issue.comments) == 1
    assert "its pull request example/toy#2 is open" in person("queue", "retire", "area", code=1).err


def assert_gone(person: Person) -> None:
    assert not (person.folder / "patches/area").exists()
    for kept in (
        "history/area/journal.jsonl", "history/area/retired/patch.toml",
        "history/area/retired/checks/test_red.py", "attestations/area.json",
    ):  # fmt: skip
        assert (person.folder / kept).is_file(), kept
    assert list((person.folder / "evidence/area").glob("*.json"))
