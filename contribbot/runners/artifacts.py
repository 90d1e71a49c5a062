"""What a run of the queue's workflow left on GitHub, or in a folder that somebody fetched.

Nothing in it is believed: not its sizes, its names, its digests. Everything is read into memory,
within limits, and nothing of it is written anywhere by its own name.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import logging
import os
import re
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from contribbot import process
from contribbot.errors import (
    CommandTimeoutError,
    GitHubError,
    MachineError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from contribbot.github.auth import Server
from contribbot.github.fields import whole
from contribbot.github.refusals import clean_line
from contribbot.model.base import Model
from contribbot.model.evidence import RunOf
from contribbot.runners.config import WORKFLOW, check_workflow, no_run
from contribbot.runners.model import PLAN_ARTIFACT, PREFIX, Artifact, JobDone, Run, RunJob

if TYPE_CHECKING:
    from github.GithubObject import GithubObject

    from contribbot.github.client import GitHub

M = TypeVar("M", bound=Model)
log: Final = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
#: What a job leaves, beside records and logs that are for people.
JOB_FILE: Final = "job.json"
PLAN_FILE: Final = "plan.json"
_LOGS: Final = "logs.tgz"
#: The record of a patch on a machine. No name that leads elsewhere is one.
_RECORD: Final = re.compile(
    r"records/[a-z0-9][a-z0-9._-]{0,79}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}\.json"
)
#: What an artifact may be at most: bytes of the zip, files, bytes of one and of all, unpacked.
PACKED: Final = 64 * MIB
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
            check_names([(name, info.file_size) for name, info in files], plan=plan)
            return {name: archive.read(info) for name, info in files if name != _LOGS}
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise RefusedArtifactError(f"not a sound zip: {error}") from error


def check_names(files: Sequence[tuple[str, int]], *, plan: bool) -> None:
    """Hold names and sizes of files against the limits: all of them, before any is read."""
    if len(files) > _FILES:
        raise RefusedArtifactError(f"{len(files)} files; at most {_FILES}")
    names = Counter(name.casefold() for name, _ in files)
    for name, size in files:
        shown = ascii(name[:80])
        if not (
            name == PLAN_FILE if plan else name in {JOB_FILE, _LOGS} or _RECORD.fullmatch(name)
        ):
            raise RefusedArtifactError(f"it has {shown}, which no job leaves")
        if names[name.casefold()] > 1:
            raise RefusedArtifactError(f"it has {shown} twice")
        if size > FILE:
            raise RefusedArtifactError(f"{shown}: {size / MIB:,.0f} MiB; at most {FILE // MIB}")
    if sum(size for _, size in files) > _UNPACKED:
        raise RefusedArtifactError(f"it unpacks to more than {_UNPACKED // MIB} MiB")
    needed = PLAN_FILE if plan else JOB_FILE
    if needed not in names:
        raise RefusedArtifactError(f"it has no {needed}")


def too_large(size: int) -> str:
    """Say that an artifact is too large."""
    return f"{size / MIB:,.0f} MiB; at most {PACKED // MIB}"


# GitHub's runs, jobs and artifacts.


def read_runs(github: GitHub, repository: str, workflow: str, *, branch: str) -> tuple[Run, ...]:
    """Return the newest runs of a workflow that somebody dispatched on a branch or tag."""
    listed = github.workflow(repository, workflow).get_runs(
        branch=branch, event="workflow_dispatch"
    )
    return tuple(_answer(Run, run) for run in whole(itertools.islice(listed, 300)))


def read_run(github: GitHub, repository: str, run_id: int) -> Run:
    """Return a run."""
    return _answer(Run, github.run(repository, run_id))


def read_jobs(github: GitHub, repository: str, run_id: int) -> tuple[RunJob, ...]:
    """Return the jobs of a run, each as it ran last."""
    # Whether `latest` also lists what a later attempt did not run again is not documented.
    found = [_answer(RunJob, job) for job in whole(github.run(repository, run_id).jobs("all"))]
    last = {job.name: job.run_attempt for job in sorted(found, key=lambda job: job.run_attempt)}
    return tuple(job for job in found if job.run_attempt == last[job.name])


def read_artifacts(github: GitHub, repository: str, run_id: int) -> tuple[Artifact, ...]:
    """Return the artifacts of a run, of all its attempts."""
    listed = github.run(repository, run_id).get_artifacts()
    return tuple(_answer(Artifact, artifact) for artifact in listed)


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


def _answer(kind: type[M], said: GithubObject) -> M:
    """Return an answer as what it should be."""
    try:
        return kind.model_validate(said.raw_data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    raise GitHubError(f"{kind.__name__} of GitHub Actions: an answer of another shape at {key}")


# Attestations.

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


class Attestation(NamedTuple):
    """What is known of an attestation: in words, and whether GitHub has no good one."""

    said: str
    denied: bool = False


def attested(
    path: Path,
    commit: str,
    *,
    repository: str,
    server: Server,
    environment: Mapping[str, str] = os.environ,
) -> Attestation:
    """Ask gh whether this very file was attested by the queue's own workflow, at this commit."""
    program = shutil.which("gh", path=environment.get("PATH"))
    if program is None:
        return Attestation(NO_PROGRAM)
    if server.local:
        return Attestation("attestation not verified: this GitHub has none")
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
        return Attestation(f"attestation not verified: gh gave no answer in {_SECONDS:g} s")
    except MachineError as error:
        return Attestation(f"attestation not verified: {clean_line(error.message, 120)}")
    if done.returncode == 0:
        return Attestation(VERIFIED)
    said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["gh says no"]
    line = clean_line(said[-1], 120)
    return Attestation(f"attestation not verified: {line}", _DENIED.search(line) is not None)


