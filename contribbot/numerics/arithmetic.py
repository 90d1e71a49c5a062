"""Repeat on the CPU how other machines compute: arithmetics, and computations that use them.

An arithmetic is a choice of roundings, order of summation, FMA and more.

The results are bit for bit a machine's results with this arithmetic: float32 operations are
the CPU's (IEEE 754); bfloat16 and float16 are float32 operations rounded once more, which is
exact for one addition or product (Figueroa 1995: 24 >= 2 * 11 + 2); a float32 FMA is made in
float64, where a second rounding changes one result in 2**29. `exp` is float64's, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product
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
    """The roundings and summation order of a computation, which calls the methods.

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
        dtype: The result's dtype, which `explain` does not vary.
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
        """Return the choices `names` as text, such as `inputs: tf32, order: blocks of 32`."""
        return ", ".join(f"{name.replace('_', '-')}: {getattr(self, name)}" for name in names)

    def take(self, tensor: torch.Tensor, name: str = "") -> torch.Tensor:
        """Return the input `name` in float32, of the same shape, rounded as `inputs` says."""
        wide = self.single(tensor)
        kind, _, alone = self.inputs.partition(", ")
        if kind == "as given" or alone.removesuffix(" alone") not in {"", name}:
            return wide
        return _to(wide, kind) if kind in _DTYPES else _tf32(wide, cut="cut" in kind)

    def single(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in float32, of the same shape."""
        return tensor.float()

    def step(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an intermediate float32 tensor; if `between` is `result`, rounded to `dtype`."""
        return tensor.to(self.dtype).float() if self.between == "result" else tensor

    def multiply_and_add(
        self, left: torch.Tensor, right: torch.Tensor, total: torch.Tensor
    ) -> torch.Tensor:
        """Return `left * right + total` by element, float32, rounded once (FMA) or twice."""
        if self.multiply_add == "separate" or ACCUMULATORS[self.accumulate][0] in _DTYPES:
            return _to(total + left * right, ACCUMULATORS[self.accumulate][0])
        return fma(left, right, total)

    def sum(self, terms: torch.Tensor) -> torch.Tensor:
        """Return the sum over dimension 0 of float32 (terms, ...); ValueError: unknown `order`."""
        return self._added(terms, _inside(self.order)[0], 1)

    def dot(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the sum over dimension 0 of `left * right`: float32, of shapes that broadcast."""
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
        if how != "sequential":
            size = 1 << (len(parts) - 1).bit_length()  # the next power of two
            parts = torch.cat([parts, torch.zeros_like(parts[: size - len(parts)])])
            while len(parts) > 1:
                left, right = (parts[::2], parts[1::2]) if how == "pairwise" else parts.chunk(2)
                parts = _to(left + right, across)
        total = _to(parts[0], across)
        for part in parts[1:]:
            total = _to(total + part, across)
        return total

    def exponential(self, values: torch.Tensor, shift: torch.Tensor | float = 0.0) -> torch.Tensor:
        """Return `exp(values - shift)` by element, float32, as the choice `exp` says."""
        if self.exp == "exp2 fused":
            power = fma(values, _LOG2E.expand_as(values), -(torch.as_tensor(shift) * _LOG2E))
            return torch.exp2(power.double()).float()
        values = values - shift
        if self.exp == "exp2":
            return torch.exp2((values * _LOG2E).double()).float()
        return self.single(torch.exp(values.double()))

    def quotient(self, left: torch.Tensor, right: torch.Tensor | float) -> torch.Tensor:
        """Return `left / right` by element, or `left` times the rounded reciprocal of `right`."""
        return left / right if self.divide == "divide" else left * (1.0 / torch.as_tensor(right))

    def over_root(self, values: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return `values / sqrt(square)` by element, float32, as the choice `divide` says."""
        if self.divide == "rsqrt":
            return values * square.double().rsqrt().float()
        # On some processors, torch's float32 square root is not correctly rounded.
        return self.quotient(values, self.single(square.double().sqrt()))


class Float64(Arithmetic):
    """The reference arithmetic: float64 throughout; for use with the order `exact`."""

    def single(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in float64, where other arithmetics return float32."""
        return tensor.double()


_CHOICES: Final = tuple(part.name for part in fields(Arithmetic) if part.name != "dtype")


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
    """Return the terms' indices by step and lane (`length`: a zero), and the order of the lanes."""
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


# The computations.

Tensors = Mapping[str, torch.Tensor]
#: The size of a float32 in bytes.
_WIDE: Final = 4


@dataclass(frozen=True)
class Computation:
    """A computation that `explain` can repeat; you may add your own to `COMPUTATIONS`.

    Attributes:
        run: Returns the float32 result, not rounded to the dtype, from the inputs of some units,
            an arithmetic, and the recording's parameters as keyword arguments.
        axes: By attribute of `Arithmetic`, the values to try; the first value is the usual value.
        needs: The names of the required inputs.
        may: The names of the optional inputs.
        units: Returns the number of units: independent parts of the result, such as rows.
        part: Returns the inputs of some units, given the units' numbers as an int64 tensor.
        only_with: By attribute in `axes`, the optional input without which it has no effect.
    """

    run: Callable[..., torch.Tensor]
    axes: Mapping[str, tuple[str, ...]]
    needs: tuple[str, ...] = ("x",)
    may: tuple[str, ...] = ()
    units: Callable[[Tensors], int] = lambda _inputs: 1
    part: Callable[[Tensors, torch.Tensor], Tensors] = lambda inputs, _units: inputs
    only_with: Mapping[str, str] = field(default_factory=dict)

    def arithmetics(self, dtype: torch.dtype, inputs: Tensors) -> list[Arithmetic]:
        """Return all arithmetics to try, the usual arithmetic first."""
        usual = {choice for choice, name in self.only_with.items() if name not in inputs}
        axes = {name: some[:1] if name in usual else some for name, some in self.axes.items()}
        every = (
            Arithmetic(**dict(zip(axes, values, strict=True)), dtype=dtype)
            for values in product(*axes.values())
        )
        return [*dict.fromkeys(map(_sensible, every))]


def _sensible(choice: Arithmetic) -> Arithmetic:
    """Return an arithmetic with the usual value of each choice that makes no difference."""
    if choice.softmax != "whole":
        # With tiles, scores are not stored, and weights have the result's dtype for a matrix unit.
        choice = replace(
            choice, order="exact", scale="result", between="weights", exp="rounded", divide="divide"
        )
    if choice.dtype.itemsize == _WIDE:
        choice = replace(choice, between="float32")
    if choice.order == "exact":
        return replace(choice, accumulate="float32", multiply_add="separate")
    if "parts" in choice.accumulate and not choice.order.startswith(("blocks", "split")):
        choice = replace(choice, accumulate=ACCUMULATORS[choice.accumulate][0])
    # In 16 bits, an FMA makes no difference.
    short = choice.dtype.itemsize < _WIDE or ACCUMULATORS[choice.accumulate][0] != "float32"
    if choice.order in {"pairwise", "halves", *MATRIX_ORDERS} or short:
        choice = replace(choice, multiply_add="separate")
    return choice


def _linear(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    other = "y" if "y" in inputs else "weight"
    return _with_bias(inputs, a, a.dot(a.take(inputs["x"], "x"), a.take(inputs[other], other)))


def _with_bias(inputs: Tensors, a: Arithmetic, total: torch.Tensor) -> torch.Tensor:
    return a.step(total) + inputs["bias"].float() if "bias" in inputs else total


def _int8_linear(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    """Return a product with int8 weights, scaled either before or after the sum."""
    x, weight = a.take(inputs["x"]), inputs["weight"].float()
    scale = a.step(inputs["scale"].float())
    width = len(weight) // len(scale)
    if a.scale == "weights":
        wide = a.step(weight * scale.repeat_interleave(width, 0))
        return _with_bias(inputs, a, a.dot(x, a.take(wide)))
    sides = (side.view(len(scale), width, -1) for side in (x, weight))
    groups = zip(*sides, scale, strict=True)
    parts = [a.step(a.dot(left, right)) * factor for left, right, factor in groups]
    return _with_bias(inputs, a, a.sum(torch.stack(parts)))


def _sum(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    return a.sum(a.take(inputs["x"]).T)


def _softmax(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    rows = a.take(inputs["x"], "x").T
    powers = a.step(a.exponential(rows, rows.amax(0)))
    # A single tile is the same as no tiles.
    if a.softmax == "whole" or int(a.softmax.split()[1]) >= len(rows):
        total = a.sum(powers)
    else:
        ones = torch.ones_like(rows)[..., None]
        total = _online(replace(a, between="float32"), rows, ones)[1]
    return _to(a.quotient(powers, a.step(total)).T, a.rounded)


def _online(
    a: Arithmetic, scores: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of values weighted by exp(scores), and the sum of the weights.

    As in a fused kernel: by tiles, each shifted by the largest score so far. `scores` is of
    shape (terms, rows), `values` of shape (terms, rows, width).
    """
    words = a.softmax.split()
    size = int(words[1])
    tiles = [*zip(torch.split(scores, size), torch.split(values, size), strict=True)]
    total, out = torch.zeros_like(scores[0]), torch.zeros_like(values[0])
    largest = torch.full_like(total, -torch.inf)
    for some, value in reversed(tiles) if "last" in words else tiles:
        highest = torch.maximum(largest, some.amax(0))
        # In a tile that is masked completely, the largest score is -inf.
        shift = highest.masked_fill(highest.isinf(), 0.0)
        powers, less = a.exponential(some, shift), a.exponential(largest, shift)
        weights = powers if a.between == "float32" else powers.to(a.dtype).float()
        total = total * less + powers.sum(0)
        out = out * less[:, None] + torch.einsum("tr,trw->rw", weights, value)
        largest = highest
    return out, total


def _attention(
    inputs: Tensors, a: Arithmetic, *, scale: float = 0.0, causal: float = 0.0
) -> torch.Tensor:
    """Return attention of queries (rows, width) over keys and values (rows, keys, width)."""
    q, k, v = (a.take(inputs[name], name) for name in ("q", "k", "v"))
    by = scale or q.shape[-1] ** -0.5
    if a.scale == "both inputs":
        q, k, by = a.step(q * by**0.5), a.step(k * by**0.5), 1.0
    elif a.scale == "q":
        q, by = a.step(q * by), 1.0
    if a.softmax == "whole":
        scores = a.dot(q.T[:, :, None], k.movedim(-1, 0))
    else:
        scores = torch.einsum("rd,rkd->rk", q, k)
    scores = a.step(a.step(scores) * by)
    if causal:
        hidden = torch.arange(k.shape[1]) > inputs["row"][:, None]
        scores = scores.masked_fill(hidden, -torch.inf)
    if a.softmax != "whole":
        out, total = _online(a, scores.T, v.movedim(1, 0))
        return out / total[:, None]
    powers = a.exponential(scores, scores.amax(1, keepdim=True))
    weights = a.quotient(powers, a.sum(powers.T)[:, None])
    weights = weights if a.between == "float32" else weights.to(a.dtype).float()
    return a.dot(weights.T[..., None], v.movedim(1, 0))


def _rmsnorm(inputs: Tensors, a: Arithmetic, *, eps: float = 1e-6) -> torch.Tensor:
    rows = a.take(inputs["x"], "x").T
    return _normed(inputs, a, rows, a.quotient(a.dot(rows, rows), len(rows)) + eps)


def _layernorm(inputs: Tensors, a: Arithmetic, *, eps: float = 1e-5) -> torch.Tensor:
    rows = a.take(inputs["x"], "x").T
    mean = a.quotient(a.sum(rows), len(rows))
    if a.variance == "one-pass":
        square = a.quotient(a.dot(rows, rows), len(rows)) - mean * mean
    else:
        square = a.quotient(a.dot(rows - mean, rows - mean), len(rows))
    return _normed(inputs, a, rows - mean, square + eps)


def _normed(
    inputs: Tensors, a: Arithmetic, rows: torch.Tensor, square: torch.Tensor
) -> torch.Tensor:
    """Return rows divided by sqrt(square), times the weight, plus the bias; transposed."""
    weight, bias = (
        a.take(inputs[name], name)[:, None].expand_as(rows) if name in inputs else None
        for name in ("weight", "bias")
    )
    if weight is not None and a.scale == "weights":
        return (rows * a.step(a.over_root(weight, square))).T
    values = a.step(a.over_root(rows, square))
    if weight is not None and bias is not None:
        return replace(a, accumulate="float32").multiply_and_add(values, weight, bias).T
    return (values if weight is None else values * weight).T


def _quantise(
    inputs: Tensors, a: Arithmetic, *, group: float = 0, eps: float = 1e-10
) -> torch.Tensor:
    """Return groups quantised to 8 bits: the codes for an 8-bit dtype, else codes times scales."""
    rows = a.take(inputs["x"])
    groups = rows.reshape(len(rows), -1, int(group) or rows.shape[-1])
    code, largest = FP8[a.fp8]
    most = groups.abs().amax(-1, keepdim=True).clamp_min(eps)
    scale = a.quotient(most, largest)
    if a.scale == "power of two":
        scale = torch.exp2(torch.ceil(torch.log2(scale.double()))).float()
    codes = a.quotient(groups, scale).clamp(-largest, largest).to(code).float()
    return (codes if a.dtype.itemsize == 1 else codes * scale).reshape(rows.shape)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


def _columns(inputs: Tensors) -> int:
    """Return the number of columns of a product; unlike `weight`, `y` is not transposed."""
    return inputs["y"].shape[-1] if "y" in inputs else len(inputs["weight"])


def _of_products(inputs: Tensors, units: torch.Tensor) -> Tensors:
    """Return the rows of both factors for some elements of a product, as (terms, elements)."""
    columns = _columns(inputs)
    row, column = units // columns, units % columns
    part = {
        name: (tensor.mT if name == "y" else tensor)[column].movedim(-1, 0).contiguous()
        for name, tensor in inputs.items()
        if name != "x"
    }
    if "scale" in part:
        part["scale"] = part["scale"].reshape(-1, len(units))
    return {**part, "x": _flat(inputs["x"])[row].T.contiguous()}


def _of_queries(inputs: Tensors, units: torch.Tensor) -> Tensors:
    """Return some queries, each with the keys and values of its head and with its row number."""
    q, k, v = (inputs[name] for name in "qkv")
    head, row = units // q.shape[-2], units % q.shape[-2]
    # Several query heads may share a key head.
    shared = q.shape[-3] // k.shape[-3] if q.dim() > 2 else 1  # noqa: PLR2004  rows, width
    keys = {
        name: side.reshape(-1, *side.shape[-2:])[head // shared]
        for name, side in (("k", k), ("v", v))
    }
    return {"q": _flat(q)[units], **keys, "row": row}


def _apart(kinds: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """Return `kinds`, and "KIND, NAME alone" for each of `names` and each kind but the first."""
    return kinds + tuple(f"{kind}, {name} alone" for name in names for kind in kinds[1:])


_FUSED: Final = ("separate", "fused")
_SHORT, _BETWEEN = ("as given", "bfloat16", "float16"), ("float32", "result")
_DOT: Final = {
    "inputs": _apart(INPUTS, "x", "weight"),
    "accumulate": tuple(ACCUMULATORS),
    "multiply_add": _FUSED,
    "order": ORDERS + MATRIX_ORDERS,
}
_SUM: Final = {"inputs": _SHORT, "accumulate": tuple(ACCUMULATORS), "order": ORDERS}
#: Tile sizes of fused kernels; FlashAttention 2 begins with the last tile.
_TILES: Final = tuple(f"online, {size} at a time" for size in (32, 64, 96, 128, 176, 192, 256, 512))
_BACKWARDS: Final = tuple(f"{tile} from the last" for tile in _TILES)
_DIVIDE: Final = ("divide", "reciprocal")
_PLACES: Final = ("result", "weights")
_NORM: Final = {
    "inputs": _apart(_SHORT, "x", "weight"),
    "multiply_add": _FUSED,
    "order": ORDERS,
    "divide": (*_DIVIDE, "rsqrt"),
    "between": _BETWEEN,
}
_SOFTMAX: Final = {
    "inputs": _SHORT,
    "order": ORDERS,
    "exp": EXPONENTIALS,
    "divide": _DIVIDE,
    "between": _BETWEEN,
    "rounded": _SHORT,
    "softmax": ("whole", *_TILES),
}
_ATTENTION: Final = {
    "inputs": _SHORT,
    "scale": ("result", "q", "both inputs"),
    "between": ("float32", "weights", "result"),
    "order": ("sequential", "blocks of 32", "exact"),
    "softmax": ("whole", *_TILES, *_BACKWARDS),
}
_QUANTISE: Final = {
    "inputs": _SHORT,
    "fp8": tuple(FP8),
    "divide": _DIVIDE,
    "scale": ("result", "power of two"),
}
_by_rows: Final = partial(
    Computation,
    units=lambda inputs: len(_flat(inputs["x"])),
    part=lambda inputs, units: {**inputs, "x": _flat(inputs["x"])[units]},
)
_by_products: Final = partial(
    Computation,
    units=lambda inputs: len(_flat(inputs["x"])) * _columns(inputs),
    part=_of_products,
)

#: The computations that `explain` knows, by the name in a recording.
COMPUTATIONS: Final[dict[str, Computation]] = {
    # x (…, K), y (K, N)
    "matmul": _by_products(_linear, _DOT | {"inputs": _apart(INPUTS, "x", "y")}, needs=("x", "y")),
    # x (…, K), weight (N, K), bias (N,)
    "linear": _by_products(
        _linear,
        _DOT | {"between": _BETWEEN},
        needs=("x", "weight"),
        may=("bias",),
        only_with={"between": "bias"},
    ),
    # weight int8; scale (N,) or (N, groups)
    "int8-linear": _by_products(
        _int8_linear,
        _DOT | {"inputs": INPUTS, "scale": _PLACES, "between": _BETWEEN},
        needs=("x", "weight", "scale"),
        may=("bias",),
    ),
    # x (…, K): over the last dimension
    "sum": _by_rows(_sum, _SUM),
    "mean": _by_rows(
        lambda inputs, a, **_: a.quotient(_sum(inputs, a), inputs["x"].shape[-1]),
        _SUM | {"divide": _DIVIDE},
    ),
    "softmax": _by_rows(_softmax, _SOFTMAX),
    # q (…, queries, width), k and v (…, keys, width); scale (1 / sqrt(width)), causal (0)
    "attention": Computation(
        _attention,
        _ATTENTION,
        needs=("q", "k", "v"),
        part=_of_queries,
        units=lambda inputs: len(_flat(inputs["q"])),
    ),
    # parameter eps, by default 1e-6
    "rmsnorm": _by_rows(
        _rmsnorm,
        _NORM | {"scale": _PLACES},
        may=("weight",),
        only_with={"scale": "weight", "between": "weight"},
    ),
    # parameter eps, by default 1e-5
    "layernorm": _by_rows(
        _layernorm,
        _NORM | {"variance": ("two-pass", "one-pass")},
        may=("weight", "bias"),
        only_with={"between": "weight"},
    ),
    # for each token; parameters group (by default the whole row) and eps (1e-10)
    "quantise": _by_rows(_quantise, _QUANTISE),
}
