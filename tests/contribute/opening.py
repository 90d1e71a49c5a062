"""A toy upstream on the local GitHub, a queue for it, and `git am` to compare with."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from contribbot.contribute import open_pr
from contribbot.contribute.model import Body, RecordRef
from contribbot.contribute.open_pr import Opened, OpenOptions, open_all
from contribbot.github.auth import Secret, Server, Token
from contribbot.github.client import GitHub as Client
from contribbot.github.client import connect
from contribbot.github.dry_run import Planned, planned
from contribbot.github.waits import Waits
from contribbot.model.history import Event
from contribbot.queue import history
from contribbot.queue.load import Queue, load_queue
from tests.github.faults import Fault, Faults
from tests.github.handle import GitHub
from tests.github.server import Logged
from tests.github.state import Pull, Repository, User
from tests.github.wire import Request
from tests.toy import FIXED, GIT_ENV, Toy, git

#: What changes something on GitHub.
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def written(title: str, text: str, *, patch: str = "area") -> Body:
    """Return a text as a patch's, whatever it says."""
    return Body(
        patch=patch, upstream="toy", repository="example/toy", title=title, template="1", text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(), characters=len(text), budget=10_000,
        records=(RecordRef(label="R1", file="evidence/area/x.json", seal="0" * 64),),
        not_run=(), wants=(), live=(),
    )  # fmt: skip


@dataclass
class Commit:
    """What of a commit must be as in the patch."""

    tree: str
    author: str
    date: str
    message: bytes


@dataclass
class Desk:
    """A person with a queue, and the GitHub that it goes to."""

    toy: Toy
    github: GitHub
    upstream: Repository
    me: User
    faults: Faults = field(default_factory=Faults)
    title: str = "Multiply the sides"
    body: str = "## What\n\nAreas were sums.\n"
    waited: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    attested: list[Body] = field(default_factory=list)

    @property
    def fork(self) -> Repository:
        """The person's fork."""
        found = self.github.state.repository(f"{self.me.login}/toy")
        assert found is not None
        return found

    @property
    def queue(self) -> Queue:
        """The queue, as it is now."""
        return load_queue(self.toy.queue)

    @contextlib.contextmanager
    def client(self, token: str = "", *, dry_run: bool = False) -> Iterator[Client]:
        """Give contribbot's client, as the person."""
        text = token or self.me.tokens[0].text
        with connect(
            self.toy.queue / ".contribbot" / "github",
            server=Server(api=self.github.base, web="https://github.example"),
            token=Token(Secret(text), "the test"),
            waits=Waits(say=self.said.append, sleep=self.waited.append, between_writes=0),
            dry_run=dry_run,
        ) as client:
            yield client

    def text(self, queue: Queue, name: str) -> Body:
        """Return the text of a pull request, attested."""
        del queue
        text = written(self.title if name == "area" else f"Change {name}", self.body, patch=name)
        self.attested.append(text)
        return text

    def open(self, *names: str, client: Client | None = None, **asked: bool) -> list[Opened]:
        """Open pull requests."""
        options = OpenOptions(**asked)
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(open_pr, "attested_text", self.text))
            stack.enter_context(mock.patch.object(open_pr, "sleep", self.waited.append))
            used = client or stack.enter_context(self.client())
            return [*open_all(self.queue, names or ("area",), used, options)]

    def rehearse(self, *names: str, **asked: bool) -> tuple[list[Opened], list[Planned]]:
        """Say what would be done."""
        with self.client(dry_run=True) as client:
            told = self.open(*names, client=client, dry_run=True, **asked)
            return told, list(planned(client.requester))

    def __post_init__(self) -> None:
        self.github.hooks.append(self.faults)

    def change(self, text: str = FIXED + "\n\nUNIT = 1\n") -> None:
        """Change the patch."""
        self.toy.put_patch(patch=self.toy.format_patch({"src/toy/area.py": text}))

    def pulls(self) -> list[Pull]:
        """The upstream's pull requests."""
        return self.upstream.pulls()

    def branch(self, name: str = "contribbot/area") -> str | None:
        """The commit of a branch of the fork."""
        return self.fork.git.ref(f"refs/heads/{name}")

    def events(self, name: str = "area") -> list[Event]:
        """The journal of a patch."""
        return history.read(self.toy.queue, name)

    def requests(self, act: Callable[[], object]) -> list[Logged]:
        """Return the requests that something makes."""
        before = len(self.github.requests)
        act()
        return list(self.github.requests[before:])

    def commits(self, branch: str = "contribbot/area") -> list[Commit]:
        """The commits of a branch of the fork that the upstream does not have."""
        tip = self.upstream.git.ref("refs/heads/main")
        return _commits(self.fork.git.path, f"{tip}..refs/heads/{branch}")

    def am(self, *names: str) -> list[Commit]:
        """Apply the patches to the upstream's branch as a maintainer does."""
        folder = self.toy.root / f"am-{len(list(self.toy.root.iterdir()))}"
        git(self.toy.root, "clone", "-q", str(self.upstream.git.path), str(folder))
        base = git(folder, "rev-parse", "HEAD").decode().strip()
        for name in names or ("area",):
            for file in self.queue.patch(name).files:
                git(folder, "am", "-q", "--keep-cr", "--keep-non-patch", stdin=file.content)
        return _commits(folder / ".git", f"{base}..HEAD")

    def meddle(self, path: str) -> list[str]:
        """Let somebody push to the branch just before a request; return what they push."""
        theirs: list[str] = []

        def push(_faults: Faults, _request: Request) -> None:
            theirs.append(self.github.commit(self.fork, "contribbot/area", {"x": b"1\n"}))

        self.faults.arm(Fault("push", before=push), path=path, method="POST")
        return theirs

    def assert_as_am(self, *names: str, branch: str = "contribbot/area") -> None:
        """The branch has what `git am` makes of the patches."""
        expected = self.am(*names)
        assert expected
        found = self.commits(branch)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == theirs, f"{ours} is not {theirs}"


def _commits(repository: Path, what: str) -> list[Commit]:
    said = subprocess.run(
        ["git", f"--git-dir={repository}", "log", "--reverse", "-z", "--date=raw",
         "--format=%T%n%an <%ae>%n%ad%n%B", what],
        env=GIT_ENV, capture_output=True, check=True,
    ).stdout  # fmt: skip
    found = []
    for one in said.split(b"\0"):
        if one:
            tree, author, date, message = one.split(b"\n", 3)
            found.append(Commit(tree.decode(), author.decode(), date.decode(), message))
    return found


def make_desk(toy: Toy, github: GitHub, *, fork: bool = True) -> Desk:
    """Put the toy upstream on the local GitHub, and a person with a queue beside it."""
    if not any(toy.queue.glob("patches/*/patch.toml")):
        toy.put_patch()
        toy.put_queue(["area"])
    upstream = github.add_repository("example/toy", toy.upstream)
    me = github.add_user("ada")
    if fork:
        github.fork(upstream, me)
    return Desk(toy, github, upstream, me)


def put_series(toy: Toy, name: str, folder: Path, commits: str, *, extra: str = "") -> None:
    """Make commits of a work tree a patch of the queue."""
    toy.put_patch(name, extra=extra, checks="", check_files={})
    place = toy.queue / "patches" / name
    (place / "0001-change.patch").unlink()
    git(
        folder, "format-patch", "-q", "--zero-commit", "--no-signature", "--binary",
        "-o", str(place), commits,
    )  # fmt: skip
