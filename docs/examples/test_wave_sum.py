"""What a wave adds up, by the code that each tree has."""

from collections.abc import Mapping

import torch

from contribbot import emulate


def test_all_lanes_are_added(kernels: Mapping[str, emulate.Kernel], target: str) -> None:
    """Each wave writes the sum of its lanes."""
    lanes = 64 if target.startswith("gfx9") else 32
    x = torch.arange(64, dtype=torch.float32)
    out = torch.zeros(64 // lanes)
    emulate.launch(kernels["sum"], grid=1, block=64, args=[x, out])
    assert torch.equal(out, x.reshape(-1, lanes).sum(1)), f"{out[0]:g} of {target}"
