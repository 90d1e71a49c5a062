"""Values and scales of each kernel, in every layout, bit for bit those of plain torch.

Pass-to-pass: shapes with odd rows, misaligned and empty input, column-major and packed scales,
scales that are powers of two, int8, and NaN, infinities and zeros of both signs among the values.
"""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from group_quant import Layout, exponents, fp8, int8, packed
from rounding import E4M3FN, INT8, Quantized, draw, misaligned, quantize

SHAPES = [(0, 512), (1, 512), (2, 256), (3, 768), (7, 1536), (15, 5376), (31, 512), (333, 1024)]
HALVES = [torch.float16, torch.bfloat16]
FLOATS = [*HALVES, torch.float32]

shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
contents = pytest.mark.parametrize("content", ["normal", "wild"])


def _assert_same(seen: tuple[torch.Tensor, torch.Tensor], expected: Quantized) -> None:
    values, scales = seen
    assert torch.equal(values.cpu().view(torch.uint8), expected.values.view(torch.uint8))
    assert torch.equal(scales.cpu().contiguous(), expected.scales)


@shapes
@contents
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("group_size", [32, 64, 128, 256])
@pytest.mark.parametrize("scales", ["float", "power of two"])
def test_fp8(
    shape: tuple[int, int], content: str, dtype: torch.dtype, group_size: int, scales: str
) -> None:
    x = draw(shape, dtype, content)
    ue8m0 = scales == "power of two"
    expected = quantize(x, group_size, ue8m0=ue8m0)
    for laid_out in (x.cuda(), misaligned(x.cuda())):
        for layout in get_args(Layout):
            _assert_same(fp8(laid_out, group_size, ue8m0=ue8m0, layout=layout), expected)


@shapes
@contents
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("group_size", [32, 64, 128, 256])
def test_int8(shape: tuple[int, int], content: str, dtype: torch.dtype, group_size: int) -> None:
    x = draw(shape, dtype, content)
    expected = quantize(x, group_size, INT8)
    _assert_same(int8(x.cuda(), group_size), expected)
    _assert_same(int8(misaligned(x.cuda()), group_size), expected)


@contents
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("group_size", [32, 128])
def test_packed(shape: tuple[int, int], content: str, dtype: torch.dtype, group_size: int) -> None:
    x = draw(shape, dtype, content)
    expected = quantize(x, group_size, ue8m0=True)
    rows, groups = expected.scales.shape
    # What the kernel does not write shows: the rows that pad the output must be zeros after.
    output = torch.full((-(-rows // 4) * 4, x.shape[1]), 0xFF, dtype=torch.uint8, device="cuda")
    values, scales = packed(x.cuda(), group_size, output.view(E4M3FN.dtype))
    codes = values.cpu().view(torch.uint8)
    assert torch.equal(codes[:rows], expected.values.view(torch.uint8))
    assert not codes[rows:].any()
    stored = exponents(scales)
    assert torch.equal(stored[:, :groups], expected.scales.view(torch.int32) >> 23)
    assert not stored[:, groups:].any()


def test_the_largest_value_is_reached() -> None:
    x = draw((8, 1024), torch.bfloat16, "normal").cuda()
    assert float(fp8(x, 128)[0].float().abs().max()) == E4M3FN.high
