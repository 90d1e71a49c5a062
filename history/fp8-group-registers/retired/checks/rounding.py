"""Group quantisation in plain torch on a CPU, bit for bit what vLLM's kernels compute.

float32 throughout, one division per group, one multiplication and one clamp per element, and
then torch's own conversion (`Tensor.to`), which is the code of c10 that the base's kernels
call. Nothing here depends on the tree under test.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: What vLLM passes as the smallest absolute maximum of a group.
EPS = 1e-10
#: What `draw` strews among wild values.
_ODD = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40, -1e-40, 6e4)
#: The smallest scale that is rounded to a power of two.
_SMALLEST = 1e-10


@dataclass(frozen=True)
class Target:
    """What is quantised to.

    Attributes:
        dtype: The 8-bit type.
        low: The smallest value.
        high: The largest value; a group's absolute maximum is scaled to it.
    """

    dtype: torch.dtype
    low: float
    high: float


E4M3FN = Target(torch.float8_e4m3fn, -448.0, 448.0)
#: That of gfx94x. The type reaches 240, vLLM keeps to 224.
E4M3FNUZ = Target(torch.float8_e4m3fnuz, -224.0, 224.0)
INT8 = Target(torch.int8, -128.0, 127.0)


@dataclass(frozen=True)
class Quantized:
    """A quantised tensor, on the CPU.

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
    """Round positive float32 scales up to powers of two (UE8M0)."""
    bits = scales.clamp_min(_SMALLEST).view(torch.int32)
    exponents = (bits >> 23) + (bits & 0x7FFFFF != 0).int()
    return (exponents << 23).view(torch.float32)


def quantize(
    x: torch.Tensor, group_size: int, target: Target = E4M3FN, *, ue8m0: bool = False
) -> Quantized:
    """Quantise rows of groups.

    NaN is passed over in the maximum of a group and clamps to the smallest value, as with
    C's fmaxf and fminf.

    Args:
        x: (rows, columns), float16, bfloat16 or float32; moved to the CPU.
        group_size: Columns that share a scale; a divisor of the columns.
        target: The 8-bit type.
        ue8m0: Whether scales are rounded up to powers of two.
    """
    rows, columns = x.shape
    parts = x.cpu().float().view(rows, columns // group_size, group_size)
    magnitudes = torch.where(parts.isnan(), 0.0, parts.abs())
    scales = magnitudes.amax(-1).clamp_min(EPS)
    scales /= torch.full_like(scales, target.high)
    if ue8m0:
        scales = power_of_two(scales)
    scaled = parts * (torch.ones_like(scales) / scales).unsqueeze(-1)
    clamped = torch.where(scaled.isnan(), target.low, scaled).clamp(target.low, target.high)
    return Quantized(clamped.to(target.dtype).view(rows, columns), scales)


def unscaled(values: torch.Tensor, group_size: int, target: Target = E4M3FN) -> torch.Tensor:
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


def every_16_bit(dtype: torch.dtype, limit: float) -> torch.Tensor:
    """Return every value of float16 or bfloat16 of at most some magnitude, both zeros too."""
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    values = codes.view(dtype)
    return values[values.abs() <= limit]


def draw(shape: tuple[int, int], dtype: torch.dtype, content: str) -> torch.Tensor:
    """Draw values on the CPU; wild ones spread over 72 powers of two, with odd ones strewn in."""
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator) * 8
    if content == "wild":
        x *= torch.exp2(torch.randint(-60, 12, shape, generator=generator).float())
        for start, value in enumerate(_ODD):
            x.view(-1)[start * 131 :: 1777] = value
    # 16 significant bits in float32 as well: nearer to a power of two, CUDA's log2f would
    # decide how a scale is rounded up in the shared-memory kernel, not what is shown here.
    x.view(torch.int32).bitwise_and_(~0xFF)
    return x.to(dtype)


def misaligned(x: torch.Tensor) -> torch.Tensor:
    """Return it at an address that no vector of it may have."""
    memory = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    return memory[1:].view(x.shape).copy_(x)
