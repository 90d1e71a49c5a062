"""Computations that can be repeated in another arithmetic: what each makes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

import torch

from contribbot.errors import UsageError
from contribbot.numerics import arithmetic as ar
from contribbot.numerics.arithmetic import Arithmetic

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Computation:
    """A computation that `explain` can repeat; `COMPUTATIONS` takes one of your own.

    Attributes:
        run: Returns the result in float32, not yet rounded to its dtype, from some units' inputs,
            an arithmetic, and the parameters of the record as keyword arguments.
        axes: Choices of `Arithmetic`, and the values to try of each; the first is the usual one.
        needs: The inputs that it must have.
        may: Those that it can have.
        units: Returns how many parts of the result stand alone, such as rows.
        part: Returns the inputs of some of those, by number.
        only_with: Choices that make a difference only with an input.
    """

    run: Callable[..., torch.Tensor]
    axes: Mapping[str, tuple[str, ...]]
    needs: tuple[str, ...] = ("x",)
    may: tuple[str, ...] = ()
    units: Callable[[Tensors], int] = lambda _inputs: 1
    part: Callable[[Tensors, torch.Tensor], Tensors] = lambda inputs, _units: inputs
    only_with: Mapping[str, str] = field(default_factory=dict)

    def arithmetics(
        self, dtype: torch.dtype, inputs: Tensors, *, flushed: bool = False
    ) -> list[Arithmetic]:
        """Return all combinations of its choices, the usual one first."""
        axes = {**self.axes, "denormals": ("kept", "flushed")} if flushed else {**self.axes}
        for choice, name in self.only_with.items():
            if name not in inputs:
                axes[choice] = axes[choice][:1]
        every = (Arithmetic(**dict(zip(axes, values, strict=True)), dtype=dtype)
                 for values in product(*axes.values()))  # fmt: skip
        return [*dict.fromkeys(map(_sensible, every))]


def _sensible(choice: Arithmetic) -> Arithmetic:
    """Return a choice without what makes no difference in it."""
    if choice.order == "exact":
        return replace(choice, accumulate="float32", multiply_add="separate")
    if choice.order in {"pairwise", "halves", *ar.MATRIX_ORDERS} or choice.accumulate in ar.INPUTS:
        choice = replace(choice, multiply_add="separate")
    if "parts" in choice.accumulate and not choice.order.startswith(("blocks", "split")):
        choice = replace(choice, accumulate="float32")
    return choice


def _linear(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    return _with_bias(inputs, a, a.dot(a.take(inputs["x"]), a.take(inputs["weight"])))


def _with_bias(inputs: Tensors, a: Arithmetic, total: torch.Tensor) -> torch.Tensor:
    return a.keep(a.step(total) + inputs["bias"].float()) if "bias" in inputs else total


def _int8_linear(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    """Integer weights: dequantised and then multiplied, or multiplied and then scaled."""
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
    rows = a.take(inputs["x"]).T
    powers = a.step(a.exponential(rows, rows.amax(0)))
    return a.give(a.quotient(powers, a.step(a.sum(powers))).T)


def _rmsnorm(inputs: Tensors, a: Arithmetic, *, eps: float = 1e-6) -> torch.Tensor:
    rows = a.take(inputs["x"]).T
    return _normed(inputs, a, rows, _over(a, a.dot(rows, rows), len(rows)) + eps)


def _layernorm(inputs: Tensors, a: Arithmetic, *, eps: float = 1e-5) -> torch.Tensor:
    rows = a.take(inputs["x"]).T
    mean = _over(a, a.sum(rows), len(rows))
    if a.variance == "one-pass":
        square = a.keep(_over(a, a.dot(rows, rows), len(rows)) - mean * mean)
    else:
        square = _over(a, a.dot(rows - mean, rows - mean), len(rows))
    return _normed(inputs, a, rows - mean, square + eps)


def _normed(
    inputs: Tensors, a: Arithmetic, rows: torch.Tensor, square: torch.Tensor
) -> torch.Tensor:
    """Return (terms, rows) over the root of their mean squares, with weight and bias, turned."""
    weight, bias = (
        inputs[name].float()[:, None].expand_as(rows) if name in inputs else None
        for name in ("weight", "bias")
    )
    if weight is not None and a.scale == "weights":
        return a.keep(rows * a.step(a.over_root(weight, square))).T
    values = a.step(a.over_root(rows, square))
    if weight is not None and bias is not None:
        return replace(a, accumulate="float32").multiply_and_add(values, weight, bias).T
    return (values if weight is None else a.keep(values * weight)).T


def _exp(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    return a.exponential(a.take(inputs["x"]))


def _div(inputs: Tensors, a: Arithmetic, **_parameters: float) -> torch.Tensor:
    return a.quotient(a.take(inputs["x"]), a.take(inputs["y"]))


def _quantise(
    inputs: Tensors, a: Arithmetic, *, group: float = 0, eps: float = 1e-10
) -> torch.Tensor:
    """Per token group to 8 bits: the codes where the result has 8 bits, else times the scales."""
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
    """Return a product's factors, the summed dimension last in both: `y` is a weight, turned."""
    turned = {"weight": inputs["y"].mT} if "y" in inputs else {}
    return {name: tensor for name, tensor in {**inputs, **turned}.items() if name != "y"}


