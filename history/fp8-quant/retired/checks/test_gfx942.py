"""The fused kernel's numbers on a gfx942, in vLLM as its own recipe builds it.

Pass-to-pass: a ROCm build has the kernel on both sides; the patch is what calls it.
"""

from __future__ import annotations

import importlib

import pytest
import torch

HIGH, FP8 = 224.0, torch.float8_e4m3fnuz


@pytest.mark.parametrize("group_size", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("rows", [1, 7, 333])
def test_against_plain_torch(
    rows: int, dtype: torch.dtype, group_size: int, *, transposed: bool
) -> None:
    found = torch.cuda.get_device_properties(0).gcnArchName
    assert found.startswith("gfx942"), f"this is {found}"
    importlib.import_module("vllm._C_stable_libtorch")
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 2048, generator=generator).mul(4).to(dtype)
    out = torch.empty(rows, 1024, dtype=FP8, device="cuda")
    groups = 1024 // group_size
    scales = torch.empty(groups, rows, device="cuda").t() if transposed else None
    scales = torch.empty(rows, groups, device="cuda") if scales is None else scales
    operators = torch.ops._C  # noqa: SLF001  vLLM's own namespace
    operators.silu_and_mul_per_block_quant(out, x.cuda(), scales, group_size, None, transposed)
    gate, up = x.float().chunk(2, dim=-1)
    expected = torch.nn.functional.silu(gate) * up
    largest = expected.view(rows, groups, group_size).abs().amax(-1)
    torch.testing.assert_close(scales.cpu(), largest / HIGH)
    wide = scales.cpu().repeat_interleave(group_size, dim=1)
    torch.testing.assert_close(out.cpu().float(), expected / wide, atol=2**-10, rtol=2**-4)
