"""The client: `GitHub` on a server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from contribbot.github.caller import Caller
from contribbot.github.git_reads import GitReads
from contribbot.github.limits import Waits
from contribbot.github.pull_reads import PullReads
from contribbot.github.server import Server, find_server
from contribbot.github.token import Token, find_token
from contribbot.github.writes import Writes


class Client(GitReads, PullReads, Writes):
    """`GitHub` on a server."""

    @property
    def caller(self) -> Caller:
        """What speaks to the server."""
        return self._caller

    @property
    def server(self) -> Server:
        """The server."""
        return self._caller.server


@contextlib.contextmanager
def connect(
    cache: Path | None = None,
    *,
    server: Server | None = None,
    token: Token | None = None,
    waits: Waits | None = None,
) -> Iterator[Client]:
    """Give a client; nothing is sent before it is asked for something."""
    server = server or find_server()
    token = token or find_token(server)
    caller = Caller(server, token, waits or Waits(), cache)
    try:
        yield Client(caller)
    finally:
        caller.close()
