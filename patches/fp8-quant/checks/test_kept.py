"""What the patch must leave as it is, and that the judges of the other checks can say no.

Pass-to-pass: true on the base and on the patched tree.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from golden import E4M3FN, EPS, INT8, every_16_bit, quantize, unscaled
from kernel_standin import FP8, KernelContractError, _check, _target
from layer_cases import FP8_UTILS, FUSION, QUANT_FP8, QUANT_UTILS, assert_same, draw
from rocm_sources import schemas
from vllm_on_rocm import GPU, TritonLaunchError, config

COLUMNS = 256


def test_this_is_rocm_to_upstreams_own_code() -> None:
    platform = FP8_UTILS.current_platform
    assert type(platform).__module__ == "vllm.platforms.rocm"
    assert platform.is_rocm()
    assert platform.is_cuda_alike()
    assert not platform.is_cuda()
    assert platform.fp8_dtype() == FP8.dtype
    assert QUANT_UTILS.get_fp8_min_max() == (FP8.low, FP8.high)
    assert GPU == "gfx942"


def test_strided_rows_still_go_to_triton() -> None:
    x = draw(4, 2 * COLUMNS, torch.bfloat16)[:, :COLUMNS]
    assert not x.is_contiguous()
    with pytest.raises(TritonLaunchError, match=r"^_per_token_group_quant_fp8 was to be"):
        FP8_UTILS.per_token_group_quant_fp8(x, 128, use_ue8m0=False)


@pytest.mark.parametrize(("columns", "group_size"), [(513, 64), (200, 128)])
def test_an_incomplete_last_group_is_still_padded(columns: int, group_size: int) -> None:
    x = draw(6, columns, torch.bfloat16)
    layer = QUANT_FP8(static=False, group_shape=QUANT_UTILS.GroupShape(1, group_size))
    values, scales = layer.forward_hip(x)
    padded = torch.nn.functional.pad(x, (0, -columns % group_size))
    expected = quantize(padded, group_size, FP8)
    assert values.shape == x.shape
    assert torch.equal(values.float(), expected.values.float()[:, :columns])
    assert torch.equal(scales, expected.scales)


def test_the_fusion_patterns_of_other_kinds_are_there() -> None:
    fusion = FUSION.RMSNormQuantFusionPass(config())
    assert sum(len(found) for found in fusion.patterns.patterns.values()) >= 8


def test_the_bindings_are_read() -> None:
    found = schemas()
    assert "rms_norm_per_block_quant" in found
    assert "cutlass_scaled_mm" not in found


REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "strided input": lambda x: _check(x[:, :128], x[:, :128].contiguous(), 128, EPS),
    "strided output": lambda x: _check(x[:, :128].contiguous(), x[:, :128], 128, EPS),
    "another shape": lambda x: _check(x, x[1:], 128, EPS),
    "an incomplete group": lambda x: _check(x, x, 100, EPS),
    "another eps": lambda x: _check(x, x, 128, 1e-6),
    "240 instead of 224": lambda _: _target(torch.empty(0, dtype=FP8.dtype), -240.0, 240.0),
    "another GPU's type": lambda _: _target(
        torch.empty(0, dtype=E4M3FN.dtype), E4M3FN.low, E4M3FN.high
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_stand_in_refuses(call: str) -> None:
    with pytest.raises(KernelContractError):
        REFUSED[call](torch.zeros(2, COLUMNS))


@pytest.mark.parametrize("target", [FP8, E4M3FN, INT8], ids=str)
def test_judge_sees_one_bit(target: object) -> None:
    assert target in {FP8, E4M3FN, INT8}
    x = draw(3, COLUMNS, torch.float32)
    expected = quantize(x, 128, FP8)
    codes = expected.values.clone().view(torch.uint8)
    codes[1, 5] ^= 1
    with pytest.raises(AssertionError, match="the values differ"):
        assert_same((codes.view(FP8.dtype), expected.scales), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_golden_only_converts_where_the_scale_is_one(dtype: torch.dtype) -> None:
    x = unscaled(every_16_bit(dtype, FP8.high), 64, FP8)
    done = quantize(x, 64, FP8)
    assert torch.all(done.scales == 1)
    expected = x.float().to(FP8.dtype)
    assert torch.equal(done.values.view(torch.uint8), expected.view(torch.uint8))