# What came of a run.

#: Who may start what is collected: never a pull request.
_EVENTS: Final = frozenset({"workflow_dispatch", "schedule", "push"})
_NAME: Final = re.compile(r"contribbot-[a-z0-9][a-z0-9.-]{0,90}")
#: No queue has more jobs than this, and each leaves one artifact; re-runs leave more.
_MOST: Final = 2000
#: The job of the workflow that collects, and its step that fails where runners alone kept it from
#: all that was planned.
COLLECTOR: Final = "collect"
RUNNERS_STEP: Final = "Runners failed, and no patch did"
#: Bytes of all files of all artifacts: they are held in memory.
_MOST_BYTES: Final = 1024 * MIB
#: How far the clocks of GitHub's machines may be apart, and that of a runner from them.
_SLACK: Final = timedelta(minutes=2)
_RUNNERS_SLACK: Final = timedelta(minutes=10)


@dataclass(frozen=True)
class Source:
    """The run that artifacts are to be from; `commit` is the queue's."""

    repository: str
    run_id: int
    attempts: int
    commit: str

    def problem(self, run: RunOf | None, job: str) -> str:
        """Say what is wrong with where something says that it is from; or nothing."""
        if run is None:
            return "it names no run"
        told = (
            (run.run_id == self.run_id, f"run {run.run_id}, not {self.run_id}"),
            (run.attempt <= self.attempts, f"attempt {run.attempt}, which was not yet"),
            (run.job == job, f"job {run.job}, not {job}"),
            (run.repository.casefold() == self.repository.casefold(),
             f"{run.repository}, not {self.repository}"),
            (run.commit == self.commit, f"commit {run.commit[:12]}, not {self.commit[:12]}"),
        )  # fmt: skip
        return next((f"it is of {problem}" for holds, problem in told if not holds), "")


@dataclass(frozen=True)
class Received:
    """An artifact that came, or why nothing of it is taken."""

    name: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Digest of its zip; empty: it came in another way.
    sha256: str = ""
    refused: str = ""
    attested: str = ""
    #: Whether it came before its job began, which is of a later attempt.
    early: bool = False