def _products(inputs: Tensors) -> int:
    """Return how many elements a product has."""
    factors = _factors(inputs)
    x, weight = factors["x"], factors["weight"]
    groups = tuple(factors.get("scale", weight[:, 0]).shape[1:])
    lengths = {len(factors[name]) for name in factors.keys() - {"x"}}
    if weight.dim() != 2 or x.shape[-1] != weight.shape[1] or len(lengths) > 1:  # noqa: PLR2004  rows, columns
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in inputs.items())
        raise UsageError(f"the inputs do not fit each other: {shapes}")
    if any(x.shape[-1] % size for size in groups):
        raise UsageError(f"{groups[0]} groups do not divide {x.shape[-1]} terms")
    return x.numel() // x.shape[-1] * len(weight)


def _of_products(inputs: Tensors, units: torch.Tensor) -> Tensors:
    """Return rows of both factors for some elements, as (terms, elements)."""
    factors = _factors(inputs)
    row, column = units // len(factors["weight"]), units % len(factors["weight"])
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


def _elements(inputs: Tensors) -> int:
    return inputs["x"].numel()


def _of_elements(inputs: Tensors, units: torch.Tensor) -> Tensors:
    shape = inputs["x"].shape
    return {name: tensor.expand(shape).reshape(-1)[units] for name, tensor in inputs.items()}


_FUSED: Final = ("separate", "fused")
_DOT: Final = {
    "inputs": ar.INPUTS, "accumulate": ar.ACCUMULATORS, "multiply_add": _FUSED,
    "order": ar.ORDERS + ar.MATRIX_ORDERS,
}  # fmt: skip
_INPUTS, _BETWEEN = ("as given", "bfloat16", "float16"), ("float32", "result")
_SUM: Final = {"inputs": _INPUTS, "accumulate": ar.ACCUMULATORS, "order": ar.ORDERS}
_DIVIDE, _ROOT = ("divide", "reciprocal"), ("divide", "reciprocal", "rsqrt")
_PLACES: Final = ("result", "weights")
_NORM: Final = {
    "inputs": _INPUTS, "multiply_add": _FUSED, "order": ar.ORDERS, "divide": _ROOT,
    "between": _BETWEEN,
}  # fmt: skip

#: Each computation that a record may be of.
COMPUTATIONS: Final[dict[str, Computation]] = {
    # x (…, K), y (K, N)
    "matmul": Computation(_linear, _DOT, ("x", "y"), (), _products, _of_products),
    # x (…, K), weight (N, K), bias (N,)
    "linear": Computation(
        _linear, _DOT | {"between": _BETWEEN}, ("x", "weight"), ("bias",), _products, _of_products,
        {"between": "bias"},
    ),
    # weight int8; scale (N,) or (N, groups)
    "int8-linear": Computation(
        _int8_linear, _DOT | {"scale": _PLACES, "between": _BETWEEN}, ("x", "weight", "scale"),
        ("bias",), _products, _of_products,
    ),
    # over the last dimension
    "sum": Computation(_sum, _SUM, units=_rows, part=_of_rows),
    "mean": Computation(_mean, _SUM | {"divide": _DIVIDE}, units=_rows, part=_of_rows),
    "softmax": Computation(
        _softmax, {"inputs": _INPUTS, "order": ar.ORDERS, "exp": ar.EXPONENTIALS,
                   "divide": _DIVIDE, "between": _BETWEEN, "rounded": _INPUTS},
        units=_rows, part=_of_rows,
    ),
    # parameter eps, 1e-6 unless told
    "rmsnorm": Computation(
        _rmsnorm, _NORM | {"scale": _PLACES}, may=("weight",), units=_rows, part=_of_rows,
        only_with={"scale": "weight", "between": "weight"},
    ),
    # parameter eps, 1e-5 unless told
    "layernorm": Computation(
        _layernorm, _NORM | {"variance": ("two-pass", "one-pass")}, may=("weight", "bias"),
        units=_rows, part=_of_rows, only_with={"between": "weight"},
    ),
    # per token group: parameters group (the whole row unless told) and eps (1e-10)
    "quantise": Computation(
        _quantise, {"inputs": _INPUTS, "fp8": tuple(ar.FP8), "divide": _DIVIDE,
                    "scale": ("result", "power of two")}, units=_rows, part=_of_rows,
    ),
    "exp": Computation(
        _exp, {"inputs": _INPUTS, "exp": ar.EXPONENTIALS}, units=_elements, part=_of_elements
    ),
    "div": Computation(
        _div, {"inputs": _INPUTS, "divide": _DIVIDE}, ("x", "y"), units=_elements,
        part=_of_elements,
    ),
}  # fmt: skip
