"""vLLM's group quantisation operators on a CPU, with the contract of the C++ code enforced.

This is no GPU: it refuses what the C++ code refuses or could not compute, remembers what it
was given, and computes the right numbers. Only operators that a ROCm build has are there: the
tree's bindings define and implement them, and its CMakeLists.txt lists their sources.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from golden import E4M3FN, E4M3FNUZ, EPS, INT8, Target, quantize
from rocm_sources import implemented, require_clear, stable_sources, tree
from vllm_on_rocm import GPU, library, open_vllm

#: The FP8 type of the GPU that this machine is said to have.
FP8 = E4M3FNUZ if GPU.startswith("gfx94") else E4M3FN


class KernelContractError(Exception):
    """A call that the kernel refuses, or whose result would be wrong."""


@dataclass(frozen=True)
class Call:
    """One accepted call."""

    operator: str
    low: float
    high: float
    ue8m0: bool


#: The accepted calls since the list was cleared.
calls: list[Call] = []


def _require(*, holds: bool, what: str) -> None:
    if not holds:
        raise KernelContractError(what)


def _check(x: torch.Tensor, q: torch.Tensor, group_size: int, eps: float) -> None:
    _require(holds=x.is_contiguous(), what="input must be contiguous")
    _require(holds=q.is_contiguous(), what="output_q must be contiguous")
    _require(holds=x.shape == q.shape, what="output_q must have the shape of input")
    _require(holds=x.shape[-1] % group_size == 0, what="groups must divide the columns")
    _require(holds=eps == EPS, what=f"eps must be {EPS}")


def _target(q: torch.Tensor, low: float, high: float) -> Target:
    for target in (FP8, INT8):
        if target == Target(q.dtype, low, high):
            return target
    raise KernelContractError(f"{q.dtype} with {low} and {high} is no type of {GPU}")


def _quantize(
    x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, group_size: int, *, call: Call
) -> None:
    _require(holds=s.dim() == 2, what="output_s must be 2-D")
    target = _target(q, call.low, call.high)
    done = quantize(x, group_size, target, ue8m0=call.ue8m0)
    _require(holds=s.shape == done.scales.shape, what="output_s must have a scale for each group")
    q.copy_(done.values)
    s.copy_(done.scales)
    calls.append(call)


def _fp8(  # noqa: PLR0917  the schema is upstream's
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
    _check(x, q, group_size, eps)
    call = Call("per_token_group_fp8_quant", low, high, ue8m0)
    _quantize(x, q, s, group_size, call=call)


def _int8(  # noqa: PLR0917  the schema is upstream's
    x: torch.Tensor,
    q: torch.Tensor,
    s: torch.Tensor,
    group_size: int,
    eps: float,
    low: float,
    high: float,
) -> None:
    _check(x, q, group_size, eps)
    _quantize(x, q, s, group_size, call=Call("per_token_group_quant_int8", low, high, ue8m0=False))


def _packed(  # noqa: PLR0917  the schema is upstream's
    x: torch.Tensor,
    q: torch.Tensor,
    s: torch.Tensor,
    group_size: int,
    eps: float,
    low: float,
    high: float,
) -> None:
    _check(x, q, group_size, eps)
    _require(holds=group_size == 128, what="group_size must be 128")
    rows, groups = x.shape[0], x.shape[1] // group_size
    aligned = -(-rows // 4) * 4
    _require(holds=s.dtype == torch.int32, what="output_s_packed must be int32")
    _require(holds=s.shape == (rows, -(-groups // 4)), what="output_s_packed: wrong shape")
    _require(holds=s.stride() == (1, aligned), what="output_s_packed: wrong strides")
    done = quantize(x, group_size, _target(q, low, high), ue8m0=True)
    q.copy_(done.values)
    exponents = torch.nn.functional.pad(done.scales.view(torch.int32) >> 23, (0, -groups % 4))
    shifts = torch.tensor([0, 8, 16, 24], dtype=torch.int32)
    s.copy_((exponents.view(rows, -1, 4) << shifts).sum(-1))
    calls.append(Call("per_token_group_fp8_quant_packed", low, high, ue8m0=True))


_KERNELS = {
    "per_token_group_fp8_quant": _fp8,
    "per_token_group_fp8_quant_packed": _packed,
    "per_token_group_quant_int8": _int8,
}

#: A file for FP8 and one for INT8 in 0.22.0, one for both in 0.33.0.
_SOURCES = [
    path.relative_to(tree()).as_posix()
    for path in tree().glob("csrc/**/w8a8/*/per_token_group_quant.cu")
]
if not _SOURCES:
    raise RuntimeError("no per_token_group_quant.cu in the tree")
_compiled = all(stable_sources().count(source) == 1 for source in _SOURCES)

open_vllm()
_library = library("_C", "IMPL")
for _name, _kernel in _KERNELS.items():
    require_clear(_name)
    defined = hasattr(torch.ops._C, _name)  # noqa: SLF001  vLLM's own namespace
    if defined and _compiled and _name in implemented():
        _library.impl(_name, _kernel, "CPU")  # type: ignore[no-untyped-call]  # torch does not annotate it
