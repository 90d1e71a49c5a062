"""Print outcomes of checks as they come in, with rich's progress bars on a terminal."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from rich import progress
from rich.console import Console
from rich.text import Text

from contribbot.cli.outcomes import outcome_blocks
from contribbot.cli.refusal import echo
from contribbot.cli.render import Block, is_watched, lines_of, width
from contribbot.errors import check_stopping
from contribbot.model.evidence import BEHAVIOUR, HOST_TARGETS, StageResult


class Lines:
    """Prints outcomes by patch; a terminal also shows running checks, with progress bars."""

    def __init__(self, order: Sequence[str] = (), *, stderr: bool = True) -> None:
        self._order, self._stderr = [*order], stderr
        self._lock = threading.Lock()
        self._results: dict[str, list[StageResult]] = {name: [] for name in order}
        self._finished: set[str] = set()
        self._tasks: dict[tuple[str, ...], progress.TaskID] = {}
        # Lines and progress on one terminal must go through one console, or they mix.
        self._mixed = is_watched(stderr=stderr)
        below = stderr or not self._mixed
        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=24),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            console=Console(stderr=below, soft_wrap=True, highlight=False),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not is_watched(stderr=below),
        )
        self._patches = self._progress.add_task("patches", total=len(order), visible=len(order) > 1)

    @contextlib.contextmanager
    def shown(self) -> Iterator[Self]:
        """Draw progress bars while the `with` block runs; then print the remaining outcomes."""
        try:
            with self._progress:
                yield self
        finally:
            for patch in [*self._results]:
                self._print(patch)

    def say(self, line: str) -> None:
        """Print a line above the progress bars."""
        self._write([line])

    @contextlib.contextmanager
    def working(self, name: str) -> Iterator[None]:
        """Show a progress bar with a name while the `with` block runs."""
        task = self._progress.add_task(name, total=None)
        try:
            yield
        finally:
            self._progress.remove_task(task)

    def started(self, patch: str, stage: str, target: str, label: str) -> None:
        """Show a progress bar for a patch's check on a target."""
        name = _name(patch, stage, target, label)
        with self._lock:
            self._tasks[patch, stage, label, target] = self._progress.add_task(name, total=None)

    def step(self, patch: str, target: str, label: str, runs: str) -> None:
        """Add the trees on which a running check runs to the check's progress bar."""
        with self._lock:
            for (owner, stage, *unit), task in self._tasks.items():
                if (owner, unit) == (patch, [label, target]):
                    name = _name(patch, stage, target, label)
                    self._progress.update(task, description=f"{name}: {runs}")

    def ended(self, patch: str, result: StageResult) -> None:
        """Store an outcome, and remove its progress bar; without a terminal, print a line."""
        with self._lock:
            self._results.setdefault(patch, []).append(result)
            task = self._tasks.pop((patch, *result.unit), None)
            if task is None:
                return
            self._progress.remove_task(task)
            if self._progress.disable:
                state = "ended" if result.stage == BEHAVIOUR else result.outcome
                name = _name(patch, result.stage, result.target, result.label)
                echo(f"{name}: {state}", stderr=True)

    def finished(self, patch: str) -> None:
        """Mark a patch as finished; print outcomes in order up to the first unfinished patch."""
        with self._lock:
            self._finished.add(patch)
            self._progress.advance(self._patches)
            if patch not in self._order:
                self._print(patch)
            while self._order and self._order[0] in self._finished:
                self._print(self._order.pop(0))

    def _print(self, patch: str) -> None:
        self._write(outcome_blocks(patch, self._results.pop(patch, [])))

    def _write(self, blocks: Iterable[Block]) -> None:
        console = self._progress.console
        coloured = self._mixed and console.color_system is not None and not console.no_color
        for line in lines_of(blocks, width(stderr=self._stderr), coloured=coloured):
            if self._mixed:
                console.print(Text.from_ansi(line))
            else:
                echo(line, stderr=self._stderr)

    def download(self) -> Download:
        """Return a progress bar for one download."""
        return Download(self._progress)


def _name(patch: str, stage: str, target: str, label: str) -> str:
    on = "" if target in HOST_TARGETS else target
    return " ".join(filter(None, (f"{patch}:", stage, label, on)))


class Download:
    """The progress bar of one download."""

    def __init__(self, bars: progress.Progress) -> None:
        self._progress = bars
        self._task: progress.TaskID | None = None

    def start(self, label: str, total: int | None) -> None:
        """Show the progress bar; `total`: the number of bytes to download, None if not known."""
        self._task = self._progress.add_task(label, total=total)

    def advance(self, count: int) -> None:
        """Advance the progress bar by a number of downloaded bytes."""
        check_stopping()
        if self._task is not None:
            self._progress.advance(self._task, count)

    def done(self) -> None:
        """Remove the progress bar of a download that has succeeded or failed."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
