"""A toy patch that its gate lets through, and the local GitHub that it goes to."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from contribbot.contribute.attest import ask_all, attestation_file, conclude, prepare, read
from contribbot.contribute.body import make_body
from contribbot.contribute.gate import judge
from contribbot.contribute.model import Attestation, Attester, Body, Gate, Row
from tests.conftest import Program, Ran
from tests.contribute import bodytoy
from tests.contribute.bodytoy import OWN, TEMPLATE
from tests.contribute.place import Place
from tests.github.handle import GitHub
from tests.github.state import Pull, User
from tests.toy import AREA, FIXED, Toy

#: A time shortly after the start of the local GitHub's clock.
NOW = datetime(2026, 1, 10, tzinfo=UTC)
LIVE = ".github/pull_request_template.md"
#: The rules of the toy upstream, with a value for each rule of the gate.
RULES = (
    """
title = '^\\[[A-Z]\\w+\\] \\S'
title_hint = "[Bugfix] What it does"
sign_off = true
issue = "required"
require = ["cpu"]
open_prs = 2
labels = ["rocm"]
lint = "lint --all"
"""
    + bodytoy.RULES.replace("you read it?", "you read every changed line?")
    + """
[[questions]]
name = "ai"
text = "How was AI used?"
answer = "text"

[ai]
disclosed = true
trailer = '^Assisted-by: \\S'

[ci]
start = "A comment by someone entitled."
current = true
"""
)
CONTRIBUTION = """
# What the pull request needs.
[contribution]
issue = "example/toy#1"
ai = "A machine drafted it."  # and a person read it
docs = "none needed: nothing that users see."

[contribution.person]
name = "Ada Example"
email = "ada@example.com"
ran = "lint --all"
record = "evidence/area/RECORD"
"""
TEST = "from toy.area import rectangle\n\n\ndef test_area():\n    assert rectangle(2, 3) == 6\n"
MESSAGE = (
    "Adding them is no area.\n\nAssisted-by: A model\nSigned-off-by: Ada Example <ada@example.com>"
)
CHANGES: dict[str, str | bytes] = {"src/toy/area.py": FIXED, "tests/test_area.py": TEST}
TITLE = "[Bugfix] Multiply the sides"
#: The answers to the questions of `attest`.
ANSWERS = ("yes", "It drafted the change.", "yes")
#: The toy with another function changed, and the same function another way.
BESIDE = {"src/toy/area.py": AREA.replace("base * height / 2", "0.5 * base * height")}
OTHERWISE = {"src/toy/area.py": AREA.replace("width + height", "height * width")}


def put_patch(toy: Toy, changes: dict[str, str | bytes]) -> None:
    toy.put("upstreams/contributing/toy.toml", RULES)
    toy.put(OWN, TEMPLATE)
    toy.put_patch(patch=toy.format_patch(changes, body=MESSAGE), files=tuple(changes), extra="")
    edit(toy, 'title = "Multiply the sides"', f'title = "{TITLE}"')
    path = toy.queue / "patches/area/patch.toml"
    path.write_text(path.read_text() + CONTRIBUTION)
    toy.put_queue(["area"])


def edit(toy: Toy, before: str, after: str, path: str = "patches/area/patch.toml") -> None:
    """Replace a text in a file of the queue; the file must have the text."""
    file = toy.queue / path
    text = file.read_text()
    assert before in text, before
    file.write_text(text.replace(before, after))


@dataclass
class Proved:
    """A toy whose patch is proved, and the cache that has its pin."""

    toy: Toy
    cache: Path

    def copy(self, folder: Path) -> Toy:
        made = copy.copy(self.toy)
        made.queue = folder / "queue"
        shutil.copytree(self.toy.queue, made.queue)
        return made


def make_proved(root: Path, changes: dict[str, str | bytes] | None = None) -> Proved:
    """Return a patch that its gate lets through; this runs the checks for real."""
    toy = Toy(root / "toy")
    put_patch(toy, changes or CHANGES)
    return verify(toy, root)


def make_verified(root: Path) -> Proved:
    """Make the toy's plain patch and prove it; this runs the checks for real."""
    toy = Toy(root / "toy")
    toy.put_patch()
    toy.put_queue(["area"])
    return verify(toy, root)


