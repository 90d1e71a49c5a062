"""With aiter, the mean is taken over the columns that count.

Fail-to-pass: on the base aiter's kernels take it over the whole row.
"""

from __future__ import annotations

import pytest
import torch
from variance_cases import check, dtypes, shapes, widths


@widths
@dtypes
@shapes
@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
def test_mean(
    hidden: int, width: int, dtype: torch.dtype, rows: tuple[int, ...], *, residual: bool
) -> None:
    check(hidden, width, dtype, rows, residual=residual)