@dataclass(frozen=True)
class RunDownload:
    """What a run left."""

    #: The run; None where nothing says which.
    source: Source | None
    received: tuple[Received, ...]
    #: Its jobs by name, as GitHub has them; None: GitHub was not asked.
    jobs: Mapping[str, RunJob] | None = None
    #: Whether only a part of the queue may have been meant.
    selected: bool = True
    #: Whether some job of it is not over.
    running: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Where artifacts are fetched from, and whether gh is asked to verify each."""

    github: GitHub
    repository: str
    scratch: Path
    #: Where the zips are already; None: they are fetched.
    folder: Path | None = None
    attest: bool = False


def from_github(origin: Origin, run_id: int) -> RunDownload:
    """Fetch what a run left; each zip must have the digest that GitHub saw when it came."""
    github, repository = origin.github, origin.repository
    try:
        run = read_run(github, repository, run_id)
    except NotFoundError as error:
        raise no_run(repository, run_id) from error
    check_workflow(run)
    own = {(name or "").casefold() for name in (run.repository, run.head_repository)}
    if run.event not in _EVENTS or own != {repository.casefold()}:
        raise UsageError(
            f"run {run.id} was started by {run.event!a} from "
            f"{run.head_repository or 'a repository that is gone'}, not by this queue",
            hint="only dispatches, pushes and the schedule of the queue's own repository count",
        )
    jobs = {job.name: job for job in read_jobs(github, repository, run_id)}
    listed = sorted(read_artifacts(github, repository, run_id), key=lambda artifact: artifact.id)
    if len(listed) > _MOST:
        raise GitHubError(f"run {run_id}: {len(listed)} artifacts; at most {_MOST}")
    if read_run(github, repository, run_id).run_attempt != run.run_attempt:
        raise GitHubError(
            f"run {run_id} was started again while it was read",
            hint="collect it again when it is over",
        )
    if run.run_attempt > 1:
        # What an earlier attempt left under the same name does not count.
        listed = list({artifact.name: artifact for artifact in listed}.values())
    others = sorted({each.name for each in listed if not each.name.startswith(PREFIX)})
    notes = [f"left alone, as no job of contribbot names one so: {name!a}" for name in others]
    return RunDownload(
        source=Source(repository, run_id, run.run_attempt, run.head_sha),
        received=_received(origin, listed, run, jobs),
        jobs=jobs,
        selected=run.event == "workflow_dispatch",
        # The job that collects waits for all others.
        running=not run.over
        and any(not job.over for job in jobs.values() if job.name != COLLECTOR),
        notes=tuple(notes),
    )


def _received(
    origin: Origin, listed: Sequence[Artifact], run: Run, jobs: Mapping[str, RunJob]
) -> tuple[Received, ...]:
    """Fetch what is contribbot's own, one after the other."""
    # The attest job has signed what it could list; who is left out came later.
    signed = "attest" in jobs and jobs["attest"].conclusion == "success"
    received: list[Received] = []
    room = _MOST_BYTES
    for artifact in listed:
        if not artifact.name.startswith(PREFIX):
            continue
        job = jobs.get(artifact.name.removeprefix(PREFIX))
        problem, content, sha256 = _unfit(artifact, run, job), b"", ""
        if not problem:
            try:
                content = _content(origin, artifact)
            except (RefusedArtifactError, RefusedError, NotFoundError) as error:
                problem = getattr(error, "message", str(error))
            else:
                sha256 = hashlib.sha256(content).hexdigest()
                problem = _differs(artifact, sha256)
        this = Received(artifact.name, sha256=sha256, refused=problem)
        if not problem:
            this = opened(artifact.name, content)
        if (size := sum(map(len, this.files.values()))) > room:
            problem = f"with it, the run's artifacts have more than {_MOST_BYTES // MIB:,} MiB"
            this = replace(this, files={}, refused=problem)
        else:
            room -= size
        if not this.refused:
            this = replace(this, early=_is_early(artifact, job))
            if origin.attest:
                this = _with_attestation(this, content, origin, run, signed=signed)
        received.append(this)
    return tuple(received)


def _unfit(artifact: Artifact, run: Run, job: RunJob | None) -> str:
    """Say why an artifact is not even fetched: any job can add, and replace, any of them."""
    name, size = artifact.name.removeprefix(PREFIX), artifact.size_in_bytes
    slack = _SLACK if artifact.name == PLAN_ARTIFACT else _RUNNERS_SLACK
    came, began, ended = artifact.created_at, None, None
    if job is not None and job.over and came is not None:
        # What an earlier attempt left came before, see `_is_early`.
        began = job.started_at if job.run_attempt == 1 else None
        ended = job.completed_at
    told = (
        (not _NAME.fullmatch(artifact.name), "no job of contribbot is called so"),
        (artifact.run_id not in {None, run.id}, f"it is of run {artifact.run_id}"),
        (artifact.expired, "GitHub has let it go: it expired"),
        (size > PACKED, too_large(size)),
        (not (artifact.digest or "").startswith("sha256:"), "GitHub tells no digest of it"),
        (job is None, f"no job of the run is called {name}"),
        (came and ended and came > ended + slack, f"it came after job {name} had ended"),
        (came and began and came < began - slack, f"it came before job {name} had begun"),
    )
    return next((problem for holds, problem in told if holds), "")


