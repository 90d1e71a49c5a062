"""A queue on GitHub Actions: write its workflows, start and watch runs, read their artifacts."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final, Literal

import contribbot
from contribbot import process
from contribbot.errors import (
    ExitCode,
    GitHubError,
    MachineError,
    NotFoundError,
    QueueError,
    RefusedError,
    UsageError,
)
from contribbot.git.repository import ask_git
from contribbot.github.auth import Server, find_server
from contribbot.github.client import GitHub, connect, name_of, whole
from contribbot.markdown import line_of
from contribbot.model.base import Many, Model
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction
from contribbot.runners.plan import load_fleet

if TYPE_CHECKING:
    from github.Artifact import Artifact
    from github.WorkflowRun import WorkflowRun

WORKFLOW: Final = "verify.yml"
#: Seconds between two looks at a run.
PAUSE: Final = 15.0
#: The largest size in bytes of an artifact's zip, and of the zip's files together.
PACKED: Final = 64 * 2**20
UNPACKED: Final = 4 * PACKED
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
#: The address of a git remote: `https://HOST/PATH`, `ssh://git@HOST/PATH`, or `git@HOST:PATH`.
_REMOTE: Final = re.compile(
    r"(?:\w+://)?(?:[^@/]*@)?(?P<host>[\w.-]+)(?::\d+(?=/))?[:/]+(?P<path>.+?)(?:\.git)?/?"
)


def repository_of(folder: Path, server: Server, environment: Mapping[str, str] = os.environ) -> str:
    """Return a queue's repository as owner/name, from GITHUB_REPOSITORY or the remote `origin`."""
    name = environment.get("GITHUB_REPOSITORY", "")
    if not name:
        parts = _REMOTE.fullmatch(ask_git(folder, "remote", "get-url", "origin"))
        if parts and parts["host"].casefold() == server.host.casefold():
            name = parts["path"]
    if not _NAME.fullmatch(name):
        what = f"{folder}: its git repository has no remote origin at {server.host}"
        raise UsageError(what, hint="name the repository: export GITHUB_REPOSITORY=OWNER/NAME")
    return name


@contextlib.contextmanager
def connected(queue: Queue) -> Iterator[tuple[GitHub, str]]:
    """Yield a GitHub client and the name of the queue's repository on GitHub."""
    server = find_server()
    name = repository_of(queue.folder, server)
    with connect(server=server) as github:
        yield github, name


def commit_of(folder: Path) -> str:
    """Return the commit of a queue's work tree; empty outside a repository."""
    return ask_git(folder, "rev-parse", "--verify", "HEAD")


class Workflow(Model):
    """The file of a workflow, and whether the installation changed the file."""

    path: str
    changed: bool


class Workflows(Model):
    """The JSON of `contribbot runners workflows install`."""

    workflows: tuple[Workflow, ...]


#: The runner of a job for which `runners.toml` names no hosted runners.
GITHUBS_OWN: Final = "ubuntu-24.04"
#: The packages that pip installs on a runner, each with version and digests.
REQUIREMENTS: Final = ".github/contribbot-requirements.txt"
FOLDER: Final = ".github/workflows"
NAMES: Final = ("verify.yml", "rebase.yml", "open-pr.yml", "emulate.yml")
#: A line of a template whose value contribbot fills in.
_MARKED: Final = re.compile(r"^( *[a-z-]+: )(\S.*?)( # filled in: ([a-z]+))$", re.MULTILINE)


def install(queue: Queue) -> Workflows:
    """Write all workflows of a queue in one transaction; keep the branch that they name."""
    folder = queue.folder
    top = next(
        (each for each in (folder, *folder.absolute().parents) if (each / ".git").exists()), folder
    )
    if top.resolve() != folder.resolve():
        raise UsageError(
            f"{folder}: not the top of its repository, which is {top}",
            hint="GitHub reads workflows only there: give the queue a repository of its own",
        )
    if not (folder / REQUIREMENTS).is_file():
        raise QueueError(
            f"{folder / REQUIREMENTS}: no such file, and runners install what it pins",
            hint="write it with `uv pip compile --generate-hashes`, as docs/runners.md shows",
        )
    if ask_git(folder, "status", "--porcelain", "--", *(f"{FOLDER}/{name}" for name in NAMES)):
        raise UsageError(
            f"{FOLDER}: changes there are not committed, and would be lost",
            hint="commit them; afterwards, `git diff` shows what the installation changed",
        )
    hosted = load_fleet(folder).runners.hosted
    labels = json.dumps(hosted.labels if hosted else (GITHUBS_OWN,))
    workflows = []
    with transaction(folder) as changes:
        for name in NAMES:
            path = f"{FOLDER}/{name}"
            before = changes.read(path)
            known = re.search(rb'\["(.+)"\] # filled in: branch$', before or b"", re.MULTILINE)
            branch = json.dumps([known[1].decode("utf-8", "replace") if known else "main"])
            values = {"hosted": labels, "branch": branch}
            template = (templates_folder() / name).read_text(encoding="utf-8")
            content = _MARKED.sub(functools.partial(_filled, values), template).encode()
            changes.write(path, content)
            workflows.append(Workflow(path=path, changed=content != before))
    return Workflows(workflows=tuple(workflows))


def _filled(values: Mapping[str, str], mark: re.Match[str]) -> str:
    return f"{mark[1]}{values[mark[4]]}{mark[3]}"


def templates_folder() -> Path:
    """Return the folder of templates: in the installed package, or in a work tree's top folder."""
    package = Path(contribbot.__file__).parent
    packed = package / "workflows"
    return packed if packed.is_dir() else package.parent / "workflows"


