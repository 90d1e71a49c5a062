"""A run of verify.yml on GitHub: started, and watched until its end."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from time import sleep
from typing import TYPE_CHECKING, Final, Literal

from contribbot.errors import ExitCode, GitHubError, NotFoundError, RefusedError, UsageError
from contribbot.github.fields import whole
from contribbot.model.base import Many, Model
from contribbot.runners.actions import WORKFLOW, read_run

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

#: Seconds between two looks at a run.
PAUSE: Final = 15.0


class JobState(Model):
    """A job of a run: its state, and its runner where it has one."""

    name: str
    state: str
    runner: str = ""


class Dispatched(Model):
    """The JSON of `runners dispatch`: a run that is over."""

    type: Literal["contribbot/dispatched/v2"] = "contribbot/dispatched/v2"
    repository: str
    run: int
    url: str
    commit: str
    conclusion: str
    jobs: Many[JobState]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command; `runners collect` tells a runner's fault from a patch's."""
        return ExitCode.OK if self.conclusion == "success" else ExitCode.NO


def start(
    github: GitHub, repository: str, ref: str, patches: tuple[str, ...], targets: tuple[str, ...]
) -> int:
    """Start a run of patches on targets (empty: all) of a branch, and return its number."""
    ref = ref or github.repository(repository).complete().default_branch
    inputs = {"patches": " ".join(patches), "targets": " ".join(targets)}
    try:
        run = github.workflow(repository, WORKFLOW).create_dispatch(
            ref, inputs, throw=True, return_run_details=True
        )
    except (NotFoundError, RefusedError) as error:
        refusals = {HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}
        if isinstance(error, RefusedError) and error.status not in refusals:
            raise
        raise UsageError(
            f"{repository} {ref}: {error.message}",
            hint=f"{WORKFLOW} must be on the default branch, current and enabled (contribbot "
            "runners workflows install), the branch on GitHub, and the token able to write actions",
        ) from error
    # An older server answers without a body.
    number = getattr(run, "id", None)
    if not isinstance(number, int):
        raise GitHubError(
            f"{repository}: the run was started, and GitHub does not tell its number",
            hint="its page has it: contribbot runners dispatch --resume RUN",
        )
    return number


def watch(
    github: GitHub, repository: str, run_id: int, told: Callable[[JobState], None]
) -> Dispatched:
    """Wait until a run is over; tell of each job that changes its state."""
    before: set[JobState] = set()
    while True:
        # The run first: the jobs of a run that is over do not change.
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
                told(job)
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
