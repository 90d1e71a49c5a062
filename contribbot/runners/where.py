"""Which repository on GitHub a queue is, which runs prove it, and which commit is here."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from contribbot import process
from contribbot.errors import CommandError, NotFoundError, UsageError
from contribbot.git.repository import git_environment
from contribbot.github.auth import Server, find_server
from contribbot.model.actions import Run
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

#: The workflow that proves the queue.
WORKFLOW: Final = "verify.yml"
#: What of a queue a run goes by.
_CONTENT: Final = (".github", "evidence", "patches", "runners.toml", "upstreams")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
#: `git@HOST:owner/name`, as git writes SSH.
_SCP: Final = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!//)(.*)")


def repository_of(
    folder: Path, given: str, server: Server, environment: Mapping[str, str] = os.environ
) -> str:
    """Return the repository that a queue is: what is given, what Actions says, or `origin`."""
    hint = "name it: --repo OWNER/NAME"
    said = given or environment.get("GITHUB_REPOSITORY", "")
    if said:
        if not _NAME.fullmatch(said):
            raise UsageError(f"{said}: not a repository, owner/name", hint=hint)
        return said
    remote = _git(folder, "remote", "get-url", "origin")
    if not remote:
        raise UsageError(f"{folder}: its git repository has no remote origin", hint=hint)
    host, path = _parted(remote)
    name = path.strip("/").removesuffix(".git")
    if host.casefold() != server.host.casefold() or not _NAME.fullmatch(name):
        raise UsageError(
            f"{folder}: its remote origin is no repository at {server.host}", hint=hint
        )
    return name


@contextlib.contextmanager
def connected(queue: Queue, given: str) -> Iterator[tuple[GitHub, str]]:
    """Give GitHub and the name of a queue's repository there; a wrong name is told first."""
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time

    server = find_server()
    name = repository_of(queue.folder, given, server)
    with connect(queue.local / "github", server=server) as github:
        yield github, name


def check_workflow(run: Run) -> None:
    """Refuse a run of another workflow than the one that proves the queue."""
    path = run.path.partition("@")[0]
    if path != f".github/workflows/{WORKFLOW}":
        raise UsageError(
            f"run {run.id} is one of {path!a}, not of {WORKFLOW}",
            hint=f"name a run of {WORKFLOW}: its number is in the address of its page",
        )


def no_run(repository: str, run_id: int) -> NotFoundError:
    """Return what a user is told whose run cannot be found."""
    return NotFoundError(
        f"run {run_id} of {repository}: there is none (any more)",
        hint="it was deleted, or the token may not see it (it needs to read actions)",
    )


def commit_of(folder: Path) -> str:
    """Return the commit that a queue's work tree is at; empty where it is in no repository."""
    return _git(folder, "rev-parse", "--verify", "HEAD")


def uncommitted(folder: Path) -> tuple[str, ...]:
    """Return the files that a run goes by and that differ here from the queue's commit."""
    told = _git(folder, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames",
                "--", *_CONTENT)  # fmt: skip
    # Each is two letters, which may be spaces, and a path.
    return tuple(sorted(entry.split(maxsplit=1)[1] for entry in told.split("\0") if entry))


def _parted(remote: str) -> tuple[str, str]:
    """Return host and path of a remote."""
    found = _SCP.fullmatch(remote)
    if found and "://" not in remote:
        return found[1], found[2]
    try:
        parts = urlsplit(remote)
        port = f":{parts.port}" if parts.port and parts.scheme.startswith("http") else ""
    except ValueError:
        return "", ""
    return f"{parts.hostname or ''}{port}", parts.path


def _git(folder: Path, *args: str) -> str:
    """Ask the git repository around a folder; nothing where there is none, or no answer."""
    # A checkout of a job belongs to another user than the one inside its container.
    trusted = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
               "GIT_CONFIG_VALUE_0": "*"}  # fmt: skip
    try:
        done = process.run(
            ["git", "-C", folder.absolute(), *args], env=git_environment(trusted),
            accept=(0, 1, 2, 128), timeout=20.0,
        )  # fmt: skip
    except CommandError:
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""
