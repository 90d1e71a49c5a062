"""Our own client on the local GitHub, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from contribbot.github.auth import Secret, Token, find_server
from contribbot.github.client import GitHub as Client
from contribbot.github.client import Waits, connect
from tests.github.handle import GitHub


@dataclass
class Patience:
    """Waits that take no time, and a record of them."""

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
