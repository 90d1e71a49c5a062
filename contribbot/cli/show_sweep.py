"""A sweep, and two of them beside each other, for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contribbot.cli.text import Code, clean, count, width
from contribbot.sweep.findings import SWEEP_OUTCOMES, Sweep, SweepComparison, SweepFinding

#: Rows of each part that a terminal shows.
_MOST: Final = 20


def sweep_lines(sweep: Sweep, comparison: SweepComparison | None, folder: Path) -> Iterator[str]:
    """Yield a row for each target, each finding, and what has changed."""
    counts = (
        (each.target, *(str(each.outcomes[name]) for name in SWEEP_OUTCOMES), f"{each.seconds:.0f}")
        for each in sweep.targets
    )
    yield from _table(("target", *SWEEP_OUTCOMES, "seconds"), counts)
    for each in sweep.targets:
        if each.unfinished:
            yield f"{each.target}: not all of its tests have run: {clean(each.unfinished)}"
    if sweep.findings:
        yield ""
        rows = map(_row, sweep.findings[:_MOST])
        yield from _table(("", "finding", "kernel", "line", "tests", "targets"), rows)
        yield from _more(len(sweep.findings))
        yield ""
        yield f"what each says is in {clean(str(folder))}/index.html; for a patch of the first:"
        yield f"contribbot new NAME --from-finding {clean(str(folder))}#{sweep.findings[0].number}"
    if comparison:
        yield from _compared(comparison)
    yield "emulated from AMD's instruction reference; not run on a GPU"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table that fits the terminal; long cells are folded."""
    shown = Table(*titles, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in shown.columns:
        column.overflow = "fold"
    for row in rows:
        shown.add_row(*(Text(clean(cell)) for cell in row))
    console = Console(width=width(), color_system=None, file=io.StringIO())
    with console.capture() as taken:
        console.print(shown)
    yield from (Code(line.rstrip()) for line in taken.get().splitlines())


def _row(finding: SweepFinding) -> tuple[str, ...]:
    return (
        f"#{finding.number}", finding.kind, finding.kernel or "-", finding.line,
        str(len(finding.tests)), " ".join(finding.targets),
    )  # fmt: skip


def _more(number: int) -> Iterator[str]:
    if number > _MOST:
        yield f"and {number - _MOST} more"


def _compared(found: SweepComparison) -> Iterator[str]:
    yield ""
    for name, (before, now) in found.versions.items():
        yield f"{clean(name)} {clean(before) or 'none'} -> {clean(now) or 'none'}"
    for title, findings in (("new", found.new), ("gone", found.gone)):
        for each in findings[:_MOST]:
            yield f"{title}: {each.kind}: {clean(each.kernel)}: {clean(each.line)}"
        yield from _more(len(findings))
    for grown in found.grown[:_MOST]:
        yield (f"grown: {grown.needs} of {clean(grown.kernel)} on {grown.target}: "
               f"{grown.before} -> {grown.now}")  # fmt: skip
    yield from _more(len(found.grown))
    for test in found.outcomes[:_MOST]:
        yield f"{test.target}: {clean(test.test)}: {test.before} -> {test.now}"
    yield from _more(len(found.outcomes))
    for test in found.bits[:_MOST]:
        yield f"{test.target}: other bits of {clean(', '.join(test.kernels))}: {clean(test.test)}"
    yield from _more(len(found.bits))
    yield (f"{count(found.alike, 'test')} left the same bits; {count(found.uncompared, 'test')} "
           "could not be compared")  # fmt: skip
