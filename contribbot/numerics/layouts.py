"""The same values, laid out in memory as callers lay them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

#: From this rank on, the last dimension but one counts heads.
_HEADS: Final = 3
#: Bytes that a kernel may expect data to be aligned to.
_ALIGNMENT: Final = 16


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a tensor of the given values with a memory layout of its own.

    Memory beside a view is filled with NaN (integers: their largest value), so that a
    kernel that reads past its rows gives a result that cannot pass.

    Args:
        values: A dense tensor.
        layout: A name in `LAYOUTS`.

    Raises:
        ValueError: There is no such layout, or the tensor has too few dimensions for it.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"no layout {layout!r}; there are {', '.join(LAYOUTS)}")
    least, build = LAYOUTS[layout]
    if values.dim() < least:
        raise ValueError(
            f"layout {layout} needs {least} dimension{'s' if least > 1 else ''}, "
            f"shape {tuple(values.shape)} has {values.dim()}"
        )
    return build(values)


def _guarded(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return memory that no correct kernel reads; its contents spoil a result."""
    memory = torch.empty(shape, dtype=like.dtype, device=like.device)
    if like.dtype == torch.bool:
        return memory.fill_(True)  # noqa: FBT003  a value to fill with
    if not (like.is_floating_point() or like.is_complex()):
        return memory.fill_(torch.iinfo(like.dtype).max)
    if like.element_size() == 1:
        # 8-bit floats: torch may convert NaN to something else; 0xff and, for the
        # unsigned-zero kinds (fnuz), 0x80 are NaN by definition.
        code = 0x80 if "fnuz" in str(like.dtype) else 0xFF
        memory.view(torch.uint8).fill_(code)
        return memory
    return memory.fill_(float("nan"))


def _contiguous(values: torch.Tensor) -> torch.Tensor:
    return values.clone(memory_format=torch.contiguous_format)


def _packed(values: torch.Tensor) -> torch.Tensor:
    """Lie between two neighbours in a packed projection, as Q, K and V do."""
    # Of (…, heads, width) the heads are packed, of (rows, width) the columns.
    dim = values.dim() - (2 if values.dim() >= _HEADS else 1)
    size = values.shape[dim]
    shape = [*values.shape]
    shape[dim] = 3 * size
    view = _guarded(tuple(shape), values).narrow(dim, size, size)
    return view.copy_(values)


def _row_stride(values: torch.Tensor) -> torch.Tensor:
    """Have rows that are whole, and a gap after each."""
    width = values.shape[-1]
    view = _guarded((*values.shape[:-1], 2 * width), values)[..., :width]
    return view.copy_(values)


def _strided(values: torch.Tensor) -> torch.Tensor:
    """Take every second element of rows."""
    view = _guarded((*values.shape[:-1], 2 * values.shape[-1]), values)[..., ::2]
    return view.copy_(values)


def _transposed(values: torch.Tensor) -> torch.Tensor:
    """Have the last two dimensions the other way round in memory."""
    return _contiguous(values.transpose(-1, -2)).transpose(-1, -2)


def _expanded(values: torch.Tensor) -> torch.Tensor:
    """Repeat the first row, with a stride of 0; the values of the others are lost."""
    return _contiguous(values[:1]).expand(values.shape)


def _shifted(values: torch.Tensor, by: int) -> torch.Tensor:
    """Lie behind some elements at the start of the storage."""
    memory = _guarded((by + values.numel(),), values)
    return memory[by:].view(values.shape).copy_(values)


def _offset(values: torch.Tensor) -> torch.Tensor:
    return _shifted(values, 4 * _ALIGNMENT // values.element_size())


def _misaligned(values: torch.Tensor) -> torch.Tensor:
    return _shifted(values, 1)


#: Each layout: the dimensions that it needs, and how it is made.
LAYOUTS: Final[dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]]] = {
    # Rows one after the other, at the start of their own memory.
    "contiguous": (0, _contiguous),
    # The middle third of a packed tensor: of the heads (rank 3 and more), else of the columns.
    "packed": (1, _packed),
    # The last two dimensions swapped in memory.
    "transposed": (2, _transposed),
    # Each row followed by a gap as long as itself; the last stride is 1.
    "row-stride": (1, _row_stride),
    # Every second element: the last stride is 2.
    "strided": (1, _strided),
    # One row, repeated with stride 0. Only the first row's values remain.
    "expanded": (1, _expanded),
    # Contiguous, 64 bytes into the storage: aligned.
    "offset": (0, _offset),
    # Contiguous, one element into the storage: aligned to the element and no more.
    "misaligned": (0, _misaligned),
}
