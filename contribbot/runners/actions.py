"""GitHub Actions as a queue uses it: runs, jobs, and artifacts, of which nothing is believed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import re
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from contribbot import process
from contribbot.errors import (
    CommandError,
    CommandTimeoutError,
    GitHubError,
    MachineError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from contribbot.git.repository import git_environment
from contribbot.github.auth import Server, find_server
from contribbot.github.fields import name_of, whole
from contribbot.github.refusals import clean_line
from contribbot.model.evidence import RunOf
from contribbot.queue.load import Queue
from contribbot.runners.documents import AGAIN, PLAN_ARTIFACT, PREFIX, ArtifactEnd, JobDone

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
    with connect(server=server) as github:
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


MIB: Final = 1024 * 1024
#: What a job leaves, beside records and logs that are for people.
JOB_FILE: Final = "job.json"
PLAN_FILE: Final = "plan.json"
_LOGS: Final = "logs.tgz"
#: The record of a patch on a machine. No name that leads elsewhere is one.
_RECORD: Final = re.compile(
    r"records/[a-z0-9][a-z0-9._-]{0,79}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}\.json"
)
#: What an artifact may be at most: files, bytes of one and of all, unpacked.
_FILES: Final = 4096
FILE: Final = 16 * MIB
_UNPACKED: Final = 256 * MIB
#: What begins each entry of a zip's list of files (PKWARE APPNOTE 6.3.10, 4.3.12).
_ENTRY: Final = b"PK\x01\x02"


class RefusedArtifactError(Exception):
    """An artifact that is not what a job of contribbot leaves; says why, in one line."""


def open_zip(content: bytes, *, plan: bool = False) -> dict[str, bytes]:
    """Return what a job left: `job.json` and `records/NAME/MACHINE.json`, or `plan.json` alone."""
    # Before anything makes an object of each.
    if (count := content.count(_ENTRY)) > _FILES:
        raise RefusedArtifactError(f"{count} files; at most {_FILES}")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # Names as they were sent: zipfile cuts its own at a NUL.
            files = [(info.orig_filename, info) for info in archive.infolist() if not info.is_dir()]
            _check_names([(name, info.file_size) for name, info in files], plan=plan)
            # No other is used there, and each has errors of its own.
            if any(
                info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
                for _, info in files
            ):
                raise RefusedArtifactError("not a sound zip: packed in a way that no job uses")
            return {name: archive.read(info) for name, info in files if name != _LOGS}
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise RefusedArtifactError(f"not a sound zip: {error}") from error


def _check_names(files: Sequence[tuple[str, int]], *, plan: bool) -> None:
    """Hold names and sizes of files against the limits: all of them, before any is read."""
    needed, others = (PLAN_FILE, set[str]()) if plan else (JOB_FILE, {_LOGS})
    names = Counter(name.casefold() for name, _ in files)
    for name, size in files:
        shown = ascii(name[:80])
        if name not in {needed, *others} and (plan or not _RECORD.fullmatch(name)):
            raise RefusedArtifactError(f"it has {shown}, which no job leaves")
        if names[name.casefold()] > 1:
            raise RefusedArtifactError(f"it has {shown} twice")
        if size > FILE:
            raise RefusedArtifactError(f"{shown}: {size / MIB:,.0f} MiB; at most {FILE // MIB}")
    if sum(size for _, size in files) > _UNPACKED:
        raise RefusedArtifactError(f"it unpacks to more than {_UNPACKED // MIB} MiB")
    if needed not in names:
        raise RefusedArtifactError(f"it has no {needed}")


def read_done(files: Mapping[str, bytes]) -> JobDone:
    """Read the `job.json` of an artifact."""
    try:
        return JobDone.model_validate_json(files.get(JOB_FILE, b""))
    except ValidationError as error:
        raise RefusedArtifactError(f"{JOB_FILE}: {first_problem(error)}") from error


def first_problem(error: Exception) -> str:
    """Return what is wrong with what was sent, in one line."""
    text = str(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        text = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return text[:300]


VERIFIED: Final = "attestation verified"
NO_PROGRAM: Final = "attestation not verified: gh is not installed"
#: What gh needs to find its login; it alone gets a token, as variables or from its own files.
_NEEDED: Final = (
    "HOME", "USER", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GH_CONFIG_DIR", "GH_TOKEN", "GITHUB_TOKEN",
    "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy",
)  # fmt: skip
_SECONDS: Final = 60.0
#: How gh words that there is none, or one by somebody else; not that it could not ask.
_DENIED: Final = re.compile(
    r"no attestations? found|HTTP 404|verification failed|failed to verify|no matching|"
    r"verifying with issuer|expected \w+ to be", re.IGNORECASE,
)  # fmt: skip


def attested(
    path: Path,
    commit: str,
    *,
    repository: str,
    server: Server,
    environment: Mapping[str, str] = os.environ,
) -> tuple[str, bool]:
    """Ask gh if the queue's workflow attested a file; return words, and whether gh denies it."""
    program = shutil.which("gh", path=environment.get("PATH"))
    if program is None:
        return NO_PROGRAM, False
    if server.local:
        return "attestation not verified: this GitHub has none", False
    kept = {name: environment[name] for name in _NEEDED if environment.get(name)}
    given = {**kept, "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    try:
        done = process.run(
            [
                program, "attestation", "verify", path, "--repo", repository,
                "--signer-workflow", f"{repository}/.github/workflows/{WORKFLOW}",
                "--source-digest", commit, "--hostname", server.host, "--deny-self-hosted-runners",
            ],
            env=process.clean_environment(given), accept=range(256), timeout=_SECONDS,
            tethered=True,
        )  # fmt: skip
    except CommandTimeoutError:
        return f"attestation not verified: gh gave no answer in {_SECONDS:g} s", False
    except MachineError as error:
        return f"attestation not verified: {clean_line(error.message, 120)}", False
    if done.returncode == 0:
        return VERIFIED, False
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["gh says no"]
    line = clean_line(lines[-1], 120)
    return f"attestation not verified: {line}", _DENIED.search(line) is not None


#: Who may start what is collected: never a pull request.
_EVENTS: Final = frozenset({"workflow_dispatch", "schedule", "push"})
_ARTIFACT: Final = re.compile(r"contribbot-[a-z0-9][a-z0-9.-]{0,90}")
#: No queue has more jobs than this, and each leaves one artifact; re-runs leave more.
_MOST: Final = 2000
#: Bytes of all files of all artifacts: they are held in memory.
_MOST_BYTES: Final = 1024 * MIB
#: How far the clocks of GitHub's machines may be apart, and that of a runner from them.
_SLACK: Final = timedelta(minutes=2)
_RUNNERS_SLACK: Final = timedelta(minutes=10)


@dataclass(frozen=True)
class RunDownload:
    """What a run left; `commit` is the queue's."""

    repository: str
    run_id: int
    attempts: int
    commit: str
    artifacts: tuple[ArtifactEnd, ...]
    jobs: Mapping[str, WorkflowJob]
    #: Whether only a part of the queue may have been meant.
    selected: bool
    running: bool
    notes: tuple[str, ...]

    def problem(self, run: RunOf | None, job: str) -> str:
        """Return what is wrong with where something says that it is from; or nothing."""
        if run is None:
            return "it names no run"
        claims = (
            (run.run_id == self.run_id, f"run {run.run_id}, not {self.run_id}"),
            (run.attempt <= self.attempts, f"attempt {run.attempt}, which was not yet"),
            (run.job == job, f"job {run.job}, not {job}"),
            (run.repository.casefold() == self.repository.casefold(),
             f"{run.repository}, not {self.repository}"),
            (run.commit == self.commit, f"commit {run.commit[:12]}, not {self.commit[:12]}"),
        )  # fmt: skip
        return next((f"it is of {problem}" for holds, problem in claims if not holds), "")


def from_github(
    github: GitHub,
    repository: str,
    run_id: int,
    *,
    folder: Path | None = None,
    attest_in: Path | None = None,
) -> RunDownload:
    """Fetch what a run left, or read it from a folder; `attest_in`: where gh is asked."""
    run = _own_run(github, repository, run_id)
    jobs = {job.name: job for job in read_jobs(github, repository, run.id)}
    listed = _listed(github, repository, run)
    notes = [f"left alone, as no job of contribbot names one so: {name!a}"
             for name in sorted({each.name for each in listed})
             if not name.startswith(PREFIX)]  # fmt: skip
    # The attest job has signed what it could list; who is left out came later.
    signed = "attest" in jobs and jobs["attest"].conclusion == "success"
    received: list[ArtifactEnd] = []
    room = _MOST_BYTES
    for artifact in listed:
        if not artifact.name.startswith(PREFIX):
            continue
        first = jobs.get(artifact.name.removeprefix(PREFIX).removesuffix(AGAIN))
        if first and first.run_attempt > 1 and _came_before(artifact, first.started_at):
            notes.append(f"left alone, as it is of an earlier attempt: {artifact.name}")
            received.append(ArtifactEnd(name=artifact.name, early=True))
            continue
        end, content = ArtifactEnd(name=artifact.name), b""
        try:
            _check_listed(artifact, jobs.get(artifact.name.removeprefix(PREFIX)))
            if folder is not None:
                content = _read_packed(folder / f"{artifact.name}.zip")
            else:
                content = download(github, repository, artifact)
            end = end.model_copy(update={"sha256": hashlib.sha256(content).hexdigest()})
            files = _opened(artifact, content, end.sha256, room)
            if attest_in is not None:
                path = attest_in / "artifact.zip"
                path.write_bytes(content)
                words, denied = attested(
                    path, run.head_sha, repository=repository, server=github.server
                )
                refused = "this run attested its artifacts, and not this one"
                refused, files = (refused, {}) if signed and denied else ("", files)
                end = end.model_copy(update={"attested": words, "refused": refused})
            end = end.model_copy(update={"files": files})
        except (RefusedArtifactError, RefusedError, NotFoundError) as error:
            end = end.model_copy(update={"refused": getattr(error, "message", str(error))})
        room -= sum(map(len, end.files.values()))
        received.append(end)
    return RunDownload(
        repository=repository,
        run_id=run_id,
        attempts=run.run_attempt,
        commit=run.head_sha,
        artifacts=tuple(received),
        jobs=jobs,
        selected=run.event == "workflow_dispatch",
        # The job that collects waits for all others.
        running=not is_over(run)
        and any(not is_over(job) for job in jobs.values() if job.name != COLLECTOR),
        notes=tuple(notes),
    )


def _opened(artifact: Artifact, content: bytes, sha256: str, room: int) -> dict[str, bytes]:
    sent = (artifact.digest or "").removeprefix("sha256:")
    if sha256 != sent:
        raise RefusedArtifactError(
            f"what came is not what was sent: GitHub saw {sent[:12]}…, this is {sha256[:12]}…"
        )
    files = open_zip(content, plan=artifact.name == PLAN_ARTIFACT)
    if sum(map(len, files.values())) > room:
        raise RefusedArtifactError(
            f"with it, the run's artifacts have more than {_MOST_BYTES // MIB:,} MiB"
        )
    return files


def _own_run(github: GitHub, repository: str, run_id: int) -> WorkflowRun:
    try:
        run = github.run(repository, run_id).complete()
    except NotFoundError as error:
        raise no_run(repository, run_id) from error
    check_workflow(run)
    origin = name_of(run.head_repository)
    own = {(name or "").casefold() for name in (name_of(run.repository), origin)}
    if run.event not in _EVENTS or own != {repository.casefold()}:
        raise UsageError(
            f"run {run.id} was started by {run.event!a} from "
            f"{origin or 'a repository that is gone'}, not by this queue",
            hint="only dispatches, pushes and the schedule of the queue's own repository count",
        )
    return run


def _listed(github: GitHub, repository: str, run: WorkflowRun) -> list[Artifact]:
    """Return the artifacts of a run, as they were with the jobs that were read just before."""
    run_now = github.run(repository, run.id)
    listed = sorted(run_now.get_artifacts(), key=lambda each: each.id)
    if len(listed) > _MOST:
        raise GitHubError(f"run {run.id}: {len(listed)} artifacts; at most {_MOST}")
    if run_now.complete().run_attempt != run.run_attempt:
        raise GitHubError(
            f"run {run.id} was started again while it was read",
            hint="collect it again when it is over",
        )
    if run.run_attempt > 1:
        # What an earlier attempt left under the same name does not count.
        listed = list({artifact.name: artifact for artifact in listed}.values())
    return listed


def _came_at(artifact: Artifact) -> datetime | None:
    return artifact.created_at  # None where GitHub does not say, whatever PyGithub's types do


def _came_before(artifact: Artifact, time: datetime | None) -> bool:
    came = _came_at(artifact)
    return bool(came and time and came < time)


def _check_listed(artifact: Artifact, job: WorkflowJob | None) -> None:
    """Refuse what is not even fetched: any job can add, and replace, any artifact."""
    name, size = artifact.name.removeprefix(PREFIX), artifact.size_in_bytes
    slack = _SLACK if artifact.name == PLAN_ARTIFACT else _RUNNERS_SLACK
    ended = job.completed_at if job and is_over(job) else None
    began = job.started_at if job and is_over(job) and job.run_attempt == 1 else None
    came = _came_at(artifact)
    problems = (
        (not _ARTIFACT.fullmatch(artifact.name), "no job of contribbot is called so"),
        (artifact.expired, "GitHub has let it go: it expired"),
        (size > PACKED, f"{size / MIB:,.0f} MiB; at most {PACKED // MIB}"),
        (not (artifact.digest or "").startswith("sha256:"), "GitHub tells no digest of it"),
        (job is None, f"no job of the run is called {name}"),
        (came and ended and came > ended + slack, f"it came after job {name} had ended"),
        (began and _came_before(artifact, began - slack), f"it came before job {name} had begun"),
    )
    for holds, problem in problems:
        if holds:
            raise RefusedArtifactError(problem)


def _read_packed(path: Path) -> bytes:
    if path.is_symlink() or not path.is_file():
        what = "is a link" if path.is_symlink() else "is not in the folder"
        raise RefusedArtifactError(f"{path.name} {what}")
    if (size := path.stat().st_size) > PACKED:
        raise RefusedArtifactError(f"{size / MIB:,.0f} MiB; at most {PACKED // MIB}")
    return path.read_bytes()
