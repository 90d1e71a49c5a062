"""Rows of which the first columns alone count; the formula in float64 judges."""

from __future__ import annotations

import pytest
import torch
from rocm_norm import RMS_NORM, calls, draw

#: InternViT-6B has 25 heads of 128 columns; for 8, 4 and 2 GPUs they are padded to these.
HEADS, PADDED, COLUMNS = 25, (32, 28, 26), 128

dtypes = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
shapes = pytest.mark.parametrize("rows", [(7,), (2, 3)], ids=["2-D", "3-D"])
padded = pytest.mark.parametrize("heads", PADDED)
#: InternVL pads with zeros; the layer does not depend on it.
paddings = pytest.mark.parametrize("padding", [0.0, 2.0], ids=["zeros", "twos"])


def check(
    heads: int, dtype: torch.dtype, rows: tuple[int, ...], *, padding: float, residual: bool
) -> None:
    """Compare the layer with the formula."""
    hidden, width = heads * COLUMNS, HEADS * COLUMNS
    norm = RMS_NORM(hidden, var_hidden_size=width).to(dtype)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 1.5, hidden))
    x, other = draw(*rows, hidden).to(dtype), draw(*rows, hidden, seed=1).to(dtype)
    for row in (x, other):
        row[..., width:] = padding
    total = x.double() + (other.double() if residual else 0)
    mean = total[..., :width].square().mean(-1, keepdim=True)
    expected = total * torch.rsqrt(mean + norm.variance_epsilon) * norm.weight.double()
    calls.clear()
    with torch.no_grad():
        found = norm(x, other) if residual else (norm(x),)
    assert found[0].dtype == dtype
    off = ((found[0].double() - expected).abs() / expected.abs().clamp_min(1e-3)).max()
    by = ", ".join(calls) or "torch"
    assert off < 2**-7, f"off by {off:.0%} with {HEADS} heads padded to {heads}, by {by}"
    if residual:
        torch.testing.assert_close(found[1], total.to(dtype))
