"""What is asked of GitHub Actions, as checked values: what a run holds may be anybody's."""

from __future__ import annotations

import hashlib
import itertools
import logging
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import ValidationError

from contribbot.errors import GitHubError, RefusedError
from contribbot.github.fields import whole
from contribbot.model.actions import Artifact, Run, RunJob
from contribbot.model.base import Model

if TYPE_CHECKING:
    from github.GithubObject import GithubObject

    from contribbot.github.client import GitHub

M = TypeVar("M", bound=Model)
log: Final = logging.getLogger(__name__)

#: Runs that are looked through for one.
_RUNS: Final = 300


def runs(github: GitHub, repository: str, workflow: str, *, branch: str) -> tuple[Run, ...]:
    """Return the newest runs of a workflow that somebody dispatched on a branch or tag."""
    listed = github.workflow(repository, workflow).get_runs(
        branch=branch, event="workflow_dispatch"
    )
    return tuple(_read(Run, one) for one in whole(itertools.islice(listed, _RUNS)))


def run(github: GitHub, repository: str, run_id: int) -> Run:
    """Return a run."""
    return _read(Run, github.run(repository, run_id))


def jobs(github: GitHub, repository: str, run_id: int) -> tuple[RunJob, ...]:
    """Return the jobs of a run, each as it ran last."""
    # Whether `latest` also lists what a later attempt did not run again is not documented.
    listed = whole(github.run(repository, run_id).jobs("all"))
    found = [_read(RunJob, one) for one in listed]
    last = {job.name: job.run_attempt for job in sorted(found, key=lambda job: job.run_attempt)}
    return tuple(job for job in found if job.run_attempt == last[job.name])


def artifacts(github: GitHub, repository: str, run_id: int) -> tuple[Artifact, ...]:
    """Return the artifacts of a run, of all its attempts."""
    return tuple(_read(Artifact, one) for one in github.run(repository, run_id).get_artifacts())


def download(github: GitHub, repository: str, artifact: Artifact, place: Path, *, most: int) -> str:
    """Fetch the zip of an artifact, and return the SHA-256 of what came."""
    from contribbot.github.download import fetch  # noqa: PLC0415  start-up time

    path = f"{github.repository(repository).url}/actions/artifacts/{artifact.id}/zip"
    content = fetch(github.requester, path, most=most)
    place.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def cancel(github: GitHub, repository: str, run_id: int) -> bool:
    """Ask for a run's end; return whether there was something to end."""
    try:
        return github.run(repository, run_id).cancel()
    except RefusedError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        log.debug("run %d has ended by itself: %s", run_id, error)
        return False


def _read(kind: type[M], said: GithubObject) -> M:
    """Return an answer as what it should be."""
    try:
        return kind.model_validate(said.raw_data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    raise GitHubError(f"{kind.__name__} of GitHub Actions: an answer of another shape at {key}")
