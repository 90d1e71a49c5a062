"""What a judged cell comes to; no torch here, the stage reads these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from pydantic import Field

from contribbot.model.base import Model
from contribbot.numerics.compare import Comparison, multiple, plain

Finite = Annotated[float, Field(allow_inf_nan=False, strict=False)]
Integers = Annotated[tuple[int, ...], Field(strict=False)]


class Digests(Model):
    """What one result of one seed was judged by: the same on both trees, or it judges nothing.

    Attributes:
        seed: The seed.
        result: What the check calls the result.
        inputs: Of all inputs drawn until then, as they were before the result was computed.
        references: Of the references, or of what is expected.
    """

    seed: int
    result: str
    inputs: str
    references: str


class OutputRecord(Model):
    """One result of a cell, over all seeds.

    Attributes:
        name: What the check calls it.
        kind: `error`: judged by its error. `exact`: compared bit by bit.
        dtype: Its dtype, such as `bfloat16`.
        shape: Its shape, for the worst seed.
        elements: Elements compared, over all seeds.
        mismatches: Those that err by more than is allowed, or differ; over all seeds.
        non_finite: Those that are NaN or infinite, over all seeds.
        worst_seed: The seed that the following are of.
        place: The index of the worst element; none where nothing was wrong or compared.
        max_abs: The largest absolute error among finite elements.
        max_rel: The largest relative error; none where every reference is 0.
        reference_abs: The same-precision reference's own largest absolute error.
        floor: The absolute error that stands in for a smaller one of the reference.
        allowed: What the largest absolute error may be.
        largest: The largest magnitude in the reference.
        ratio: The largest absolute error as a multiple of that of the reference, or of
            the floor where that is more; none for `exact`.
        vacuous: Seeds that show nothing: the result is empty, or zeros would pass.
        complaint: Why it does not pass, in one line; empty if it does.
    """

    name: str
    kind: Literal["error", "exact"]
    dtype: str
    shape: Integers
    elements: Annotated[int, Field(ge=0)]
    mismatches: Annotated[int, Field(ge=0)]
    non_finite: Annotated[int, Field(ge=0)]
    worst_seed: int
    place: Integers | None
    max_abs: Finite
    max_rel: Finite | None
    reference_abs: Finite
    floor: Finite = 0.0
    allowed: Finite
    largest: Finite
    ratio: Finite | None
    vacuous: int = 0
    complaint: str

    @property
    def by_floor(self) -> bool:
        """Whether the floor decides, not the reference's own error."""
        return self.floor > self.reference_abs

    @property
    def multiple(self) -> str:
        """The error as a multiple of what decides; not for `exact`."""
        return multiple(self.ratio or 0.0, self.reference_abs, self.floor)

    @property
    def badness(self) -> tuple[bool, int, float, int, float]:
        """Orders results: the worst is the largest."""
        ratio = self.ratio or 0.0
        return bool(self.complaint), self.non_finite, ratio, self.mismatches, self.max_abs


class CellRecord(Model):
    """One cell of a grid, judged.

    Attributes:
        test: The test that it is, without its folder.
        cell: Its name: the values of its axes.
        axes: The values of its axes, as text.
        seeds: The seeds that ran.
        digests: What it was judged by, in the order of the seeds.
        outputs: What was judged.
        failed: Why the test fails, in one line; empty if it passes.
    """

    test: str
    cell: str
    axes: dict[str, str]
    seeds: Integers
    digests: Annotated[tuple[Digests, ...], Field(strict=False)] = ()
    outputs: Annotated[tuple[OutputRecord, ...], Field(strict=False)]
    failed: str

    @property
    def elements(self) -> int:
        """Elements compared."""
        return sum(one.elements for one in self.outputs)

    @property
    def ratio(self) -> float:
        """The largest multiple of what decides among its results; 0 without one."""
        return max((one.ratio for one in self.outputs if one.ratio is not None), default=0.0)

    @property
    def non_finite(self) -> int:
        """Elements that are NaN or infinite."""
        return sum(one.non_finite for one in self.outputs)


@dataclass(frozen=True)
class Cell:
    """One combination of the values of a grid's axes.

    Attributes:
        name: The values as text, such as `float16 7x64 packed scale=100.0`.
        values: The values, by axis.
        texts: The values as text, by axis.
    """

    name: str
    values: Mapping[str, object]
    texts: Mapping[str, str]


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
