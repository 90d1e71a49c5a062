"""Our own client on the local GitHub, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from contribbot.github.auth import Secret, Token, find_server
from contribbot.github.client import GitHub as Client
from contribbot.github.client import connect
from contribbot.github.waits import Waits
from tests.github.handle import GitHub


@dataclass
class Patience:
    """Waits that take no time, and what they were."""

    slept: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def waits(self, longest: float = 900.0, attempts: int = 3, first: float = 1.0) -> Waits:
        return Waits(
            self.said.append, self.slept.append, longest, attempts, first, 0,
            clock=lambda: sum(self.slept),
        )  # fmt: skip


@contextlib.contextmanager
def client(
    github: GitHub | str, token: str, *, cache: Path | None = None, waits: Waits | None = None,
    dry_run: bool = False,
) -> Iterator[Client]:  # fmt: skip
    base = github if isinstance(github, str) else github.base
    with connect(
        cache, server=find_server({"GITHUB_API_URL": base}), dry_run=dry_run,
        token=Token(Secret(token), "GITHUB_TOKEN"), waits=waits or Patience().waits(),
    ) as ours:  # fmt: skip
        yield ours
