"""The fused kernel's machine code for AMD GPUs computes SiLU and FP8 groups as plain torch does.

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
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
    torch.float8_e4m3fnuz: "c10::Float8_e4m3fnuz",
}
#: The relative error that the exponential may bring into a value: a few ULP of float32.
OPEN = 2.0**-20
halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
layouts = pytest.mark.parametrize(("group", "layout"), [(64, "row-major"), (128, "transposed")])


@dataclass(frozen=True)
class Fused:
    """What a launch wrote, and what plain torch computes in float64.

    Attributes:
        values: The bytes, (rows, columns).
        scales: float32, (rows, groups of a row).
        depends: Which bytes depend on where in its bound `v_exp_f32` ends.
        expected: The values before they are rounded to FP8, float64.
        expected_scales: float64.
        dtype: The FP8 type.
    """

    values: torch.Tensor
    scales: torch.Tensor
    depends: torch.Tensor
    expected: torch.Tensor
    expected_scales: torch.Tensor
    dtype: torch.dtype

    def rounded(self, error: float) -> torch.Tensor:
        """Return the expected bytes, for values that err so much."""
        return (self.expected * (1 + error)).float().to(self.dtype).view(torch.uint8)


@dataclass(frozen=True)
class Operator:
    """`silu_and_mul_per_block_quant`, with the kernels for a target."""

    kernels: Mapping[str, emulate.Kernel]
    target: str

    def __call__(
        self, gate: torch.Tensor, up: torch.Tensor, group: int, *, transposed: bool = False,
        bound: float | None = None,
    ) -> Fused:  # fmt: skip
        """Launch as the host code does, and compute in torch."""
        fnuz = self.target.startswith("gfx94")
        # e4m3fnuz reaches 240, vLLM keeps to 224.
        dtype, high = (torch.float8_e4m3fnuz, 224.0) if fnuz else (torch.float8_e4m3fn, 448.0)
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
        wide = (largest.float() / high).clamp(max=bound, min=1 / (high * 512)).double()
        scaled = (parts / wide.unsqueeze(-1)).view(rows, columns)
        # fmin passes over a NaN.
        clamped = torch.where(scaled.isnan(), high, scaled).clamp(-high, high)
        return Fused(
            values, scales.t() if transposed else scales, torch.from_numpy(depends).view(rows, -1),
            clamped, wide, dtype,
        )  # fmt: skip


@pytest.fixture
def operator(kernels: Mapping[str, emulate.Kernel], target: str) -> Operator:
    return Operator(kernels, target)


def every_bit_pattern(dtype: torch.dtype, columns: int) -> torch.Tensor:
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    return patterns.view(dtype).view(-1, columns)


@layouts
@halves
def test_every_bit_pattern_through_a_gate_that_is_open(
    operator: Operator, dtype: torch.dtype, group: int, layout: str
) -> None:
    """exp(-32) is lost beside 1, whatever its last bits are: everything is fixed."""
    up = every_bit_pattern(dtype, 4 * group)
    seen = operator(torch.full_like(up, 32), up, group, transposed=layout == "transposed")
    assert not seen.depends.any()
    assert torch.equal(seen.values, seen.rounded(0))
    assert torch.equal(seen.scales, seen.expected_scales.float())


@layouts
@halves
def test_every_bit_pattern_of_a_gate(
    operator: Operator, dtype: torch.dtype, group: int, layout: str
) -> None:
    gate = every_bit_pattern(dtype, 4 * group)
    seen = operator(gate, torch.ones_like(gate), group, transposed=layout == "transposed")
    least, most = seen.rounded(-OPEN), seen.rounded(OPEN)
    fixed = least == most
    assert fixed.float().mean() > 0.99
    assert torch.equal(seen.values[fixed], least[fixed])
    assert not seen.depends[fixed].any()
    assert ((seen.values == least) | (seen.values == most)).all()
    torch.testing.assert_close(seen.scales.double(), seen.expected_scales, rtol=OPEN, atol=0)


@pytest.mark.parametrize("bound", [None, 0.02], ids=["free", "bound"])
def test_odd_rows_and_a_bound(operator: Operator, bound: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    gate, up = torch.randn(2, 3, 5 * 64, generator=generator).mul(8).bfloat16()
    seen = operator(gate, up, 64, bound=bound)
    assert ((seen.values == seen.rounded(-OPEN)) | (seen.values == seen.rounded(OPEN))).all()
    torch.testing.assert_close(seen.scales.double(), seen.expected_scales, rtol=OPEN, atol=0)
