"""AMD machine code on a processor: kernels against torch, and faults by their line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from contribbot import emulate
from contribbot.emulate.code_object import Kernel

KERNELS = Path(__file__).parent / "emulated.hip"
FP8 = {
    "gfx942": torch.float8_e4m3fnuz,
    "gfx950": torch.float8_e4m3fn,
    "gfx1201": torch.float8_e4m3fn,
}
TARGETS = ("gfx942", "gfx1201", "gfx950", "gfx1100")


@pytest.fixture(scope="module", params=TARGETS)
def kernels(request: pytest.FixtureRequest) -> dict[str, Kernel]:
    return emulate.compile_hip(KERNELS, str(request.param))


def test_quantises_groups_as_torch_does(kernels: dict[str, Kernel]) -> None:
    kernel = kernels["quantise"]
    if kernel.target not in FP8:
        pytest.skip(f"{kernel.target} has no instruction that converts to FP8")
    kind = FP8[kernel.target]
    top = torch.finfo(kind).max
    patterns = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    x = torch.where(patterns.isfinite(), patterns, 1.0)[torch.randperm(1 << 16)].reshape(-1, 128)
    q, scales = torch.zeros(x.shape, dtype=torch.uint8), torch.zeros(len(x))
    emulate.launch(kernel, len(x), 32, [x, q, scales])
    expected = x.abs().amax(1).clamp(min=1e-10) / top
    assert torch.equal(scales, expected)
    quantised = (x / expected[:, None]).clamp(-top, top).to(kind)
    assert torch.equal(q, quantised.view(torch.uint8))