def read_run(github: GitHub, repository: str, run_id: int) -> WorkflowRun:
    """Return a run of the queue's verify.yml; NotFoundError: no run; UsageError: other workflow."""
    try:
        run = github.repository(repository).get_workflow_run(run_id).complete()
    except NotFoundError as error:
        raise NotFoundError(
            f"run {run_id} of {repository}: no such run",
            hint="it was deleted, or the token may not see it (it needs to read actions)",
        ) from error
    path = run.path.partition("@")[0]
    own = (name_of(run.head_repository) or "").casefold() == repository.casefold()
    if path != f".github/workflows/{WORKFLOW}" or not own:
        raise UsageError(
            f"run {run.id} is one of {path!a} at a commit of {name_of(run.head_repository)}",
            hint=f"name a run of {WORKFLOW} of {repository}: its page's address has the number",
        )
    return run


class JobState(Model):
    """A job of a run: the job's state, and its runner (empty: no runner yet)."""

    name: str
    state: str
    runner: str = ""


class Dispatched(Model):
    """The JSON of `runners dispatch`: a run that has ended."""

    type: Literal["contribbot/dispatched/v2"] = "contribbot/dispatched/v2"
    repository: str
    run: int
    url: str
    commit: str
    conclusion: str
    jobs: Many[JobState]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: OK if the run's conclusion is success, else NO."""
        return ExitCode.OK if self.conclusion == "success" else ExitCode.NO


def start(
    github: GitHub, repository: str, ref: str, patches: tuple[str, ...], targets: tuple[str, ...]
) -> int:
    """Start a run of verify.yml on a branch, for some patches and targets; return its number."""
    ref = ref or github.repository(repository).complete().default_branch
    inputs = {"patches": " ".join(patches), "targets": " ".join(targets)}
    try:
        run = (
            github.repository(repository)
            .get_workflow(WORKFLOW)
            .create_dispatch(ref, inputs, throw=True, return_run_details=True)
        )
    except (NotFoundError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise
        raise UsageError(
            f"{repository} {ref}: {error.message}",
            hint=f"{WORKFLOW} must be on the default branch, current and enabled (contribbot "
            "runners workflows install), the branch on GitHub, and the token able to write actions",
        ) from error
    # An older server gives no run details.
    number = getattr(run, "id", None)
    if not isinstance(number, int):
        raise GitHubError(
            f"{repository}: the run was started, and GitHub does not tell its number",
            hint="its page has it: contribbot runners dispatch --resume RUN",
        )
    return number


def watch(
    github: GitHub, repository: str, run_id: int, changed: Callable[[JobState], None]
) -> Dispatched:
    """Wait until a run has ended; call `changed` for each job with a new state."""
    before: set[JobState] = set()
    while True:
        # Read the run before the jobs: the jobs of a run that has ended do not change.
        run = read_run(github, repository, run_id)
        jobs = tuple(
            JobState(
                name=job.name,
                state=(job.conclusion or job.status).replace("_", " "),
                runner=job.runner_name or "",
            )
            for job in whole(run.jobs())
        )
        for job in jobs:
            if job not in before:
                changed(job)
        before |= {*jobs}
        if run.status == "completed":
            return Dispatched(
                repository=repository,
                run=run.id,
                url=run.html_url,
                commit=run.head_sha,
                conclusion=run.conclusion or "",
                jobs=jobs,
            )
        sleep(PAUSE)


class ArtifactError(Exception):
    """An artifact that cannot be read; the message says why."""


def read_artifact(github: GitHub, repository: str, artifact: Artifact) -> dict[str, bytes]:
    """Fetch an artifact, return its files by name; ArtifactError: expired, large or damaged."""
    if artifact.expired or artifact.size_in_bytes > PACKED:
        size = f"{artifact.size_in_bytes >> 20} MiB; at most {PACKED >> 20}"
        raise ArtifactError("it has expired" if artifact.expired else size)
    path = f"{github.repository(repository).url}/actions/artifacts/{artifact.id}/zip"
    content = io.BytesIO(github.requester.fetch(path, most=PACKED))
    try:
        with zipfile.ZipFile(content) as archive:
            if sum(info.file_size for info in archive.infolist()) > UNPACKED:
                raise ArtifactError(f"it unpacks to more than {UNPACKED >> 20} MiB")
            return {info.filename: archive.read(info) for info in archive.infolist()}
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ArtifactError(f"not a sound zip: {line_of(str(error), 120)}") from error


#: The environment variables from which gh takes a token.
_LOGIN: Final = ("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")


def gh_denial(path: Path, commit: str, *, repository: str, server: Server) -> str | None:
    """Return why `gh` denies that verify.yml attested a file; empty: attested; None: no `gh`."""
    program = shutil.which("gh")
    if program is None:
        return None
    login = {name: os.environ[name] for name in _LOGIN if os.environ.get(name)}
    workflow = f"{repository}/.github/workflows/{WORKFLOW}"
    try:
        done = process.run(
            [
                *(program, "attestation", "verify", path, "--deny-self-hosted-runners"),
                *("--repo", repository, "--hostname", server.host),
                *("--signer-workflow", workflow, "--source-digest", commit),
            ],
            env=process.user_environment() | login | {"GH_PROMPT_DISABLED": "1"},
            accept=range(256),
            timeout=60.0,
            tethered=True,
        )
    except MachineError as error:
        return line_of(error.message, 120)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return line_of(lines[-1] if lines else "gh gives no reason", 120)
