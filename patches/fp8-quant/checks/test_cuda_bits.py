"""On CUDA the kernels give the same bits as plain torch on a CPU, in every layout.

Pass-to-pass: the patch may not change one bit there. All 16-bit values, odd numbers of rows,
input that starts later in its memory, column-major and packed scales, powers of two, int8,
and NaN, infinities and zeros of both signs among the values.
"""

from __future__ import annotations

import pytest
import torch
from golden import E4M3FN, INT8, Quantized, every_16_bit, quantize, unscaled
from group_quant import fp8, int8, packed

HALVES = [torch.float16, torch.bfloat16]
FLOATS = [*HALVES, torch.float32]
SHAPES = [(1, 512), (2, 256), (3, 768), (7, 1536), (15, 5376), (31, 512), (333, 1024)]
ODD_VALUES = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40, -1e-40, 6e4]

shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
contents = pytest.mark.parametrize("content", ["normal", "wild"])


def _draw(shape: tuple[int, int], dtype: torch.dtype, content: str) -> torch.Tensor:
    """Draw values on the CPU; wild ones spread over 72 powers of two, with odd ones strewn in."""
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator) * 8
    if content == "wild":
        x *= torch.exp2(torch.randint(-60, 12, shape, generator=generator).float())
        for start, value in enumerate(ODD_VALUES):
            x.view(-1)[start * 31 :: 1777] = value
    return x.to(dtype)


def _later(x: torch.Tensor) -> torch.Tensor:
    # 16 bytes: the kernels read by so many, and fault on any other address, before and after.
    skipped = 16 // x.element_size()
    memory = torch.empty(x.numel() + skipped, dtype=x.dtype, device=x.device)
    return memory[skipped:].view(x.shape).copy_(x)


def _assert_same(seen: tuple[torch.Tensor, torch.Tensor], expected: Quantized) -> None:
    values, scales = seen
    wrong = values.cpu().view(torch.uint8) != expected.values.view(torch.uint8)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} values differ"
    assert torch.equal(scales.cpu().contiguous(), expected.scales), "scales differ"


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("group_size", [64, 128])
def test_every_16_bit_value(group_size: int, dtype: torch.dtype) -> None:
    x = unscaled(every_16_bit(dtype, E4M3FN.high), group_size, E4M3FN)
    expected = Quantized(x.float().to(E4M3FN.dtype), torch.ones(x.shape[0], 1))
    _assert_same(fp8(x.cuda(), group_size), expected)
    if group_size == 128:
        codes = packed(x.cuda())[0].cpu().view(torch.uint8)
        assert torch.equal(codes, expected.values.view(torch.uint8))


@shapes
@contents
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("group_size", [64, 128, 256])
@pytest.mark.parametrize("scales", ["float", "power of two"])
def test_fp8(
    shape: tuple[int, int], content: str, dtype: torch.dtype, group_size: int, scales: str
) -> None:
    x = _draw(shape, dtype, content)
    ue8m0 = scales == "power of two"
    expected = quantize(x, group_size, E4M3FN, ue8m0=ue8m0)
    for laid_out in (x.cuda(), _later(x.cuda())):
        for column_major in (False, True):
            seen = fp8(laid_out, group_size, ue8m0=ue8m0, column_major=column_major)
            _assert_same(seen, expected)


@shapes
@contents
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("group_size", [64, 128])
def test_int8(shape: tuple[int, int], content: str, dtype: torch.dtype, group_size: int) -> None:
    x = _draw(shape, dtype, content)
    expected = quantize(x, group_size, INT8)
    _assert_same(int8(x.cuda(), group_size), expected)
    _assert_same(int8(_later(x.cuda()), group_size), expected)


@shapes
@contents
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_packed(shape: tuple[int, int], content: str, dtype: torch.dtype) -> None:
    x = _draw(shape, dtype, content)
    expected = quantize(x, 128, E4M3FN, ue8m0=True)
    rows, groups = expected.scales.shape
    values, words = packed(x.cuda(), rows_of_output=-(-rows // 4) * 4)
    codes = values.cpu().view(torch.uint8)
    assert torch.equal(codes[:rows], expected.values.view(torch.uint8))
    assert not codes[rows:].any()
    exponents = torch.stack([(words.cpu() >> shift) & 0xFF for shift in (0, 8, 16, 24)], -1)
    exponents = exponents.flatten(1)
    assert torch.equal(exponents[:, :groups], expected.scales.view(torch.int32) >> 23)
    assert not exponents[:, groups:].any()
