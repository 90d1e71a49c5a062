"""Group quantisation in plain torch, bit for bit what vLLM 0.22.0's kernels compute.

float32 throughout: the scale of a group is its largest magnitude divided by the largest
value of the type, each element is divided by it and clamped, and torch's own conversion
(`Tensor.to`) rounds it; to int8 that cuts off. Nothing here depends on the tree under test.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: What vLLM passes as the smallest magnitude of a group.
EPS = 1e-10
#: The smallest scale that is rounded to a power of two.
_SMALLEST = 1e-10


@dataclass(frozen=True)
class Target:
    """What is quantised to.

    Attributes:
        dtype: The 8-bit type.
        low: The smallest value.
        high: The largest value; a group's largest magnitude is scaled to it.
    """

    dtype: torch.dtype
    low: float
    high: float


#: NVIDIA, gfx950, and RDNA.
E4M3FN = Target(torch.float8_e4m3fn, -448.0, 448.0)
#: gfx94x; the type reaches 240, vLLM keeps to 224.
E4M3FNUZ = Target(torch.float8_e4m3fnuz, -224.0, 224.0)
INT8 = Target(torch.int8, -128.0, 127.0)


@dataclass(frozen=True)
class Quantized:
    """A quantised tensor.

    Attributes:
        values: The 8-bit values, in the shape of the input.
        scales: float32, (rows, groups of a row).
    """

    values: torch.Tensor
    scales: torch.Tensor

    @property
    def dequantized(self) -> torch.Tensor:
        """What the values stand for, in float32."""
        rows, groups = self.scales.shape
        parts = self.values.float().view(rows, groups, -1)
        return (parts * self.scales.unsqueeze(-1)).view(self.values.shape)


def power_of_two(scales: torch.Tensor) -> torch.Tensor:
    """Round positive float32 scales up to powers of two, as exp2f(ceilf(log2f(x))) does."""
    logarithms = scales.clamp_min(_SMALLEST).double().log2().float()
    return logarithms.ceil().double().exp2().float()


def quantize(x: torch.Tensor, group_size: int, target: Target, *, ue8m0: bool = False) -> Quantized:
    """Quantise rows of groups.

    NaN is passed over in the maximum of a group and clamps to the smallest value, as with
    C's fmaxf and fminf.

    Args:
        x: (rows, columns), float16, bfloat16 or float32.
        group_size: Columns that share a scale; a divisor of the columns.
        target: The 8-bit type.
        ue8m0: Whether scales are rounded up to powers of two.
    """
    rows, columns = x.shape
    parts = x.float().view(rows, columns // group_size, group_size)
    magnitudes = torch.where(parts.isnan(), 0.0, parts.abs())
    scales = magnitudes.amax(-1).clamp_min(EPS)
    # By a tensor: by a number, torch multiplies with the inverse on a GPU.
    scales /= torch.full_like(scales, target.high)
    if ue8m0:
        scales = power_of_two(scales)
    scaled = parts / scales.unsqueeze(-1)
    clamped = torch.where(scaled.isnan(), target.low, scaled).clamp(target.low, target.high)
    return Quantized(clamped.to(target.dtype).view(rows, columns), scales)


def every_16_bit(dtype: torch.dtype, limit: float) -> torch.Tensor:
    """Return every value of float16 or bfloat16 of at most some magnitude, both zeros too."""
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    values = codes.view(dtype)
    return values[values.abs() <= limit]


def unscaled(values: torch.Tensor, group_size: int, target: Target) -> torch.Tensor:
    """Arrange values into groups whose scale is exactly 1, so that they are only converted.

    Args:
        values: One dimension, magnitudes of at most `target.high`.
        group_size: The size of a group.
        target: The 8-bit type.

    Returns:
        (groups, group_size): `target.high` ends each row, zeros fill the last one.
    """
    width = group_size - 1
    padded = torch.nn.functional.pad(values, (0, -values.numel() % width))
    return torch.nn.functional.pad(padded.view(-1, width), (0, 1), value=target.high)
