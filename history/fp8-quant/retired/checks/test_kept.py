"""What the patch must leave as it is, and that the judges of the other checks can say no.

Pass-to-pass: true on the base and on the patched tree.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernel_standin import E4M3FN, FP8, KernelContractError, _fused, calls, quantize
from layer_cases import (
    FUSION,
    QUANT,
    QUANT_UTILS,
    SiluAndQuant,
    export,
    fusion,
    operators,
)
from rocm_sources import implemented, schemas, stable_sources
from vllm_on_rocm import GPU


def test_this_is_rocm_to_upstreams_own_code() -> None:
    platform = FUSION.current_platform
    assert type(platform).__module__ == "vllm.platforms.rocm"
    assert platform.is_rocm()
    assert platform.is_cuda_alike()
    assert not platform.is_cuda()
    assert platform.fp8_dtype() == FP8.dtype
    assert QUANT_UTILS.get_fp8_min_max() == (FP8.low, FP8.high)
    assert GPU == "gfx942"


def test_both_kernels_are_in_a_rocm_build() -> None:
    names = {"silu_and_mul_per_block_quant", QUANT}
    assert names <= implemented() & schemas().keys()
    assert "csrc/quantization/fused_kernels/fused_silu_mul_block_quant.cu" in stable_sources()
    assert "cutlass_scaled_mm" not in schemas()


def test_the_fusion_with_one_scale_is_there() -> None:
    patterns = fusion(native=False).pm_pass.patterns  # type: ignore[attr-defined]  # of vLLM's pass
    assert sum(len(found) for found in patterns.values()) >= 1


def test_the_layers_alone_call_both_operators() -> None:
    model = SiluAndQuant(128, column_major=False, native=False)
    x = torch.randn(3, 512).to(torch.bfloat16)
    with export(model, x) as graph:
        pass
    calls.clear()
    values, scales = graph(x)
    assert [call.operator for call in calls] == ["silu_and_mul", QUANT]
    assert values.shape == (3, 256)
    assert scales.shape == (3, 2)


def test_a_reader_between_keeps_them_apart() -> None:
    class Read(SiluAndQuant):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            activated = self._silu(x)
            values, scales = self._quant.forward_hip(activated)
            return values, scales, activated

    model = Read(128, column_major=False, native=False)
    with export(model, torch.zeros(3, 512).bfloat16()) as graph:
        fusion(native=False)(graph.graph)
    assert f"_C.{QUANT}.default" in operators(graph.graph)


X = torch.zeros(2, 512, dtype=torch.bfloat16)


def _fuse(*, x: torch.Tensor = X, dtype: torch.dtype = FP8.dtype, group: int = 128) -> None:
    out = torch.empty(x.shape[0], x.shape[1] // 2, dtype=dtype)
    _fused(out, x, torch.empty(x.shape[0], out.shape[1] // group), group)


REFUSED: dict[str, Callable[[], object]] = {
    "float32": lambda: _fuse(x=X.float()),
    "strided input": lambda: _fuse(x=X[:, ::2]),
    "another group": lambda: _fuse(group=32),
    "another GPU's type": lambda: _fuse(dtype=E4M3FN.dtype),
    "a scale too few": lambda: quantize(X, X.to(FP8.dtype), torch.empty(2, 3), 128),
    "another order of scales": lambda: _fused(
        torch.empty(2, 256, dtype=FP8.dtype),
        X,
        torch.empty(2, 2),
        128,
        None,
        True,  # noqa: FBT003  positional in the schema
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_stand_in_refuses(call: str) -> None:
    _fuse()
    with pytest.raises(KernelContractError):
        REFUSED[call]()