def _is_early(artifact: Artifact, job: RunJob | None) -> bool:
    """Say whether an artifact came before its job began, which was started again."""
    came = artifact.created_at
    if job is None or job.run_attempt == 1 or job.started_at is None or came is None:
        return False
    return came < job.started_at


def _content(origin: Origin, artifact: Artifact) -> bytes:
    if origin.folder is None:
        return download(origin.github, origin.repository, artifact)
    return read_packed(origin.folder / f"{artifact.name}.zip")


def read_packed(path: Path) -> bytes:
    """Read a zip that somebody fetched."""
    if path.is_symlink() or not path.is_file():
        what = "is a link" if path.is_symlink() else "is not in the folder"
        raise RefusedArtifactError(f"{path.name} {what}")
    if (size := path.stat().st_size) > PACKED:
        raise RefusedArtifactError(too_large(size))
    return path.read_bytes()


def _differs(artifact: Artifact, sha256: str) -> str:
    sent = (artifact.digest or "").removeprefix("sha256:")
    if sha256 == sent:
        return ""
    return f"what came is not what was sent: GitHub saw {sent[:12]}…, this is {sha256[:12]}…"


def opened(name: str, content: bytes) -> Received:
    """Open a zip."""
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        return Received(name, open_zip(content, plan=name == PLAN_ARTIFACT), sha256=sha256)
    except RefusedArtifactError as error:
        return Received(name, sha256=sha256, refused=str(error))


def _with_attestation(
    artifact: Received, content: bytes, origin: Origin, run: Run, *, signed: bool
) -> Received:
    """Add what is known of its attestation; what is denied where others are signed is refused."""
    place = origin.scratch / "artifact.zip"
    place.write_bytes(content)
    found = attested(place, run.head_sha, repository=origin.repository,
                     server=origin.github.server)  # fmt: skip
    if signed and found.denied:
        return Received(artifact.name, sha256=artifact.sha256, attested=found.said,
                        refused="this run attested its artifacts, and not this one")  # fmt: skip
    return replace(artifact, attested=found.said)


def from_folder(folder: Path) -> RunDownload:
    """Open what somebody fetched: `NAME.zip`, or `NAME/` as `gh run download` unpacks it.

    GitHub is not asked, so that nobody can tell whether it is what the jobs sent.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="name the folder with the artifacts")
    received = []
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(".zip")
        if not name.startswith(PREFIX):
            continue
        try:
            is_folder = path.is_dir() and not path.is_symlink()
            received.append(_unpacked(path) if is_folder else opened(name, read_packed(path)))
        except RefusedArtifactError as error:
            received.append(Received(name, refused=str(error)))
    if not received:
        raise UsageError(
            f"{folder}: no artifact of contribbot in it",
            hint=f"it holds {PREFIX}….zip, or folders of such names",
        )
    source, odd = _source_of(received)
    note = "GitHub was not asked: whether this is what the jobs sent, nobody here can tell"
    return RunDownload(source, tuple(received), notes=(note, *odd))


def _unpacked(folder: Path) -> Received:
    """Read a folder that was an artifact."""
    paths = sorted(folder.rglob("*"))
    if any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in paths):
        raise RefusedArtifactError("there is a link or a device in it")
    found = {path.relative_to(folder).as_posix(): path for path in paths if path.is_file()}
    sizes = [(name, path.stat().st_size) for name, path in found.items()]
    check_names(sizes, plan=folder.name == PLAN_ARTIFACT)
    return Received(
        folder.name, {name: path.read_bytes() for name, path in found.items() if name != _LOGS}
    )


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
        where = ".".join(str(part) for part in first["loc"])
        text = f"{where}: {first['msg']}"
    return text[:300]


def _source_of(received: Sequence[Received]) -> tuple[Source | None, list[str]]:
    """Return the run that most of the artifacts say they are from."""
    said: Counter[tuple[str, int, str]] = Counter()
    attempts = 1
    for artifact in received:
        try:
            run = read_done(artifact.files).run
        except RefusedArtifactError:
            continue
        if run is not None:
            said[run.repository, run.run_id, run.commit] += 1
            attempts = max(attempts, run.attempt)
    if not said:
        return None, []
    (repository, run_id, commit), _ = said.most_common(1)[0]
    odd = [] if len(said) == 1 else [f"the artifacts are of {len(said)} runs: {run_id} counts"]
    return Source(repository, run_id, attempts, commit), odd
