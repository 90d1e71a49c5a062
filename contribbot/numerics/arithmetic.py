"""Arithmetics that machines compute in, repeated on the CPU: rounding, order of summation, FMA.

What is emulated is exact, bit for bit, where the machine does just that: float32 operations are
the CPU's own (IEEE 754); bfloat16 and float16 are float32 operations rounded once more, which is
exact for one addition or product (Figueroa 1995: 24 >= 2 * 11 + 2); a float32 FMA is made in
float64 with its double rounding mended (not for subnormal results). `exp` is float64's, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

import torch

#: Orders of summation: of each lane one after the other, then of the lanes.
ORDERS: Final = (
    "sequential", "reversed", "pairwise", "halves", "blocks of 8", "blocks of 16", "blocks of 32",
    "blocks of 64", "blocks of 128", "blocks of 256", "blocks of 384", "split in 2", "split in 3",
    "split in 4", "split in 8", "lanes of 4", "lanes of 8", "lanes of 16", "lanes of 32",
    "lanes of 64", "lanes of 128", "exact",
)  # fmt: skip
#: Orders of products alone, as matrix units have them: so many are added to the sum at a time,
#: rounded once. So an NVIDIA H200 accumulates float16: 16 at a time (docs/explain.md).
MATRIX_ORDERS: Final = ("8 at a time", "16 at a time", "32 at a time")
#: What partial sums are rounded to; `parts`: only those of blocks and splits, once each is done.
ACCUMULATORS: Final = ("float32", "bfloat16", "float16", "bfloat16 parts", "float16 parts")
INPUTS: Final = ("as given", "tf32", "tf32 cut off", "bfloat16", "float16")
EXPONENTIALS: Final = ("rounded", "exp2", "exp2 fused", "polynomial")
#: 8-bit floats and the largest magnitude that quantisation maps to; vLLM and SGLang take 224.
FP8: Final = {
    "e4m3fn": (torch.float8_e4m3fn, 448.0), "e4m3fnuz": (torch.float8_e4m3fnuz, 240.0),
    "e4m3fnuz to 224": (torch.float8_e4m3fnuz, 224.0), "e5m2": (torch.float8_e5m2, 57344.0),
    "e5m2fnuz": (torch.float8_e5m2fnuz, 57344.0),
}  # fmt: skip
_DTYPES: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_TINY: Final = torch.finfo(torch.float32).tiny
_LOG2E: Final = torch.tensor(math.log2(math.e), dtype=torch.float32)
#: A float64 that lies between two float32: the 29 bits that float32 has not.
_REST, _HALF = (1 << 29) - 1, 1 << 28
#: exp on [-ln 2 / 2, ln 2 / 2]: Cephes, expf.c (netlib.org/cephes).
_CEPHES: Final = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip
_LN2: Final = (0.693359375, -2.12194440e-4)


@dataclass(frozen=True)
class Arithmetic:
    """One way to carry out a computation; a computation of your own calls its methods.

    Attributes:
        inputs: What inputs are rounded to first; `tf32 cut off` drops bits, `tf32` rounds.
        order: An order of summation of `ORDERS`; `exact` rounds a float64 sum once.
        accumulate: One of `ACCUMULATORS`.
        multiply_add: `separate`, or `fused` (FMA).
        exp: One of `EXPONENTIALS`; `exp2`: of the product with log2(e), rounded.
        divide: `divide`, `reciprocal` (1/y first, then a product), or `rsqrt`.
        between: What intermediate tensors are rounded to: `float32`, or `result` (its dtype).
        scale: Where a scale is multiplied in: on the `result`, or on the `weights`.
        variance: `two-pass`, `one-pass` (of squares, less the mean's square), or `welford`.
        fp8: A name in `FP8`.
        denormals: `kept`, or `flushed` to zero.
        rounded: What the result is rounded to before it is widened to its dtype.
        dtype: The result's, which `between: result` rounds to; no choice.
    """

    inputs: str = "as given"
    order: str = "sequential"
    accumulate: str = "float32"
    multiply_add: str = "separate"
    exp: str = "rounded"
    divide: str = "divide"
    between: str = "float32"
    scale: str = "result"
    variance: str = "two-pass"
    fp8: str = "e4m3fn"
    denormals: str = "kept"
    rounded: str = "as given"
    dtype: torch.dtype = torch.float32

    def unlike(self, other: Arithmetic) -> tuple[str, ...]:
        """Return the names of the choices in which two differ."""
        return tuple(name for name in _CHOICES if getattr(self, name) != getattr(other, name))

    def words(self, names: Iterable[str]) -> str:
        """Say what it chooses, such as `inputs: tf32, order: blocks of 32`."""
        return ", ".join(f"{name.replace('_', '-')}: {getattr(self, name)}" for name in names)

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an input in float32, rounded as `inputs` says."""
        wide = tensor.float()
        if self.inputs in _DTYPES:
            wide = wide.to(_DTYPES[self.inputs]).float()
        elif self.inputs != "as given":
            wide = _tf32(wide, cut="cut" in self.inputs)
        return self.keep(wide)

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what an operation gives: subnormal numbers are flushed where that is chosen."""
        if self.denormals == "kept":
            return tensor
        return torch.where(tensor.abs() < _TINY, tensor * 0.0, tensor)

    def step(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an intermediate tensor, rounded to the result's dtype where that is chosen."""
        return self.keep(tensor if self.between == "float32" else tensor.to(self.dtype).float())

    def give(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the result, rounded as `rounded` says."""
        dtype = _DTYPES.get(self.rounded)
        return tensor if dtype is None else self.keep(tensor.to(dtype).float())

    def add(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return a partial sum."""
        total = self.keep(left + right)
        dtype = _DTYPES.get(self.accumulate)
        return total if dtype is None else total.to(dtype).float()

    def multiply_and_add(
        self, left: torch.Tensor, right: torch.Tensor, total: torch.Tensor
    ) -> torch.Tensor:
        """Return `left * right + total`, rounded once or twice."""
        if self.multiply_add == "separate" or self.accumulate in _DTYPES:
            return self.add(total, self.keep(left * right))
        return self.keep(fma(left, right, total))

    def sum(self, terms: torch.Tensor) -> torch.Tensor:
        """Return the sum over the first dimension, in the order chosen.

        Args:
            terms: float32, of shape (terms, ...).
        """
        if self.order == "exact":
            return self.keep(terms.double().sum(0).float())
        order = "sequential" if self.order in MATRIX_ORDERS else self.order
        index, combine = _arranged(order, len(terms))
        rows = torch.cat([terms, torch.zeros_like(terms[:1])])
        total = rows[index[0]]
        for lane in index[1:]:
            total = self.add(total, rows[lane])
        return self._combined(total, combine)

    def dot(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the sum over the first dimension of products, in the order chosen.

        Args:
            left: float32, of shape (terms, ...).
            right: The same.
        """
        if self.order == "exact":
            return self.keep((left.double() * right.double()).sum(0).float())
        if self.order in MATRIX_ORDERS:
            return self._matrix_dot(left, right, int(self.order.split()[0]))
        index, combine = _arranged(self.order, len(left))
        left, right = (torch.cat([side, torch.zeros_like(side[:1])]) for side in (left, right))
        total = self.add(self.keep(left[index[0]] * right[index[0]]), torch.zeros(()))
        for lane in index[1:]:
            total = self.multiply_and_add(left[lane], right[lane], total)
        return self._combined(total, combine)

    def _matrix_dot(self, left: torch.Tensor, right: torch.Tensor, size: int) -> torch.Tensor:
        total, dtype = torch.zeros_like(left[0]), _DTYPES.get(self.accumulate, torch.float32)
        for start in range(0, len(left), size):
            some = slice(start, start + size)
            exact = (left[some].double() * right[some].double()).sum(0) + total
            total = self.keep(exact.to(dtype).float())
        return total

    def _combined(self, parts: torch.Tensor, how: str) -> torch.Tensor:
        """Return the sum of lanes: each with the next, with the half beyond, or one by one."""
        dtype = _DTYPES.get(self.accumulate.removesuffix(" parts"))
        parts = parts if dtype is None else parts.to(dtype).float()
        while len(parts) > 1 and how != "sequential":
            if how == "pairwise":
                parts = torch.cat([parts, torch.zeros_like(parts[: len(parts) % 2])])
                parts = self.add(parts[::2], parts[1::2])
            else:
                half = 1 << (len(parts) - 1).bit_length() - 1
                rest = torch.zeros_like(parts[: 2 * half - len(parts)])
                parts = self.add(parts[:half], torch.cat([parts[half:], rest]))
        total = parts[0]
        for part in parts[1:]:
            total = self.add(total, part)
            total = total if dtype is None else total.to(dtype).float()
        return total

    def exponential(self, values: torch.Tensor, shift: torch.Tensor | float = 0.0) -> torch.Tensor:
        """Return `exp(values - shift)` in float32."""
        if self.exp == "exp2 fused":
            power = fma(values, _LOG2E.expand_as(values), -(torch.as_tensor(shift) * _LOG2E))
            return self.keep(torch.exp2(power.double()).float())
        values = self.keep(values - shift)
        if self.exp == "exp2":
            return self.keep(torch.exp2((values * _LOG2E).double()).float())
        if self.exp == "polynomial":
            return self.keep(_cephes(values))
        return self.keep(torch.exp(values.double()).float())

    def quotient(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return `left / right`, or the product with the rounded reciprocal."""
        return self.keep(left / right if self.divide == "divide" else left * (1.0 / right))

    def over_root(self, values: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return `values / sqrt(square)`, one of three ways."""
        if self.divide == "rsqrt":
            return self.keep(values * square.double().rsqrt().float())
        # On some processors torch's own of float32 is not the nearest.
        return self.quotient(values, square.double().sqrt().float())


_CHOICES: Final = tuple(field.name for field in fields(Arithmetic) if field.name != "dtype")


def fma(left: torch.Tensor, right: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
    """Return `left * right + addend` of float32 tensors, rounded once (if the result is normal)."""
    product, wide = left.double() * right.double(), addend.double()  # the product is exact
    total = product + wide
    halfway = (total.view(torch.int64) & _REST) == _HALF
    if bool(halfway.any()):
        # Rounded to float64 it lies halfway between two float32: what was lost decides.
        back = total - product
        lost = (product - (total - back)) + (wide - back)
        aside = torch.nextafter(total, torch.copysign(torch.full_like(total, math.inf), lost))
        total = torch.where(halfway & (lost != 0) & total.isfinite(), aside, total)
    return total.float()


def _tf32(values: torch.Tensor, *, cut: bool) -> torch.Tensor:
    """Return float32 with 10 bits of mantissa: to the nearest, ties to even, or cut off."""
    bits = values.contiguous().view(torch.int32)
    up = 0 if cut else 0xFFF + ((bits >> 13) & 1)
    return torch.where(values.isfinite(), ((bits + up) & ~0x1FFF).view(torch.float32), values)


def _cephes(values: torch.Tensor) -> torch.Tensor:
    """Return exp by Cephes' polynomial in float32: about 1 ULP off."""
    # Beyond these float32 has infinity and zero.
    values = values.clamp(-104.0, 89.0)
    whole = torch.floor(values * _LOG2E + 0.5)
    rest = values - whole * _LN2[0] - whole * _LN2[1]
    total = torch.full_like(rest, _CEPHES[0])
    for factor in _CEPHES[1:]:
        total = total * rest + factor
    return torch.ldexp((total * (rest * rest) + rest + 1.0).double(), whole).float()


def _arranged(order: str, length: int) -> tuple[torch.Tensor, str]:
    """Return which terms each lane adds at each step, and how lanes are added.

    The index beyond the last term is a zero.
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


def distinct_orders(length: int) -> list[str]:
    """Return the orders of summation that differ for a number of terms."""
    orders: dict[object, str] = {}
    for order in ORDERS:
        if order == "exact":
            orders[order] = order
            continue
        index, combine = _arranged(order, length)
        steps = [[int(term) for term in lane if term < length] for lane in index.T]
        lanes = [lane for lane in steps if lane]
        # Lanes of one term each are a chain; one lane is, too.
        chain = combine == "sequential" and max(map(len, lanes)) == 1
        key = ([[lane[0] for lane in lanes]], "") if chain else (lanes, combine * (len(lanes) > 1))
        orders.setdefault(str(key), order)
    return [*orders.values(), *MATRIX_ORDERS]
