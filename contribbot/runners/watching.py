"""Looking on while a run works: what changed, until it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot.errors import ExitCode, GitHubError, NotFoundError
from contribbot.model.actions import PLAN_ARTIFACT, Run, RunJob
from contribbot.model.runners import Plan
from contribbot.runners import actions
from contribbot.runners.artifacts import LIMITS, RefusedArtifactError, open_plan
from contribbot.runners.fetching import COLLECTOR, RUNNERS_STEP, Origin
from contribbot.runners.where import check_workflow, no_run

#: Seconds between looks are at most so many times those of the first.
_SLOWEST: Final = 4.0
_GROWTH: Final = 1.5


@dataclass(frozen=True)
class Step:
    """A job as it is."""

    job: str
    now: str
    #: Which runner has it; may be empty.
    runner: str
    #: The names of its cells; none where the plan is not known.
    cells: tuple[str, ...]
    started: datetime | None
    ended: datetime | None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """What changed since the last look."""

    steps: tuple[Step, ...]
    jobs: tuple[Step, ...]
    #: How many cells are in jobs in each state; empty where the plan is not known.
    cells: Mapping[str, int]


@dataclass(frozen=True)
class Ended:
    """A run that is over."""

    run: Run
    jobs: tuple[Step, ...]

    @property
    def collect(self) -> str:
        """What the run's own `collect` came to, which knows of second tries; or nothing."""
        found = [one.now for one in self.jobs if one.job == COLLECTOR]
        return found[0] if len(found) == 1 and found[0] in {"success", "failure"} else ""

    @property
    def passed(self) -> bool:
        """Whether all that was planned came and passed; by GitHub's mark where nobody judged."""
        return (self.collect or self.run.conclusion) == "success"

    @property
    def runners_failed(self) -> bool:
        """Whether the run's own `collect` says that runners failed, and no patch did."""
        failed = [one.failed for one in self.jobs if one.job == COLLECTOR]
        return self.collect == "failure" and RUNNERS_STEP in failed[0]

    @property
    def exit_code(self) -> ExitCode:
        """What the shell is told, as by `collect`."""
        if self.passed:
            return ExitCode.OK
        return ExitCode.MACHINE if self.runners_failed else ExitCode.NO


def watch(
    origin: Origin,
    run_id: int,
    *,
    every: float,
    sleep: Callable[[float], None],
    told: Callable[[View], None],
) -> Ended:
    """Look on until a run is over. What has not changed costs GitHub nothing."""
    known: dict[str, tuple[str, str]] = {}
    plan: Plan | None = None
    asked = False
    pause = every
    while True:
        try:
            # The run first: a job that ends after this look is seen at the next.
            run = actions.run(origin.github, origin.repository, run_id)
            check_workflow(run)
            jobs = actions.jobs(origin.github, origin.repository, run_id)
            if not asked and any(one.name == "plan" and one.over for one in jobs):
                plan, asked = _plan(origin, run_id), True
        except NotFoundError as error:
            raise no_run(origin.repository, run_id) from error
        steps = _steps(jobs, plan)
        changed = tuple(one for one in steps if known.get(one.job) != (one.now, one.runner))
        known = {one.job: (one.now, one.runner) for one in steps}
        if changed:
            told(View(changed, steps, _counted(steps, plan)))
        if run.over:
            return Ended(run, steps)
        pause = every if changed else min(pause * _GROWTH, every * _SLOWEST)
        sleep(pause)


def _steps(jobs: Sequence[RunJob], plan: Plan | None) -> tuple[Step, ...]:
    cells = {job.id: tuple(cell.key for cell in job.cells) for job in plan.jobs} if plan else {}
    return tuple(
        Step(one.name, (one.conclusion or one.status).replace("_", " "), one.runner_name or "",
             cells.get(one.name, ()), one.started_at, one.completed_at,
             tuple(step.name for step in one.steps if step.conclusion == "failure"))
        for one in jobs
    )  # fmt: skip


def _counted(steps: Sequence[Step], plan: Plan | None) -> dict[str, int]:
    """Return how many cells are in jobs in each state."""
    states = {one.job: one.now for one in steps}
    counted: Counter[str] = Counter()
    for job in plan.jobs if plan else ():
        counted[states.get(job.id, "not begun")] += len(job.cells)
    return dict(counted)


def _plan(origin: Origin, run_id: int) -> Plan | None:
    """Return the plan, to name cells with; it is judged when the run is collected."""
    listed = actions.artifacts(origin.github, origin.repository, run_id)
    found = next((one for one in listed if one.name == PLAN_ARTIFACT and not one.expired), None)
    if found is None or found.size_in_bytes > LIMITS.packed:
        return None
    place: Path = origin.scratch / "plan.zip"
    try:
        actions.download(origin.github, origin.repository, found, place, most=LIMITS.packed)
        return Plan.model_validate_json(open_plan(place))
    except (RefusedArtifactError, ValidationError, GitHubError):
        return None  # only names are lacking
