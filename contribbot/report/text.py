"""Text for a terminal that cannot be made to misbehave by what it reports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from contribbot.model.outcome import (
    ON_HARDWARE,
    Outcome,
    StageResult,
    Verdict,
    proves,
    too_noisy,
    went_red_to_green,
)
from contribbot.model.plan import Side
from contribbot.model.report import PatchReport, unmet
from contribbot.verify.runnerfault import at_fault

#: Rich styles. Red and green alone say nothing to some; the word is always there.
STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.UNAVAILABLE: "yellow",
    Outcome.SKIPPED: "dim",
}


def clean(text: str) -> str:
    """Return text without control characters, which a terminal would obey."""
    return "".join(
        char if char.isprintable() else " " if char in "\n\t\r" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def columns(patch: str, result: StageResult) -> tuple[str, str, str, str, str, str]:
    """Return patch, stage, target, outcome, time and reason of an outcome as text."""
    time = "cached" if result.cached else f"{result.seconds:.1f} s" if result.seconds else "-"
    return (
        patch, result.stage, result.target, str(result.outcome), time, clean(result.reason),
    )  # fmt: skip


def verdict_line(report: PatchReport) -> str:
    """Say in one line what was shown, where, and what is open."""
    if report.verdict is Verdict.PROVED:
        text = f"{report.patch}: proved {_where(report)}"
    elif report.verdict is Verdict.REFUTED:
        failed = dict.fromkeys(one.stage for one in report.stages if one.outcome is Outcome.FAILED)
        text = f"{report.patch}: refuted by {', '.join(failed)}"
    else:
        missing = dict.fromkeys(
            one.stage
            for one in report.stages
            if one.outcome is Outcome.UNAVAILABLE and not too_noisy(one)
        )
        shown = _where(report)
        what = f"shown {shown}, but not all of it" if shown else "nothing proved, nothing refuted"
        if not shown and any(map(went_red_to_green, report.stages)):
            what += "; what went from red to green ran nothing that the patch adds"
        text = f"{report.patch}: {what}"
        if missing:
            text += f"; unavailable: {', '.join(missing)}"
    noisy = dict.fromkeys(f"{one.stage}:{one.target}" for one in report.stages if too_noisy(one))
    if noisy:
        text += f"; too noisy to tell: {', '.join(noisy)}"
    if unrun := [_open(report, one) for one in report.open if one not in noisy]:
        text += f"; not run: {', '.join(unrun)}"
    return text


def _open(report: PatchReport, name: str) -> str:
    """Return an open target's name, and whether it is the runner's fault."""
    stage, _, target = name.rpartition(":")
    asked = [one for one in report.stages if one.target == target and stage in {"", one.stage}]
    return f"{name} (runner fault)" if at_fault(asked) else name


def _where(report: PatchReport) -> str:
    """Say where a patch was shown to go from red to green: what ran apart from what compiled."""
    shown = [one for one in report.stages if proves(one)]
    ran = dict.fromkeys(one.target for one in shown if one.stage in ON_HARDWARE)
    made = dict.fromkeys(one.target for one in shown if one.stage == "compile")
    others = dict.fromkeys(one.stage for one in shown if one.stage not in {*ON_HARDWARE, "compile"})
    parts = [
        *([f"on {', '.join(ran)}"] if ran else []),
        *([f"by compiling for {', '.join(made)}"] if made else []),
        *([f"by {', '.join(others)}"] if others else []),
    ]
    return " and ".join(parts)


def closing_lines(
    reports: Sequence[PatchReport], records: Mapping[str, Path], required: Sequence[str]
) -> list[str]:
    """Return verdicts, what was required and is not there, and where the records are."""
    lines = []
    for report in reports:
        lines.append(verdict_line(report))
        missing = unmet(report, required)
        if missing:
            lines.append(f"{report.patch}: required, and not proved here: {', '.join(missing)}")
        record = records.get(report.patch)
        if record is not None:
            lines.append(f"{report.patch}: record in {_near(record)}")
    return lines


def _near(path: Path) -> str:
    """Return a path as seen from the current folder, where there is one."""
    try:
        return os.path.relpath(path)
    except FileNotFoundError:
        return str(path)


def side_lines(side: Side, *, base: str) -> list[str]:
    """Return what does not fit in one line, and its three sides below that."""
    rows = three_sides(
        side.expected, side.found, side.wanted, has=f"{base} has, at line {side.line}:"
    )
    return [clean(side.headline), *(f"  {row}" for row in rows)]


def three_sides(
    expected: Sequence[str], found: Sequence[str], wanted: Sequence[str], *, has: str
) -> list[str]:
    """Return the sides of a hunk that does not fit, those that there are, as lines.

    `>` marks the lines of the first two sides that the other of them has not.
    """
    lines: list[str] = []
    for title, rows, other in (
        ("the patch expects:", expected, found),
        (has, found, expected),
        ("the patch wants:", wanted, wanted),
    ):
        if rows:
            there = {clean(row) for row in other}
            cleaned = [clean(row) for row in rows]
            lines += [
                title,
                *(f"  {'|' if one in there else '>'} {one}".rstrip() for one in cleaned),
            ]
    return lines


def conflict_lines(result: StageResult) -> list[str]:
    """Return the three sides of each conflict of an `apply` outcome, as lines."""
    conflicts = result.details.get("conflicts")
    lines: list[str] = []
    for one in conflicts if isinstance(conflicts, list) else []:
        if not isinstance(one, dict) or not one.get("hunk"):
            continue
        expected, found, wanted = (_rows(one[key]) for key in ("expected", "found", "wanted"))
        lines.append(f"  {clean(str(one['path']))}, hunk {one['hunk']}")
        has = f"the pin has, at line {one['line']}:"
        lines += [f"    {row}" for row in three_sides(expected, found, wanted, has=has)]
    return lines


def _rows(side: JsonValue) -> list[str]:
    return [str(row) for row in side] if isinstance(side, list) else []
