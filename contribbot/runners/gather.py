"""What `contribbot collect` does, without a command line."""

from __future__ import annotations

import functools
from pathlib import Path

from contribbot.errors import UsageError
from contribbot.github.actions import ActionsClient
from contribbot.github.client import connect
from contribbot.model.actions import Collected
from contribbot.queue.load import Queue
from contribbot.runners.attested import attested
from contribbot.runners.collecting import collect
from contribbot.runners.fetching import Origin, from_github
from contribbot.runners.folders import from_folder
from contribbot.runners.where import repository_of
from contribbot.workspace import run_folder


def gather(
    queue: Queue, run_id: int | None, *, folder: Path | None = None, repository: str = ""
) -> Collected:
    """Fetch what a run left, judge it, and take into the queue what is good.

    Args:
        queue: The queue.
        run_id: The run; None: only what `folder` has is looked at.
        folder: Where the artifacts are already; None: they are fetched.
        repository: The queue's repository; empty: see `where.repository_of`.

    Raises:
        UsageError: It is no run of the queue, or the folder has no artifacts.
        GitHubError: GitHub gives no answer, or the run was deleted.
        QueueError: A file of the queue is invalid.
        MachineError: The records cannot be written.
    """
    with run_folder() as scratch:
        records = scratch / "records"
        if run_id is None:
            if folder is None:
                raise UsageError("neither a run nor a folder", hint="name one")
            return collect(queue, from_folder(folder, scratch=scratch), scratch=records)
        with connect(queue.local / "github") as client:
            name = repository_of(queue.folder, repository, client.server)
            origin = Origin(
                actions=ActionsClient(client.caller),
                repository=name,
                scratch=scratch,
                attest=functools.partial(attested, repository=name, server=client.server),
                folder=folder,
            )
            return collect(queue, from_github(origin, run_id), scratch=records)
