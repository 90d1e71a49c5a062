"""A run at work, as lines."""

from __future__ import annotations

from contribbot.model.actions import Run
from contribbot.report.text import clean
from contribbot.runners.sending import Sender, Standing
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
        lines.append(f"cells, as their jobs are: {counted}")
    return [clean(line) for line in lines]


def standing_lines(standing: Standing) -> list[str]:
    """Return how a run that is to be started will differ from the queue here.

    Args:
        standing: How the queue here stands to it.
    """
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
    """Return which run was started, and of which commit where that was not said before.

    Args:
        run: The run.
        standing: How the queue here stood to it.
    """
    lines = [f"run {run.id}: {run.html_url}"]
    if run.head_sha not in {standing.here, standing.there}:
        lines.append(f"it is of {run.head_branch} at {run.head_sha[:12]}; {_here(standing.here)}")
    return [clean(line) for line in lines]


def _here(commit: str) -> str:
    return f"the queue here is at {commit[:12] or 'no commit'}"


def left_lines(sender: Sender) -> list[str]:
    """Return what goes on, or may, when nobody watches any more; nothing where nothing does.

    Args:
        sender: Who started or watched it.
    """
    if sender.run_id is not None:
        return [
            f"the run goes on; watch it again: contribbot dispatch --resume {sender.run_id}",
            f"when it is over: contribbot collect {sender.run_id}",
        ]
    if sender.request:
        return [f"a run named {sender.request} may have been started: {sender.page}"]
    return []


def over_lines(run: Run) -> list[str]:
    """Return how a run ended, and what is next."""
    return [
        clean(f"run {run.id} is over: {run.conclusion}"),
        f"what each cell shows: contribbot collect {run.id}",
    ]
