"""The machine code for AMD GPUs computes what plain torch computes, bit for bit, on both trees.

Pass-to-pass. What is executed is what the compiler makes for the target, each instruction as AMD's
documents describe it. No GPU takes part.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from emulated_quant import GroupQuant
from group_quant import Layout, exponents
from rounding import (
    E4M3FN,
    E4M3FNUZ,
    INT8,
    Quantized,
    draw,
    every_16_bit,
    misaligned,
    quantize,
    unscaled,
)

from contribbot import emulate

halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
#: The bit that makes a NaN of bfloat16 quiet.
QUIET = 0x40


@pytest.fixture
def quant(kernels: Mapping[str, emulate.Kernel], target: str) -> GroupQuant:
    return GroupQuant(kernels, target)


def every_bit_pattern(dtype: torch.dtype, columns: int) -> torch.Tensor:
    """Return the 65,536 of a 16-bit type, and zeros; NaNs of bfloat16 that signal are made quiet.

    With those, only their own groups are told apart: see below.
    """
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    if dtype is torch.bfloat16:
        patterns = torch.where(patterns.view(dtype).isnan(), patterns | QUIET, patterns)
    padded = torch.nn.functional.pad(patterns, (0, -patterns.numel() % columns))
    return padded.view(dtype).view(-1, columns)


def layout_of(how: str) -> Layout:
    return "aligned" if "aligned columns" in how else "columns" if "columns" in how else "rows"


def assert_same(seen: Quantized, expected: Quantized) -> None:
    assert torch.equal(seen.values.view(torch.uint8), expected.values.view(torch.uint8))
    assert torch.equal(seen.scales, expected.scales)


@pytest.mark.parametrize("layout", ["rows", "columns ue8m0"])
@pytest.mark.parametrize("group", [32, 64, 96, 128, 256])
@halves
def test_every_bit_pattern(quant: GroupQuant, dtype: torch.dtype, group: int, layout: str) -> None:
    x, ue8m0 = every_bit_pattern(dtype, 4 * group), "ue8m0" in layout
    seen = quant.unpacked(x, group, quant.fp8, ue8m0=ue8m0, layout=layout_of(layout))
    assert_same(seen, quantize(x, group, quant.fp8, ue8m0=ue8m0))


@pytest.mark.parametrize("group", [32, 128])
def test_a_nan_that_signals_touches_its_own_group_alone(quant: GroupQuant, group: int) -> None:
    """There, v_max3_f32 may lose the maximum, on the base as well; v_max3_num_f32 does not."""
    order = torch.randperm(2**16, generator=torch.Generator().manual_seed(0))
    codes = (order - 2**15).to(torch.int16)
    x = codes.view(torch.bfloat16).view(-1, group)
    signals = (x.isnan() & (codes.view(x.shape) & QUIET == 0)).any(-1)
    assert signals.any()
    told = ~signals | quant.target.startswith("gfx12")
    seen, expected = quant.unpacked(x, group, quant.fp8), quantize(x, group, quant.fp8)
    rows = Quantized(seen.values[told], seen.scales[told])
    assert_same(rows, Quantized(expected.values[told], expected.scales[told]))


@pytest.mark.parametrize("group", [96, 128])
@halves
def test_every_value_at_a_scale_of_1(quant: GroupQuant, dtype: torch.dtype, group: int) -> None:
    x = unscaled(every_16_bit(dtype, quant.fp8.high), group, quant.fp8)
    seen = quant.unpacked(x, group, quant.fp8)
    assert torch.equal(
        seen.values.view(torch.uint8), x.float().to(quant.fp8.dtype).view(torch.uint8)
    )


#: Rows, groups of a row, type, group, and how: what is left out is row-major, FP8, aligned.
SHAPES = [
    (0, 3, torch.bfloat16, 128, ""),
    (1, 1, torch.float32, 32, "ue8m0"),
    (1, 5, torch.float16, 256, "aligned columns misaligned"),
    (1, 9, torch.bfloat16, 64, "aligned columns"),
    (3, 18, torch.bfloat16, 128, "aligned columns ue8m0"),
    (100, 1, torch.bfloat16, 32, "columns"),
    (7, 3, torch.bfloat16, 64, "columns ue8m0 misaligned"),
    (7, 3, torch.float32, 256, "columns"),
    (9, 17, torch.bfloat16, 128, "columns"),
    (15, 33, torch.float16, 32, "ue8m0"),
    (33, 3, torch.float16, 128, "int8"),
    (2, 9, torch.float32, 64, "int8 columns"),
    (7, 5, torch.bfloat16, 32, "int8 misaligned"),
    (3, 4, torch.bfloat16, 128, "of another target"),
]


@pytest.mark.parametrize(("rows", "groups", "dtype", "group", "how"), SHAPES, ids=str)
def test_shapes(  # noqa: PLR0917  a row of the table
    quant: GroupQuant, rows: int, groups: int, dtype: torch.dtype, group: int, how: str
) -> None:
    x = draw((rows, groups * group), dtype, "wild")
    x = misaligned(x) if "misaligned" in how else x
    to = INT8 if "int8" in how else quant.fp8
    if "another" in how:
        to = E4M3FN if quant.fp8 == E4M3FNUZ else E4M3FNUZ
    ue8m0 = "ue8m0" in how
    seen = quant.unpacked(x, group, to, ue8m0=ue8m0, layout=layout_of(how))
    assert_same(seen, quantize(x, group, to, ue8m0=ue8m0))


@pytest.mark.parametrize("groups", [16, 7], ids=["every bit pattern", "odd rows"])
@pytest.mark.parametrize("group", [32, 128])
@halves
def test_packed(quant: GroupQuant, dtype: torch.dtype, group: int, groups: int) -> None:
    columns = groups * group
    x = every_bit_pattern(dtype, columns) if groups == 16 else draw((5, columns), dtype, "wild")
    expected = quantize(x, group, quant.fp8, ue8m0=True)
    values, scales = quant.packed(x, group)
    assert torch.equal(values[: len(x)], expected.values.view(torch.uint8))
    assert not values[len(x) :].any()
    stored = exponents(scales)
    assert torch.equal(stored[:, :groups], expected.scales.view(torch.int32) >> 23)
    assert not stored[:, groups:].any()