def verify(toy: Toy, root: Path) -> Proved:
    """Prove the toy's patch `area`, with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(root / "cache"))
        patch.setenv("HOME", str(root))
        ran = Program(toy.queue)("verify", "area")
        assert ran.code == 0, ran.err
    stated = toy.queue / "patches/area/patch.toml"
    [record] = (toy.queue / "evidence/area").glob("*.json")
    stated.write_text(stated.read_text().replace("RECORD", record.name))
    return Proved(toy, root / "cache")


@dataclass(kw_only=True)
class Table(Place):
    """A person with a proved patch, and another who works on the same upstream."""

    other: User

    def gate(self, *, now: datetime = NOW) -> Gate:
        with self.connect() as client:
            return judge(self.queue, "area", client, now=now)

    def row(self, rule: str, gate: Gate | None = None) -> Row:
        return next(row for row in (gate or self.gate()).rows if row.rule == rule)

    def offline(self, rule: str) -> Row:
        return self.row(rule, judge(self.queue, "area", None))

    def asked(self) -> int:
        return len(self.requests(self.gate))

    def pull(
        self, branch: str, files: dict[str, str], *, title: str = "Other work", body: str = "",
        user: User | None = None,
    ) -> Pull:  # fmt: skip
        """Let somebody, by default the other person, open a pull request from their fork."""
        who = user or self.other
        fork = self.github.repository(f"{who.login}/toy")
        fork = fork or self.github.fork(self.upstream, who)
        content: dict[str, bytes | None] = {path: text.encode() for path, text in files.items()}
        self.github.commit(fork, branch, content, f"{title}\n", who=who)
        return self.github.pull(self.upstream, fork, branch, title=title, body=body, user=who)

    def publish(self) -> Pull:
        """Let the patch have its pull request, as open-pr leaves it in the journal."""
        changes = {path: str(text) for path, text in CHANGES.items()}
        pull = self.pull("contribbot/area", changes, user=self.me)
        self.note_write("branch", head=pull.head_sha, base="0" * 40)
        self.note("draft", number=pull.number)
        return pull

    def env(self) -> dict[str, str]:
        return {**super().env(), "GIT_CONFIG_GLOBAL": str(self.toy.queue.parent / "gitconfig")}

    @property
    def attestation(self) -> Path:
        return attestation_file(self.queue, "area")

    def body(self) -> Body:
        return make_body(self.queue, "area")

    def attest(self) -> Attestation:
        """Attest the patch, without a terminal; the gate asks GitHub."""
        now = datetime.now(UTC).replace(microsecond=0)
        shown = prepare(self.queue, "area", self.gate(now=now))
        typed = iter(ANSWERS)
        answers = ask_all(shown.questions, lambda _: next(typed))
        person = Attester(name="Ada Example", email="ada@example.com")
        assert conclude(self.queue, shown, answers, person) == self.attestation
        return read(self.queue, "area")

    def run(self, *args: str, **env: str) -> Ran:
        return Program(self.toy.queue, {**self.env(), **env})(*args)


def close(pull: Pull) -> None:
    pull.issue.state, pull.issue.closed_at = "closed", pull.issue.created_at


def make_table(toy: Toy, github: GitHub) -> Table:
    """Put the toy upstream on the local GitHub, with an issue and two people."""
    upstream = github.add_repository("example/toy", toy.upstream)
    me, other = github.add_user("ada"), github.add_user("bob")
    template = b"## What\n\n## Shown\n\n- [ ] Tests\n- [ ] AI\n- [ ] Lint\n"
    github.commit(upstream, "main", {LIVE: template}, "Add a template\n")
    table = Table(toy, github, upstream, me, other=other)
    github.add_issue(upstream, other, "Areas are sums", None)
    (toy.queue.parent / "gitconfig").write_text(
        "[user]\n\tname = Ada Example\n\temail = ada@example.com\n"
    )
    return table
