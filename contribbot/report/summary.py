"""The step summary that GitHub Actions shows: a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contribbot.model.report import PatchReport
from contribbot.report.text import columns, verdict_line

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


def append_summary(path: Path, reports: Sequence[PatchReport]) -> None:
    """Add to the step summary file, as GitHub Actions asks."""
    lines: list[str] = []
    for report in reports:
        lines += [f"### {escape(verdict_line(report))}", ""]
        lines += ["| stage | target | outcome | time | seen |", "|---|---|---|---|---|"]
        for one in report.stages:
            cells = columns(report.patch, one)[1:]
            lines.append("| " + " | ".join(escape(cell) for cell in cells) + " |")
        lines.append("")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
