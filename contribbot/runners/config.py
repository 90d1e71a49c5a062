"""Reading `runners.toml`."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from contribbot import process
from contribbot.errors import CommandError, NotFoundError, QueueError, UsageError
from contribbot.git.repository import git_environment
from contribbot.github.auth import Server, find_server
from contribbot.queue.load import Queue, read_model
from contribbot.runners.model import HOSTED, RUNNERS_FILE, Run, Runners

if TYPE_CHECKING:
    from contribbot.github.client import GitHub


#: Where jobs that have a token run, and all others of a queue without hosted runners.
GITHUBS_OWN: Final = "ubuntu-24.04"
#: Linux releases whose runners GitHub keeps: those of even years with long support. 20.04 and
#: older are retired. Larger runners have names that their organisation gives them.
_RELEASE: Final = re.compile(r"ubuntu-(\d{2})\.(\d{2})(?:-arm)?", re.IGNORECASE)
_OLDEST: Final = 22


@dataclass(frozen=True)
class Fleet:
    """The runners of a queue."""

    path: Path
    runners: Runners
    sha256: str


def load_fleet(folder: Path, *, needed: bool = True) -> Fleet:
    """Read the runners of a queue; where there is no such file, and none is needed: no runners."""
    path = folder / RUNNERS_FILE
    if not needed and not (path.exists() or path.is_symlink()):
        return Fleet(path, Runners(), hashlib.sha256(b"").hexdigest())
    if not path.is_file():
        what = "not a file" if path.exists() or path.is_symlink() else "no such file"
        raise QueueError(
            f"{path}: {what}, and nothing else says which runners there are",
            hint="describe them as docs/runners.md shows",
        )
    try:
        runners = read_model(path, Runners)
    except QueueError as error:
        hint = "correct the file; docs/runners.md lists every key"
        raise QueueError(error.message, hint=hint) from error
    if not runners.runners and runners.hosted is None:
        raise QueueError(
            f"{path}: it names no runners", hint="add a [[runners]] or a [hosted] table"
        )
    _check_labels(path, runners)
    return Fleet(path, runners, hashlib.sha256(path.read_bytes()).hexdigest())


def _check_labels(path: Path, runners: Runners) -> None:
    """Refuse a label of GitHub's that no runner with Linux has: its jobs would wait for a day."""
    named = [(f"runners[{number}]", one.labels) for number, one in enumerate(runners.runners)]
    if runners.hosted is not None:
        named.append((HOSTED, runners.hosted.labels))
    for where, labels in named:
        for label in labels:
            if not _has_runner(label):
                own = f"one of GitHub's, such as {GITHUBS_OWN}, or of your own"
                raise QueueError(
                    f"{path}: {where}.labels: {label} is a label that no runner with Linux has",
                    hint=f"name {own if where == HOSTED else 'one of your own'}",
                )


def _has_runner(label: str) -> bool:
    release = _RELEASE.fullmatch(label)
    if release:
        year, month = int(release[1]), release[2]
        return year >= _OLDEST and year % 2 == 0 and month == "04"
    return not re.match(r"(?:windows|macos)(?:-|$)", label, re.IGNORECASE)


def restricted(fleet: Fleet, wanted: Sequence[str]) -> Runners:
    """Return the runners of a fleet that a user means."""
    runners = fleet.runners
    if not wanted:
        return runners
    names = {one.name.casefold(): {one.target, *(label.casefold() for label in one.labels)}
             for one in runners.runners}  # fmt: skip
    if runners.hosted is not None:
        names[HOSTED] = {label.casefold() for label in runners.hosted.labels}
    meant: set[str] = set()
    for item in wanted:
        word = item.casefold()
        found = {name for name, labels in names.items() if word == name or word in labels}
        if not found:
            known = sorted({*names, *(label for labels in names.values() for label in labels)})
            close = difflib.get_close_matches(word, known, n=1)
            raise UsageError(
                f"--on {item}: no set of {fleet.path} has this name, target or label"
                + (f" (did you mean {close[0]}?)" if close else ""),
                hint=f"it has {', '.join(names)}",
            )
        meant |= found
    return Runners(
        runners=tuple(one for one in runners.runners if one.name.casefold() in meant),
        hosted=runners.hosted if HOSTED in meant else None,
    )


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
