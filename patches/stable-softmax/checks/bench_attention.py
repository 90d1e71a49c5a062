"""What weights in float32 cost in half precision: `multi_head_attention_forward`, whole.

Projections and the average over the heads are part of it, as in `nn.MultiheadAttention`.
`train` is forward and backward; the others are without autograd.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from contribbot import bench

#: dtype, length, batch, heads of 64; small on a processor, where float16 is slow on the base.
ON_CPU = [
    (torch.bfloat16, 2048, 1, 4),
    (torch.float16, 2048, 1, 1),
    (torch.bfloat16, 512, 2, 4),
    (torch.float16, 512, 1, 2),
]
ON_GPU = [
    (dtype, length, batch, heads)
    for dtype in (torch.float16, torch.bfloat16)
    for length, batch, heads in ((2048, 2, 4), (2048, 4, 16), (512, 8, 16))
]
HEAD = 64


def _case(dtype: torch.dtype, length: int, batch: int, heads: int, *, train: bool) -> bench.Case:
    width = heads * HEAD

    def prepare() -> tuple[torch.Tensor, ...]:
        device = bench.device()
        x = torch.randn(length, batch, width, device=device).to(dtype)
        weights = torch.randn(4 * width, width, device=device) / width**0.5
        return x, weights[: 3 * width].to(dtype), weights[3 * width :].to(dtype)

    def attend(
        x: torch.Tensor, in_weight: torch.Tensor, out_weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        return functional.multi_head_attention_forward(
            x, x, x, width, heads, in_weight, None, None, None, add_zero_attn=False,
            dropout_p=0.0, out_proj_weight=out_weight, out_proj_bias=None, need_weights=True,
        )  # fmt: skip

    def infer(*inputs: torch.Tensor) -> object:
        with torch.no_grad():
            return attend(*inputs)

    def step(*inputs: torch.Tensor) -> object:
        leaves = [one.detach().requires_grad_() for one in inputs]
        output, _ = attend(*leaves)
        output.sum().backward()
        return leaves[0].grad

    kind = str(dtype).removeprefix("torch.")
    return bench.Case(
        name=f"{'train' if train else 'infer'} {kind} {length}x{batch} heads {heads}",
        prepare=prepare,
        run=step if train else infer,
        device=bench.device(),
    )


def cases() -> Iterator[bench.Case]:
    """Yield inference everywhere, and training where it takes no minutes."""
    on_gpu = bench.device() == "cuda"
    for row in ON_GPU if on_gpu else ON_CPU:
        yield _case(*row, train=False)
        if on_gpu or row[0] == torch.bfloat16:
            yield _case(*row, train=True)
