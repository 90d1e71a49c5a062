"""The table of the problem, for any device: output and weights against SDPA's own error."""

from __future__ import annotations

import functools
import math

import torch
from attention import HALVES, max_error, with_weights
from torch.nn import functional

from contribbot.numerics import Draw, Grid

LENGTH, BATCH, HEADS = 128, 2, 4
#: How large queries and keys are; from 100 on, scores leave what float16 can hold.
STANDARD_DEVIATIONS = (1.0, 5.0, 20.0, 100.0, 200.0)


def grid(device: str, least: float = 1.0) -> Grid:
    """Return the cells: two dtypes and how large queries and keys are.

    Args:
        device: Where the attention runs.
        least: The smallest of these sizes.
    """
    sizes = [s for s in STANDARD_DEVIATIONS if s >= least]
    return Grid({"dtype": HALVES, "s": sizes, "head": [64]}, seeds=3, device=device)


def heads_of(rows: torch.Tensor) -> torch.Tensor:
    """Return (batch, heads, length, head width) of (length, batch, width)."""
    return rows.unflatten(-1, (HEADS, -1)).permute(1, 2, 0, 3)


def sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, reference: torch.Tensor
) -> torch.Tensor:
    """Return what SDPA gives, in the worst of three orders of the products' terms.

    One order alone may be lucky, above all where the scores are so large that their
    rounding in float32 decides.

    Args:
        q: (batch, heads, length, head width).
        k: As `q`.
        v: As `q`, of any width.
        reference: The same in float64.
    """
    orders = [
        functional.scaled_dot_product_attention(
            q.roll(by, -1).contiguous(), k.roll(by, -1).contiguous(), v
        )
        for by in (0, 17, 31)
    ]
    return max(orders, key=lambda one: max_error(one, reference))


def judge_attention(draw: Draw) -> None:
    """Judge output and weights of one seed.

    Args:
        draw: Gives query and key from N(0, s), value from N(0, 1).
    """
    s, width = draw.axis("s", float), HEADS * draw.axis("head", int)
    query, key, value = (draw.normal(LENGTH, BATCH, width, std=std) for std in (s, s, 1.0))
    attention = functools.cache(lambda: with_weights(query, key, value, average=False))
    q, k, v = (heads_of(one) for one in (query, key, value))
    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.shape[-1])
    weights = torch.softmax(scores, dim=-1)
    output = weights @ v.double()
    # SDPA's weights are its output for the values 1 and 0.
    eye = torch.eye(LENGTH, dtype=query.dtype, device=query.device).expand(BATCH, HEADS, -1, -1)
    sdpa_weights = sdpa(q, k, eye, weights)
    # The weights are returned, so they are rounded before they multiply; SDPA need not.
    rounded = (sdpa_weights.double() @ v.double()).to(query.dtype)
    draw.judge(
        "output",
        lambda: heads_of(attention()[0]),
        reference=output,
        same_precision=max(sdpa(q, k, v, output), rounded, key=lambda one: max_error(one, output)),
    )
    draw.judge(
        "weights",
        lambda: attention()[1],
        reference=weights,
        same_precision=sdpa_weights,
    )
