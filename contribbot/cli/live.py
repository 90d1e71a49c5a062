"""Lines as outcomes come in, and live progress where there is a terminal to draw it on."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from contribbot.cli.outcomes import UnitKey, outcome_blocks
from contribbot.cli.render import Block, duration, lines_of, width
from contribbot.errors import check_stopping
from contribbot.model.evidence import BEHAVIOUR, HOST_TARGETS, StageResult


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
    """A console whose reader may go away: the work goes on."""

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


#: Seconds after which a file or pipe, where no progress is drawn, hears what runs.
_SILENCE: Final = 30.0


class Lines:
    """Prints outcomes by patch, and what runs: drawn on a terminal, else a line now and then."""

    def __init__(self, out: Console, order: Sequence[str] = ()) -> None:
        self.out = out
        # Lines and progress on one terminal must go through one console, or they mix.
        live = out if out.is_terminal else console(stderr=True)
        self._order = [*order]
        self._lock = threading.Lock()
        self._results: dict[str, list[StageResult]] = {name: [] for name in order}
        self._finished: set[str] = set()
        self._seconds: dict[UnitKey, float] = {}
        self._ended = 0
        self._tasks: dict[UnitKey, TaskID] = {}
        self._total: TaskID | None = None
        self._live = live
        self._over = threading.Event()
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
        """Draw progress while the block runs; in the end nothing that is known stays unsaid."""
        speaker = threading.Thread(target=self._speak, daemon=True)
        if not self._live.is_terminal:
            speaker.start()
        try:
            with self._progress:
                yield
        finally:
            self._over.set()
            for patch in [*self._results]:
                self._print(patch)

    def _speak(self) -> None:
        while not self._over.wait(_SILENCE):
            with self._lock:
                if not self._tasks:
                    continue
                tasks = [each for each in self._progress.tasks if each.id in self._tasks.values()]
                running = [f"{each.description} ({duration(each.elapsed or 0)})" for each in tasks]
                rest = f"; {self.left()}" if self._seconds else ""
            self._live.print(Text(f"running: {', '.join(running)}{rest}"))

    def expect(self, seconds: Mapping[UnitKey, float]) -> None:
        """Show how much is done of what is expected, and how long the rest took before."""
        self._seconds = {**seconds}
        if seconds:
            self._total = self._progress.add_task(self.left(), total=None)

    def left(self) -> str:
        """Say how much is done, and how long the rest may take."""
        rest = sum(self._seconds.values())
        left = f", about {duration(rest)} left" if rest else ""
        return f"{self._ended} of {self._ended + len(self._seconds)}{left}"

    def say(self, line: str) -> None:
        """Print a line above what is running."""
        self._write([line])

    def started(self, patch: str, stage: str, target: str, label: str) -> None:
        """Show that some work has started."""
        on = "" if target in HOST_TARGETS else target
        name = " ".join(part for part in (f"{patch}:", stage, label, on) if part)
        with self._lock:
            self._tasks[patch, stage, label, target] = self._progress.add_task(name, total=None)

    def ended(self, patch: str, result: StageResult) -> None:
        """Keep an outcome until the patch is through; a file or pipe hears of it at once."""
        key = (patch, *result.unit)
        with self._lock:
            self._results.setdefault(patch, []).append(result)
            task = self._tasks.pop(key, None)
            if task is not None:
                name = next(each.description for each in self._progress.tasks if each.id == task)
                self._progress.remove_task(task)
                if not self._live.is_terminal:
                    told = "ended" if result.stage == BEHAVIOUR else result.outcome
                    self._live.print(Text(f"{name}: {told}"))
            self._ended += 1
            self._seconds.pop(key, None)
            if self._total is not None:
                self._progress.update(self._total, description=self.left())

    def finished(self, patch: str) -> None:
        """Print the outcomes of a patch, after those of the patches before it."""
        with self._lock:
            self._finished.add(patch)
            for key in [key for key in self._seconds if key[0] == patch]:
                del self._seconds[key]
            if patch not in self._order:
                self._print(patch)
            while self._order and self._order[0] in self._finished:
                self._print(self._order.pop(0))

    def _print(self, patch: str) -> None:
        self._write(outcome_blocks(patch, self._results.pop(patch, [])))

    def _write(self, blocks: Iterable[Block]) -> None:
        columns, coloured = width(stderr=self.out.stderr), self.out.color_system is not None
        for line in lines_of(blocks, columns, coloured=coloured and not self.out.no_color):
            self.out.print(Text.from_ansi(line))

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
        check_stopping()
        if self._task is not None:
            self._progress.advance(self._task, count)

    def done(self) -> None:
        """The download has ended, well or not."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
