"""How workflows stand, as text."""

from __future__ import annotations

from collections.abc import Sequence

from contribbot.model.workflows import Standing, Workflow
from contribbot.report.text import clean

_DONE = {
    Standing.CURRENT: "as it was",
    Standing.MISSING: "written",
    Standing.OUTDATED: "brought up to date",
    Standing.EDITED: "written; what was changed by hand is gone",
}


def installed_lines(workflows: Sequence[Workflow]) -> list[str]:
    """Return what installing did.

    Args:
        workflows: How they stood before.
    """
    return [f"{one.path}: {_DONE[one.standing]}" for one in workflows]


def checked_lines(workflows: Sequence[Workflow]) -> list[str]:
    """Return how workflows stand, and what installing would change.

    Args:
        workflows: How they stand.
    """
    lines = []
    for one in workflows:
        lines.append(f"{one.path}: {one.standing}")
        lines += [_row(row) for row in one.diff]
    return lines


def _row(row: str) -> str:
    """Return a row of a diff that can be shown; its indentation stays."""
    return clean(row)
