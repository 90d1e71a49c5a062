"""Workflow runs, their jobs and artifacts.

A run does nothing by itself: a test says what its jobs do, as runners would.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from tests.github.state import Repository, State, User


@dataclass(eq=False)
class Artifact:
    """A file that a job uploaded; `stored` are the bytes that the storage gives out."""

    id: int
    name: str
    stored: bytes
    created_at: str
    expired: bool = False


@dataclass(eq=False)
class RunJob:
    id: int
    name: str
    created_at: str
    status: str = "queued"
    conclusion: str | None = None
    started_at: str = ""
    completed_at: str | None = None
    runner: str | None = None
    labels: tuple[str, ...] = ("ubuntu-24.04",)
    attempt: int = 1


@dataclass(eq=False)
class Run:
    id: int
    repository: Repository
    path: str
    head_branch: str
    head_sha: str
    event: str
    title: str
    actor: User
    created_at: str
    status: str = "queued"
    conclusion: str | None = None
    attempt: int = 1
    head_repository: Repository | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    jobs: list[RunJob] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)


def add_run(
    state: State, repository: Repository, name: str, ref: str, *, event: str, actor: User,
    title: str = "contribbot verify",
) -> Run:  # fmt: skip
    """Start a run of a workflow of a branch, as the workflow's event would."""
    sha = repository.git.tip(ref)
    now = state.clock.now()
    run = Run(
        id=state.next_id(), repository=repository, path=f".github/workflows/{name}",
        head_branch=ref, head_sha=sha, event=event, title=title, actor=actor, created_at=now,
        head_repository=repository,
    )  # fmt: skip
    repository.runs[run.id] = run
    return run


def add_job(state: State, run: Run, name: str) -> RunJob:
    """Add a job that waits for a runner."""
    now = state.clock.now()
    job = RunJob(state.next_id(), name, now, started_at=now, attempt=run.attempt)
    run.jobs.append(job)
    return job


def end_job(state: State, job: RunJob, conclusion: str, *, seconds: int = 60) -> None:
    """Let a job have run for so long, and end."""
    start = dt.datetime.fromisoformat(job.started_at)
    end = start + dt.timedelta(seconds=seconds)
    job.status, job.conclusion = "completed", conclusion
    job.runner = job.runner or "runner-1"
    job.completed_at = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    state.clock.time = max(state.clock.time, end)


def upload(state: State, run: Run, name: str, content: bytes) -> Artifact:
    """Add an artifact, as a job's last step does."""
    run.artifacts.append(Artifact(state.next_id(), name, content, state.clock.now()))
    return run.artifacts[-1]
