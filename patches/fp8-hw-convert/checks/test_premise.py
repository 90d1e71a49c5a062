"""What the patch takes for granted of torch: its FP8 conversion rounds to nearest, ties to even.

Pass-to-pass, and the same on both trees: no file of the tree is read. The kernels used to call
this conversion, and NVIDIA and AMD say of their instructions that they round so. Judged by the
definition of the two formats, not by other conversion code.
"""

from __future__ import annotations

import pytest
import torch
from rounding import every_16_bit

#: Exponent bias, largest magnitude that vLLM lets through, and whether there is a -0.
FORMATS = {
    torch.float8_e4m3fn: (7, 448.0, True),
    torch.float8_e4m3fnuz: (8, 224.0, False),
}
formats = pytest.mark.parametrize("dtype", FORMATS, ids=str)


def _magnitudes(dtype: torch.dtype) -> torch.Tensor:
    """Decode the codes 0, 1, 2, … up to the limit; each step is the next larger value."""
    bias, limit, _ = FORMATS[dtype]
    codes = torch.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    normal = (8 + mantissa).double() * 2.0 ** (exponent - bias - 3)
    subnormal = mantissa.double() * 2.0 ** (1 - bias - 3)
    values = torch.where(exponent > 0, normal, subnormal)
    return values[values <= limit]


def _nearest(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the code of the nearest value; of two as near, the one with an even code."""
    values = _magnitudes(dtype)
    middles = (values[1:] + values[:-1]) / 2
    magnitude = x.double().abs().contiguous()
    # Middles below it, and the one that it hits if the code below that is odd.
    code = torch.searchsorted(middles, magnitude)
    tie = middles[code.clamp_max(len(middles) - 1)] == magnitude
    code += tie & (code % 2 == 1)
    negative = torch.signbit(x)
    if not FORMATS[dtype][2]:
        negative &= code > 0
    return (code + 128 * negative).to(torch.uint8)


def _thresholds(dtype: torch.dtype) -> torch.Tensor:
    """Return all values and all middles between them, each with its two neighbours in float32."""
    values = _magnitudes(dtype)
    edges = torch.cat([values, (values[1:] + values[:-1]) / 2]).float()
    up, down = (torch.nextafter(edges, torch.tensor(to)) for to in (torch.inf, -torch.inf))
    near = torch.cat([down, edges, up])
    near = near[near.abs() <= FORMATS[dtype][1]]
    return torch.cat([near, -near])


@formats
def test_ties_and_their_neighbours(dtype: torch.dtype) -> None:
    x = _thresholds(dtype)
    assert torch.equal(x.to(dtype).view(torch.uint8), _nearest(x, dtype))


@formats
@pytest.mark.parametrize("source", [torch.bfloat16, torch.float16], ids=str)
def test_every_16_bit_value(dtype: torch.dtype, source: torch.dtype) -> None:
    x = every_16_bit(source, FORMATS[dtype][1]).float()
    assert torch.equal(x.to(dtype).view(torch.uint8), _nearest(x, dtype))


@formats
def test_negative_zero(dtype: torch.dtype) -> None:
    code = int(torch.tensor(-0.0).to(dtype).view(torch.uint8))
    assert code == (0x80 if FORMATS[dtype][2] else 0)


@formats
def test_decoded_as_torch_decodes(dtype: torch.dtype) -> None:
    values = _magnitudes(dtype)
    codes = torch.arange(len(values), dtype=torch.uint8)
    assert torch.equal(codes.view(dtype).double(), values)
