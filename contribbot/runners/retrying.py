"""Second tries: which cells get one, and what becomes of a cell that had one.

What is tried again follows from the plan and from what its jobs left. So nobody hands it from
one job of the workflow to another, and `collect` finds out by itself which second tries a run
may have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contribbot.model.actions import CellEnd, CellState, RunJob
from contribbot.model.runners import Job, Plan
from contribbot.queue.load import Queue
from contribbot.runners import planned
from contribbot.runners.plan import again

#: What the id of a job that tries again ends with.
SUFFIX = "-again"


def second_jobs(queue: Queue, plan: Plan, ends: Iterable[CellEnd]) -> tuple[Job, ...]:
    """Return what tries the cells again that a runner failed."""
    faulty = [one.key for one in ends if one.state is CellState.FAULT]
    runners = planned.runners_of(queue, plan)
    return again(plan, faulty, runners) if runners is not None else ()


def stale_tries(plan: Plan, jobs: Mapping[str, RunJob] | None) -> frozenset[str]:
    """Return the second tries whose first tries ran again since: they tell of what is no more."""
    there = jobs or {}
    pairs = ((there.get(job.id), there.get(f"{job.id}{SUFFIX}")) for job in plan.jobs)
    return frozenset(
        second.name
        for first, second in pairs
        if first and second and second.run_attempt < first.run_attempt
    )


def settled(
    first: CellEnd, second: CellEnd, before: RunJob | None, after: RunJob | None
) -> CellEnd:
    """Return what became of a cell whose first runner was at fault."""
    if second.state is CellState.MISSING and (after is None or after.conclusion == "skipped"):
        return first.model_copy(update={"why": f"{first.why}; no second try: {second.why}"})
    names = [job.runner_name or "" if job else "" for job in (before, after)]
    at_first, then = (f" on {name}" if name else "" for name in names)
    if then and then == at_first:
        then += ", the same runner again"
    if second.state is CellState.FAULT:
        why = f"tried twice;{then or ' then'}: {second.why}; before{at_first}: {first.why}"
    else:
        why = (f"{second.why}; second try{then}; the first{at_first} was a runner fault: "
               f"{first.why}")  # fmt: skip
    return second.model_copy(update={"why": why})
