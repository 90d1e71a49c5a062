"""A run at work, drawn anew again and again where there is a terminal to draw it on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from contribbot.report.dispatch import cells_of, count_line, view_lines
from contribbot.report.live import console
from contribbot.report.text import clean
from contribbot.runners.watching import Step, View

#: What is looked at first; a screen may not have room for all.
_ORDER: Final = ("in progress", "failure", "timed out", "cancelled", "queued", "success", "skipped")
#: As `report.text` has them. The word is always there.
_STYLES: Final = {"success": "green", "failure": "bold red", "timed out": "bold red",
                  "cancelled": "yellow", "queued": "dim", "skipped": "dim"}  # fmt: skip
#: Lines that are no jobs: how many more there are, the counts, and where the cursor stays.
_OTHERS: Final = 3


class Board:
    """The jobs of a run, one a line."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._view: View | None = None

    def told(self, view: View) -> None:
        """Take what changed; it is drawn when the time has come."""
        self._view = view

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Draw while the block runs, and leave below what it looked like in the end."""
        drawing = Live(console=self._out, get_renderable=self._screen, refresh_per_second=2,
                       transient=True)  # fmt: skip
        try:
            with drawing:
                yield
        finally:
            if self._view is not None:
                self._out.print(_drawn(self._view, self._view.jobs, cut=False))

    def _screen(self) -> RenderableType:
        """Return what there is room for."""
        view = self._view
        if view is None:
            return Text("waiting for the first job")
        rank = {state: number for number, state in enumerate(_ORDER)}
        # What nobody knows yet stands where it can be seen.
        jobs = sorted(view.jobs, key=lambda one: rank.get(one.now, 0))
        room = max(1, self._out.size.height - _OTHERS)
        return _drawn(view, jobs[:room], cut=True)


@contextlib.contextmanager
def telling(say: Callable[[list[str]], None], *, stderr: bool) -> Iterator[Callable[[View], None]]:
    """Give what tells of a run: a board on a terminal, and elsewhere lines of what changed."""
    out = console(stderr=stderr)
    if not out.is_terminal or out.is_dumb_terminal:
        yield lambda view: say(view_lines(view))
        return
    board = Board(out)
    with board.shown():
        yield board.told


def _drawn(view: View, jobs: Sequence[Step], *, cut: bool) -> RenderableType:
    """Return a line a job, and the counts. What matters most stands where nothing is cut off."""
    now = datetime.now(UTC)
    rows = [(clean(one.now), _time(one, now), clean(one.job), clean(one.runner),
             clean(cells_of(one))) for one in jobs]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [Text("  ".join(map(str.ljust, row, widths)).rstrip()) for row in rows]
    for line, row in zip(lines, rows, strict=True):
        line.stylize(_STYLES.get(row[0], ""), 0, len(row[0]))
    if more := len(view.jobs) - len(jobs):
        lines.append(Text(f"and {more} more jobs"))
    lines.append(Text(clean(count_line(view))))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis" if cut else "ignore"
    return Group(*lines)


def _time(step: Step, now: datetime) -> str:
    """Return how long a job has been running, or ran; nothing of one that waits."""
    if step.started is None or not (step.ended or step.now == "in progress"):
        return ""
    # GitHub's clock may be ahead of the one here.
    seconds = max(0, round(((step.ended or now) - step.started).total_seconds()))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
