"""vLLM's three group quantisation operators, of the extension that was built from the tree."""

from __future__ import annotations

import functools
import os
from typing import Literal, Protocol, cast

import torch
from rounding import E4M3FN, EPS, INT8

Layout = Literal["rows", "columns", "aligned"]
#: Rows of packed scales are padded to a multiple of this (16 bytes of int32, for TMA).
ALIGNED_ROWS = 4
#: Scales in an int32.
PACKED = 4


class _Ops(Protocol):
    """The operators, as `binding.cpp` registers them."""

    def fp8(  # noqa: PLR0917  the schema is upstream's
        self,
        x: torch.Tensor,
        q: torch.Tensor,
        s: torch.Tensor,
        group_size: int,
        eps: float,
        low: float,
        high: float,
        ue8m0: bool,  # noqa: FBT001  the schema is upstream's
        dummy_is_scale_transposed: bool,  # noqa: FBT001
        dummy_is_tma_aligned: bool,  # noqa: FBT001
        /,
    ) -> None: ...

    def packed(  # noqa: PLR0917  the schema is upstream's
        self,
        x: torch.Tensor,
        q: torch.Tensor,
        s: torch.Tensor,
        group_size: int,
        eps: float,
        low: float,
        high: float,
        /,
    ) -> None: ...

    def int8(  # noqa: PLR0917  the schema is upstream's
        self,
        x: torch.Tensor,
        q: torch.Tensor,
        s: torch.Tensor,
        group_size: int,
        eps: float,
        low: float,
        high: float,
        /,
    ) -> None: ...


@functools.cache
def _ops() -> _Ops:
    path = os.environ.get("CONTRIBBOT_EXTENSION")
    if not path:
        raise RuntimeError("CONTRIBBOT_EXTENSION does not name the extension built from the tree")
    torch.ops.load_library(path)  # type: ignore[no-untyped-call]  # torch does not annotate it
    return cast("_Ops", torch.ops.group_quant)


def scales_for(x: torch.Tensor, group_size: int, layout: Layout = "rows") -> torch.Tensor:
    """Return unwritten scales; vLLM's own layouts, of which `aligned` is what TMA wants."""
    rows, groups = x.shape[0], x.shape[1] // group_size
    if layout == "rows":
        return torch.empty(rows, groups, device=x.device)
    stride = _aligned(rows) if layout == "aligned" else rows
    return torch.empty_strided((rows, groups), (1, stride), device=x.device)


def _aligned(rows: int) -> int:
    return -(-rows // ALIGNED_ROWS) * ALIGNED_ROWS


def packed_scales_for(x: torch.Tensor, group_size: int) -> torch.Tensor:
    """Return unwritten packed scales, as DeepGEMM lays them out."""
    rows, groups = x.shape[0], x.shape[1] // group_size
    return torch.empty_strided(
        (rows, -(-groups // PACKED)), (1, _aligned(rows)), dtype=torch.int32, device=x.device
    )


def fp8(
    x: torch.Tensor, group_size: int, *, ue8m0: bool = False, layout: Layout = "rows"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to e4m3fn with float32 scales.

    Args:
        x: (rows, columns) on a GPU.
        group_size: Columns that share a scale.
        ue8m0: Whether scales are rounded up to powers of two.
        layout: Of the scales: `rows` or `columns`, whichever lie side by side in memory, or
            `aligned`: columns that begin at multiples of four.

    Returns:
        The values, and the scales: (rows, groups of a row).
    """
    q = torch.empty(x.shape, dtype=E4M3FN.dtype, device=x.device)
    s = scales_for(x, group_size, layout)
    _ops().fp8(x, q, s, group_size, EPS, E4M3FN.low, E4M3FN.high, ue8m0, False, False)  # noqa: FBT003  positional in the schema
    return q, s


def int8(x: torch.Tensor, group_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to int8 with float32 scales; see `fp8`."""
    q = torch.empty(x.shape, dtype=INT8.dtype, device=x.device)
    s = scales_for(x, group_size)
    _ops().int8(x, q, s, group_size, EPS, INT8.low, INT8.high)
    return q, s


def packed(
    x: torch.Tensor, group_size: int, values: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to e4m3fn with scales that are powers of two, four exponents in an int32.

    Args:
        x: (rows, columns), float16 or bfloat16, on a GPU.
        group_size: 32 or 128.
        values: Where the values go, with at least as many rows as `x`; new if not given.

    Returns:
        The values, and the packed scales.
    """
    q = torch.empty(x.shape, dtype=E4M3FN.dtype, device=x.device) if values is None else values
    s = packed_scales_for(x, group_size)
    _ops().packed(x, q, s, group_size, EPS, E4M3FN.low, E4M3FN.high)
    return q, s


def exponents(scales: torch.Tensor) -> torch.Tensor:
    """Return packed scales as one exponent each: int32, (rows, groups rounded up to 4)."""
    words = scales.cpu()
    return torch.stack([(words >> shift) & 0xFF for shift in (0, 8, 16, 24)], dim=-1).flatten(1)
