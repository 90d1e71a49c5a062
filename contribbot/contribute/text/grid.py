"""Targets against what ran on them, with "not run" written out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.contribute.text.figures import Figures
from contribbot.model.rules import Rules

#: Columns of the grid: their title, the stage, and the word for what is open.
COLUMNS: Final = (
    ("tests", "reproduce", "not run"),
    ("numerics", "numerics", "not run"),
    ("speed", "bench", "not measured"),
    ("compiled", "compile", "not compiled"),
    ("built", "build", "not built"),
)
NOT_RUN: Final = "not run"


@dataclass(frozen=True)
class Cell:
    """One stage on one target.

    Attributes:
        passed: How many of the patch's entries passed there.
        stated: How many it has for the target.
        labels: The records that say so.
        open: What is written when not all of it passed.
    """

    passed: int
    stated: int
    labels: tuple[str, ...]
    open: str

    @property
    def text(self) -> str:
        """What the grid shows (Markdown)."""
        if not self.stated:
            return ""
        if not self.passed:
            return f"**{self.open}**"
        part = "passed" if self.passed == self.stated else f"{self.passed} of {self.stated}"
        rest = "" if self.passed == self.stated else f", the rest **{self.open}**"
        return f"{part} ({', '.join(self.labels)}){rest}"


@dataclass(frozen=True)
class GridRow:
    """A target, or several of which the same is true.

    Attributes:
        targets: The targets.
        cells: One for each of `COLUMNS`.
    """

    targets: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def ran(self) -> bool:
        """Whether something ran on the hardware."""
        return any(cell.passed for cell in self.cells[:3])


def grid_of(figures: Figures, rules: Rules) -> list[GridRow]:
    """Return what ran on each target that the patch or the upstream's rules name.

    On hardware for which the patch states no test nothing ran either: it is said.
    """
    spec = figures.patch.spec
    stated: list[tuple[str, str, str]] = [
        *(("reproduce", one.target, one.name) for one in spec.checks),
        *(("numerics", one.target, one.name) for one in spec.numerics),
        *(("bench", one.target, one.name) for one in spec.bench),
        *(("compile", target, one.name) for one in spec.compile for target in one.targets),
        *(("build", target, one.name) for one in spec.build for target in one.targets),
    ]
    named = [target.rpartition(":")[2] for target in (*rules.require, *rules.targets)]
    targets = sorted({*(target for _, target, _ in stated), *named}, key=_order)
    rows: dict[tuple[Cell, ...], list[str]] = {}
    for target in targets:
        cells = tuple(_cell(figures, stated, stage, target, word) for _, stage, word in COLUMNS)
        rows.setdefault(cells, []).append(target)
    return [GridRow(tuple(names), cells) for cells, names in rows.items()]


def _order(target: str) -> tuple[int, int]:
    """Order processors, then CUDA, then AMD's targets by their number."""
    first = ("cpu", "cuda").index(target) if target in {"cpu", "cuda"} else 2
    return (first, int(target[3:], 16) if first == 2 else 0)  # noqa: PLR2004  the place after both


def _cell(
    figures: Figures, stated: Iterable[tuple[str, str, str]], stage: str, target: str, word: str
) -> Cell:
    names = {name for one, where, name in stated if (one, where) == (stage, target)}
    seen = [one for one in figures.of(stage, target=target) if one.name in names]
    passed = {one.name for one in seen}
    labels = tuple(
        source.label for source in figures.sources if any(source in one.sources for one in seen)
    )
    if not passed and target in figures.stale:
        word += " on this version"
    # Where the patch states nothing for hardware, `not run` is the truth all the same.
    least = 1 if stage == "reproduce" and target != "cpu" else 0
    return Cell(len(passed), max(len(names), least), labels, word)


def not_run(rows: Sequence[GridRow]) -> tuple[str, ...]:
    """Return the targets on whose hardware nothing ran."""
    return tuple(target for row in rows if not row.ran for target in row.targets)
