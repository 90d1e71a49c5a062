"""The start of every test of contributions: a person with a queue, and the GitHub for both."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pytest

from contribbot.contribute import open_pr
from contribbot.contribute.attest import ask_all, attestation_file, conclude, prepare, read
from contribbot.contribute.body import make_body
from contribbot.contribute.gate import judge
from contribbot.contribute.model import Attestation, Attester, Body, Gate, RecordRef, Row
from contribbot.contribute.open_pr import Opened, OpenOptions, open_all
from contribbot.errors import OpeningError
from contribbot.github.auth import Secret, Server, Token
from contribbot.github.client import GitHub as Client
from contribbot.github.client import Waits, connect
from contribbot.queue import history
from contribbot.queue.history import DoneEvent, Event, PullRequestEvent
from contribbot.queue.load import Queue, load_queue
from tests.conftest import Program, Ran
from tests.contribute import bodytoy
from tests.contribute.bodytoy import OWN, TEMPLATE
from tests.github.faults import Fault, Faults
from tests.github.handle import GitHub
from tests.github.state import Pull, Repository, User
from tests.github.wire import Request
from tests.toy import AREA, FIXED, Toy, git

#: The methods of requests that change something on GitHub.
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass
class Place:
    """A person with a queue, and the GitHub that it goes to."""

    #: The URL of GitHub's pages; empty: the URL of the API.
    web: ClassVar = ""
    toy: Toy
    github: GitHub
    upstream: Repository
    me: User
    waited: list[float] = field(default_factory=list)
    attempts: int = 3

    @property
    def faults(self) -> Faults:
        return self.github.faults

    @property
    def fork(self) -> Repository:
        known = self.github.repositories.values()
        return next(
            each for each in known if each.parent is self.upstream and each.owner is self.me
        )

    @property
    def queue(self) -> Queue:
        return load_queue(self.toy.queue)

    @property
    def token(self) -> str:
        return self.me.tokens[0].text

    @contextlib.contextmanager
    def connect(self, token: str = "", *, waits: Waits | None = None) -> Iterator[Client]:
        """Yield contribbot's client, with the person's token or another."""
        patient = Waits(self.waited.append, 900.0, self.attempts, 0, lambda: sum(self.waited))
        with connect(
            server=Server(api=self.github.base, web=self.web or self.github.base),
            token=Token(Secret(token or self.token), "a test"),
            waits=waits or patient,
        ) as client:
            yield client

    def env(self) -> dict[str, str]:
        return {"GITHUB_API_URL": self.github.base, "GITHUB_TOKEN": self.token}

    @property
    def program(self) -> Program:
        return Program(self.toy.queue, self.env())

    def pulls(self) -> list[Pull]:
        return self.upstream.pulls()

    def events(self, name: str = "area") -> list[Event]:
        return history.read(self.toy.queue, name)

    def requests(self, act: Callable[[], object]) -> list[Request]:
        before = len(self.github.requests)
        act()
        return list(self.github.requests[before:])

    def push(self, files: dict[str, bytes | None], branch: str = "main") -> str:
        return self.github.commit(self.upstream, branch, files)

    def note(self, state: str, name: str = "area", *, number: int = 1, **facts: str) -> None:
        """Note the state of a pull request, as follow does."""
        known = {"time": history.now(), "summary": state, "state": state, **facts}
        reference = f"{self.upstream.full_name}#{number}"
        event = PullRequestEvent.model_validate({**known, "reference": reference})
        history.append(self.toy.queue, name, event)

    def note_write(self, what: str, name: str = "area", **facts: str) -> None:
        """Note a finished write to the patch's branch, as open-pr does."""
        known = {"time": history.now(), "summary": what, "what": what, "key": "k", **facts}
        known |= {"fork": self.fork.full_name, "branch": f"contribbot/{name}"}
        history.append(self.toy.queue, name, DoneEvent.model_validate(known))


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
CHANGES = {"src/toy/area.py": FIXED, "tests/test_area.py": TEST}
TITLE = "[Bugfix] Multiply the sides"
#: The answers to the questions of `attest`.
ANSWERS = ("yes", "It drafted the change.", "yes")
#: The toy with another function changed, and the same function another way.
BESIDE = {"src/toy/area.py": AREA.replace("base * height / 2", "0.5 * base * height")}
OTHERWISE = {"src/toy/area.py": AREA.replace("width + height", "height * width")}


def put_patch(toy: Toy, changes: dict[str, str]) -> None:
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


def make_proved(root: Path, changes: dict[str, str] | None = None) -> Proved:
    """Return a patch that its gate lets through; this runs the checks for real."""
    toy = Toy(root / "toy")
    put_patch(toy, changes or CHANGES)
    return verify(toy, root)


def make_verified(root: Path) -> Proved:
    """Make the toy's plain patch and prove it; this runs the checks for real."""
    toy = Toy(root / "toy")
    toy.put_area()
    return verify(toy, root)


