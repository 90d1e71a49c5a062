"""A run at work, as lines, and what came of it for programs."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from contribbot.model.actions import Run
from contribbot.model.base import Model
from contribbot.report.text import clean
from contribbot.runners.sending import Sender, Standing
from contribbot.runners.watching import Ended, Step, View

_SHOWN: Final = 4


class DispatchedJob(Model):
    """A job of a run that is over.

    Attributes:
        name: Its name.
        state: How it ended.
        runner: Which runner had it; empty: none.
        started: When it started, or was queued.
        ended: When it ended.
        cells: The names of its cells; none where the plan is not known.
    """

    name: str
    state: str
    runner: str
    started: datetime | None
    ended: datetime | None
    cells: Annotated[tuple[str, ...], Field(strict=False)]


class Dispatched(Model):
    """What `dispatch --json` prints.

    Attributes:
        type: What it is.
        repository: The queue's repository.
        run: The run.
        url: Its page.
        commit: The queue's commit that it was of.
        conclusion: How GitHub marks the run.
        collect: What the run's own `collect` came to; empty: it judged nothing.
        passed: What the exit code goes by: `collect` where it judged, else GitHub's mark.
        runners_failed: Whether `collect` says that runners failed, and no patch did.
        jobs: Its jobs.
    """

    type: Literal["contribbot/dispatched/v1"] = "contribbot/dispatched/v1"
    repository: str
    run: int
    url: str
    commit: str
    conclusion: str
    collect: str
    passed: bool
    runners_failed: bool
    jobs: Annotated[tuple[DispatchedJob, ...], Field(strict=False)]

    @classmethod
    def of(cls, repository: str, ended: Ended) -> Dispatched:
        """Return what programs are told of a run that is over."""
        run = ended.run
        return cls(
            repository=repository, run=run.id, url=run.html_url, commit=run.head_sha,
            conclusion=run.conclusion or "", collect=ended.collect, passed=ended.passed,
            runners_failed=ended.runners_failed,
            jobs=tuple(DispatchedJob(name=one.job, state=one.now, runner=one.runner,
                                     started=one.started, ended=one.ended, cells=one.cells)
                       for one in ended.jobs),
        )  # fmt: skip


def view_lines(view: View) -> list[str]:
    """Return what changed, and how many cells are where."""
    lines = []
    for one in view.steps:
        where = f" on {one.runner}" if one.runner else ""
        cells = cells_of(one)
        lines.append(f"{one.job}: {one.now}{where}{f': {cells}' if cells else ''}")
    if view.cells:
        lines.append(count_line(view))
    return [clean(line) for line in lines]


def cells_of(step: Step) -> str:
    """Return the first cells of a job, and how many more it has."""
    more = len(step.cells) - _SHOWN
    return ", ".join(step.cells[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def count_line(view: View) -> str:
    """Say how many cells are where; where the plan is not known, how many jobs."""
    counts = dict(view.cells) or Counter(one.now for one in view.jobs)
    what = "cells, as their jobs are" if view.cells else "jobs"
    return f"{what}: {', '.join(f'{count} {state}' for state, count in sorted(counts.items()))}"


def standing_lines(standing: Standing) -> list[str]:
    """Return how a run that is to be started will differ from the queue here."""
    lines = []
    if standing.there and standing.there != standing.here:
        lines.append(
            f"the run proves {standing.ref} at {standing.there[:12]}; {_here(standing.here)}"
        )
    if standing.uncommitted:
        first, *others = standing.uncommitted
        more = f" and {len(others)} more" if others else ""
        lines.append(f"not committed, so not in the run: {first}{more}")
    return [clean(line) for line in lines]


def started_lines(run: Run, standing: Standing) -> list[str]:
    """Return which run was started, and of which commit where that was not said before."""
    lines = [f"run {run.id}: {run.html_url}"]
    if run.head_sha not in {standing.here, standing.there}:
        lines.append(f"it is of {run.head_branch} at {run.head_sha[:12]}; {_here(standing.here)}")
    return [clean(line) for line in lines]


def _here(commit: str) -> str:
    return f"the queue here is at {commit[:12] or 'no commit'}"


def left_lines(sender: Sender) -> list[str]:
    """Return what goes on, or may, when nobody watches any more; nothing where nothing does."""
    if sender.run_id is not None:
        run = f"{sender.run_id}{sender.named}"
        return [
            f"the run goes on; watch it again: contribbot dispatch --resume {run}",
            f"when it is over: contribbot collect {run}",
        ]
    if sender.request:
        return [f"a run named {sender.request} may have been started: {sender.page}"]
    return []


def over_lines(ended: Ended, named: str = "") -> list[str]:
    """Return how a run ended, by what judged it, and what is next."""
    run, said = ended.run, f"{ended.run.conclusion}"
    if ended.collect:
        said = f"collect: {ended.collect}"
        said += ", so all that was planned came and passed" if ended.passed else ""
        said += ": runners failed, and no patch did" if ended.runners_failed else ""
        if run.conclusion != ended.collect:
            said += f" (GitHub marks the run {run.conclusion})"
    return [
        clean(f"run {run.id} is over: {said}"),
        f"what each cell shows: contribbot collect {run.id}{named}",
    ]
