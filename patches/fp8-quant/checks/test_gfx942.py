"""The operators on a gfx942, in vLLM as its own recipe builds it.

Fail-to-pass: on the base a ROCm build has no such operators.
"""

from __future__ import annotations

import importlib

import pytest
import torch
from golden import E4M3FNUZ, EPS, INT8, Quantized, Target, every_16_bit, quantize, unscaled

GROUPS = pytest.mark.parametrize("group_size", [64, 128])
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
SHAPES = [(1, 512), (3, 768), (7, 1536), (333, 1024)]


def _run(x: torch.Tensor, group_size: int, target: Target, *, ue8m0: bool = False) -> Quantized:
    importlib.import_module("vllm._C_stable_libtorch")
    q = torch.empty(x.shape, dtype=target.dtype, device="cuda")
    s = torch.empty(x.shape[0], x.shape[1] // group_size, device="cuda")
    operators = torch.ops._C  # noqa: SLF001  vLLM's own namespace
    given = (x.cuda(), q, s, group_size, EPS, target.low, target.high)
    if target == INT8:
        operators.per_token_group_quant_int8(*given)
    else:
        operators.per_token_group_fp8_quant(*given, ue8m0, False, False)  # noqa: FBT003  positional in the schema
    return Quantized(q.cpu(), s.cpu())


def _assert_same(seen: Quantized, expected: Quantized) -> None:
    wrong = seen.values.view(torch.uint8) != expected.values.view(torch.uint8)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} values differ"
    assert torch.equal(seen.scales, expected.scales), "scales differ"


def test_this_is_a_gfx942() -> None:
    """The first: without one, none of the others says anything."""
    found = torch.cuda.get_device_properties(0).gcnArchName
    assert found.startswith("gfx942"), f"this is {found}"
    _run(torch.ones(1, 128), 128, E4M3FNUZ)


@DTYPES
@GROUPS
def test_every_16_bit_value(group_size: int, dtype: torch.dtype) -> None:
    x = unscaled(every_16_bit(dtype, E4M3FNUZ.high), group_size, E4M3FNUZ)
    expected = Quantized(x.float().to(E4M3FNUZ.dtype), torch.ones(x.shape[0], 1))
    _assert_same(_run(x, group_size, E4M3FNUZ), expected)


@DTYPES
@GROUPS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["fp8", "fp8 ue8m0", "int8"])
def test_against_plain_torch(
    kind: str, shape: tuple[int, int], group_size: int, dtype: torch.dtype
) -> None:
    """Groups of very different size side by side: a maximum must not leave its group."""
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator).view(shape[0], -1, group_size)
    x *= torch.exp2(torch.randint(-6, 7, (*x.shape[:2], 1), generator=generator).float())
    x = x.view(shape).to(dtype)
    target, ue8m0 = (INT8 if kind == "int8" else E4M3FNUZ), kind == "fp8 ue8m0"
    expected = quantize(x, group_size, target, ue8m0=ue8m0)
    _assert_same(_run(x, group_size, target, ue8m0=ue8m0), expected)
