"""SiLU and group quantisation on a CPU, with the contracts of the C++ code enforced.

This is no GPU: it refuses what the C++ code refuses or could not compute, remembers which
operator was called, and computes the right numbers. Only operators that a ROCm build has are
there: the tree's bindings define and implement them, and its CMakeLists.txt lists their sources.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from rocm_sources import implemented, require_clear, stable_sources
from vllm_on_rocm import GPU, library, open_vllm

#: What vLLM passes as the smallest magnitude of a group.
EPS = 1e-10


@dataclass(frozen=True)
class Target:
    """An FP8 type and the values that vLLM keeps to."""

    dtype: torch.dtype
    low: float
    high: float


#: NVIDIA, gfx950, and RDNA.
E4M3FN = Target(torch.float8_e4m3fn, -448.0, 448.0)
#: gfx94x; the type reaches 240, vLLM keeps to 224.
E4M3FNUZ = Target(torch.float8_e4m3fnuz, -224.0, 224.0)
#: That of the GPU that this machine is said to have.
FP8 = E4M3FNUZ if GPU.startswith("gfx94") else E4M3FN


class KernelContractError(Exception):
    """A call that the kernel refuses, or whose result would be wrong."""


@dataclass(frozen=True)
class Call:
    """One accepted call."""

    operator: str
    group_size: int


#: The accepted calls since the list was cleared.
calls: list[Call] = []


def SILU(x: torch.Tensor) -> torch.Tensor:  # noqa: N802  a formula, as in the papers
    """Return SiLU of the first half of the columns, times the second half."""
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def _require(*, holds: bool, what: str) -> None:
    if not holds:
        raise KernelContractError(what)


def quantize(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, group_size: int) -> None:
    """Write values and scales of groups, computed in float32.

    Raises:
        KernelContractError: The kernels do not take these tensors.
    """
    rows, columns = x.shape
    _require(holds=q.dtype == FP8.dtype, what=f"{q.dtype} is no type of {GPU}")
    _require(holds=q.is_contiguous(), what="the output must be contiguous")
    _require(holds=q.shape == x.shape, what="the output has another shape")
    _require(holds=columns % group_size == 0, what="groups must divide the columns")
    _require(holds=s.dtype == torch.float32, what="scales must be float32")
    _require(holds=s.shape == (rows, columns // group_size), what="not a scale for each group")
    groups = x.float().view(rows, -1, group_size)
    scales = groups.abs().amax(-1).clamp_min(EPS) / FP8.high
    scaled = (groups / scales.unsqueeze(-1)).clamp(FP8.low, FP8.high)
    q.copy_(scaled.view(rows, columns).to(FP8.dtype))
    s.copy_(scales)


def _silu(out: torch.Tensor, x: torch.Tensor) -> None:
    out.copy_(SILU(x))
    calls.append(Call("silu_and_mul", 0))


def _quant(  # noqa: PLR0917  the schema is upstream's
    x: torch.Tensor,
    q: torch.Tensor,
    s: torch.Tensor,
    group_size: int,
    eps: float,
    low: float,
    high: float,
    ue8m0: bool,  # noqa: FBT001  the schema is upstream's
    _transposed: bool,  # noqa: FBT001
    _aligned: bool,  # noqa: FBT001
) -> None:
    _require(holds=(low, high) == (FP8.low, FP8.high), what=f"{low} and {high} on {GPU}")
    _require(holds=eps == EPS and not ue8m0, what=f"eps must be {EPS}, scales float32")
    _require(holds=x.is_contiguous(), what="input must be contiguous")
    quantize(x, q, s, group_size)
    calls.append(Call("per_token_group_fp8_quant", group_size))


def _fused(  # noqa: PLR0917  the schema is upstream's
    out: torch.Tensor,
    x: torch.Tensor,
    scales: torch.Tensor,
    group_size: int,
    scale_ub: torch.Tensor | None = None,
    is_scale_transposed: bool = False,  # noqa: FBT001, FBT002  the schema is upstream's
) -> None:
    _require(holds=x.dtype in {torch.float16, torch.bfloat16}, what="Input must be FP16 or BF16")
    _require(holds=x.is_contiguous(), what="input must be contiguous")
    _require(holds=group_size in {64, 128}, what=f"Unsupported group size: {group_size}")
    _require(holds=x.shape[-1] == 2 * out.shape[-1], what="input last dim must be 2x output's")
    _require(holds=scale_ub is None, what="the patterns give no upper bound")
    # The kernel does not ask for strides: it writes in one of two orders.
    by_rows = not is_scale_transposed
    _require(holds=(scales.stride(1) == 1) == by_rows, what="scales lie in the other order")
    quantize(SILU(x.float()), out, scales, group_size)
    calls.append(Call("silu_and_mul_per_block_quant", group_size))


#: What each stands in for: the operator, its source below csrc/.
_KERNELS = {
    "silu_and_mul": (_silu, "activation_kernels.cu"),
    "per_token_group_fp8_quant": (_quant, "quantization/w8a8/fp8/per_token_group_quant.cu"),
    "silu_and_mul_per_block_quant": (
        _fused,
        "quantization/fused_kernels/fused_silu_mul_block_quant.cu",
    ),
}

open_vllm()
_library = library("_C", "IMPL")
for _name, (_kernel, _source) in _KERNELS.items():
    require_clear(_name)
    if stable_sources().count(f"csrc/{_source}") == 1 and _name in implemented():
        _library.impl(_name, _kernel, "CPU")  # type: ignore[no-untyped-call]  # torch does not annotate it
