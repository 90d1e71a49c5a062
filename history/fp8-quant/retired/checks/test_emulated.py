"""The fused kernel's machine code for AMD GPUs computes SiLU and 8-bit groups as plain torch does.

Pass-to-pass: the kernel is the same on both trees; the patch is what calls it on ROCm. What is
executed is what the compiler makes for the target, each instruction as AMD's documents describe it.
No GPU takes part. Documents bound `v_exp_f32` to 1 ULP: what that leaves open is told apart, all
else is compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from contribbot import emulate

KERNEL = "vllm::silu_and_mul_per_block_quant_kernel"
CPP = {
    torch.bfloat16: "c10::BFloat16",
    torch.float16: "c10::Half",
    torch.int8: "signed char",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
    torch.float8_e4m3fnuz: "c10::Float8_e4m3fnuz",
}
#: The relative error that the exponential may bring into a value: a few ULP of float32.
OPEN = 2.0**-20
kinds = pytest.mark.parametrize(
    ("dtype", "group", "how"),
    [
        (torch.bfloat16, 64, "FP8"),
        (torch.bfloat16, 128, "FP8 transposed"),
        (torch.float16, 64, "FP8"),
        (torch.float16, 128, "FP8 transposed"),
        (torch.bfloat16, 128, "int8"),
        (torch.float16, 64, "int8 transposed"),
    ],
    ids=str,
)


@dataclass(frozen=True)
class Fused:
    """What a launch wrote, and what plain torch computes in float64.

    Attributes:
        values: The bytes, (rows, columns).
        scales: float32, (rows, groups of a row).
        depends: Which bytes depend on where in its bound `v_exp_f32` ends.
        expected: The values before they are rounded to 8 bits, float64. NaN where C++ leaves
            open what comes of it: a NaN as int8.
        expected_scales: float64.
        dtype: The 8-bit type.
    """

    values: torch.Tensor
    scales: torch.Tensor
    depends: torch.Tensor
    expected: torch.Tensor
    expected_scales: torch.Tensor
    dtype: torch.dtype

    def rounded(self, error: float) -> torch.Tensor:
        """Return the expected bytes, for values that err so much."""
        values = (self.expected * (1 + error)).float()
        values = values.round() if self.dtype is torch.int8 else values
        return values.to(self.dtype).view(torch.uint8)

    @property
    def told(self) -> torch.Tensor:
        """Which values have an expected one."""
        return ~self.expected.isnan()


@dataclass(frozen=True)
class Operator:
    """`silu_and_mul_per_block_quant`, with the kernels for a target."""

    kernels: Mapping[str, emulate.Kernel]
    target: str

    def __call__(
        self, gate: torch.Tensor, up: torch.Tensor, group: int, how: str = "FP8",
        bound: float | None = None,
    ) -> Fused:  # fmt: skip
        """Launch as the host code does, and compute in torch."""
        fnuz = self.target.startswith("gfx94")
        # e4m3fnuz reaches 240, vLLM keeps to 224.
        dtype, high = (torch.float8_e4m3fnuz, 224.0) if fnuz else (torch.float8_e4m3fn, 448.0)
        least, transposed = 1 / (high * 512), "transposed" in how
        if "int8" in how:
            dtype, high, least = torch.int8, 127.0, 2.0**-23
        (rows, columns), count = gate.shape, gate.shape[1] // group
        values = torch.full((rows, columns), 0x5A, dtype=torch.uint8)
        scales = torch.full((count, rows) if transposed else (rows, count), -1.0)
        name = f"{KERNEL}<{CPP[gate.dtype]}, {CPP[dtype]}, {str(transposed).lower()}, {group}>"
        limit = torch.tensor([bound]) if bound else 0
        ran = emulate.launch(
            self.kernels[name], (rows, count), group,
            [values, scales, torch.cat([gate, up], dim=1), limit, columns], bounds=True,
        )  # fmt: skip
        depends = ran.undetermined.get("argument 0", np.zeros(values.numel(), bool))
        expected = (gate.double() * torch.sigmoid(gate.double()) * up.double()).float().double()
        parts = expected.view(rows, count, group)
        largest = parts.abs().nan_to_num(0, torch.inf).amax(-1)
        wide = (largest.float() / high).clamp(max=bound, min=least).double()
        scaled = (parts / wide.unsqueeze(-1)).view(rows, columns)
        if dtype is not torch.int8:  # fmin passes over a NaN
            scaled = torch.where(scaled.isnan(), high, scaled)
        return Fused(
            values, scales.t() if transposed else scales, torch.from_numpy(depends).view(rows, -1),
            scaled.clamp(-high, high), wide, dtype,
        )  # fmt: skip


@pytest.fixture
def operator(kernels: Mapping[str, emulate.Kernel], target: str) -> Operator:
    return Operator(kernels, target)


def every_bit_pattern(dtype: torch.dtype, columns: int) -> torch.Tensor:
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    return patterns.view(dtype).view(-1, columns)


@kinds
def test_every_bit_pattern_through_a_gate_that_is_open(
    operator: Operator, dtype: torch.dtype, group: int, how: str
) -> None:
    """exp(-32) is lost beside 1, whatever its last bits are: everything is fixed."""
    up = every_bit_pattern(dtype, 4 * group)
    seen = operator(torch.full_like(up, 32), up, group, how)
    assert not seen.depends.any()
    assert torch.equal(seen.values[seen.told], seen.rounded(0)[seen.told])
    assert torch.equal(seen.scales, seen.expected_scales.float())


def test_halves_become_the_even_int8(operator: Operator) -> None:
    """At a scale of 1."""
    up = torch.arange(-256, 256).div(64).view(8, 64)
    up[:, 0] = 127 / 32
    up = up.clamp(-127 / 32, 127 / 32).bfloat16()
    seen = operator(torch.full_like(up, 32), up, 64, "int8 transposed")
    assert (seen.scales == 1).all()
    assert torch.equal(seen.values.view(torch.int8), (up.float() * 32).round().to(torch.int8))


@kinds
def test_every_bit_pattern_of_a_gate(
    operator: Operator, dtype: torch.dtype, group: int, how: str
) -> None:
    gate = every_bit_pattern(dtype, 4 * group)
    seen = operator(gate, torch.ones_like(gate), group, how)
    least, most = seen.rounded(-OPEN), seen.rounded(OPEN)
    fixed = (least == most) & seen.told
    assert fixed.sum() > 0.99 * seen.told.sum()
    assert torch.equal(seen.values[fixed], least[fixed])
    assert not seen.depends[fixed].any()
    assert ((seen.values == least) | (seen.values == most) | ~seen.told).all()
    assert torch.allclose(seen.scales.double(), seen.expected_scales, rtol=OPEN, atol=0)


@pytest.mark.parametrize("bound", [None, 0.02], ids=["free", "bound"])
def test_odd_rows_and_a_bound(operator: Operator, bound: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    gate, up = torch.randn(2, 3, 5 * 64, generator=generator).mul(8).bfloat16()
    seen = operator(gate, up, 64, bound=bound)
    assert ((seen.values == seen.rounded(-OPEN)) | (seen.values == seen.rounded(OPEN))).all()
    assert torch.allclose(seen.scales.double(), seen.expected_scales, rtol=OPEN, atol=0)
