"""What RMSNorm costs on contiguous 2-D input, which both trees accept.

The patch looks at every layout and must not pay for it where there is nothing to do. Other
layouts are no comparison: with them the base hands aiter memory that it misreads.

On a processor the two functions of aiter are replaced by the least work that a fused norm
must do, one pass over its inputs and outputs: a copy that the layer makes on the way is
another pass, and shows at once. On a GPU it is the installed aiter.
"""

from __future__ import annotations

import types
from collections.abc import Iterator

import torch
from sglang_tree import load_layernorm, make_norm

from contribbot import bench

WIDTH = 4096
ON_GPU = bench.device() == "cuda"


def one_pass(rows: torch.Tensor, weight: torch.Tensor, _epsilon: float, /) -> torch.Tensor:
    """Read the rows and write as much."""
    return rows * weight


def one_pass_with_add(
    out: torch.Tensor,
    rows: torch.Tensor,
    residual_in: torch.Tensor,
    residual_out: torch.Tensor,
    weight: torch.Tensor,
    _epsilon: float,
    /,
) -> None:
    """Read rows and residual and write two results."""
    torch.add(rows, residual_in, out=residual_out)
    torch.mul(residual_out, weight, out=out)


def least_work() -> types.ModuleType:
    module = types.ModuleType("aiter")
    vars(module).update(rmsnorm2d_fwd=one_pass, rmsnorm2d_fwd_with_add=one_pass_with_add)
    return module


LAYERNORM = load_layernorm(None if ON_GPU else least_work())


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
    # On a processor: within the caches, where times are the same from process to process.
    rows = (2048, 16384) if ON_GPU else (64,)
    dtypes = (torch.bfloat16, torch.float16) if ON_GPU else (torch.float32,)
    for count in rows:
        for dtype in dtypes:
            for residual in (False, True):
                yield case(count, dtype, residual=residual)
