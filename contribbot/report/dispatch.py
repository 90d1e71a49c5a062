"""A run at work, as lines."""

from __future__ import annotations

from contribbot.model.actions import Run
from contribbot.report.text import clean
from contribbot.runners.watching import View

_SHOWN = 4


def view_lines(view: View) -> list[str]:
    """Return what changed, and how many cells are where.

    Args:
        view: What changed.
    """
    lines = []
    for one in view.steps:
        where = f" on {one.runner}" if one.runner else ""
        cells = ", ".join(one.cells[:_SHOWN])
        more = len(one.cells) - _SHOWN
        cells += f" and {more} more" if more > 0 else ""
        lines.append(f"{one.job}: {one.now}{where}{f': {cells}' if cells else ''}")
    if view.cells:
        counted = ", ".join(f"{count} {state}" for state, count in sorted(view.cells.items()))
        lines.append(f"cells: {counted}")
    return [clean(line) for line in lines]


def started_lines(run: Run, here: str) -> list[str]:
    """Return which run was started, and that it is of another commit than the queue here.

    Args:
        run: The run.
        here: The queue's commit here; may be empty.
    """
    lines = [f"run {run.id}: {run.html_url}"]
    if here != run.head_sha:
        lines.append(
            f"it is of {run.head_branch} at {run.head_sha[:12]}; the queue here is at "
            f"{here[:12] or 'no commit'}"
        )
    return [clean(line) for line in lines]


def goes_on_lines(run_id: int) -> list[str]:
    """Return what to do about a run that nobody watches any more."""
    return [
        f"the run goes on; watch it again: contribbot dispatch --resume {run_id}",
        f"when it is over: contribbot collect {run_id}",
    ]


def over_lines(run: Run) -> list[str]:
    """Return how a run ended, and what is next."""
    return [
        clean(f"run {run.id} is over: {run.conclusion}"),
        f"what it shows: contribbot collect {run.id}",
    ]
