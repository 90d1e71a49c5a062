"""Layouts that callers give to RMSNorm, and a float64 judge of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from sglang_tree import Norm, RMSNorm

#: Judged against the error that SGLang's own torch code makes in the same precision:
#: the kernel may round differently, by at most one more half unit in the last place.
_FACTOR = 2.0

TOKENS, Q_HEADS, K_HEADS, DIM = 16, 4, 2, 32


class Inputs(NamedTuple):
    """Arguments of `RMSNorm.forward`; the last dimension is normalised."""

    x: torch.Tensor
    residual: torch.Tensor | None = None
    addition: torch.Tensor | None = None


class Make:
    """Makes random tensors of one dtype on one device; the same ones each time."""

    def __init__(self, dtype: torch.dtype, device: str = "cpu") -> None:
        self.dtype = dtype
        self.device = device
        self._generator = torch.Generator().manual_seed(20260408)

    def normal(self, *shape: int) -> torch.Tensor:
        """Return a contiguous tensor of that shape."""
        values = torch.randn(shape, generator=self._generator)
        return values.to(device=self.device, dtype=self.dtype)

    def packed_qk(
        self, tokens: int = TOKENS, heads: tuple[int, int] = (Q_HEADS, K_HEADS), dim: int = DIM
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return Q and K as views (tokens, heads, dim) of one packed QKV projection."""
        packed = self.normal(tokens, heads[0] + 2 * heads[1], dim)
        return packed[:, : heads[0]], packed[:, heads[0] : sum(heads)]


Build = Callable[[Make], Inputs]

#: None of these is a contiguous 2-D tensor with at least one row.
LAYOUTS: dict[str, Build] = {
    "q view": lambda m: Inputs(m.packed_qk()[0]),
    "k view": lambda m: Inputs(m.packed_qk()[1]),
    "q view, residual view": lambda m: Inputs(m.packed_qk()[0], m.packed_qk()[0]),
    "k view, residual view": lambda m: Inputs(m.packed_qk()[1], m.packed_qk()[1]),
    "q view, packed residual": lambda m: Inputs(m.packed_qk()[0], m.normal(TOKENS, Q_HEADS, DIM)),
    "packed x, residual view": lambda m: Inputs(m.normal(TOKENS, Q_HEADS, DIM), m.packed_qk()[0]),
    "q view, residual, addition": lambda m: Inputs(
        m.packed_qk()[0], m.packed_qk()[0], m.normal(TOKENS, Q_HEADS, DIM)
    ),
    "3-D": lambda m: Inputs(m.normal(3, 5, DIM)),
    "3-D, residual": lambda m: Inputs(m.normal(3, 5, DIM), m.normal(3, 5, DIM)),
    "4-D": lambda m: Inputs(m.normal(2, 3, 5, DIM)),
    "4-D transposed": lambda m: Inputs(m.normal(2, 3, 5, DIM).transpose(1, 2)),
    "4-D transposed, residual": lambda m: Inputs(
        m.normal(2, 3, 5, DIM).transpose(1, 2), m.normal(2, 5, 3, DIM)
    ),
    "slice": lambda m: Inputs(m.normal(7, 3 * DIM)[:, DIM : 2 * DIM]),
    "slice, residual slice": lambda m: Inputs(
        m.normal(7, 3 * DIM)[:, :DIM], m.normal(7, 2 * DIM)[:, DIM:]
    ),
    "good x, residual slice": lambda m: Inputs(m.normal(7, DIM), m.normal(7, 2 * DIM)[:, DIM:]),
    "slice, residual, addition": lambda m: Inputs(
        m.normal(7, 2 * DIM)[:, :DIM], m.normal(7, DIM), m.normal(7, DIM)
    ),
    "transposed": lambda m: Inputs(m.normal(DIM, 7).t()),
    "every second column": lambda m: Inputs(m.normal(7, 2 * DIM)[:, ::2]),
    "residual of one repeated row": lambda m: Inputs(
        m.normal(7, DIM), m.normal(1, DIM).expand(7, DIM)
    ),
    "1-D": lambda m: Inputs(m.normal(DIM)),
    "1-D strided, residual": lambda m: Inputs(m.normal(DIM, 3)[:, 1], m.normal(DIM)),
    "empty": lambda m: Inputs(m.normal(0, DIM)),
    "empty, residual": lambda m: Inputs(m.normal(0, DIM), m.normal(0, DIM)),
    "empty, residual, addition": lambda m: Inputs(
        m.normal(0, DIM), m.normal(0, DIM), m.normal(0, DIM)
    ),
    "empty q view": lambda m: Inputs(m.packed_qk(tokens=0)[0]),
    "empty 4-D, residual": lambda m: Inputs(m.normal(2, 0, 5, DIM), m.normal(2, 0, 5, DIM)),
}


def as_pair(result: Norm) -> tuple[torch.Tensor, ...]:
    """Return the output, and the residual output if there is one."""
    return result if isinstance(result, tuple) else (result,)


def _exact(
    norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """Compute in float64, from the values as the dtype holds them."""
    total = x.double() if residual is None else x.double() + residual.double()
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + norm.variance_epsilon)
    output = total * scale * norm.weight.detach().double()
    return (output,) if residual is None else (output, total)


def _error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the largest relative error; 0 for an empty tensor."""
    if exact.numel() == 0:
        return 0.0
    tiny = torch.finfo(actual.dtype).tiny
    return ((actual.double() - exact).abs() / exact.abs().clamp_min(tiny)).max().item()


def assert_right(norm: RMSNorm, inputs: Inputs, result: Norm) -> None:
    """Fail unless the result has the caller's shape and the right numbers.

    The tolerance is twice the relative error that `forward_native` makes in the same
    dtype against float64, and never less than twice the dtype's unit roundoff.
    """
    residual = inputs.residual
    if residual is not None and inputs.addition is not None:
        # SGLang rounds this sum to the dtype before the kernel sees it.
        residual = residual + inputs.addition
    with torch.no_grad():
        exact = _exact(norm, inputs.x, residual)
        native = as_pair(norm.forward_native(inputs.x, residual))
    got = as_pair(result)
    assert len(got) == len(exact), "a residual must come back exactly when one is given"
    names = ("output", "residual output")[: len(got)]
    for name, tensor, right, usual in zip(names, got, exact, native, strict=True):
        assert tensor.shape == inputs.x.shape, f"{name}: shape {tuple(tensor.shape)}"
        assert tensor.dtype == inputs.x.dtype, f"{name}: {tensor.dtype}"
        assert tensor.is_contiguous(), f"{name}: stride {tensor.stride()}"
        roundoff = torch.finfo(tensor.dtype).eps / 2
        allowed = _FACTOR * max(_error(usual, right), roundoff)
        error = _error(tensor, right)
        assert error <= allowed, f"{name}: relative error {error:.3g}, allowed {allowed:.3g}"
