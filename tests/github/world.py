"""A small world that tests start from: an upstream made from a real repository, a fork, a pull."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from contribbot.git.repository import git_environment
from tests.github.faults import Faults
from tests.github.handle import GitHub
from tests.github.state import Pull, Repository, User

#: Git's view of a plain file, a program, bytes that are no text, and an odd name.
FILES = {
    "README.md": b"A tool.\n",
    "src/core.py": b"def add(a, b):\n    return a - b\n",
    "src/naïve name.py": "größe = 1\n".encode(),
    "bin/run": b"#!/bin/sh\nexit 0\n",
    "data.bin": bytes(range(256)),
}
FIXED = "def add(a, b):\n    return a + b\n"


def run_git(folder: Path, *args: str) -> str:
    """Run git in a folder as a person would, and return what it printed."""
    who = {f"GIT_{role}_{part}": value
           for role in ("AUTHOR", "COMMITTER")
           for part, value in (("NAME", "Grace"), ("EMAIL", "grace@example.org"))}  # fmt: skip
    done = subprocess.run(
        ["git", *args], cwd=folder, env=git_environment(who), capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def make_source(folder: Path) -> Path:
    """Make an ordinary repository with two commits on main and a tag."""
    folder.mkdir(parents=True)
    run_git(folder, "init", "--quiet", "--initial-branch=main")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "bin/run").chmod(0o755)
    (folder / "link").symlink_to("README.md")
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--message", "first\n\nWith a body.")
    run_git(folder, "tag", "v1")
    (folder / "README.md").write_bytes(b"A tool.\nIt adds.\n")
    run_git(folder, "commit", "--quiet", "--all", "--message", "second")
    return folder


@dataclass
class World:
    """`org/tool` with its maintainer `mia`; `ada` has a fork, `bob` has nothing."""

    github: GitHub
    source: Path
    upstream: Repository
    fork: Repository
    mia: User
    ada: User
    bob: User
    faults: Faults = field(default_factory=Faults)

    @cached_property
    def pull(self) -> Pull:
        """Ada's pull request, opened when it is first asked for."""
        self.change("fix")
        title = "Fix `add` in core"
        return self.github.pull(self.upstream, self.fork, "fix", title=title, body="Fixes #7")

    def tip(self, branch: str = "main", where: Repository | None = None) -> str:
        """Return the commit of a branch, by default upstream's."""
        sha = (where or self.upstream).git.ref(f"refs/heads/{branch}")
        assert sha is not None, branch
        return sha

    def change(self, branch: str, text: str = FIXED) -> str:
        """Push a commit that changes `src/core.py` to ada's fork, from its main if it is new."""
        return self.github.commit(
            self.fork, branch, {"src/core.py": text.encode()}, "Add, as it says\n", who=self.ada
        )


def make_world(github: GitHub, folder: Path) -> World:
    source = make_source(folder)
    mia, ada, bob = (github.add_user(login) for login in ("mia", "ada", "bob"))
    upstream = github.add_repository("org/tool", source, members={"mia": "write"})
    world = World(github, source, upstream, github.fork(upstream, ada), mia, ada, bob)
    github.hooks.append(world.faults)
    return world
