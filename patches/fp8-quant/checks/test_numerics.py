"""The error of group quantisation on CUDA against float64, over shapes, dtypes and scales.

Pass-to-pass: the same bits as plain torch, hence exactly its error.
"""

from __future__ import annotations

import functools

import torch
from golden import E4M3FN, INT8, Quantized, quantize
from group_quant import fp8, int8

from contribbot.numerics import Cell, Draw, Grid


def _whole_groups(cell: Cell) -> bool:
    columns = int(cell.texts["shape"].split("x")[1])
    return columns % int(cell.texts["group"]) == 0


GRID = Grid(
    {
        "dtype": [torch.float16, torch.bfloat16, torch.float32],
        "shape": [(1, 128), (7, 384), (64, 7168), (333, 1536)],
        # Not misaligned: this release's kernels fault there, with the patch and without it.
        "layout": ["contiguous", "offset"],
        "group": [64, 128],
        "kind": ["fp8", "fp8 ue8m0", "int8"],
        "std": [1e-3, 1.0, 300.0],
    },
    seeds=2,
    where=_whole_groups,
    device="cuda",
)


@GRID.each_cell
def test_quantisation_error(draw: Draw) -> None:
    x = draw.normal(*draw.shape, std=draw.axis("std", float), layout=draw.layout)
    group, kind = draw.axis("group", int), draw.axis("kind", str)
    ue8m0 = kind == "fp8 ue8m0"

    @functools.cache
    def kernel() -> Quantized:
        return Quantized(*(int8(x, group) if kind == "int8" else fp8(x, group, ue8m0=ue8m0)))

    on_cpu = quantize(x.cpu(), group, INT8 if kind == "int8" else E4M3FN, ue8m0=ue8m0)
    expected = Quantized(on_cpu.values.to(x.device), on_cpu.scales.to(x.device))
    draw.judge(
        "dequantised",
        lambda: kernel().dequantized,
        reference=x.double(),
        same_precision=expected.dequantized,
    )
    bits = expected.values.view(torch.uint8)
    draw.judge_exact("values", lambda: kernel().values.view(torch.uint8), bits)
    draw.judge_exact("scales", lambda: kernel().scales, expected.scales)
