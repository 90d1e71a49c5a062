"""Layers without a width of their own still call the kernels.

Pass-to-pass: true on the base and on the patched tree.
"""

from __future__ import annotations

import pytest
import torch
from rocm_norm import calls, normalise
from variance_cases import RMS_NORM, draw, dtypes


@dtypes
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


def test_too_narrow_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected hidden_size to be 64"):
        RMS_NORM(64, var_hidden_size=40).forward_native(torch.zeros(2, 32))
