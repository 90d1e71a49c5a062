"""The error of group quantisation against float64, over shapes, dtypes, layouts and scales.

Pass-to-pass: the same bits as plain torch, hence exactly its error.
"""

from __future__ import annotations

import functools

import torch
from group_quant import fp8
from rounding import Quantized, quantize

from contribbot.numerics import Cell, Draw, Grid


def _defined(cell: Cell) -> bool:
    """Leave out broken groups, and float32 so near to a power of two that log2f decides."""
    columns = int(cell.texts["shape"].split("x")[1])
    decided = cell.texts["ue8m0"] == "False" or cell.texts["dtype"] != "float32"
    return columns % int(cell.texts["group"]) == 0 and decided


GRID = Grid(
    {
        "dtype": [torch.float16, torch.bfloat16, torch.float32],
        "shape": [(1, 128), (7, 384), (64, 1536)],
        "layout": ["contiguous", "offset", "misaligned"],
        "group": [32, 64, 96, 128, 256],
        "ue8m0": [False, True],
        "std": [1e-3, 300.0],
    },
    seeds=2,
    where=_defined,
    device="cuda",
)


@GRID.each_cell
def test_quantisation_error(draw: Draw) -> None:
    x = draw.normal(*draw.shape, std=draw.axis("std", float), layout=draw.layout)
    group, ue8m0 = draw.axis("group", int), draw.axis("ue8m0", bool)
    kernel = functools.cache(lambda: Quantized(*fp8(x, group, ue8m0=ue8m0)))
    expected = quantize(x, group, ue8m0=ue8m0)
    draw.judge(
        "dequantised",
        lambda: kernel().dequantized,
        reference=x.double(),
        same_precision=expected.dequantized,
    )
    bits = expected.values.view(torch.uint8)
    draw.judge_exact("values", lambda: kernel().values.view(torch.uint8), bits)
    draw.judge_exact("scales", lambda: kernel().scales, expected.scales)