def verify(toy: Toy, root: Path) -> Proved:
    """Prove the toy's patch `area`, with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(root / "cache"))
        patch.setenv("HOME", str(root))
        Program(toy.queue).ok("verify", "area")
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
        pull = self.pull("contribbot/area", CHANGES, user=self.me)
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


Change = Callable[[Table], object]


def changing(before: str, after: str, path: str = "patches/area/patch.toml") -> Change:
    """Return a change of a text in a file of the queue."""
    return lambda table: edit(table.toy, before, after, path)


def both(*changes: Change) -> Change:
    """Return a change that makes some changes one after the other."""
    return lambda table: [change(table) for change in changes]


def nobody(table: Table) -> None:
    """Let no person stand for the patch."""
    path = table.toy.queue / "patches/area/patch.toml"
    path.write_text(path.read_text().partition("[contribution.person]")[0])


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


def written(title: str, text: str, *, patch: str = "area") -> Body:
    """Return a body with any text, as if the body of a patch."""
    return Body(
        patch=patch, upstream="toy", repository="example/toy", title=title, template="1", text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(), characters=len(text),
        records=(RecordRef(label="R1", file="evidence/area/x.json", seal="0" * 64),),
        overview_words=3, visible_words=3, words=3, closed=(), timed=(), not_run=(),
        minded=(), wants=(),
    )  # fmt: skip


@dataclass
class Desk(Place):
    """A person who opens pull requests with a text that needs no attestation."""

    web: ClassVar = "https://github.example"
    title: str = "Multiply the sides"
    body: str = "## What\n\nAreas were sums.\n"
    attested: list[Body] = field(default_factory=list)

    def text(self, queue: Queue, name: str) -> Body:
        del queue
        text = written(self.title if name == "area" else f"Change {name}", self.body, patch=name)
        self.attested.append(text)
        return text

    def open(self, *names: str, **asked: bool) -> list[Opened]:
        with self.connect() as client:
            return self.open_with(client, *names, **asked)

    def open_with(self, client: Client, *names: str, **asked: bool) -> list[Opened]:
        options = OpenOptions(**asked)
        with mock.patch.object(open_pr, "attested_text", self.text):
            return [*open_all(self.queue, names or ("area",), client, options)]

    def writes(self, **asked: bool) -> list[Request]:
        made = self.requests(lambda: self.open(**asked))
        return [each for each in made if each.method in WRITES]

    def refused(self, match: str, *names: str, **asked: bool) -> OpeningError:
        """Check that `open-pr` refuses before any write, and return the error."""
        before, events = len(self.github.requests), self.events()
        with pytest.raises(OpeningError, match=match) as caught:
            self.open(*names, **asked)
        made = self.github.requests[before:]
        assert not [row for row in made if row.method in WRITES and row.path != "/graphql"]
        assert self.events() == events
        return caught.value

    def by_hand(self) -> None:
        self.github.pull(
            self.upstream, self.fork, "contribbot/area", title=self.title, body=self.body,
            user=self.me,
        )  # fmt: skip

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.contribute.place", str(self.toy.queue),
             self.title, self.body],
            cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, **self.env()},
        )  # fmt: skip

    def change(self, text: str = FIXED + "\n\nUNIT = 1\n") -> None:
        self.toy.put_patch(patch=self.toy.format_patch({"src/toy/area.py": text}))

    def branch(self, name: str = "contribbot/area") -> str | None:
        return self.fork.git.ref(f"refs/heads/{name}")

    def meddle(self, path: str) -> list[str]:
        """Let somebody push to the branch just before a request; return what they push."""
        theirs: list[str] = []

        def push(_: Request) -> None:
            theirs.append(self.github.commit(self.fork, "contribbot/area", {"x": b"1\n"}))

        self.faults.arm(Fault("push", before=push), path=path, method="POST")
        return theirs

    def assert_as_am(self, *names: str, branch: str = "contribbot/area") -> None:
        """The branch has what `git am` makes of the patches on the upstream's branch."""
        folder = self.toy.root / f"am-{len(list(self.toy.root.iterdir()))}"
        git(self.toy.root, "clone", "-q", str(self.upstream.git.path), str(folder))
        tip = git(folder, "rev-parse", "HEAD").decode().strip()
        for name in names or ("area",):
            for file in self.queue.patch(name).files:
                git(folder, "am", "-q", "--keep-cr", "--keep-non-patch", stdin=file.content)
        expected = _commits(folder / ".git", f"{tip}..HEAD")
        assert expected != [b""]
        assert _commits(self.fork.git.path, f"{tip}..refs/heads/{branch}") == expected


def _commits(repository: Path, span: str) -> list[bytes]:
    """Return the tree, author, date and message of each commit."""
    log = ["log", "--reverse", "-z", "--date=raw", "--format=%T%n%an <%ae>%n%ad%n%B", span]
    return git(repository, *log).split(b"\0")


def make_desk(toy: Toy, github: GitHub, *, fork: bool = True) -> Desk:
    """Put the toy upstream on the local GitHub, and a person with a queue beside it."""
    if not any(toy.queue.glob("patches/*/patch.toml")):
        toy.put_area()
    git(toy.queue, "init", "-q")
    upstream = github.add_repository("example/toy", toy.upstream)
    me = github.add_user("ada")
    if fork:
        github.fork(upstream, me)
    return Desk(toy, github, upstream, me)


def main() -> None:
    """Open the pull request of a test in a process of its own, which the test may kill."""
    folder, title, body = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    open_pr.attested_text = lambda *_: written(title, body)
    with connect(waits=Waits(between_writes=0)) as client:
        list(open_all(load_queue(folder), ["area"], client, OpenOptions()))


if __name__ == "__main__":
    main()
