"""Lines as outcomes come in, and live progress where there is a terminal to draw it on."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from contribbot import process
from contribbot.cli.show_results import detail_lines
from contribbot.cli.text import STYLES, columns
from contribbot.model.evidence import HOST_TARGETS, StageResult

#: Widths that keep the usual names in columns; longer ones push the rest.
_WIDTHS: Final = (12, 10, 7, 12, 7)


def console(*, stderr: bool = False) -> Console:
    """Return a console that draws nothing fancy unless a person looks on."""
    quiet = bool(os.environ.get("CI"))
    return _Console(
        stderr=stderr,
        soft_wrap=True,
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=False if quiet else None,
    )


class _Console(Console):
    """A console whose reader may go away: the work goes on, only nobody is told."""

    def on_broken_pipe(self) -> None:
        """Write nothing more; what is in the buffer goes nowhere when the program ends."""
        self.quiet = True
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())


class _WhenSized(ProgressColumn):
    """Shows another column for work whose size is known."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        """Render the other column, or nothing."""
        return "" if task.total is None else self._column(task)


class Lines:
    """Prints a line an outcome, and shows on a terminal what is running."""

    def __init__(self, out: Console) -> None:
        self.out = out
        # Lines and progress on one terminal must go through one console, or they mix.
        live = out if out.is_terminal else console(stderr=True)
        self._lock = threading.Lock()
        self._tasks: dict[tuple[str, str, str, str], TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            _WhenSized(BarColumn(bar_width=24)),
            _WhenSized(DownloadColumn()),
            TimeElapsedColumn(),
            console=live,
            transient=True,
            disable=not live.is_terminal,
        )

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Draw progress while the block runs."""
        with self._progress:
            yield

    def started(self, patch: str, stage: str, target: str, label: str) -> None:
        """Show that some work has started."""
        on = "" if target in HOST_TARGETS else target
        name = " ".join(part for part in (f"{patch}:", stage, label, on) if part)
        with self._lock:
            self._tasks[patch, stage, target, label] = self._progress.add_task(name, total=None)

    def ended(self, patch: str, result: StageResult) -> None:
        """Print an outcome."""
        check = result.details.get("check")
        key = (patch, result.stage, result.target, check if isinstance(check, str) else "")
        with self._lock:
            task = self._tasks.pop(key, None)
            if task is not None:
                self._progress.remove_task(task)
            line = Text()
            cells = columns(patch, result)
            for cell, width in zip(cells, _WIDTHS, strict=False):
                style = STYLES[result.outcome] if cell == str(result.outcome) else ""
                line.append(cell.ljust(width) + "  ", style=style)
            line.append(cells[-1])
            self.out.print(line)
            for row in detail_lines(result):
                self.out.print(Text(row))

    def download(self) -> Download:
        """Return what a download reports to."""
        return Download(self._progress)


class Download:
    """One bar for one download."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def start(self, label: str, total: int | None) -> None:
        """A download of so many bytes starts (None: nobody knows how many)."""
        self._task = self._progress.add_task(label, total=total)

    def advance(self, count: int) -> None:
        """So many more bytes are there."""
        process.check_stopping()
        if self._task is not None:
            self._progress.advance(self._task, count)

    def done(self) -> None:
        """The download has ended, well or not."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
