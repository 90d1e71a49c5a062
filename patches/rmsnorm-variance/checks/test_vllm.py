"""Without aiter, with vLLM's kernel, the mean is taken over the columns that count.

Fail-to-pass: on the base vLLM's kernel takes it over the whole row.
"""

from __future__ import annotations

import torch
from variance_cases import check, dtypes, shapes, widths


@widths
@dtypes
@shapes
def test_mean(hidden: int, width: int, dtype: torch.dtype, rows: tuple[int, ...]) -> None:
    check(hidden, width, dtype, rows, residual=False)
