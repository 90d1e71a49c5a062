"""What `contribbot dispatch` does, without a command line."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from contribbot import process
from contribbot.github.actions import ActionsClient
from contribbot.github.client import Client, connect
from contribbot.model.actions import Run
from contribbot.queue.load import Queue, select
from contribbot.runners.dispatching import (
    Selection,
    cancel_superseded,
    check_targets,
    request_for,
    start,
)
from contribbot.runners.fetching import Origin
from contribbot.runners.watching import View, watch
from contribbot.runners.where import WORKFLOW, commit_of, repository_of
from contribbot.workspace import run_folder


@dataclass(frozen=True)
class Order:
    """What a user asks for.

    Attributes:
        patches: Names; none: all.
        targets: Targets; none: all.
        ref: The branch; empty: the default branch.
    """

    patches: tuple[str, ...]
    targets: tuple[str, ...]
    ref: str


@dataclass(frozen=True)
class Started:
    """A run that was started.

    Attributes:
        run: The run.
        here: The queue's commit here; empty where it has none.
        ended: Older runs that were ended for it.
    """

    run: Run
    here: str
    ended: tuple[Run, ...]


@dataclass
class Sender:
    """Starts and watches runs of a queue.

    Attributes:
        queue: The queue.
        client: GitHub.
        repository: The queue's repository.
        scratch: A folder.
        sleep: Waits so many seconds.
    """

    queue: Queue
    client: Client
    repository: str
    scratch: Path
    sleep: Callable[[float], None]
    _request: str = field(default="", repr=False)

    def start(self, order: Order) -> Started:
        """Start a run, and end older ones of the same.

        Args:
            order: What to prove.

        Raises:
            UsageError: There is no such patch, target or branch.
            GitHubError: GitHub gives no answer.
        """
        names = select(self.queue, order.patches, everything=not order.patches)
        check_targets(self.queue, names, order.targets)
        ref = order.ref or self.client.repository(self.repository).default_branch
        selection = Selection(ref, tuple(names) if order.patches else (), order.targets)
        actions = ActionsClient(self.client.caller)
        self._request = request_for(selection)
        run = start(actions, self.repository, selection, self._request, sleep=self.sleep)
        ended = cancel_superseded(actions, self.repository, selection, run)
        return Started(run, commit_of(self.queue.folder), ended)

    def watch(self, run_id: int, *, every: float, told: Callable[[View], None]) -> Run:
        """Look on until a run is over; see `watching.watch`."""
        actions = ActionsClient(self.client.caller)
        origin = Origin(actions, self.repository, self.scratch, attest=lambda _: "")
        return watch(origin, run_id, every=every, sleep=self.sleep, told=told)

    def lost(self) -> str:
        """Say where to find a run that may have been started, and was not found yet."""
        if not self._request:
            return "nothing was started"
        page = f"{self.client.server.web}/{self.repository}/actions/workflows/{WORKFLOW}"
        return f"a run named {self._request} may have been started: {page}"


@contextlib.contextmanager
def sending(queue: Queue, repository: str) -> Iterator[Sender]:
    """Give what starts and watches runs of a queue.

    Args:
        queue: The queue.
        repository: Its repository; empty: see `where.repository_of`.

    Raises:
        UsageError: No repository is named.
        TokenError: There is no token.
    """
    with run_folder() as scratch, connect(queue.local / "github") as client:
        name = repository_of(queue.folder, repository, client.server)
        yield Sender(queue, client, name, scratch, _sleep)


def _sleep(seconds: float) -> None:
    """Sleep in short steps, so that this process can still be told to end."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        process.check_stopping()
        time.sleep(min(rest, 0.5))
