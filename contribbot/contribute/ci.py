"""What CI says of a commit: its check runs, the suites that have none, its statuses."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.contribute.model import CiState, TargetCi
from contribbot.github.fields import whole
from contribbot.github.refusals import REFUSED
from contribbot.markdown import line_of

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

#: What GitHub says of a job, in words of ours; all else is a failure.
_JOB_STATES: Final[dict[str, CiState]] = {
    "pending": "running",
    "success": "passed",
    "skipped": "not run",
    "neutral": "not run",
}
#: A failure is known before the others have ended; what was skipped is no pass.
_CI_ORDER: Final[tuple[CiState, ...]] = ("failed", "running", "passed", "not run")
#: Characters of a job's name that are looked at; jobs that are named.
_JOB_NAME: Final = 200
_NAMED: Final = 5
#: The app whose suites always come to jobs; those of others may stay queued for ever.
_ACTIONS: Final = "github-actions"


@dataclass(frozen=True)
class HeadJob:
    """A job, with GitHub's word for how it stands; one that has not ended is `pending`."""

    name: str
    word: str

    @classmethod
    def of(cls, name: str, status: str | None, conclusion: str | None) -> HeadJob:
        """Return a check run, or a suite."""
        ended = conclusion if status == "completed" else None
        return cls(line_of(name, _JOB_NAME), ended or "pending")


def read_jobs(github: GitHub, repository: str, sha: str) -> list[HeadJob]:
    """Return the jobs of a commit, each as it ran last."""
    commit = github.commit(repository, sha)
    runs = whole(commit.get_check_runs(filter="latest"))
    jobs = [HeadJob.of(run.name, run.status, run.conclusion) for run in runs]
    for suite in whole(commit.get_check_suites()):
        # A workflow that waits for approval, or that cannot start, has no job that says so.
        if not suite.latest_check_runs_count and suite.app is not None:
            job = HeadJob.of(f"{suite.app.name} (suite)", suite.status, suite.conclusion)
            comes = suite.app.slug == _ACTIONS and job.word == "pending"
            if comes or job.word not in _JOB_STATES:
                jobs.append(job)
    statuses = github.statuses(repository, sha)
    return jobs + [HeadJob(line_of(each.context, _JOB_NAME), each.state) for each in statuses]


def required_checks(github: GitHub, repository: str, branch: str) -> frozenset[str]:
    """Return the checks that must pass before a merge; none are known where GitHub does not say."""
    try:
        return github.required_checks(repository, branch)
    except REFUSED:
        return frozenset()


def ci_by_target(
    jobs: Sequence[HeadJob], patterns: Mapping[str, str], required: Collection[str]
) -> tuple[tuple[TargetCi, ...], TargetCi | None]:
    """Sort jobs by the targets that they are for; the rest is `other`."""
    targets = tuple(
        _together(target, [job for job in jobs if re.search(pattern, job.name)])
        for target, pattern in patterns.items()
    )
    rest = [job for job in jobs if not any(re.search(p, job.name) for p in patterns.values())]
    missing = sorted(set(required) - {job.name for job in jobs})
    if not rest and not missing:
        return targets, None
    other = _together("other", rest)
    if missing and other.state in {"passed", "not run", "not started"}:
        missed = tuple(line_of(name, _JOB_NAME) for name in missing[:_NAMED])
        other = other.model_copy(update={"state": "not started", "missing": missed})
    elif other.state == "passed" and not required:
        # That all have passed that are there says little of those that are to come.
        other = other.model_copy(update={"state": "not known"})
    return targets, other


def _together(target: str, jobs: Sequence[HeadJob]) -> TargetCi:
    """Return how the jobs of a target stand."""
    states = [_JOB_STATES.get(job.word, "failed") for job in jobs]
    failed = [
        f"{job.name} ({line_of(job.word, 40).replace('_', ' ')})"
        for job, state in zip(jobs, states, strict=True)
        if state == "failed"
    ]
    together: CiState = next((word for word in _CI_ORDER if word in states), "not started")
    return TargetCi(
        target=target, state=together, jobs=len(jobs), running=states.count("running"),
        failed=tuple(failed[:_NAMED]), failures=len(failed),
    )  # fmt: skip
