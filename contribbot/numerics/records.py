"""Records of judged cells; the stage reads them without torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contribbot.model.base import Model
from contribbot.numerics.words import multiple

Finite = Annotated[float, Field(allow_inf_nan=False, strict=False)]
Integers = Annotated[tuple[int, ...], Field(strict=False)]
Count = Annotated[int, Field(ge=0)]


class Digests(Model):
    """Digests of inputs and references of one result: alike on both trees, or nothing is judged."""

    seed: int
    result: str
    inputs: str  # of each input drawn until then, as it was before the result was computed
    references: str  # of the references, or of what is expected
    written: Annotated[tuple[str, ...], Field(strict=False)] = ()  # the inputs it overwrote


class OutputRecord(Model):
    """One result of a cell; counts are over all seeds, all else is of the worst seed."""

    name: str
    kind: Literal["error", "exact"]  # judged by its error, or compared bit by bit
    dtype: str
    shape: Integers
    elements: Count  # that were compared
    mismatches: Count  # elements that err by more than is allowed, or differ
    non_finite: Count
    worst_seed: int
    place: Integers | None  # of the worst element; none where nothing was wrong or compared
    max_abs: Finite  # the largest absolute error among finite elements
    max_rel: Finite | None  # over all seeds; none where every reference is 0
    reference_abs: Finite  # the same-precision reference's own largest absolute error
    floor: Finite = 0.0  # the absolute error that stands in for a smaller one of the reference
    allowed: Finite
    largest: Finite  # the largest magnitude in the reference
    ratio: Finite | None  # `max_abs` over the larger of `reference_abs` and `floor`
    vacuous: int = 0  # seeds that show nothing
    why_vacuous: str = ""  # why one of them shows nothing, and what would
    complaint: str  # why it does not pass, in one line; empty if it does

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
    """One cell of a grid, judged."""

    test: str  # without its folder
    cell: str
    axes: dict[str, str]
    seeds: Integers
    digests: Annotated[tuple[Digests, ...], Field(strict=False)] = ()
    outputs: Annotated[tuple[OutputRecord, ...], Field(strict=False)]
    failed: str  # why the test fails, in one line; empty if it passes

    @property
    def ratio(self) -> float:
        """The largest multiple of what decides among its results; 0 without one."""
        return max((output.ratio or 0.0 for output in self.outputs), default=0.0)

    @property
    def non_finite(self) -> int:
        """Elements that are NaN or infinite."""
        return sum(output.non_finite for output in self.outputs)
