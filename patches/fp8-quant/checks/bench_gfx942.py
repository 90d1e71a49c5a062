"""Time of vLLM's group quantisation on a gfx942: Triton's kernel on the base, C++ patched."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial

import torch

from contribbot import bench


def _prepare(rows: int, columns: int) -> tuple[torch.Tensor]:
    return (torch.randn(rows, columns, device=bench.device()).to(torch.bfloat16),)


def cases() -> Iterator[bench.Case]:
    """Yield the cases: from one token to 8,192, at widths of linear layers."""
    module = "vllm.model_executor.layers.quantization.utils.fp8_utils"
    quantise = importlib.import_module(module).per_token_group_quant_fp8
    for rows, columns in ((1, 7168), (64, 7168), (2048, 7168), (8192, 7168), (4096, 18432)):
        elements = rows * columns
        yield bench.Case(
            name=f"fp8 bfloat16 {rows}x{columns} group 128",
            prepare=partial(_prepare, rows, columns),
            run=partial(quantise, group_size=128, use_ue8m0=False),
            bytes_moved=elements * 3 + elements // 128 * 4,
        )
