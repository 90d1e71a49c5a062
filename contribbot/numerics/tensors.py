"""Tensors seen block by block: widened, as bits, and what cannot be seen at all."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Final

import torch

from contribbot.numerics.limits import CannotJudgeError
from contribbot.numerics.words import place_of

#: Elements that are widened at the same time: 32 MB in float64.
BLOCK: Final = 2**22
_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

#: Slices of the first dimensions; the others are whole.
Block = tuple[slice, ...]


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without the module."""
    return str(dtype).removeprefix("torch.")


def blocks(shape: tuple[int, ...], limit: int = BLOCK) -> Iterator[Block]:
    """Cut a shape into blocks of at most `limit` elements, in order; an empty one has none."""
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


def own_tensor(value: object) -> object:
    """Return a tensor of a subclass as torch's own, which subtracts and compares as torch does.

    What dispatches below Python's functions (`__torch_dispatch__`) is left as it is.
    """
    if not isinstance(value, torch.Tensor) or type(value) is torch.Tensor or has_rules(value):
        return value
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  torch's own name for subclasses' use
        return torch.Tensor.as_subclass(value, torch.Tensor)


def has_rules(tensor: torch.Tensor) -> bool:
    """Say whether a tensor's type has rules of its own for what torch does with it."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def require_plain(what: str, tensor: object) -> torch.Tensor:
    """Return a dense tensor whose values widen to float64; refuse all else."""
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
    """Refuse a reference that holds NaN or infinity."""
    for block in blocks(tuple(tensor.shape)):
        finite = torch.isfinite(widened(tensor[block]))
        if not bool(finite.all()):
            where = place_of(index_of(~finite, block))
            raise CannotJudgeError(f"{what} is NaN or infinite at {where}: it can judge nothing")


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a block in float64, or complex128."""
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def differing(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return which elements of two blocks differ in their bits, on the first one's device."""
    there = _bits(one) != _bits(other).to(one.device)
    return there.any(dim=-1) if one.is_complex() else there


def digest(*tensors: torch.Tensor) -> str:
    """Return 16 digits of a SHA-256 over dtypes, shapes and bits."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{dtype_name(tensor.dtype)} {place_of(tuple(tensor.shape))}".encode())
        for block in blocks(tuple(tensor.shape)):
            found.update(_bits(tensor[block]).flatten().contiguous().cpu().numpy().data)
    return found.hexdigest()[:16]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor as integers; a complex one as two for each element."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.view(_INTEGERS[plain.element_size()])


def index_of(block_values: torch.Tensor, block: Block) -> tuple[int, ...]:
    """Return the index in the whole of the first largest value (or True) in a block."""
    ranked = block_values.to(torch.uint8) if block_values.dtype == torch.bool else block_values
    flat = int(ranked.argmax())
    inside: list[int] = []
    for size in reversed(block_values.shape):
        flat, offset = divmod(flat, size)
        inside.insert(0, offset)
    starts = [one.start for one in block] + [0] * (len(inside) - len(block))
    return tuple(start + offset for start, offset in zip(starts, inside, strict=True))
