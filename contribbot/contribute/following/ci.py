"""What an upstream's CI says, by target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.contribute.following.threads import line_of
from contribbot.model.follow import CiState, TargetCi
from contribbot.model.rules import CiRules

if TYPE_CHECKING:
    from github.CheckRun import CheckRun
    from github.CommitStatus import CommitStatus

#: Characters of a job's name that are looked at, and shown.
_NAME: Final = 200
#: Jobs that failed that are named.
_NAMED: Final = 5
_GOOD: Final = frozenset({"success"})
#: Ended, and nothing was tried.
_IDLE: Final = frozenset({"skipped", "neutral"})
#: How a target stands of which no more is to be expected.
_OVER: Final = frozenset({"passed", "not run"})


@dataclass(frozen=True)
class _Job:
    """A job: its name, and how it stands; `why` is GitHub's word for a failure."""

    name: str
    state: CiState
    why: str = ""


def by_target(
    runs: Sequence[CheckRun], statuses: Sequence[CommitStatus], rules: CiRules | None
) -> tuple[tuple[TargetCi, ...], TargetCi | None]:
    """Sort jobs by the targets that they are for."""
    jobs = [*(_of_run(one) for one in runs), *(_of_status(one) for one in statuses)]
    matched: set[int] = set()
    found = []
    for target, pattern in (rules.targets if rules else {}).items():
        mine = [
            number for number, job in enumerate(jobs) if re.search(pattern, job.name) is not None
        ]
        matched |= set(mine)
        found.append(_together(target, [jobs[number] for number in mine]))
    rest = [job for number, job in enumerate(jobs) if number not in matched]
    return tuple(found), _together("other", rest) if rest else None


def has_ended(found: Sequence[TargetCi], other: TargetCi | None) -> bool:
    """Return whether no job runs or has failed, and each target had one: no more is expected.

    What failed is often started again, and nothing of the pull request tells of that.
    """
    every = [*found, *([other] if other else [])]
    return bool(every) and all(one.state in _OVER and not one.running for one in every)


def _together(target: str, jobs: Sequence[_Job]) -> TargetCi:
    states = {job.state for job in jobs}
    # A failure is known before the others have ended; what was skipped is no pass.
    order: tuple[CiState, ...] = ("failed", "running", "passed", "not run")
    state: CiState = next((one for one in order if one in states), "not started")
    failed = [job for job in jobs if job.state == "failed"]
    return TargetCi(
        target=target,
        state=state,
        jobs=len(jobs),
        running=sum(job.state == "running" for job in jobs),
        failed=tuple(f"{job.name} ({job.why})" for job in failed[:_NAMED]),
        failures=len(failed),
    )


def _of_run(run: CheckRun) -> _Job:
    name = line_of(run.name, _NAME)
    if run.status != "completed" or run.conclusion is None:
        return _Job(name, "running")
    if run.conclusion in _GOOD:
        return _Job(name, "passed")
    if run.conclusion in _IDLE:
        return _Job(name, "not run")
    return _Job(name, "failed", line_of(run.conclusion, 40).replace("_", " "))


def _of_status(status: CommitStatus) -> _Job:
    name = line_of(status.context, _NAME)
    if status.state == "pending":
        return _Job(name, "running")
    if status.state == "success":
        return _Job(name, "passed")
    return _Job(name, "failed", status.state)
