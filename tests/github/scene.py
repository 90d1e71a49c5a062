"""An upstream, a fork, a pull request, and people around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.github.faults import Faults
from tests.github.handle import GitHub
from tests.github.state import Pull, Repository, User

LINES = [f"line {number}\n" for number in range(1, 41)]


def text(changes: Mapping[int, str] | None = None) -> bytes:
    """Return the file, with some lines replaced."""
    return "".join((changes or {}).get(at, line) for at, line in enumerate(LINES, 1)).encode()


@dataclass
class Scene:
    """`upstream/project`, forked by `author`, read by `reviewer`."""

    github: GitHub
    upstream: Repository
    fork: Repository
    author: User
    reviewer: User
    pull: Pull
    faults: Faults = field(default_factory=Faults)


def make_scene(github: GitHub) -> Scene:
    author, reviewer = github.add_user("author"), github.add_user("reviewer")
    upstream = github.add_repository("upstream/project", members={"reviewer": "write"})
    github.commit(upstream, "main", {"file.txt": text(), "other.txt": b"other\n"}, "First\n")
    fork = github.fork(upstream, author)
    github.commit(fork, "fix", {"file.txt": text({10: "ten\n", 30: "thirty\n"})}, "Fix\n")
    pull = github.pull(upstream, fork, "fix", title="Fix `scale` in fused_moe", body="Fixes #7")
    scene = Scene(github, upstream, fork, author, reviewer, pull)
    github.hooks.append(scene.faults)
    return scene
