"""Bringing home what a run left."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.errors import GitHubError, NotFoundError, RefusedError, UsageError
from contribbot.model.actions import PLAN_ARTIFACT, PREFIX, Artifact, Run, RunJob
from contribbot.runners import actions
from contribbot.runners.answer import Source
from contribbot.runners.artifacts import (
    LIMITS,
    MIB,
    PLAN_FILE,
    RefusedArtifactError,
    open_answer,
    open_plan,
    too_large,
)
from contribbot.runners.attested import is_denied
from contribbot.runners.where import check_workflow, no_run

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

#: Who may start what is collected: never a pull request.
_EVENTS: Final = frozenset({"workflow_dispatch", "schedule", "push"})
_NAME: Final = re.compile(r"contribbot-[a-z0-9][a-z0-9.-]{0,90}")
#: No queue has more jobs than this, and each leaves one artifact; re-runs leave more.
_MOST: Final = 2000
#: The job of the workflow that collects.
COLLECTOR: Final = "collect"
#: Its step that fails where runners alone kept it from all that was planned.
RUNNERS_STEP: Final = "Runners failed, and no patch did"
#: Bytes of all files of all artifacts: they are held in memory.
_MOST_BYTES: Final = 1024 * MIB
#: How far the clocks of GitHub's machines may be apart, and that of a runner from them.
_SLACK: Final = timedelta(minutes=2)
_RUNNERS_SLACK: Final = timedelta(minutes=10)

#: Says what is known of the attestation of a zip, of a run of a commit.
Attest = Callable[[Path, str], str]


@dataclass(frozen=True)
class Arrived:
    """An artifact that came, or why it did not."""

    name: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Digest of its zip; empty: it came in another way.
    sha256: str = ""
    #: Why nothing of it is taken; empty: it is.
    refused: str = ""
    attested: str = ""
    #: Whether it came before its job began, which is of a later attempt.
    early: bool = False


@dataclass(frozen=True)
class Haul:
    """What a run left."""

    #: The run; None where nothing says which.
    source: Source | None
    arrived: tuple[Arrived, ...]
    #: Its jobs by name, as GitHub has them; None: GitHub was not asked.
    jobs: Mapping[str, RunJob] | None = None
    #: Whether only a part of the queue may have been meant.
    selected: bool = True
    #: Whether some job of it is not over.
    running: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Where artifacts are fetched from."""

    github: GitHub
    repository: str
    scratch: Path
    attest: Attest
    #: Where the zips are already; None: they are fetched.
    folder: Path | None = None


def from_github(origin: Origin, run_id: int) -> Haul:
    """Fetch what a run left; each zip must have the digest that GitHub saw when it came."""
    github, repository = origin.github, origin.repository
    try:
        run = actions.run(github, repository, run_id)
    except NotFoundError as error:
        raise no_run(repository, run_id) from error
    _check_run(run, repository)
    jobs = {job.name: job for job in actions.jobs(github, repository, run_id)}
    listed = actions.artifacts(github, repository, run_id)
    if len(listed) > _MOST:
        raise GitHubError(f"run {run_id}: {len(listed)} artifacts; at most {_MOST}")
    if actions.run(github, repository, run_id).run_attempt != run.run_attempt:
        raise GitHubError(
            f"run {run_id} was started again while it was read",
            hint="collect it again when it is over",
        )
    arrived = _arrived(origin, listed, run, jobs)
    others = sorted({one.name for one in listed if not one.name.startswith(PREFIX)})
    notes = [f"left alone, as no job of contribbot names one so: {one!a}" for one in others]
    return Haul(
        source=Source(repository, run_id, run.run_attempt, run.head_sha),
        arrived=arrived,
        jobs=jobs,
        selected=run.event == "workflow_dispatch",
        # The job that collects waits for all others.
        running=not run.over
        and any(not job.over for job in jobs.values() if job.name != COLLECTOR),
        notes=tuple(notes),
    )


def _arrived(
    origin: Origin, listed: Sequence[Artifact], run: Run, jobs: Mapping[str, RunJob]
) -> tuple[Arrived, ...]:
    """Fetch what is contribbot's own, one after the other."""
    # The attest job has signed what it could list; who is left out came later.
    signed = "attest" in jobs and jobs["attest"].conclusion == "success"
    arrived: list[Arrived] = []
    size = 0
    for artifact in _newest(listed, run.run_attempt):
        if not artifact.name.startswith(PREFIX):
            continue
        if problem := _unfit(artifact, run, jobs):
            arrived.append(Arrived(artifact.name, refused=problem))
            continue
        place = origin.scratch / f"{artifact.id}.zip"
        one = _fetch(origin, artifact, place)
        size += sum(map(len, one.files.values()))
        if size > _MOST_BYTES:
            problem = f"with it, the run's artifacts have more than {_MOST_BYTES // MIB:,} MiB"
            size -= sum(map(len, one.files.values()))
            one = Arrived(one.name, sha256=one.sha256, refused=problem)
        if not one.refused:
            said = origin.attest(place, run.head_sha)
            one = replace(_attested(one, said, signed=signed), early=_is_early(artifact, jobs))
        arrived.append(one)
        place.unlink(missing_ok=True)
    return tuple(arrived)


