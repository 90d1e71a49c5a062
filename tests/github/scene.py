"""An upstream, a fork, a pull request, and clients to look at them with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2
from pydantic import JsonValue

from tests.github.faults import Faults
from tests.github.handle import GitHub
from tests.github.state import Pull, Repository, User

LINES = [f"line {number}\n" for number in range(1, 41)]


def text(changes: Mapping[int, str] | None = None) -> bytes:
    """Return the file, with some lines replaced (an empty text deletes one)."""
    lines = [(changes or {}).get(number, line) for number, line in enumerate(LINES, 1)]
    return "".join(lines).encode()


@dataclass
class Scene:
    """`upstream/project`, forked by `author`, read by `reviewer`; all is validated."""

    github: GitHub
    upstream: Repository
    fork: Repository
    author: User
    reviewer: User
    pull: Pull
    faults: Faults = field(default_factory=Faults)

    @property
    def api(self) -> str:
        """The path of the upstream."""
        return f"/repos/{self.upstream.full_name}"

    @property
    def here(self) -> str:
        """The path of the pull request."""
        return f"{self.api}/pulls/{self.pull.number}"

    @property
    def issue(self) -> str:
        """The path of the pull request as an issue."""
        return f"{self.api}/issues/{self.pull.number}"

    def ask(
        self, method: str, path: str, body: JsonValue = None, *, who: User | None = None,
        headers: Mapping[str, str] | None = None, query: Mapping[str, str] | None = None,
        timeout: float = 20.0,
    ) -> httpx2.Response:  # fmt: skip
        """Send a request as the author, or as somebody else."""
        given = {
            "Authorization": f"Bearer {(who or self.author).tokens[0].text}",
            "User-Agent": "scene",
            **(headers or {}),
        }
        with httpx2.Client(base_url=self.github.base, timeout=timeout, trust_env=False) as client:
            return client.request(method, path, json=body, headers=given, params=query)

    def json(
        self, method: str, path: str, body: JsonValue = None, *, who: User | None = None,
        **query: str,
    ) -> JsonValue:  # fmt: skip
        """Send a request that is to succeed, and return what came."""
        answer = self.ask(method, path, body, who=who, query=query)
        assert answer.is_success, answer.text
        value: JsonValue = answer.json()
        return value

    def push(self, changes: Mapping[int, str]) -> str:
        """Push a commit to the pull request's branch."""
        return self.github.commit(self.fork, "fix", {"file.txt": text(changes)}, "More\n")


def make_scene(github: GitHub) -> Scene:
    """Make it."""
    author, reviewer = github.add_user("author"), github.add_user("reviewer")
    upstream = github.add_repository("upstream/project", members={"reviewer": "write"})
    github.commit(upstream, "main", {"file.txt": text(), "other.txt": b"other\n"}, "First\n")
    fork = github.fork(upstream, author)
    github.commit(fork, "fix", {"file.txt": text({10: "ten\n", 30: "thirty\n"})}, "Fix\n")
    pull = github.pull(upstream, fork, "fix", title="Fix `scale` in fused_moe", body="Fixes #7")
    scene = Scene(github, upstream, fork, author, reviewer, pull)
    github.hooks.append(scene.faults)
    return scene
