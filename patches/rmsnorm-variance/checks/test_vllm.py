"""With vLLM's kernel, the mean square is taken over the first `var_hidden_size` columns.

Fail-to-pass: on the base vLLM's kernel takes it over the whole row.
"""

from __future__ import annotations

import torch
from variance_cases import check, dtypes, padded, paddings, shapes


@paddings
@padded
@shapes
@dtypes
def test_mean_square(
    heads: int, dtype: torch.dtype, rows: tuple[int, ...], *, padding: float
) -> None:
    # With a residual, `forward_hip` calls vLLM's kernel with six arguments, and it takes four
    # (sglang#32034).
    check(heads, dtype, rows, padding=padding, residual=False)
