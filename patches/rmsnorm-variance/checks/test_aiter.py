"""With aiter, the mean square is taken over the first `var_hidden_size` columns.

Fail-to-pass: on the base aiter's kernels take it over the whole row.
"""

from __future__ import annotations

import pytest
import torch
from variance_cases import check, dtypes, padded, paddings, shapes


@paddings
@padded
@shapes
@dtypes
@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
def test_mean_square(
    heads: int, dtype: torch.dtype, rows: tuple[int, ...], *, padding: float, residual: bool
) -> None:
    check(heads, dtype, rows, padding=padding, residual=residual)
