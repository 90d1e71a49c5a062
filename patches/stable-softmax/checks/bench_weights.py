"""What exact weights cost: time, and on a GPU memory, of attention that returns its weights."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import torch
from attention import HALVES, Projections
from torch.nn import functional

from contribbot import bench

Inputs = tuple[torch.Tensor, torch.Tensor, Projections]
#: (batch, heads): enough for a GPU to be busy, little enough for a processor.
SIZES = {"cuda": (4, 16), "cpu": (1, 4)}
LENGTHS = {"cuda": (512, 2048, 4096), "cpu": (512, 2048)}
HEAD = 64
UNLIKE = "the patch corrects these results; `numerics` judges them"


def make(dtype: torch.dtype, length: int, *, training: bool) -> Inputs:
    batch, heads = SIZES[bench.device()]
    width = heads * HEAD
    x = torch.randn(length, batch, width, dtype=dtype, device=bench.device())
    identity = Projections.identity(x, heads)
    projections = Projections(
        width,
        heads,
        torch.randn_like(identity.in_weight) / width**0.5,
        torch.randn_like(identity.out_weight) / width**0.5,
    )
    mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    bias = torch.zeros(length, length, dtype=dtype, device=x.device)
    return x.requires_grad_(training), bias.masked_fill_(mask, float("-inf")), projections


def call(
    x: torch.Tensor, mask: torch.Tensor | None, given: Projections, *, average: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    output, weights = functional.multi_head_attention_forward(
        x,
        x,
        x,
        given.embed_dim,
        given.heads,
        given.in_weight,
        None,
        None,
        None,
        add_zero_attn=False,
        dropout_p=0.0,
        out_proj_weight=given.out_weight,
        out_proj_bias=None,
        need_weights=True,
        attn_mask=mask,
        average_attn_weights=average,
    )
    return output, weights


def average(x: torch.Tensor, _mask: torch.Tensor, given: Projections) -> object:
    with torch.no_grad():
        return call(x, None, given, average=True)


def causal(x: torch.Tensor, mask: torch.Tensor, given: Projections) -> object:
    with torch.no_grad():
        return call(x, mask, given, average=True)


def training(x: torch.Tensor, _mask: torch.Tensor, given: Projections) -> object:
    output, _ = call(x, None, given, average=True)
    return torch.autograd.grad(output.sum(), x)


RUNS: dict[str, Callable[..., object]] = {
    "average": average,
    "causal": causal,
    "training": training,
}


def cases() -> Iterator[bench.Case]:
    """Yield `DTYPE LENGTH KIND` for two dtypes, the lengths and each kind of call."""
    batch, heads = SIZES[bench.device()]
    for dtype, length in itertools.product(HALVES, LENGTHS[bench.device()]):
        for kind, run in RUNS.items():
            training = kind.startswith("training")
            products = batch * heads * length * length * HEAD * 4
            yield bench.Case(
                name=f"{dtype} {length} {kind}".removeprefix("torch."),
                prepare=functools.partial(make, dtype, length, training=training),
                run=run,
                flops=None if training else products,
                not_compared=UNLIKE,
                # A forward of 512 tokens lasts less on a GPU than its launches.
                graph=length <= 512 and not training,
            )
