"""Text for a terminal that cannot be made to misbehave by what it reports."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from contribbot.model.evidence import (
    Outcome,
    StageResult,
)
from contribbot.model.lifecycle import ConflictSide

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


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, their columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def columns(patch: str, result: StageResult) -> tuple[str, str, str, str, str, str]:
    """Return patch, stage, target, outcome, time and reason of an outcome as text."""
    time = "cached" if result.cached else f"{result.seconds:.1f} s" if result.seconds else "-"
    return (
        patch, result.stage, result.target, str(result.outcome), time, clean(result.reason),
    )  # fmt: skip


def side_lines(side: ConflictSide, *, base: str) -> list[str]:
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
                *(f"  {'|' if row in there else '>'} {row}".rstrip() for row in cleaned),
            ]
    return lines


def conflict_lines(result: StageResult) -> list[str]:
    """Return the three sides of each conflict of an `apply` outcome, as lines."""
    conflicts = result.details.get("conflicts")
    lines: list[str] = []
    for conflict in conflicts if isinstance(conflicts, list) else []:
        if not isinstance(conflict, dict) or not conflict.get("hunk"):
            continue
        expected, found, wanted = (_rows(conflict[key]) for key in ("expected", "found", "wanted"))
        lines.append(f"  {clean(str(conflict['path']))}, hunk {conflict['hunk']}")
        has = f"the pin has, at line {conflict['line']}:"
        lines += [f"    {row}" for row in three_sides(expected, found, wanted, has=has)]
    return lines


def _rows(side: JsonValue) -> list[str]:
    return [str(row) for row in side] if isinstance(side, list) else []


#: Characters that Markdown or HTML would act on; what a check wrote is only text.
_ESCAPES = {ord(char): f"\\{char}" for char in "\\`*_{}[]()#+!|~"} | {
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord("&"): "&amp;",
    ord("@"): "&#64;",
}


def escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return text.translate(_ESCAPES)
