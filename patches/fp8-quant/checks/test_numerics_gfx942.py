"""The error of vLLM's group quantisation on a gfx942 against float64.

Pass-to-pass: on the base a Triton kernel does it, on the patched tree the C++ kernel.
"""

from __future__ import annotations

import importlib

import torch
from golden import E4M3FNUZ, Quantized, quantize

from contribbot.numerics import Draw, Grid

GRID = Grid(
    {
        "dtype": [torch.float16, torch.bfloat16],
        "shape": [(1, 128), (7, 384), (64, 7168), (333, 1536)],
        "layout": ["contiguous", "offset"],
        "std": [1e-3, 1.0, 300.0],
    },
    seeds=2,
    device="cuda",
)


@GRID.each_cell
def test_quantisation_error(draw: Draw) -> None:
    module = "vllm.model_executor.layers.quantization.utils.fp8_utils"
    x = draw.normal(*draw.shape, std=draw.axis("std", float), layout=draw.layout)
    quantise = importlib.import_module(module).per_token_group_quant_fp8

    def kernel() -> torch.Tensor:
        seen = Quantized(*quantise(x, 128, use_ue8m0=False))
        assert seen.values.dtype == E4M3FNUZ.dtype
        return seen.dequantized

    draw.judge(
        "dequantised",
        kernel,
        reference=x.double(),
        same_precision=quantize(x.cpu(), 128, E4M3FNUZ).dequantized.to(x.device),
    )
