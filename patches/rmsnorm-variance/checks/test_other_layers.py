"""Layers without a `var_hidden_size` of their own still call aiter's kernels.

Pass-to-pass: true on the base and on the patched tree.
"""

from __future__ import annotations

import pytest
import torch
from rocm_norm import RMS_NORM, calls, draw, normalise


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("width", [None, 64], ids=["left out", "all"])
def test_aiter_is_called(width: int | None, dtype: torch.dtype) -> None:
    norm = RMS_NORM(64, var_hidden_size=width).to(dtype)
    x, other = draw(5, 64).to(dtype), draw(5, 64, seed=1).to(dtype)
    calls.clear()
    with torch.no_grad():
        y = norm(x)
        added, total = norm(x, other)
    assert calls == ["aiter", "aiter with residual"]
    assert torch.equal(y, normalise(x.float(), norm.weight, norm.variance_epsilon).to(dtype))
    assert torch.equal(total, (x.float() + other.float()).to(dtype))
    assert added.shape == x.shape


def test_no_rows_launch_nothing() -> None:
    norm = RMS_NORM(64, var_hidden_size=40)
    calls.clear()
    assert norm(torch.empty(0, 64)).shape == (0, 64)
    assert not calls
