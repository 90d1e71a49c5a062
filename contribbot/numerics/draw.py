"""One seed of one cell: its inputs, and the judging of its results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

import torch

from contribbot.numerics.cell import Cell
from contribbot.numerics.compare import compare, compare_exact, require_references
from contribbot.numerics.layouts import lay_out
from contribbot.numerics.limits import CannotJudgeError, Limits
from contribbot.numerics.merge import Findings
from contribbot.numerics.tensors import digest, require_plain
from contribbot.numerics.treewatch import TreeWatch, unwatched

Value = TypeVar("Value")

#: Axes that change how the same values are held, not which they are.
_HOLDING = frozenset({"dtype", "layout"})


class Draw:
    """Draws the inputs of one seed of one cell, and judges the results.

    The same calls in the same order draw the same values in every dtype (rounded), in
    every layout and on every device; with another torch they may be others.

    Attributes:
        seed: The seed.
        device: Where tensors are put, and where results must lie.
    """

    def __init__(
        self,
        cell: Cell,
        seed: int,
        *,
        device: torch.device,
        limits: Callable[[], Limits],
        findings: Findings,
        watch: TreeWatch | None = None,
    ) -> None:
        self.seed = seed
        self.device = device
        self._watch = watch or TreeWatch()
        self._inputs: list[torch.Tensor] = []
        self._drawn: list[str] = []
        self._written = False
        self._values = cell.values
        self._limits = limits
        self._findings = findings
        told = sorted(pair for pair in cell.texts.items() if pair[0] not in _HOLDING)
        digest = hashlib.sha256(repr((seed, told)).encode()).digest()
        # torch takes seeds of 63 bits.
        self._generator = torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)

    def axis(self, name: str, kind: type[Value]) -> Value:
        """Return the cell's value on an axis.

        Args:
            name: The axis.
            kind: Its type.

        Raises:
            LookupError: The grid has no such axis.
            TypeError: The value is of another type.
        """
        if name not in self._values:
            raise LookupError(f"no axis {name!r}; there are {', '.join(self._values)}")
        value = self._values[name]
        if not isinstance(value, kind):
            raise TypeError(f"axis {name}: {value!r} is no {kind.__name__}")
        return value

    @property
    def dtype(self) -> torch.dtype:
        """The value of the axis `dtype`."""
        return self.axis("dtype", torch.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The value of the axis `shape`."""
        return self.axis("shape", tuple)

    @property
    def layout(self) -> str:
        """The value of the axis `layout`."""
        return self.axis("layout", str)

    def normal(
        self,
        *shape: int,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: torch.dtype | None = None,
        layout: str = "contiguous",
    ) -> torch.Tensor:
        """Draw from a normal distribution.

        Args:
            *shape: The shape.
            mean: The mean.
            std: The standard deviation.
            dtype: The dtype; None: that of the cell.
            layout: How it lies in memory, a name in `LAYOUTS`.
        """
        drawn = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        return self.place(drawn * std + mean, dtype=dtype, layout=layout)

    def uniform(
        self,
        *shape: int,
        low: float = 0.0,
        high: float = 1.0,
        dtype: torch.dtype | None = None,
        layout: str = "contiguous",
    ) -> torch.Tensor:
        """Draw evenly from `low` to `high`; other arguments as for `normal`."""
        drawn = torch.rand(shape, generator=self._generator, dtype=torch.float64)
        return self.place(drawn * (high - low) + low, dtype=dtype, layout=layout)

    def integers(
        self,
        *shape: int,
        low: int,
        high: int,
        dtype: torch.dtype = torch.int64,
        layout: str = "contiguous",
    ) -> torch.Tensor:
        """Draw integers from `low` to below `high`; other arguments as for `normal`."""
        drawn = torch.randint(low, high, shape, generator=self._generator)
        return self.place(drawn, dtype=dtype, layout=layout)

    def place(
        self,
        values: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
        layout: str = "contiguous",
    ) -> torch.Tensor:
        """Round values of your own to a dtype, move them to the device and lay them out.

        Args:
            values: The values, on the CPU.
            dtype: The dtype; None: that of the cell.
            layout: How it lies in memory, a name in `LAYOUTS`.
        """
        with unwatched():
            placed = lay_out(values.to(dtype or self.dtype).to(self.device), layout)
            self._inputs.append(placed)
            self._drawn.append(digest(placed))
        return placed

    def judge(
        self,
        name: str,
        actual: object,
        *,
        reference: torch.Tensor,
        same_precision: torch.Tensor,
    ) -> None:
        """Judge a result; the test fails after the last seed.

        Args:
            name: What the result is called: `output`, `weights`, …
            actual: A function that returns the result, the only place where the tree under
                test runs; or the result, if nothing of the tree's Python made it.
            reference: The same in float64 (complex128), on any device.
            same_precision: The same from plain code in the result's dtype, on any device.

        Raises:
            CannotJudgeError: The references can judge nothing, could come from the tree, or
                were written to.
            ValueError: This seed has judged a result of this name.
        """
        with unwatched():
            require_references(reference, same_precision)
            result = self._result(name, actual, reference, same_precision)
            seen = compare(
                result,
                reference=reference,
                same_precision=same_precision,
                limits=self._limits(),
                device=self.device,
            )
        self._findings.add(name, self.seed, seen)

    def judge_exact(self, name: str, actual: object, expected: torch.Tensor) -> None:
        """Compare a result bit by bit; the test fails after the last seed.

        Args:
            name: What the result is called.
            actual: As for `judge`.
            expected: What it must be.

        Raises:
            CannotJudgeError: What is expected is not finite, could come from the tree, or was
                written to.
            ValueError: This seed has judged a result of this name.
        """
        with unwatched():
            require_plain("the expected tensor", expected)
            result = self._result(name, actual, expected)
            seen = compare_exact(result, expected, device=self.device)
        self._findings.add(name, self.seed, seen)

    def _result(self, name: str, actual: object, *references: torch.Tensor) -> object:
        """Note what a result is judged by, then compute it, which may change nothing of that."""
        if self._watch.ran:
            raise CannotJudgeError(
                f"{name}: {self._watch.ran} ran in the test itself, so that a reference could "
                "come from the tree: run the tree only in a function that is judged, "
                f"draw.judge({name!r}, lambda: …)"
            )
        inputs = [digest(tensor) for tensor in self._inputs]
        if self._written or not (callable(actual) or inputs == self._drawn):
            raise CannotJudgeError(
                f"{name}: an input was written to after it was drawn, so that a reference could "
                "be of other values: give what writes to it a clone"
            )
        all_inputs = hashlib.sha256(" ".join(inputs).encode()).hexdigest()[:16]
        before = digest(*references)
        self._findings.judged_by(name, self.seed, inputs=all_inputs, references=before)
        if not callable(actual):
            return actual
        result = actual()
        known = self._inputs[: len(inputs)]
        self._written = inputs != [digest(tensor) for tensor in known]
        if before != digest(*references):
            raise CannotJudgeError(
                f"{name}: what is judged wrote to its reference: give it a clone"
            )
        return result
