"""Rows of which the first columns alone count; judged in float64, by the formula itself."""

from __future__ import annotations

import pytest
import torch
from rocm_norm import calls, load

RMS_NORM = load().RMSNorm

#: (columns, columns that count): InternViT-6B, 25 heads of 128, on 2, 4 and 8 GPUs; a small one.
WIDTHS = [(3328, 3200), (3584, 3200), (4096, 3200), (64, 40)]
widths = pytest.mark.parametrize(("hidden", "width"), WIDTHS)
dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
shapes = pytest.mark.parametrize("rows", [(7,), (2, 3)], ids=["2-D", "3-D"])


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return values of a normal distribution, always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check(
    hidden: int, width: int, dtype: torch.dtype, rows: tuple[int, ...], *, residual: bool
) -> None:
    """Compare the layer with the formula; what is not counted is zero, as in InternVL."""
    norm = RMS_NORM(hidden, var_hidden_size=width).to(dtype)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 1.5, hidden))
    x, other = draw(*rows, hidden).to(dtype), draw(*rows, hidden, seed=1).to(dtype)
    for rows_of in (x, other):
        rows_of[..., width:] = 0
    total = x.double() + (other.double() if residual else 0)
    mean = total[..., :width].square().mean(-1, keepdim=True)
    expected = total * torch.rsqrt(mean + norm.variance_epsilon) * norm.weight.double()
    calls.clear()
    with torch.no_grad():
        found = norm(x, other) if residual else (norm(x),)
    assert found[0].dtype == dtype
    near = ((found[0].double() - expected).abs() / expected.abs().clamp_min(1e-3)).max()
    assert near < 2**-7, f"off by {near:.0%}, by {calls or 'torch'}"
    if residual:
        torch.testing.assert_close(found[1], total.to(dtype))
