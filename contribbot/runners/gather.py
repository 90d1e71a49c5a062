"""What `contribbot collect` does, without a command line."""

from __future__ import annotations

import functools
from pathlib import Path

from contribbot.errors import UsageError
from contribbot.files import run_folder
from contribbot.model.actions import Again, Collected
from contribbot.queue.load import Queue
from contribbot.runners.attested import attested
from contribbot.runners.collecting import collect, second_tries
from contribbot.runners.fetching import Attest, Haul, Origin, from_github
from contribbot.runners.folders import from_folder
from contribbot.runners.where import connected


def gather(
    queue: Queue, run_id: int | None, *, folder: Path | None = None, repository: str = ""
) -> Collected:
    """Fetch what a run left, judge it, and take into the queue what is good."""
    with run_folder() as scratch:
        if run_id is not None:
            haul = _fetched(queue, run_id, folder, repository, scratch)
        elif folder is not None:
            haul = from_folder(folder, scratch=scratch)
        else:
            raise UsageError("neither a run nor a folder", hint="name one")
        return collect(queue, haul, scratch=scratch / "records")


def gather_again(
    queue: Queue, run_id: int | None, *, folder: Path | None = None, repository: str = ""
) -> Again:
    """Fetch what a run has left so far, and say what is to be tried again; write nothing."""
    if run_id is None:
        raise UsageError(
            "--again without a run: GitHub says how its jobs ended", hint="name the run's number"
        )
    with run_folder() as scratch:
        # Nothing is attested before all is there.
        haul = _fetched(queue, run_id, folder, repository, scratch, attest=lambda *_: "")
        return second_tries(queue, haul, scratch=scratch / "records")


def _fetched(
    queue: Queue,
    run_id: int,
    folder: Path | None,
    repository: str,
    scratch: Path,
    *,
    attest: Attest | None = None,
) -> Haul:
    """Return what a run left."""
    with connected(queue, repository) as (github, name):
        asked = functools.partial(attested, repository=name, server=github.server)
        origin = Origin(
            github=github,
            repository=name,
            scratch=scratch,
            attest=attest or asked,
            folder=folder,
        )
        return from_github(origin, run_id)
