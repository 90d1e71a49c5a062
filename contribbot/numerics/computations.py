"""Computations that `explain` can repeat in different arithmetics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Final

import torch

from contribbot.numerics import arithmetic as ar
from contribbot.numerics.arithmetic import Arithmetic

Tensors = Mapping[str, torch.Tensor]
#: The size of a float32 in bytes.
_WIDE: Final = 4


@dataclass(frozen=True)
class Computation:
    """A computation that `explain` can repeat; you may add yours to `COMPUTATIONS`.

    Attributes:
        run: Returns the result in float32, not rounded to its dtype, from some units' inputs,
            an arithmetic, and the recording's parameters as keyword arguments.
        axes: Choices of `Arithmetic` with the values to try; the first value is the usual one.
        needs: The required inputs.
        may: The optional inputs.
        units: Returns the number of independent parts of the result, such as rows.
        part: Returns the inputs of some units, given their numbers.
        only_with: Choices that matter only if a certain input exists.
    """

    run: Callable[..., torch.Tensor]
    axes: Mapping[str, tuple[str, ...]]
    needs: tuple[str, ...] = ("x",)
    may: tuple[str, ...] = ()
    units: Callable[[Tensors], int] = lambda _inputs: 1
    part: Callable[[Tensors, torch.Tensor], Tensors] = lambda inputs, _units: inputs
    only_with: Mapping[str, str] = field(default_factory=dict)

    def arithmetics(self, dtype: torch.dtype, inputs: Tensors) -> list[Arithmetic]:
        """Return all arithmetics to try, the usual one first."""
        axes = {**self.axes}
        for choice, name in self.only_with.items():
            if name not in inputs:
                axes[choice] = axes[choice][:1]
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
        choice = replace(choice, accumulate=ar.ACCUMULATORS[choice.accumulate][0])
    # In 16 bits, an FMA makes no difference.
    short = choice.dtype.itemsize < _WIDE or ar.ACCUMULATORS[choice.accumulate][0] != "float32"
    if choice.order in {"pairwise", "halves", *ar.MATRIX_ORDERS} or short:
        choice = replace(choice, multiply_add="separate")
    return choice


def _linear(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    other = "y" if "y" in inputs else "weight"
    return _with_bias(inputs, a, a.dot(a.take(inputs["x"], "x"), a.take(inputs[other], other)))


def _with_bias(inputs: Tensors, a: Arithmetic, total: torch.Tensor) -> torch.Tensor:
    return a.step(total) + inputs["bias"].float() if "bias" in inputs else total


def _int8_linear(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    """Return a product with int8 weights, scaled either before or after the sum."""
    x, weight, scale = (
        a.take(inputs["x"]),
        inputs["weight"].float(),
        a.step(inputs["scale"].float()),
    )
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


def _mean(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    return _over(a, _sum(inputs, a), inputs["x"].shape[-1])


def _over(a: Arithmetic, total: torch.Tensor, length: int) -> torch.Tensor:
    return a.quotient(total, torch.full_like(total, length))


def _softmax(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    rows = a.take(inputs["x"], "x").T
    powers = a.step(a.exponential(rows, rows.amax(0)))
    # A single tile is the same as no tiles.
    if a.softmax == "whole" or int(a.softmax.split()[1]) >= len(rows):
        total = a.sum(powers)
    else:
        ones = torch.ones_like(rows)[..., None]
        total = _online(replace(a, between="float32"), rows, ones)[1]
    return a.give(a.quotient(powers, a.step(total)).T)


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
    return _normed(inputs, a, rows, _over(a, a.dot(rows, rows), len(rows)) + eps)


def _layernorm(inputs: Tensors, a: Arithmetic, *, eps: float = 1e-5) -> torch.Tensor:
    rows = a.take(inputs["x"], "x").T
    mean = _over(a, a.sum(rows), len(rows))
    if a.variance == "one-pass":
        square = _over(a, a.dot(rows, rows), len(rows)) - mean * mean
    else:
        square = _over(a, a.dot(rows - mean, rows - mean), len(rows))
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
    """Return groups quantised to 8 bits: codes for an 8-bit dtype, else codes times scales."""
    rows = a.take(inputs["x"])
    groups = rows.reshape(len(rows), -1, int(group) or rows.shape[-1])
    code, largest = ar.FP8[a.fp8]
    most = groups.abs().amax(-1, keepdim=True).clamp_min(eps)
    scale = a.quotient(most, torch.full_like(most, largest))
    if a.scale == "power of two":
        scale = torch.exp2(torch.ceil(torch.log2(scale.double()))).float()
    codes = a.quotient(groups, scale).clamp(-largest, largest).to(code).float()
    return (codes if a.dtype.itemsize == 1 else codes * scale).reshape(rows.shape)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


def _factors(inputs: Tensors) -> Tensors:
    """Return a product's factors with the summed dimension last; `y` is transposed."""
    return {name: tensor.mT if name == "y" else tensor for name, tensor in inputs.items()}


