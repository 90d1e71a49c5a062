"""What contribbot asks of GitHub Actions: the surface, and the client behind it.

What may be raised is what `protocol` says. `repository` is always `owner/name`, `workflow`
the name of a file in `.github/workflows/`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar

from pydantic import TypeAdapter

from contribbot.errors import RefusedError
from contribbot.github.base import ONCE, REPEATED, Part
from contribbot.github.caller import part, slug
from contribbot.github.storage import fetch
from contribbot.model.actions import Artifact, Run, RunJob
from contribbot.model.github import Fetched, Said

T = TypeVar("T")
log: Final = logging.getLogger(__name__)

#: Pages of 100 runs that are looked through for one.
_PAGES_OF_RUNS: Final = 3
_CONFLICT: Final = 409


class _Runs(Said):
    workflow_runs: tuple[Run, ...]


class _Jobs(Said):
    jobs: tuple[RunJob, ...]


class _Artifacts(Said):
    artifacts: tuple[Artifact, ...]


class Actions(Protocol):
    """What is asked of GitHub Actions."""

    def dispatch(
        self, repository: str, workflow: str, *, ref: str, inputs: Mapping[str, str]
    ) -> None:
        """Start a run. GitHub does not say which: find it by what its inputs put in its name."""
        ...

    def runs(self, repository: str, workflow: str, *, branch: str) -> tuple[Run, ...]:
        """Return the newest runs of a workflow that somebody dispatched on a branch or tag."""
        ...

    def run(self, repository: str, run_id: int) -> Fetched[Run]:
        """Return a run."""
        ...

    def jobs(self, repository: str, run_id: int) -> Fetched[tuple[RunJob, ...]]:
        """Return the jobs of a run, each as it ran last."""
        ...

    def artifacts(self, repository: str, run_id: int) -> tuple[Artifact, ...]:
        """Return the artifacts of a run, of all its attempts."""
        ...

    def download(self, repository: str, artifact: Artifact, place: Path, *, most: int) -> str:
        """Fetch the zip of an artifact, and return the SHA-256 of what came."""
        ...

    def cancel(self, repository: str, run_id: int) -> bool:
        """Ask for a run's end; return whether there was something to end."""
        ...


def _attempt(job: RunJob) -> int:
    return job.run_attempt


class ActionsClient(Part):
    """`Actions` on a server."""

    def dispatch(
        self, repository: str, workflow: str, *, ref: str, inputs: Mapping[str, str]
    ) -> None:
        """See `Actions`."""
        path = f"{slug(repository)}/actions/workflows/{part(workflow)}/dispatches"
        self._caller.send("POST", path, {"ref": ref, "inputs": dict(inputs)}, ONCE)

    def runs(self, repository: str, workflow: str, *, branch: str) -> tuple[Run, ...]:
        """See `Actions`."""
        path = f"{slug(repository)}/actions/workflows/{part(workflow)}/runs"
        query = {"branch": branch, "event": "workflow_dispatch"}
        found: list[Run] = []
        pages = self._caller.pages(path, query, conditional=True)
        for number, page in enumerate(pages, start=1):
            found += self._caller.read(page, TypeAdapter(_Runs)).workflow_runs
            if number == _PAGES_OF_RUNS:
                break
        return tuple(found)

    def run(self, repository: str, run_id: int) -> Fetched[Run]:
        """See `Actions`."""
        answer = self._caller.get(f"{slug(repository)}/actions/runs/{run_id}", conditional=True)
        return Fetched(self._caller.read(answer, TypeAdapter(Run)), not answer.unchanged)

    def jobs(self, repository: str, run_id: int) -> Fetched[tuple[RunJob, ...]]:
        """See `Actions`."""
        path = f"{slug(repository)}/actions/runs/{run_id}/jobs"
        # Whether `latest` also lists what a later attempt did not run again is not documented.
        query = {"filter": "all"}
        every = self._fetch_pages(TypeAdapter(_Jobs), lambda page: page.jobs, path, query)
        last = {job.name: job.run_attempt for job in sorted(every.value, key=_attempt)}
        jobs = tuple(job for job in every.value if job.run_attempt == last[job.name])
        return Fetched(jobs, every.changed)

    def artifacts(self, repository: str, run_id: int) -> tuple[Artifact, ...]:
        """See `Actions`."""
        path = f"{slug(repository)}/actions/runs/{run_id}/artifacts"
        return self._fetch_pages(TypeAdapter(_Artifacts), lambda page: page.artifacts, path).value

    def download(self, repository: str, artifact: Artifact, place: Path, *, most: int) -> str:
        """See `Actions`."""
        path = f"{slug(repository)}/actions/artifacts/{artifact.id}/zip"
        return fetch(
            lambda: self._caller.location(path),
            place,
            most=most,
            server=self._caller.server,
            waits=self._caller.waits,
        )

    def cancel(self, repository: str, run_id: int) -> bool:
        """See `Actions`."""
        path = f"{slug(repository)}/actions/runs/{run_id}/cancel"
        try:
            self._caller.send("POST", path, None, REPEATED)
        except RefusedError as error:
            if error.status != _CONFLICT:
                raise
            log.debug("run %d has ended by itself: %s", run_id, error)
            return False
        return True
