"""Functions on tensors: layouts in memory, blocks, conversion to float64, and bits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Final

import torch

from contribbot.numerics.limits import CannotJudgeError
from contribbot.numerics.words import place_of

#: The number of elements that are converted to float64 at a time: 32 MB.
BLOCK: Final = 2**22
_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: The alignment in bytes that a kernel may expect.
_ALIGNMENT: Final = 16
#: From this rank on, the second last dimension counts heads.
_HEADS: Final = 3

#: Slices of the first dimensions; a block has the other dimensions whole.
Block = tuple[slice, ...]


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without `torch.`."""
    return str(dtype).removeprefix("torch.")


def blocks(shape: tuple[int, ...], limit: int = BLOCK) -> Iterator[Block]:
    """Yield blocks of at most `limit` elements that cover a shape; an empty shape has none."""
    if math.prod(shape) <= limit:
        if math.prod(shape):
            yield ()
        return
    row = math.prod(shape[1:])
    step = max(1, limit // row)
    for start in range(0, shape[0], step):
        rows = slice(start, min(start + step, shape[0]))
        for rest in blocks(shape[1:], limit) if row > limit else [()]:
            yield (rows, *rest)


def index_of(block_values: torch.Tensor, block: Block) -> tuple[int, ...]:
    """Return the index, in the whole tensor, of a block's first largest value (or True)."""
    ranked = block_values.to(torch.uint8) if block_values.dtype == torch.bool else block_values
    inside = torch.unravel_index(ranked.argmax(), block_values.shape)
    starts = [rows.start for rows in block] + [0] * (len(inside) - len(block))
    return tuple(start + int(offset) for start, offset in zip(starts, inside, strict=True))


def own_tensor(value: object) -> object:
    """Return a tensor of a subclass as a plain torch.Tensor; return any other value unchanged.

    A subclass with `__torch_dispatch__` is returned unchanged, too.
    """
    if not isinstance(value, torch.Tensor) or type(value) is torch.Tensor or has_rules(value):
        return value
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  torch's own name for subclasses' use
        return torch.Tensor.as_subclass(value, torch.Tensor)


def has_rules(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's type overrides `__torch_dispatch__`."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def require_plain(what: str, tensor: object) -> torch.Tensor:
    """Return a dense tensor that float64 can represent; raise CannotJudgeError for all else."""
    if not isinstance(tensor, torch.Tensor):
        raise CannotJudgeError(f"{what} is {type(tensor).__name__}, not a tensor")
    if tensor.layout != torch.strided or tensor.is_nested:
        raise CannotJudgeError(f"{what} is {tensor.layout}: make it dense first")
    if tensor.is_meta:
        raise CannotJudgeError(f"{what} lies on the meta device and has no values")
    try:
        widened(torch.empty(1, dtype=tensor.dtype))
    except (RuntimeError, TypeError) as error:
        raise CannotJudgeError(
            f"{what} is {dtype_name(tensor.dtype)}, which torch cannot convert to float64: "
            "unpack it, or view it as integers for judge_exact"
        ) from error
    return tensor


def require_finite(what: str, tensor: torch.Tensor) -> None:
    """Raise CannotJudgeError for a tensor with NaN or infinity."""
    for block in blocks(tuple(tensor.shape)):
        finite = torch.isfinite(widened(tensor[block]))
        if not bool(finite.all()):
            where = place_of(index_of(~finite, block))
            raise CannotJudgeError(f"{what} is NaN or infinite at {where}: it can judge nothing")


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64, or if complex, in complex128."""
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def differing(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements whose bits differ, on the device of `left`."""
    unlike = _bits(left) != _bits(right).to(left.device)
    return unlike.any(dim=-1) if left.is_complex() else unlike


def digest(*tensors: torch.Tensor) -> str:
    """Return 16 digits of a SHA-256 of the dtypes, shapes and bits of tensors."""
    sha256 = hashlib.sha256()
    for tensor in tensors:
        sha256.update(f"{dtype_name(tensor.dtype)} {place_of(tuple(tensor.shape))}".encode())
        for block in blocks(tuple(tensor.shape)):
            sha256.update(_bits(tensor[block]).flatten().contiguous().cpu().numpy().data)
    return sha256.hexdigest()[:16]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bits as integers; a complex element has two."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.view(_INTEGERS[plain.element_size()])


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a copy of a dense tensor in a layout that callers of kernels use.

    Memory around a view is filled with NaN (integers: the largest value), so that a
    kernel that reads outside its rows gives a result that fails.

    Args:
        values: A dense tensor.
        layout: A name in `LAYOUTS`.

    Raises:
        ValueError: There is no such layout, or the layout needs more dimensions.
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
    """Return a new tensor full of NaN (integers: the maximum), so that a stray read shows."""
    memory = torch.empty(shape, dtype=like.dtype, device=like.device)
    if like.dtype == torch.bool:
        return memory.fill_(True)  # noqa: FBT003  a value to fill with
    if not (like.is_floating_point() or like.is_complex()):
        return memory.fill_(torch.iinfo(like.dtype).max)
    if like.element_size() == 1:
        # 8-bit floats: torch may convert NaN to something else; 0xff and, for the
        # unsigned-zero kinds (fnuz), 0x80 are NaN by definition.
        memory.view(torch.uint8).fill_(0x80 if "fnuz" in str(like.dtype) else 0xFF)
        return memory
    return memory.fill_(float("nan"))


def _contiguous(values: torch.Tensor) -> torch.Tensor:
    return values.clone(memory_format=torch.contiguous_format)


def _packed(values: torch.Tensor) -> torch.Tensor:
    """Return values in the middle of a packed tensor, as K between Q and V."""
    # In (…, heads, width) the heads are packed, in (rows, width) the columns.
    dim = values.dim() - (2 if values.dim() >= _HEADS else 1)
    size, shape = values.shape[dim], [*values.shape]
    shape[dim] = 3 * size
    return _guarded(tuple(shape), values).narrow(dim, size, size).copy_(values)


def _wide_rows(values: torch.Tensor) -> torch.Tensor:
    return _guarded((*values.shape[:-1], 2 * values.shape[-1]), values)


def _shifted(values: torch.Tensor, by: int) -> torch.Tensor:
    """Return values that begin `by` elements after the start of the storage."""
    return _guarded((by + values.numel(),), values)[by:].view(values.shape).copy_(values)


#: For each layout: the least number of dimensions, and the function that makes a copy.
LAYOUTS: Final[dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]]] = {
    # Rows one after the other, at the start of the storage.
    "contiguous": (0, _contiguous),
    # The middle third of a packed tensor: of the heads (rank 3 or more), or of the columns.
    "packed": (1, _packed),
    # The last two dimensions swapped in memory.
    "transposed": (2, lambda values: _contiguous(values.transpose(-1, -2)).transpose(-1, -2)),
    # Each row followed by a gap as long as itself; the last stride is 1.
    "row-stride": (1, lambda values: _wide_rows(values)[..., : values.shape[-1]].copy_(values)),
    # Every second element: the last stride is 2.
    "strided": (1, lambda values: _wide_rows(values)[..., ::2].copy_(values)),
    # One row, repeated with stride 0. Only the first row's values remain.
    "expanded": (1, lambda values: _contiguous(values[:1]).expand(values.shape)),
    # Contiguous, 64 bytes into the storage: aligned.
    "offset": (0, lambda values: _shifted(values, 4 * _ALIGNMENT // values.element_size())),
    # Contiguous, one element into the storage: aligned only to an element.
    "misaligned": (0, lambda values: _shifted(values, 1)),
}
