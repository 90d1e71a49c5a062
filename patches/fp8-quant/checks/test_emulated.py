"""The kernels' machine code for AMD GPUs computes FP8 and int8 groups as plain torch does.

Fail-to-pass: on the base nothing compiles. A processor executes what the compiler makes for the
target, each instruction as AMD's documents describe it. No GPU takes part.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from contribbot import emulate

#: What vLLM passes as the smallest magnitude of a group.
EPS = 1e-10
CPP = {
    torch.bfloat16: "c10::BFloat16",
    torch.float16: "c10::Half",
    torch.float32: "float",
    torch.int8: "signed char",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
    torch.float8_e4m3fnuz: "c10::Float8_e4m3fnuz",
}
#: The largest value that vLLM keeps to: e4m3fnuz reaches 240.
LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0, torch.float8_e4m3fnuz: 224.0}
halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


@pytest.fixture
def fp8(target: str) -> torch.dtype:
    return torch.float8_e4m3fnuz if target == "gfx942" else torch.float8_e4m3fn


def in_torch(
    x: torch.Tensor, group: int, to: torch.dtype, *, powers: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values' bytes and the scales of rows."""
    parts, high = x.float().view(x.shape[0], -1, group), LARGEST[to]
    scales = (parts.abs().amax(-1).clamp_min(EPS) / high).float()
    if powers:
        scales = torch.exp2(torch.ceil(torch.log2(scales.clamp_min(1e-10))))
    low = -128.0 if to is torch.int8 else -high
    scaled = (parts / scales.unsqueeze(-1)).clamp(low, high).view(x.shape)
    values = scaled.trunc() if to is torch.int8 else scaled
    return values.to(to).view(torch.uint8), scales


def on_target(
    kernels: Mapping[str, emulate.Kernel], x: torch.Tensor, group: int, to: torch.dtype, *,
    powers: bool = False, by_columns: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Launch as the host code of `per_token_group_quant_8bit` does."""
    (rows, columns), groups = x.shape, x.shape[1] // group
    count = rows * groups
    each = next(each for each in (16, 8, 4, 2, 1) if count % each == 0)
    values = torch.full((rows, columns), 0x5A, dtype=torch.uint8)
    scales = torch.full((groups, rows) if by_columns else (rows, groups), -1.0)
    flags = f"{by_columns}, {powers}".lower()
    name = f"per_token_group_quant_8bit_kernel<{CPP[x.dtype]}, {CPP[to]}, {flags}, float>"
    low = -128.0 if to is torch.int8 else -LARGEST[to]
    last = (groups, rows) if by_columns else (0, 0)
    emulate.launch(
        kernels[name], count // each, 16 * each,
        [x, values, scales, group, count, each, EPS, low, LARGEST[to], *last],
        shared=each * group * x.element_size(),
    )  # fmt: skip
    return values, scales.t() if by_columns else scales


def assert_same(
    seen: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor]
) -> None:
    assert torch.equal(seen[0], expected[0])
    assert torch.equal(seen[1], expected[1])


def every_value(dtype: torch.dtype, columns: int) -> torch.Tensor:
    """Return all finite values of 16 bits, smallest first, padded with zeros."""
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    finite = patterns[patterns.isfinite()]
    ordered = finite[finite.float().abs().argsort(stable=True)]
    return torch.nn.functional.pad(ordered, (0, -ordered.numel() % columns)).view(-1, columns)


@pytest.mark.parametrize("group", [64, 128])
@halves
def test_every_value(
    kernels: Mapping[str, emulate.Kernel], fp8: torch.dtype, dtype: torch.dtype, group: int
) -> None:
    x = every_value(dtype, 4 * group)
    assert_same(on_target(kernels, x, group, fp8), in_torch(x, group, fp8))


#: Rows, groups of a row, type, group, to int8, scales that are powers of two, scales by columns.
SHAPES = [
    (1, 1, torch.float32, 32, False, True, False),
    (3, 18, torch.bfloat16, 128, False, False, True),
    (7, 3, torch.float16, 64, False, True, True),
    (5, 7, torch.bfloat16, 96, False, False, False),
    (33, 3, torch.float16, 128, True, False, False),
    (2, 9, torch.float32, 64, True, False, True),
]


@pytest.mark.parametrize(("rows", "groups", "dtype", "group", "int8", "powers", "turned"), SHAPES)
def test_shapes(  # noqa: PLR0917  a row of the table
    kernels: Mapping[str, emulate.Kernel],
    fp8: torch.dtype,
    rows: int,
    groups: int,
    dtype: torch.dtype,
    group: int,
    int8: bool,  # noqa: FBT001
    powers: bool,  # noqa: FBT001
    turned: bool,  # noqa: FBT001
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, groups * group, generator=generator).mul(3).to(dtype)
    to = torch.int8 if int8 else fp8
    seen = on_target(kernels, x, group, to, powers=powers, by_columns=turned)
    assert_same(seen, in_torch(x, group, to, powers=powers))
