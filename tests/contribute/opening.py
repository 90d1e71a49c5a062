"""Opening pull requests on the local GitHub, with `git am` to compare with."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pytest

from contribbot.contribute import open_pr
from contribbot.contribute.model import Body, RecordRef
from contribbot.contribute.open_pr import Opened, OpenOptions, open_all
from contribbot.errors import OpeningError
from contribbot.github.client import GitHub as Client
from contribbot.queue.load import Queue
from tests.contribute.place import WRITES, Place
from tests.github.faults import Fault
from tests.github.handle import GitHub
from tests.github.wire import Request
from tests.toy import FIXED, Toy, git


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
            [sys.executable, "-m", "tests.contribute.opening_child", str(self.toy.queue),
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
        toy.put_patch()
        toy.put_queue(["area"])
    git(toy.queue, "init", "-q")
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
