"""How workflows stand, as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contribbot.model.jobdone import JobDone
from contribbot.model.report import PatchReport
from contribbot.model.workflows import Standing, Workflow
from contribbot.report.summary import append_summary
from contribbot.report.text import clean

_DONE = {
    Standing.CURRENT: "as it was",
    Standing.MISSING: "written",
    Standing.OUTDATED: "brought up to date",
    Standing.EDITED: "written; what was changed by hand is gone",
}


def installed_lines(workflows: Sequence[Workflow]) -> list[str]:
    """Return what installing did."""
    return [f"{one.path}: {_DONE[one.standing]}" for one in workflows]


def checked_lines(workflows: Sequence[Workflow]) -> list[str]:
    """Return how workflows stand, and what installing would change."""
    lines = []
    for one in workflows:
        lines.append(f"{one.path}: {one.standing}")
        lines += [clean(row) for row in one.diff]
    return lines


def tell_patch(report: PatchReport, *, summary: Path | None) -> None:
    """Add what a job saw of a patch to the summary that Actions shows."""
    if summary is not None:
        append_summary(summary, [report])


def done_lines(done: JobDone) -> list[str]:
    """Return how a job ended."""
    asked = {one.patch: one.require for one in done.asked}
    lines = []
    for one in done.patches:
        said = one.error or ("proved" if one.exit_code == 0 else f"exit code {one.exit_code}")
        lines.append(f"{one.patch}: {', '.join(asked.get(one.patch, ()))}: {said}")
        lines += [
            f"  {each.stage} on {each.target}: the runner is at fault: "
            f"{each.fault.kind}: {each.fault.said}"
            for each in one.faults
        ]
    return [clean(line) for line in lines]
