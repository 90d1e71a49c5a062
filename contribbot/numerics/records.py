"""What a judged cell comes to; no torch here, the stage reads these."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contribbot.model.base import Model
from contribbot.numerics.words import multiple

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
