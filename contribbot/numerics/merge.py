"""The comparisons of all seeds of a cell, and the worst of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from contribbot.numerics.cell import Cell
from contribbot.numerics.compare import Comparison
from contribbot.numerics.records import Digests, OutputRecord
from contribbot.numerics.words import plain

#: An error message may hold a tensor; a record need not.
_LONGEST = 500


class Findings:
    """What the seeds of a cell come to; `failed`: why it ended before all were judged."""

    def __init__(self, cell: Cell) -> None:
        self.failed = ""
        self._cell = cell
        self._seen: dict[str, dict[int, Comparison]] = {}
        self._digests: list[Digests] = []

    def judged_by(self, name: str, seed: int, *, inputs: str, references: str) -> None:
        """Note what a result is about to be judged by; raise ValueError for a name's second."""
        name = plain(name)
        if any((one.result, one.seed) == (name, seed) for one in self._digests):
            raise ValueError(f"{name}: judged twice with seed {seed}; give each result its name")
        self._digests.append(Digests(seed=seed, result=name, inputs=inputs, references=references))

    def add(self, name: str, seed: int, seen: Comparison) -> None:
        """Take a comparison."""
        self._seen.setdefault(plain(name), {})[seed] = seen

    def record(self, seeds: Iterable[int]) -> dict[str, object]:
        """Return the fields of a `CellRecord`, without its test."""
        return {
            "cell": self._cell.name,
            "axes": {**self._cell.texts},
            "seeds": [*seeds],
            "digests": [one.model_dump() for one in self._digests],
            "outputs": [
                _merged(name, by_seed).model_dump(mode="json")
                for name, by_seed in self._seen.items()
            ],
            "failed": _line(self.failed or self._complaint()),
        }

    def require_good(self) -> None:
        """Fail if nothing was judged or a result is not good enough, naming the worst."""
        __tracebackhide__ = True
        complaint = self._complaint()
        if complaint:
            raise AssertionError(complaint)

    def _complaint(self) -> str:
        if not self._seen:
            return f"{self._cell.name}: nothing was judged"
        bad = [
            (seen.badness, name, seed, seen)
            for name, by_seed in self._seen.items()
            for seed, seen in by_seed.items()
            if seen.complaint
        ]
        if not bad:
            return ""
        _, name, seed, seen = max(bad, key=lambda one: one[0])
        return f"{self._cell.name} seed {seed}: {name}: {seen.complaint}"


def _merged(name: str, by_seed: Mapping[int, Comparison]) -> OutputRecord:
    worst = max(by_seed, key=lambda seed: by_seed[seed].badness)
    seen = by_seed[worst]
    every = by_seed.values()
    return OutputRecord.model_validate(
        {
            **asdict(seen),
            "name": name,
            "elements": sum(one.elements for one in every),
            "mismatches": sum(one.mismatches for one in every),
            "non_finite": sum(one.non_finite for one in every),
            "worst_seed": worst,
            "max_rel": max((one.max_rel for one in every if one.max_rel is not None), default=None),
            "vacuous": sum(one.vacuous for one in every),
        }
    )


def _line(text: str) -> str:
    """Return the first line, of what JSON can hold."""
    return plain(text.partition("\n")[0][:_LONGEST])
