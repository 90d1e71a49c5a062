"""Each kernel rounds to FP8 as torch does on the CPU, bit for bit, for every input there is.

Pass-to-pass: the patch may not change one bit. Each value stands in a group whose scale is 1,
so that the kernels only convert it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from group_quant import fp8, packed
from rounding import E4M3FN, every_16_bit, unscaled

#: Each kernel, with a group size that leads to it.
KERNELS: dict[str, tuple[Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]], int]] = {
    "shared memory": (fp8, 96),
    "shared memory, 192": (fp8, 192),
    **{f"registers, {group_size}": (fp8, group_size) for group_size in (32, 64, 128, 256)},
    "packed, 32": (packed, 32),
    "packed, 128": (packed, 128),
}
#: Groups in one call of the float32 sweep.
GROUPS = 2**20


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_16_bit_value(kernel: str, dtype: torch.dtype) -> None:
    run, group_size = KERNELS[kernel]
    x = unscaled(every_16_bit(dtype, E4M3FN.high), group_size)
    values, _ = run(x.cuda(), group_size)
    expected = x.float().to(E4M3FN.dtype)
    assert torch.equal(values.cpu().view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("first", [0, -(2**31)], ids=["positive", "negative"])
@pytest.mark.parametrize("group_size", [64, 96], ids=["registers", "shared memory"])
def test_every_float32_value(group_size: int, first: int) -> None:
    """The reference is computed on the GPU: torch's code is the same, and there are 1.1e9."""
    after = int(torch.tensor(E4M3FN.high).view(torch.int32)) + 1
    step = GROUPS * (group_size - 1)
    for start in range(0, after, step):
        codes = torch.arange(start, min(start + step, after), device="cuda") + first
        x = unscaled(codes.to(torch.int32).view(torch.float32), group_size)
        values, _ = fp8(x, group_size)
        expected = x.to(E4M3FN.dtype)
        wrong = int((values.view(torch.uint8) != expected.view(torch.uint8)).sum())
        assert wrong == 0, f"{wrong} differ from bits {start:#x} on"
