"""GitHub Actions as a queue uses it: its repository there, and the runs, jobs and artifacts."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot import process
from contribbot.errors import CommandError, NotFoundError, RefusedError, UsageError
from contribbot.git.repository import git_environment
from contribbot.github.auth import Server, find_server
from contribbot.github.fields import whole
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.Artifact import Artifact
    from github.WorkflowJob import WorkflowJob
    from github.WorkflowRun import WorkflowRun

    from contribbot.github.client import GitHub

log: Final = logging.getLogger(__name__)

WORKFLOW: Final = "verify.yml"
#: The job of it that collects, and its step that fails where runners alone kept it from all that
#: was planned.
COLLECTOR: Final = "collect"
RUNNERS_STEP: Final = "Runners failed, and no patch did"
#: What an artifact may be at most, in bytes of its zip.
PACKED: Final = 64 * 1024 * 1024
_CONTENT: Final = (".github", "evidence", "patches", "runners.toml", "upstreams")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
#: A remote as git has it: `https://HOST/PATH`, `ssh://git@HOST/PATH`, or `git@HOST:PATH`.
_REMOTE: Final = re.compile(
    r"(?:(?:https?|git)://(?:[^@/]*@)?(?P<web>[^/]+)/|ssh://(?:[^@/]*@)?(?P<ssh>[\w.-]+)(?::\d+)?/"
    r"|(?:[\w.-]+@)?(?P<scp>[\w.-]+):(?!//)/?)(?P<path>.*)"
)


def repository_of(folder: Path, server: Server, environment: Mapping[str, str] = os.environ) -> str:
    """Return the repository that a queue is: what the environment says, or `origin`."""
    hint = "name it: export GITHUB_REPOSITORY=OWNER/NAME"
    if named := environment.get("GITHUB_REPOSITORY", ""):
        if not _NAME.fullmatch(named):
            raise UsageError(f"{named}: not a repository, owner/name", hint=hint)
        return named
    remote = ask_git(folder, "remote", "get-url", "origin")
    if not remote:
        inside = ask_git(folder, "rev-parse", "--git-dir")
        lacks = "its git repository has no remote origin" if inside else "in no git repository"
        raise UsageError(f"{folder}: {lacks}", hint=hint)
    parts = _REMOTE.fullmatch(remote)
    host = parts["web"] or parts["ssh"] or parts["scp"] if parts else ""
    name = parts["path"].strip("/").removesuffix(".git") if parts else ""
    if host.casefold() != server.host.casefold() or not _NAME.fullmatch(name):
        raise UsageError(
            f"{folder}: its remote origin is no repository at {server.host}", hint=hint
        )
    return name


@contextlib.contextmanager
def connected(queue: Queue) -> Iterator[tuple[GitHub, str]]:
    """Give GitHub and the name of a queue's repository there."""
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time

    server = find_server()
    # Before a token is looked for.
    name = repository_of(queue.folder, server)
    with connect(queue.local / "github", server=server) as github:
        yield github, name


def commit_of(folder: Path) -> str:
    """Return the commit that a queue's work tree is at; empty where it is in no repository."""
    return ask_git(folder, "rev-parse", "--verify", "HEAD")


def uncommitted(folder: Path) -> tuple[str, ...]:
    """Return the files that a run goes by and that differ here from the queue's commit."""
    status = ask_git(folder, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames",
                  "--", *_CONTENT)  # fmt: skip
    # Each is two letters, which may be spaces, and a path.
    return tuple(sorted(entry.split(maxsplit=1)[1] for entry in status.split("\0") if entry))


def ask_git(folder: Path, *args: str, stdin: bytes = b"") -> str:
    """Ask the git repository around a folder; nothing where there is none, or no answer."""
    # A checkout of a job belongs to another user than the one inside its container.
    trusted = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
               "GIT_CONFIG_VALUE_0": "*"}  # fmt: skip
    try:
        done = process.run(["git", "-C", folder.absolute(), *args], env=git_environment(trusted),
                           stdin=stdin, timeout=20.0)  # fmt: skip
    except CommandError:
        return ""
    return done.stdout.decode("utf-8", "replace").strip()


def is_over(thing: WorkflowRun | WorkflowJob) -> bool:
    """Return whether a run or a job has ended."""
    return thing.status == "completed"


def attempt_of(job: WorkflowJob) -> int:
    """Return which attempt of its run a job is of; the first where GitHub does not say."""
    return job.run_attempt or 1


def steps_of(job: WorkflowJob, *, failed: bool) -> list[str]:
    """Return the names of the steps that failed, or else of those that never ended."""
    words = [(step.name, step.status, step.conclusion) for step in job.steps or ()]
    if failed:
        return [name for name, _, conclusion in words if conclusion == "failure"]
    return [name for name, status, _ in words if status == "in_progress"]


def check_workflow(run: WorkflowRun) -> None:
    """Refuse a run of another workflow than the one that proves the queue."""
    path = run.path.partition("@")[0]
    if path != f".github/workflows/{WORKFLOW}":
        raise UsageError(
            f"run {run.id} is one of {path!a}, not of {WORKFLOW}",
            hint=f"name a run of {WORKFLOW}: its number is in the address of its page",
        )


def read_jobs(github: GitHub, repository: str, run_id: int) -> tuple[WorkflowJob, ...]:
    """Return the jobs of a run, each as it ran last."""
    # Whether `latest` also lists what a later attempt did not run again is not documented.
    jobs = whole(github.run(repository, run_id).jobs("all"))
    last = {job.name: attempt_of(job) for job in sorted(jobs, key=attempt_of)}
    return tuple(job for job in jobs if attempt_of(job) == last[job.name])


def download(github: GitHub, repository: str, artifact: Artifact) -> bytes:
    """Fetch the zip of an artifact."""
    path = f"{github.repository(repository).url}/actions/artifacts/{artifact.id}/zip"
    return github.requester.fetch(path, most=PACKED)


def cancel_run(github: GitHub, repository: str, run_id: int) -> bool:
    """Ask for a run's end; return whether there was something to end."""
    try:
        return github.run(repository, run_id).cancel()
    except RefusedError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        log.debug("run %d has ended by itself: %s", run_id, error)
        return False


def no_run(repository: str, run_id: int) -> NotFoundError:
    """Return what a user is told whose run cannot be found."""
    return NotFoundError(
        f"run {run_id} of {repository}: there is none (any more)",
        hint="it was deleted, or the token may not see it (it needs to read actions)",
    )
