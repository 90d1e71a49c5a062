"""The layout contract of aiter's two RMSNorm functions, enforced on a CPU.

This is no GPU and no aiter: it refuses every call that some aiter kernel could not
read, remembers what it was given, and computes the right numbers.

What it asks for is what every aiter version reads, from two of aiter's own files:
`csrc/kernels/rmsnorm_quant_kernels.cu` at 077c1c2b takes the width from dim 1 and the
row stride from dim 0, so the rank must be 2; `aiter/ops/rmsnorm.py` at 0bc300f7 asserts
contiguous residuals, contiguous outputs and a weight of the input's dtype. Some versions
accept more (a row stride of a 2-D input); a caller that keeps to this is safe on all.
"""

from __future__ import annotations

import contextlib
import types
from dataclasses import dataclass

import torch

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class AiterContractError(Exception):
    """A call that aiter's kernels cannot read, or would read out of bounds."""


#: The profiler's name for what the stand-in itself computes.
OWN_WORK = "stand-in for aiter"


@dataclass(frozen=True)
class Seen:
    """How one tensor reached the kernel (stride in elements)."""

    data_ptr: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One accepted call."""

    kernel: str
    rows: Seen
    residual: Seen | None
    weight: Seen
    epsilon: float


class Recorder:
    """What the stand-in saw since the last `clear`.

    Attributes:
        calls: The accepted calls, in order.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def clear(self) -> None:
        """Forget all calls."""
        self.calls.clear()

    def computing(self) -> contextlib.AbstractContextManager[object]:
        """Mark the block as the stand-in's own work, for whoever profiles."""
        return torch.autograd.profiler.record_function(OWN_WORK)


recorder = Recorder()


def _see(tensor: torch.Tensor) -> Seen:
    return Seen(tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))


def _refuse(kernel: str, name: str, why: str, tensor: torch.Tensor) -> AiterContractError:
    layout = f"shape {tuple(tensor.shape)}, stride {tuple(tensor.stride())}, {tensor.dtype}"
    return AiterContractError(f"{kernel}: {name} {why} ({layout})")


def _check_rows(kernel: str, name: str, tensor: torch.Tensor) -> None:
    if tensor.dim() != 2:
        raise _refuse(kernel, name, "must be 2-D", tensor)
    if not tensor.is_contiguous():
        raise _refuse(kernel, name, "must be contiguous", tensor)
    if tensor.shape[0] < 1:
        raise _refuse(kernel, name, "must have at least one row", tensor)
    if tensor.dtype not in _DTYPES:
        raise _refuse(kernel, name, "must be float16, bfloat16 or float32", tensor)


def _check_same(kernel: str, name: str, tensor: torch.Tensor, rows: torch.Tensor) -> None:
    _check_rows(kernel, name, tensor)
    if tensor.shape != rows.shape:
        raise _refuse(kernel, name, f"must have the shape {tuple(rows.shape)}", tensor)
    if tensor.dtype != rows.dtype:
        raise _refuse(kernel, name, f"must be {rows.dtype}", tensor)


def _check_weight(kernel: str, weight: torch.Tensor, rows: torch.Tensor) -> None:
    if weight.shape != rows.shape[1:] or not weight.is_contiguous():
        raise _refuse(kernel, "weight", f"must be contiguous, ({rows.shape[1]},)", weight)
    if weight.dtype != rows.dtype:
        raise _refuse(kernel, "weight", f"must be {rows.dtype}", weight)


def _normalise(wide: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Scale float32 rows by their root mean square and the weight."""
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
    return wide * scale * weight.float()


def rmsnorm2d_fwd(rows: torch.Tensor, weight: torch.Tensor, epsilon: float, /) -> torch.Tensor:
    """Return the normalised rows.

    Args:
        rows: (rows, width), contiguous.
        weight: (width,).
        epsilon: Added to the mean square.

    Raises:
        AiterContractError: The layout is not one that all aiter kernels read.
    """
    kernel = "rmsnorm2d_fwd"
    _check_rows(kernel, "input", rows)
    _check_weight(kernel, weight, rows)
    recorder.calls.append(Call(kernel, _see(rows), None, _see(weight), epsilon))
    with recorder.computing():
        return _normalise(rows.float(), weight, epsilon).to(rows.dtype)


def rmsnorm2d_fwd_with_add(  # noqa: PLR0917  aiter's own signature
    out: torch.Tensor,
    rows: torch.Tensor,
    residual_in: torch.Tensor,
    residual_out: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    /,
) -> None:
    """Write the sum of rows and residual, and its normalised rows.

    Args:
        out: Receives the normalised sum; (rows, width), contiguous.
        rows: (rows, width), contiguous.
        residual_in: Added to the rows; same shape and dtype.
        residual_out: Receives the sum, rounded to the dtype.
        weight: (width,).
        epsilon: Added to the mean square.

    Raises:
        AiterContractError: The layout is not one that all aiter kernels read.
    """
    kernel = "rmsnorm2d_fwd_with_add"
    _check_rows(kernel, "input", rows)
    named = {"residual_in": residual_in, "out": out, "residual_out": residual_out}
    for name, tensor in named.items():
        _check_same(kernel, name, tensor, rows)
    _check_weight(kernel, weight, rows)
    seen = Call(kernel, _see(rows), _see(residual_in), _see(weight), epsilon)
    recorder.calls.append(seen)
    with recorder.computing():
        # The kernel normalises the sum before it is rounded to the dtype.
        total = rows.float() + residual_in.float()
        residual_out.copy_(total)
        out.copy_(_normalise(total, weight, epsilon))


def as_module() -> types.ModuleType:
    """Return the two functions under the name `aiter`."""
    module = types.ModuleType("aiter", doc=__doc__)
    vars(module).update(rmsnorm2d_fwd=rmsnorm2d_fwd, rmsnorm2d_fwd_with_add=rmsnorm2d_fwd_with_add)
    # Later releases import it in the same breath.
    vars(module)["layernorm2d_fwd"] = None
    return module