def _products(inputs: Tensors) -> int:
    """Return the number of elements of a product."""
    factors = _factors(inputs)
    weight = factors["y" if "y" in factors else "weight"]
    return len(_flat(factors["x"])) * len(weight)


def _of_products(inputs: Tensors, units: torch.Tensor) -> Tensors:
    """Return the rows of both factors for some elements of a product, as (terms, elements)."""
    factors = _factors(inputs)
    columns = len(factors["y" if "y" in factors else "weight"])
    row, column = units // columns, units % columns
    part = {
        name: factors[name][column].movedim(-1, 0).contiguous() for name in factors.keys() - {"x"}
    }
    if "scale" in part:
        part["scale"] = part["scale"].reshape(-1, len(units))
    return {**part, "x": _flat(factors["x"])[row].T.contiguous()}


def _rows(inputs: Tensors) -> int:
    return len(_flat(inputs["x"]))


def _of_rows(inputs: Tensors, units: torch.Tensor) -> Tensors:
    return {**inputs, "x": _flat(inputs["x"])[units]}


def _queries(inputs: Tensors) -> int:
    return len(_flat(inputs["q"]))


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
    """Return choices that round all inputs, and choices that round only one of the names."""
    return kinds + tuple(f"{kind}, {name} alone" for name in names for kind in kinds[1:])


_FUSED: Final = ("separate", "fused")
_SHORT, _BETWEEN = ("as given", "bfloat16", "float16"), ("float32", "result")
_DOT: Final = {
    "inputs": _apart(ar.INPUTS, "x", "weight"),
    "accumulate": tuple(ar.ACCUMULATORS),
    "multiply_add": _FUSED,
    "order": ar.ORDERS + ar.MATRIX_ORDERS,
}
_SUM: Final = {"inputs": _SHORT, "accumulate": tuple(ar.ACCUMULATORS), "order": ar.ORDERS}
#: Tile sizes of fused kernels; FlashAttention 2 begins with the last tile.
_TILES: Final = tuple(f"online, {size} at a time" for size in (32, 64, 96, 128, 176, 192, 256, 512))
_BACKWARDS: Final = tuple(f"{tile} from the last" for tile in _TILES)
_DIVIDE: Final = ("divide", "reciprocal")
_PLACES: Final = ("result", "weights")
_NORM: Final = {
    "inputs": _apart(_SHORT, "x", "weight"),
    "multiply_add": _FUSED,
    "order": ar.ORDERS,
    "divide": (*_DIVIDE, "rsqrt"),
    "between": _BETWEEN,
}
_SOFTMAX: Final = {
    "inputs": _SHORT,
    "order": ar.ORDERS,
    "exp": ar.EXPONENTIALS,
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
    "fp8": tuple(ar.FP8),
    "divide": _DIVIDE,
    "scale": ("result", "power of two"),
}
_by_rows: Final = partial(Computation, units=_rows, part=_of_rows)
_by_products: Final = partial(Computation, units=_products, part=_of_products)

#: The computations that `explain` knows, by the name in a recording.
COMPUTATIONS: Final[dict[str, Computation]] = {
    # x (…, K), y (K, N)
    "matmul": _by_products(
        _linear, _DOT | {"inputs": _apart(ar.INPUTS, "x", "y")}, needs=("x", "y")
    ),
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
        _DOT | {"inputs": ar.INPUTS, "scale": _PLACES, "between": _BETWEEN},
        needs=("x", "weight", "scale"),
        may=("bias",),
    ),
    # x (…, K): over the last dimension
    "sum": _by_rows(_sum, _SUM),
    "mean": _by_rows(_mean, _SUM | {"divide": _DIVIDE}),
    "softmax": _by_rows(_softmax, _SOFTMAX),
    # q (…, queries, width), k and v (…, keys, width); scale (1 / sqrt(width)), causal (0)
    "attention": Computation(
        _attention, _ATTENTION, needs=("q", "k", "v"), units=_queries, part=_of_queries
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
