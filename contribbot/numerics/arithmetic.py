"""Repeat on the CPU how other machines compute: rounding, order of summation, FMA.

The results are bit for bit those of a machine that computes in this way: float32 operations are
the CPU's (IEEE 754); bfloat16 and float16 are float32 operations rounded once more, which is
exact for one addition or product (Figueroa 1995: 24 >= 2 * 11 + 2); a float32 FMA is made in
float64, where a second rounding changes one result in 2**29. `exp` is float64's, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

import torch

_BLOCKS: Final = (8, 16, 32, 64, 128, 256, 384)
#: Orders of summation: terms are added in lanes, and then the sums of the lanes are added.
ORDERS: Final = (
    *("sequential", "reversed", "pairwise", "halves"),
    *(f"blocks of {size}" for size in _BLOCKS),
    *(f"split in {many}" for many in (2, 3, 4, 8)),
    *(f"lanes of {many}" for many in (4, 8, 16, 32, 64, 128)),
    "exact",
)
#: Orders for sums of products in matrix units, which add several products to the sum at a time
#: and round once (also inside a block or split). An NVIDIA H200 adds 16 float16 products at once.
MATRIX_ORDERS: Final = tuple(
    f"{inside}{size} at a time"
    for inside in ("", *(f"{order}, " for order in ORDERS if order[:5] in {"block", "split"}))
    for size in (8, 16, 32)
)
#: Formats of a partial sum, of the sum of a block or split, and of the sum of all blocks.
ACCUMULATORS: Final = {
    "float32": ("float32", "float32", "float32"),
    "bfloat16": ("bfloat16", "bfloat16", "bfloat16"),
    "float16": ("float16", "float16", "float16"),
    "bfloat16 parts": ("float32", "bfloat16", "bfloat16"),
    "float16 parts": ("float32", "float16", "float16"),
    "bfloat16 in parts": ("bfloat16", "bfloat16", "float32"),
    "float16 in parts": ("float16", "float16", "float32"),
    "bfloat16 sum of parts": ("float32", "float32", "bfloat16"),
    "float16 sum of parts": ("float32", "float32", "float16"),
    "bfloat16 parts, float32 sum": ("float32", "bfloat16", "float32"),
    "float16 parts, float32 sum": ("float32", "float16", "float32"),
}
INPUTS: Final = ("as given", "tf32", "tf32 cut off", "bfloat16", "float16")
EXPONENTIALS: Final = ("rounded", "exp2", "exp2 fused")
#: 8-bit floats, and the largest magnitude after quantisation (vLLM and SGLang use 224 for fnuz).
FP8: Final = {
    "e4m3fn": (torch.float8_e4m3fn, 448.0),
    "e4m3fnuz": (torch.float8_e4m3fnuz, 240.0),
    "e4m3fnuz to 224": (torch.float8_e4m3fnuz, 224.0),
    "e5m2": (torch.float8_e5m2, 57344.0),
    "e5m2fnuz": (torch.float8_e5m2fnuz, 57344.0),
}
_DTYPES: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_LOG2E: Final = torch.tensor(math.log2(math.e), dtype=torch.float32)


@dataclass(frozen=True)
class Arithmetic:
    """The rounding and summation order of a computation; computations call these methods.

    Attributes:
        inputs: The format to which inputs are rounded; `tf32 cut off` drops bits, `tf32` rounds;
            `bfloat16, weight alone` rounds only the input `weight`.
        order: An order in `ORDERS` or `MATRIX_ORDERS`; `exact` rounds a float64 sum once.
        accumulate: One of `ACCUMULATORS`.
        multiply_add: `separate`, or `fused` (FMA).
        exp: One of `EXPONENTIALS`; `exp2`: exp2 of the rounded product with log2(e).
        divide: `divide`, `reciprocal` (first 1/y, then a product), or `rsqrt`.
        between: The format of intermediate tensors: `float32`, or `result` (the result's dtype);
            `weights`: only attention's weights have the result's dtype.
        scale: Where the scale is multiplied in: `result` or `weights`; for attention also
            `q`, or `both inputs` (each by the scale's root).
        softmax: `whole`, or in tiles, shifted by the largest value so far: `online, 64 at a time`.
        variance: `two-pass`, or `one-pass` (mean of squares minus square of the mean).
        fp8: A name in `FP8`.
        rounded: The format to which the result is rounded before the rounding to its dtype.
        dtype: The result's dtype; it is not searched.
    """

    inputs: str = "as given"
    order: str = "sequential"
    accumulate: str = "float32"
    multiply_add: str = "separate"
    exp: str = "rounded"
    divide: str = "divide"
    between: str = "float32"
    scale: str = "result"
    softmax: str = "whole"
    variance: str = "two-pass"
    fp8: str = "e4m3fn"
    rounded: str = "as given"
    dtype: torch.dtype = torch.float32

    def unlike(self, other: Arithmetic) -> tuple[str, ...]:
        """Return the names of the choices in which two arithmetics differ."""
        return tuple(name for name in _CHOICES if getattr(self, name) != getattr(other, name))

    def words(self, names: Iterable[str]) -> str:
        """Return some choices as text, such as `inputs: tf32, order: blocks of 32`."""
        return ", ".join(f"{name.replace('_', '-')}: {getattr(self, name)}" for name in names)

    def take(self, tensor: torch.Tensor, name: str = "") -> torch.Tensor:
        """Return the input `name` in float32, rounded if `inputs` asks for that."""
        wide = self.single(tensor)
        kind, _, alone = self.inputs.partition(", ")
        if kind == "as given" or alone.removesuffix(" alone") not in {"", name}:
            return wide
        return _to(wide, kind) if kind in _DTYPES else _tf32(wide, cut="cut" in kind)

    def single(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in float32."""
        return tensor.float()

    def step(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an intermediate tensor, rounded to the result's dtype if `between` says so."""
        return tensor.to(self.dtype).float() if self.between == "result" else tensor

    def give(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a result, rounded to the format in `rounded`."""
        return _to(tensor, self.rounded)

    def add(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the sum of two tensors in the format of partial sums."""
        return _to(left + right, ACCUMULATORS[self.accumulate][0])

    def multiply_and_add(
        self, left: torch.Tensor, right: torch.Tensor, total: torch.Tensor
    ) -> torch.Tensor:
        """Return `left * right + total`, rounded once (FMA) or twice."""
        if self.multiply_add == "separate" or ACCUMULATORS[self.accumulate][0] in _DTYPES:
            return self.add(total, left * right)
        return fma(left, right, total)

    def sum(self, terms: torch.Tensor) -> torch.Tensor:
        """Return the sum over the first dimension, in the order of `order`.

        Args:
            terms: float32, of shape (terms, ...).
        """
        return self._added(terms, _inside(self.order)[0], 1)

    def dot(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the sum of products over the first dimension, in the order of `order`.

        Args:
            left: float32, of shape (terms, ...).
            right: float32, of the shape of `left`.
        """
        order, size = _inside(self.order)
        fused = self.multiply_add == "fused" and ACCUMULATORS[self.accumulate][0] == "float32"
        if fused or size > 1 or order == "exact":
            # float64 represents each product exactly.
            return self._added(left.double() * right.double(), order, size)
        return self._added(left * right, order, 1)

    def _added(self, terms: torch.Tensor, order: str, size: int) -> torch.Tensor:
        """Return the sum of terms; each step adds `size` terms and rounds once."""
        if order == "exact":
            return self.single(terms.double().sum(0))
        index, combine = _arranged(order, len(terms))
        lanes = torch.cat([terms, torch.zeros_like(terms[:1])])[index]
        within, total = ACCUMULATORS[self.accumulate][0], torch.zeros_like(lanes[0]).float()
        for some in torch.split(lanes, size) if size > 1 else lanes.unbind():
            wide = (some.sum(0) if size > 1 else some) + total
            total = _to(wide, within).float()
        return self._combined(total, combine)

    def _combined(self, parts: torch.Tensor, how: str) -> torch.Tensor:
        """Return the sum of the lanes' sums: in pairs, by halves, or one after the other."""
        _, stored, across = ACCUMULATORS[self.accumulate]
        parts = _to(parts, stored)
        while len(parts) > 1 and how != "sequential":
            if how == "pairwise":
                parts = torch.cat([parts, torch.zeros_like(parts[: len(parts) % 2])])
                left, right = parts[::2], parts[1::2]
            else:
                half = 1 << (len(parts) - 1).bit_length() - 1
                rest = torch.zeros_like(parts[: 2 * half - len(parts)])
                left, right = parts[:half], torch.cat([parts[half:], rest])
            parts = _to(left + right, across)
        total = _to(parts[0], across)
        for part in parts[1:]:
            total = _to(total + part, across)
        return total

    def exponential(self, values: torch.Tensor, shift: torch.Tensor | float = 0.0) -> torch.Tensor:
        """Return `exp(values - shift)` in float32."""
        if self.exp == "exp2 fused":
            power = fma(values, _LOG2E.expand_as(values), -(torch.as_tensor(shift) * _LOG2E))
            return torch.exp2(power.double()).float()
        values = values - shift
        if self.exp == "exp2":
            return torch.exp2((values * _LOG2E).double()).float()
        return self.single(torch.exp(values.double()))

    def quotient(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return `left / right`, or `left` times the rounded reciprocal of `right`."""
        return left / right if self.divide == "divide" else left * (1.0 / right)

    def over_root(self, values: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return `values / sqrt(square)` in the way of `divide`."""
        if self.divide == "rsqrt":
            return values * square.double().rsqrt().float()
        # On some processors, torch's float32 square root is not correctly rounded.
        return self.quotient(values, self.single(square.double().sqrt()))


class Float64(Arithmetic):
    """The reference arithmetic: float64 throughout; use it with the order `exact`."""

    def single(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in float64, where other arithmetics return float32."""
        return tensor.double()


_CHOICES: Final = tuple(field.name for field in fields(Arithmetic) if field.name != "dtype")


def fma(left: torch.Tensor, right: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
    """Return `left * right + addend` of float32 tensors, rounded once (but for 1 in 2**29)."""
    return (left.double() * right.double() + addend.double()).float()


def _to(values: torch.Tensor, name: str) -> torch.Tensor:
    """Return values rounded to `bfloat16` or `float16`; another name changes nothing."""
    return values.to(_DTYPES[name]).float() if name in _DTYPES else values


def _tf32(values: torch.Tensor, *, cut: bool) -> torch.Tensor:
    """Return float32 values with 10 mantissa bits: rounded to nearest even, or cut off."""
    bits = values.contiguous().view(torch.int32)
    up = 0 if cut else 0xFFF + ((bits >> 13) & 1)
    return torch.where(values.isfinite(), ((bits + up) & ~0x1FFF).view(torch.float32), values)


def _inside(order: str) -> tuple[str, int]:
    """Return the order of blocks or splits, and the number of products added at a time."""
    if order not in MATRIX_ORDERS:
        return order, 1
    outer, _, inner = order.rpartition(", ")
    return outer or "sequential", int(inner.split()[0])


def _arranged(order: str, length: int) -> tuple[torch.Tensor, str]:
    """Return the terms' indices by step and lane, and the order of adding the lanes.

    The index `length`, after the last term, stands for a zero.
    """
    name, _, text = order.rpartition(" ")
    terms = torch.arange(length)
    if order in {"sequential", "reversed"}:
        return (terms if order == "sequential" else terms.flip(0))[:, None], "sequential"
    if order in {"pairwise", "halves"}:
        return terms[None, :], order
    if name not in {"blocks of", "split in", "lanes of"}:
        raise ValueError(f"no order of summation {order!r}; there are {', '.join(ORDERS)}")
    size = -(-length // int(text)) if name == "split in" else int(text)
    padded = torch.cat([terms, torch.full((-length % size,), length)]).view(-1, size)
    return (padded, "halves") if name == "lanes of" else (padded.T, "sequential")
