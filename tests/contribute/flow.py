"""A person who works through the command line alone: real processes, a real terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from contribbot.contribute.model import Followed, FollowReport
from tests.conftest import Program, Ran
from tests.contribute.bodytoy import OWN, TEMPLATE
from tests.contribute.gatetoy import RULES, Table, make_table
from tests.contribute.terminal import Terminal, sitting
from tests.github.handle import GitHub
from tests.github.state import Repository
from tests.toy import Toy, git

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
TITLE = "[Bugfix] Multiply the sides"
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


def make_person(root: Path, github: GitHub) -> Person:
    """Give somebody a queue with a pin and no patch, and an upstream with an issue."""
    toy = Toy(root / "toy")
    toy.put("upstreams/contributing/toy.toml", RULES + "\n[ci.targets]\ngfx942 = 'mi300'\n")
    toy.put(OWN, TEMPLATE)
    git(toy.queue, "init", "-q")
    return Person(make_table(toy, github))
