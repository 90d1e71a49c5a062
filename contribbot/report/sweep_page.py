"""The page of a sweep: self-contained, all text of others escaped."""

from __future__ import annotations

import contribbot
from contribbot.report.site import page_environment
from contribbot.sweep.findings import SWEEP_OUTCOMES, Sweep, SweepComparison

#: Tests of a kind that the page lists; `report.json` has all.
_MOST = 200


def sweep_page(sweep: Sweep, comparison: SweepComparison | None) -> bytes:
    """Return the page."""
    template = page_environment().get_template("sweep.html.j2")
    troubled = [row for row in sweep.tests if row.outcome not in {"passed", "skipped"}]
    return template.render(
        sweep=sweep, compared=comparison, names=SWEEP_OUTCOMES, troubled=troubled[:_MOST],
        left_out=max(0, len(troubled) - _MOST), version=contribbot.__version__,
    ).encode()  # fmt: skip
