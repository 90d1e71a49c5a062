"""A small world to start from: an upstream, a fork, a pull request, and contribbot's client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from contribbot.github.auth import Secret, Token, find_server
from contribbot.github.client import GitHub as Client
from contribbot.github.client import Waits, connect
from tests.github.faults import Faults
from tests.github.handle import GitHub
from tests.github.state import Pull, Repository, User
from tests.toy import git

FIXED = "def add(a, b):\n    return a + b\n"


def make_source(folder: Path) -> Path:
    """Make an ordinary repository with two commits on main."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    for number, text in enumerate(("A tool.\n", "A tool.\nIt adds.\n")):
        (folder / "README.md").write_text(text)
        (folder / "core.py").write_text("def add(a, b):\n    return a - b\n")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", f"No. {number}")
    return folder


@dataclass
class World:
    """`org/tool` with its maintainer `mia`; `ada` has a fork."""

    github: GitHub
    upstream: Repository
    fork: Repository
    mia: User
    ada: User

    @property
    def faults(self) -> Faults:
        return self.github.faults

    @cached_property
    def pull(self) -> Pull:
        """Ada's pull request, opened when it is first asked for."""
        self.change("fix")
        title = "Fix `add` in core"
        return self.github.pull(self.upstream, self.fork, "fix", title=title, body="Fixes #7")

    def change(self, branch: str, text: str = FIXED) -> str:
        """Push a commit that changes `core.py` to ada's fork, from its main if it is new."""
        return self.github.commit(
            self.fork, branch, {"core.py": text.encode()}, "Add, as it says\n", who=self.ada
        )


def make_world(github: GitHub, folder: Path) -> World:
    mia, ada = (github.add_user(login) for login in ("mia", "ada"))
    upstream = github.add_repository("org/tool", make_source(folder), members={"mia": "write"})
    return World(github, upstream, github.fork(upstream, ada), mia, ada)


@dataclass
class Patience:
    """Makes waits that take no time, and records the pauses."""

    slept: list[float] = field(default_factory=list)

    def waits(self, longest: float = 900.0, attempts: int = 3) -> Waits:
        return Waits(self.slept.append, longest, attempts, 0, lambda: sum(self.slept))


@contextlib.contextmanager
def client(github: GitHub | str, token: str, *, waits: Waits | None = None) -> Iterator[Client]:
    base = github if isinstance(github, str) else github.base
    with connect(
        server=find_server({"GITHUB_API_URL": base}), token=Token(Secret(token), "GITHUB_TOKEN"),
        waits=waits or Patience().waits(),
    ) as ours:  # fmt: skip
        yield ours
