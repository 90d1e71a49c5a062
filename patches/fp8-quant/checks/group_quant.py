"""vLLM's group quantisation, of the extension that was built from the tree's sources (CUDA)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import torch
from golden import E4M3FN, EPS, INT8


@functools.cache
def _operator(name: str) -> Callable[..., None]:
    path = os.environ.get("CONTRIBBOT_EXTENSION")
    if not path:
        raise RuntimeError("CONTRIBBOT_EXTENSION does not name the extension built from the tree")
    torch.ops.load_library(path)  # type: ignore[no-untyped-call]  # torch does not annotate it
    operator: Callable[..., None] = getattr(torch.ops.group_quant, name)
    return operator


def _scales(x: torch.Tensor, group_size: int, *, column_major: bool) -> torch.Tensor:
    rows, groups = x.shape[0], x.shape[1] // group_size
    if column_major:
        return torch.empty(groups, rows, device=x.device).t()
    return torch.empty(rows, groups, device=x.device)


def fp8(
    x: torch.Tensor,
    group_size: int = 128,
    *,
    ue8m0: bool = False,
    column_major: bool = False,
    dtype: torch.dtype = E4M3FN.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise with float32 scales.

    Args:
        x: (rows, columns), contiguous, on a GPU.
        group_size: Columns that share a scale.
        ue8m0: Whether scales are rounded up to powers of two.
        column_major: Whether the scales of a column lie side by side in memory.
        dtype: What the values are written to; CUDA's kernel knows e4m3fn.

    Returns:
        The values, and the scales: (rows, groups of a row).
    """
    q = torch.empty(x.shape, dtype=dtype, device=x.device)
    s = _scales(x, group_size, column_major=column_major)
    limits = (EPS, E4M3FN.low, E4M3FN.high)
    _operator("fp8")(x, q, s, group_size, *limits, ue8m0, column_major, False)  # noqa: FBT003  positional in the schema
    return q, s


def int8(x: torch.Tensor, group_size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to int8 with float32 scales; see `fp8`."""
    q = torch.empty(x.shape, dtype=INT8.dtype, device=x.device)
    s = _scales(x, group_size, column_major=False)
    _operator("int8")(x, q, s, group_size, EPS, INT8.low, INT8.high)
    return q, s


def packed(x: torch.Tensor, *, rows_of_output: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise groups of 128 with scales that are powers of two, four exponents in an int32.

    Args:
        x: (rows, columns), float16 or bfloat16, on a GPU.
        rows_of_output: Rows to allocate for the values and to fill with 0xff before, if
            more than there are.

    Returns:
        The values, and the packed scales, (rows, groups / 4) rounded up, with a column's
        rows side by side and padded to a multiple of four.
    """
    rows, groups = x.shape[0], x.shape[1] // 128
    q = torch.empty(max(rows, rows_of_output), x.shape[1], dtype=E4M3FN.dtype, device=x.device)
    if rows_of_output:
        q.view(torch.uint8).fill_(0xFF)
    stride = (1, -(-rows // 4) * 4)
    s = torch.empty_strided((rows, -(-groups // 4)), stride, dtype=torch.int32, device=x.device)
    _operator("packed")(x, q, s, 128, EPS, E4M3FN.low, E4M3FN.high)
    return q, s