def _check_run(run: Run, repository: str) -> None:
    """Refuse a run that does not prove this queue."""
    check_workflow(run)
    own = {(one or "").casefold() for one in (run.repository, run.head_repository)}
    if run.event not in _EVENTS or own != {repository.casefold()}:
        raise UsageError(
            f"run {run.id} was started by {run.event!a} from "
            f"{run.head_repository or 'a repository that is gone'}, not by this queue",
            hint="only dispatches, pushes and the schedule of the queue's own repository count",
        )


def _newest(listed: Sequence[Artifact], attempts: int) -> list[Artifact]:
    """Leave out what an earlier attempt of the run left under the same name."""
    if attempts == 1:
        return sorted(listed, key=lambda one: one.id)
    return list({one.name: one for one in sorted(listed, key=lambda one: one.id)}.values())


def _unfit(artifact: Artifact, run: Run, jobs: Mapping[str, RunJob]) -> str:
    """Say why an artifact is not even fetched; or nothing."""
    told = (
        (_NAME.fullmatch(artifact.name), "no job of contribbot is called so"),
        (artifact.run_id in {None, run.id}, f"it is of run {artifact.run_id}"),
        (not artifact.expired, "GitHub has let it go: it expired"),
        (artifact.size_in_bytes <= LIMITS.packed, too_large(artifact.size_in_bytes)),
        ((artifact.digest or "").startswith("sha256:"), "GitHub tells no digest of it"),
    )
    return next((problem for holds, problem in told if not holds), "") or _not_of(artifact, jobs)


def _is_early(artifact: Artifact, jobs: Mapping[str, RunJob]) -> bool:
    """Say whether an artifact came before its job began, which was started again."""
    job, came = jobs.get(artifact.name.removeprefix(PREFIX)), artifact.created_at
    if job is None or job.run_attempt == 1 or job.started_at is None or came is None:
        return False
    return came < job.started_at


def _not_of(artifact: Artifact, jobs: Mapping[str, RunJob]) -> str:
    """Say why an artifact is not what its job left: any job can add, and replace, any of them."""
    name = artifact.name.removeprefix(PREFIX)
    if (job := jobs.get(name)) is None:
        return f"no job of the run is called {name}"
    came = artifact.created_at
    slack = _SLACK if artifact.name == PLAN_ARTIFACT else _RUNNERS_SLACK
    if came is None or not job.over:
        return ""
    if job.completed_at is not None and came > job.completed_at + slack:
        return f"it came after job {name} had ended"
    # What an earlier attempt left came before, see `_is_early`.
    if job.run_attempt == 1 and job.started_at is not None and came < job.started_at - slack:
        return f"it came before job {name} had begun"
    return ""


def _fetch(origin: Origin, artifact: Artifact, place: Path) -> Arrived:
    """Fetch one artifact and open it."""
    name, wanted = artifact.name, artifact.digest or ""
    try:
        if origin.folder is None:
            got = actions.download(
                origin.github, origin.repository, artifact, place, most=LIMITS.packed
            )
        else:
            got = copied(origin.folder / f"{name}.zip", place)
    except RefusedArtifactError as error:
        return Arrived(name, refused=str(error))
    except (RefusedError, NotFoundError) as error:
        return Arrived(name, refused=error.message)
    if f"sha256:{got}" != wanted:
        return Arrived(
            name, sha256=got,
            refused=f"what came is not what was sent: GitHub saw {wanted[7:19]}…, "
                    f"this is {got[:12]}…",
        )  # fmt: skip
    return opened(name, place, got)


def copied(path: Path, place: Path) -> str:
    """Copy a zip, and return its SHA-256."""
    if not path.is_file():
        raise RefusedArtifactError(f"{path.name} is not in the folder")
    if path.stat().st_size > LIMITS.packed:
        raise RefusedArtifactError(too_large(path.stat().st_size))
    content = path.read_bytes()
    place.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def opened(name: str, place: Path, sha256: str) -> Arrived:
    """Open a zip."""
    try:
        plan = name == PLAN_ARTIFACT
        files = {PLAN_FILE: open_plan(place)} if plan else open_answer(place)
    except RefusedArtifactError as error:
        return Arrived(name, sha256=sha256, refused=str(error))
    return Arrived(name, files, sha256=sha256)


def _attested(one: Arrived, said: str, *, signed: bool) -> Arrived:
    """Add what is known of its attestation; what is denied where others are signed is refused."""
    if signed and is_denied(said):
        return Arrived(one.name, sha256=one.sha256, attested=said,
                       refused="this run attested its artifacts, and not this one")  # fmt: skip
    return replace(one, attested=said)
