"""What RMSNorm costs on contiguous 2-D input, which both trees accept.

The patch looks at every layout and must not pay for it where there is nothing to do. Other
layouts are no comparison: with them the base hands aiter memory that it misreads.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sglang_tree import load_layernorm, make_norm

from contribbot import bench

WIDTH = 4096


LAYERNORM = load_layernorm(None)


def case(rows: int, dtype: torch.dtype, *, residual: bool) -> bench.Case:
    norm = make_norm(LAYERNORM, WIDTH, dtype, bench.device())

    def prepare() -> tuple[torch.Tensor, ...]:
        made = torch.randn(1 + residual, rows, WIDTH, device=bench.device()).to(dtype)
        return tuple(one.clone() for one in made)

    def run(*inputs: torch.Tensor) -> object:
        with torch.inference_mode():
            return norm.forward(*inputs)

    kind = str(dtype).removeprefix("torch.")
    tensors = 4 if residual else 2  # read and written, each once
    return bench.Case(
        name=f"{kind} {rows}x{WIDTH}{', residual' if residual else ''}",
        prepare=prepare,
        run=run,
        bytes_moved=tensors * rows * WIDTH * dtype.itemsize,
    )


def cases() -> Iterator[bench.Case]:
    for count in (2048, 16384):
        for dtype in (torch.bfloat16, torch.float16):
            for residual in (False, True):
                yield case(count, dtype, residual=residual)
