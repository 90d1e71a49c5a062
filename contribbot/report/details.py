"""What stands below the line of an outcome: tables for those who want to look closer."""

from __future__ import annotations

from typing import Final

from contribbot.model.outcome import Outcome, StageResult
from contribbot.report.bench import bench_lines
from contribbot.report.listing import listing_lines
from contribbot.report.numerics import worst_lines
from contribbot.report.text import conflict_lines

#: Kernels of one target; the record has all.
_ROWS: Final = 3


def detail_lines(result: StageResult) -> list[str]:
    """Return the lines that belong below an outcome."""
    if result.stage == "apply":
        return conflict_lines(result)
    if result.stage == "bench":
        return bench_lines(result)
    if result.stage == "numerics":
        return worst_lines(result) if result.outcome is Outcome.FAILED else []
    return [f"  {line}" for line in listing_lines([result], limit=_ROWS)]
