"""Compare a result with its references, block by block, within the limits that a patch states.

Only a block at a time is converted to float64, so that the judgement needs little memory
in addition to the result, in any layout.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import operator
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass

from contribbot.markdown import multiple, number, times
from contribbot.model.checks import LIMITS_VARIABLE, Positive
from contribbot.model.record import OutputRecord

#: The number of elements that are converted to float64 at a time: 32 MB.
BLOCK: Final = 2**22
_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LARGEST: Final = sys.float_info.max
#: The fewest elements of a row; shorter rows are judged together.
_ROW: Final = 8
_TOO_WIDE: Final = (
    "fudge and floor allow an error as large as the values; state a smaller floor, draw inputs "
    "that give larger results, or leave the cell out with `where`"
)
_ONE_VALUE: Final = (
    "draw inputs that give other values, or judge the elements around them, too, in one result"
)
_FLUSHED: Final = torch.finfo(torch.float32).tiny
_NARROW: Final = (torch.bfloat16, torch.float16, torch.float32)

#: Slices of the first dimensions; a block has the other dimensions whole.
Block = tuple[slice, ...]


class CannotJudgeError(Exception):
    """A reference or the limits cannot judge a result: the check is broken, not the code."""

    #: The pytest process reads this mark: such an error never counts as the stated reason.
    contribbot_broken = True


@checked_dataclass(frozen=True)
class Limits:
    """The largest allowed error of a result.

    Attributes:
        fudge: The largest ratio of a result's error to the same-precision reference's error.
        floor: The least absolute error that is assumed for the reference, in the result's unit:
            a number, or a number for each dtype, by name (`float16`).

    Raises:
        pydantic.ValidationError: A limit is not a positive, finite number.
    """

    fudge: Positive
    floor: Positive | dict[str, Positive]

    def floor_for(self, dtype: str) -> float:
        """Return the floor for a dtype's name; raise CannotJudgeError if no floor is stated."""
        if not isinstance(self.floor, dict):
            return self.floor
        if dtype not in self.floor:
            named = ", ".join(sorted(self.floor))
            raise CannotJudgeError(f"the patch states a floor for {named}, and none for {dtype}")
        return self.floor[dtype]

    @classmethod
    def stated(cls, check: Path) -> Limits:
        """Return the limits of CONTRIBBOT_NUMERICS, or of patch.toml; or raise CannotJudgeError."""
        text = os.environ.get(LIMITS_VARIABLE, "")
        try:
            return TypeAdapter(cls).validate_python(json.loads(text) if text else _beside(check))
        except (OSError, LookupError, ValueError) as error:
            raise CannotJudgeError(
                f"no fudge and floor for {check.name}: set {LIMITS_VARIABLE} to "
                '{"fudge": 2, "floor": 1e-6}, or state them in its [[numerics]] of the patch.toml'
                f" beside checks/ ({type(error).__name__}: {error})"
            ) from None


def _beside(check: Path) -> object:
    """Return the `[[numerics]]` entry of a check file, from the patch.toml beside `checks/`."""
    content = tomllib.loads((check.parent.parent / "patch.toml").read_text(encoding="utf-8"))
    for entry in content.get("numerics", ()):
        if entry["file"] == check.name:
            return entry
    raise LookupError("the patch has no [[numerics]] with this file")


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without `torch.`."""
    return str(dtype).removeprefix("torch.")


def blocks(shape: tuple[int, ...], limit: int = BLOCK) -> Iterator[Block]:
    """Yield blocks of at most `limit` elements that cover a shape; an empty shape has no block."""
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
    """Return the index, in the whole tensor, of the first largest value (or True) in a block."""
    ranked = block_values.to(torch.uint8) if block_values.dtype == torch.bool else block_values
    inside = torch.unravel_index(ranked.argmax(), block_values.shape)
    starts = [rows.start for rows in block] + [0] * (len(inside) - len(block))
    return tuple(start + int(offset) for start, offset in zip(starts, inside, strict=True))


def own_tensor(value: object) -> object:
    """Return a subclass's tensor as a torch.Tensor, unless `has_rules`; else the value itself."""
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
            where = index_of(~finite, block)
            raise CannotJudgeError(f"{what} is NaN or infinite at {where}: it can judge nothing")


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64, or if complex, in complex128."""
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def differing(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements whose bits differ, on the device of `left`."""
    unlike = _bits(left) != _bits(right).to(left.device)
    return unlike.any(dim=-1) if left.is_complex() else unlike


def digest(*tensors: torch.Tensor) -> str:
    """Return 16 hexadecimal digits of a SHA-256 of the dtypes, shapes and bits of tensors."""
    sha256 = hashlib.sha256()
    for tensor in tensors:
        sha256.update(f"{dtype_name(tensor.dtype)} {tuple(tensor.shape)}".encode())
        for block in blocks(tuple(tensor.shape)):
            sha256.update(_bits(tensor[block]).flatten().contiguous().cpu().numpy().data)
    return sha256.hexdigest()[:16]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bits as integers; a complex element becomes two integers."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.view(_INTEGERS[plain.element_size()])


@dataclass
class _Comparison:
    """The comparison of one seed's result with the expected tensor; see `OutputRecord`."""

    kind: Literal["error", "exact"]
    expected: torch.Tensor
    reference_abs: float = 0.0
    floor: float = 0.0
    allowed: float = 0.0
    elements: int = 0
    mismatches: int = 0
    non_finite: int = 0
    place: tuple[int, ...] | None = None
    max_abs: float = 0.0
    max_rel: float | None = None
    largest: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    ratio: float | None = None
    why_vacuous: str = ""
    complaint: str = ""

    def measure(
        self, actual: object, reference: torch.Tensor, device: torch.device | None
    ) -> torch.Tensor | None:
        """Measure and return a result; None: the type, shape, dtype or device is wrong."""
        actual = own_tensor(actual)
        self.complaint = _plain_mismatch(actual, self.expected, device)
        if not isinstance(actual, torch.Tensor) or self.complaint:
            return None
        judges = (self.expected, reference)
        memory = {tensor.untyped_storage().data_ptr() for tensor in judges}
        if actual.numel() and actual.untyped_storage().data_ptr() in memory:
            # A result that is compared with itself always passes.
            raise CannotJudgeError("the result and its reference are the same memory: clone one")
        self.elements = reference.numel()
        for block in blocks(tuple(reference.shape)):
            self._measure(actual, reference, block)
        if self.non_finite:
            share = f"{self.non_finite:,} of {self.elements:,}"
            self.complaint = f"{share} elements are NaN or infinite, first at {self.place}"
        return actual

    def _measure(self, actual: torch.Tensor, reference: torch.Tensor, block: Block) -> None:
        """Measure the errors in a block; an element that is not finite is a mismatch."""
        got, right = _wide_pair(actual[block], reference[block])
        finite = torch.isfinite(got)
        broken = int(finite.numel() - finite.count_nonzero())
        # The difference of two finite numbers may overflow.
        error = (got - right).abs().clamp_max_(_LARGEST)
        if broken:
            error.masked_fill_(~finite, 0.0)
        if self.kind == "exact":
            wrong = differing(actual[block], self.expected[block]).to(finite.device)
        else:
            wrong = error > self.allowed
        if broken:
            wrong |= ~finite
        largest = float(error.max())
        if not self.non_finite:
            if broken:
                self.place = index_of(~finite, block)
            elif self.kind == "error" and largest > self.max_abs:
                self.place = index_of(error, block)
            elif self.kind == "exact" and self.place is None and bool(wrong.any()):
                self.place = index_of(wrong, block)
        self.non_finite += broken
        self.mismatches += int(wrong.count_nonzero())
        self.max_abs = max(self.max_abs, largest)
        magnitude = right.abs()
        if not right.is_complex():
            self.low = min(self.low, float(right.min()))
            self.high = max(self.high, float(right.max()))
        self.largest = max(self.largest, min(float(magnitude.max()), _LARGEST))
        relative = torch.where(right != 0, error / magnitude, -1.0).max()
        if relative >= 0:
            self.max_rel = max(min(float(relative), _LARGEST), self.max_rel or 0.0)

    def _nothing(self) -> str:
        """Return why the result shows nothing (empty, or zeros or a constant pass), or empty."""
        if not self.elements:
            return "it is empty: leave the cell out with `where`"
        advice = _TOO_WIDE if self.kind == "error" else _ONE_VALUE
        if self.allowed >= self.largest:
            return f"zeros would pass: {advice}"
        spread = self.high - self.low
        constant = spread == 0 if self.kind == "exact" else 0 < spread <= 2 * self.allowed
        return f"a constant would pass: {advice}" if constant and self.elements >= _ROW else ""

    def record(self, name: str, seed: int) -> OutputRecord:
        """Return this comparison as the record of one seed."""
        why = "" if self.complaint else self._nothing() or self.why_vacuous
        facts = {**vars(self), "name": name, "worst_seed": seed, "why_vacuous": why}
        facts["vacuous"] = int(bool(why))
        facts |= {"dtype": dtype_name(self.expected.dtype), "shape": tuple(self.expected.shape)}
        known = {key: value for key, value in facts.items() if key in OutputRecord.model_fields}
        return OutputRecord.model_validate(known)


def compare(
    actual: object,
    *,
    reference: torch.Tensor,
    same_precision: torch.Tensor,
    limits: Limits,
    device: torch.device | None = None,
    name: str = "",
    seed: int = 0,
) -> OutputRecord:
    """Judge a result by two references of the same shape; raise CannotJudgeError if unusable."""
    require_references(reference, same_precision)
    require_finite("the float64 reference", reference)
    require_finite("the same-precision reference", same_precision)
    floor = limits.floor_for(dtype_name(same_precision.dtype))
    usual = 0.0
    for block in blocks(tuple(reference.shape)):
        plain, right = _wide_pair(same_precision[block], reference[block])
        usual = max(usual, min(float((plain - right).abs().max()), _LARGEST))
    yardstick = max(usual, floor)
    allowed = min(limits.fudge * yardstick, _LARGEST)
    comparison = _Comparison("error", same_precision, usual, floor, allowed)
    if (result := comparison.measure(actual, reference, device)) is not None:
        comparison.why_vacuous = _hidden(result, reference, same_precision, limits.fudge) or (
            _coarse(result, same_precision) if usual > floor else ""
        )
        comparison.ratio = min(comparison.max_abs / yardstick, _LARGEST)
        if not comparison.complaint and comparison.max_abs > allowed:
            error = multiple(comparison.ratio, usual, floor)
            comparison.complaint = (
                f"max abs error {number(comparison.max_abs)} at {comparison.place} "
                f"is {error}; allowed {times(limits.fudge)} times"
            )
    return comparison.record(name, seed)


def compare_exact(
    actual: object,
    expected: torch.Tensor,
    *,
    device: torch.device | None = None,
    name: str = "",
    seed: int = 0,
) -> OutputRecord:
    """Return the judgement of a result that must equal the expected tensor bit by bit."""
    require_plain("the expected tensor", expected)
    require_finite("the expected tensor", expected)
    comparison = _Comparison("exact", expected)
    result = comparison.measure(actual, expected, device)
    place = comparison.place
    if result is not None and place is not None and not comparison.complaint:
        got, right = (tensor[place].detach().cpu().item() for tensor in (result, expected))
        comparison.complaint = (
            f"{comparison.mismatches:,} of {comparison.elements:,} elements differ, "
            f"first at {place}: {got} instead of {right}"
        )
    return comparison.record(name, seed)


def _hidden(
    actual: torch.Tensor, reference: torch.Tensor, same_precision: torch.Tensor, fudge: float
) -> str:
    """Return a message on a row or column whose large error the other values hide; or empty."""
    for block in blocks(tuple(reference.shape)):
        got, right = _wide_pair(actual[block], reference[block])
        plain = widened(same_precision[block]).to(right.device)
        for largest, starts, many in _lines(tuple(right.shape), right.device):
            error, usual, size = (
                largest(each.abs()) for each in (got - right, plain - right, right)
            )
            scales = [size]
            if not right.is_complex():
                scales.append((largest(right) + largest(-right)) / 2)
            usual = fudge * torch.maximum(usual, _resolution(same_precision.dtype, size))
            # Hidden: an error of half the row's size or spread, where plain code's is smaller.
            hidden = [(error >= scale / 2) & (usual < scale / 2) for scale in scales]
            if bool((bad := functools.reduce(operator.or_, hidden)).any()):
                first = int(bad.to(torch.uint8).argmax())
                inside = torch.arange(right.numel()).reshape(right.shape)
                place = index_of(inside == int(starts[first]), block)
                return (
                    f"{many:,} elements from {place} on err by "
                    f"{number(float(error[first]))}, as zeros or a constant would, and plain code "
                    f"by {number(float(usual[first] / fudge))}: larger ones hide it; "
                    "draw inputs whose rows and columns are of one size, or judge them apart"
                )
    return ""


def _lines(
    shape: tuple[int, ...], device: torch.device
) -> Iterator[tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor, int]]:
    """Yield, for rows, then columns: a function for the maxima, the starts, and the length.

    Rows or columns of fewer than `_ROW` elements are grouped.
    """
    sizes = [*itertools.accumulate(reversed(shape), operator.mul)] or [1]
    width = next((size for size in sizes if size >= _ROW), sizes[-1])
    starts = torch.arange(0, sizes[-1], width, device=device)
    yield lambda values: values.reshape(-1, width).amax(1), starts, width
    columns, rows = sizes[0], sizes[-1] // sizes[0]
    together = min(columns, -(-_ROW // rows))
    starts = torch.arange(0, columns, together, device=device)
    # If the columns are no multiple of a group, the last group overlaps the one before.
    starts = starts.clamp(max=columns - together)
    group = starts[:, None] + torch.arange(together, device=device)
    yield lambda values: values.reshape(-1, columns).amax(0)[group].amax(1), starts, together * rows


def _resolution(dtype: torch.dtype, size: torch.Tensor) -> torch.Tensor:
    """Return the distance between neighbouring numbers of a dtype, at given magnitudes."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.ones_like(size)
    # A GPU may flush numbers below float32's normal range to zero.
    return torch.finfo(dtype).eps * (size + torch.finfo(dtype).tiny) + _FLUSHED


def _coarse(actual: torch.Tensor, same_precision: torch.Tensor) -> str:
    """Return a complaint if the same-precision reference has fewer bits than the result."""
    own = same_precision.dtype
    for dtype in _NARROW if own in {torch.float16, torch.float32, torch.float64} else ():
        if _fits(same_precision, dtype) and not _fits(actual, dtype):
            has = f"has no bits beyond {dtype_name(dtype)}, and the result has"
            return f"the same-precision reference {has}: compute it in {dtype_name(own)} throughout"
    return ""


def _fits(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    parts = (tensor[block] for block in blocks(tuple(tensor.shape)))
    return all(bool((part.to(dtype).to(part.dtype) == part).all()) for part in parts)


def _plain_mismatch(actual: object, expected: torch.Tensor, device: torch.device | None) -> str:
    """Return a complaint on a result's type, shape, dtype or device; empty: no complaint."""
    if not isinstance(actual, torch.Tensor):
        return f"is {type(actual).__name__}, not a tensor"
    if actual.layout != torch.strided or actual.is_nested or has_rules(actual):
        kind = type(actual).__name__ if has_rules(actual) else actual.layout
        return f"is {kind}, not a dense tensor"
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    if actual.dtype != expected.dtype:
        return f"dtype {dtype_name(actual.dtype)} instead of {dtype_name(expected.dtype)}"
    # `cuda` without a number accepts each GPU.
    elsewhere = device is not None and device not in {
        actual.device,
        torch.device(actual.device.type),
    }
    if actual.is_meta or elsewhere:
        return f"lies on {actual.device}, not on {device or 'a device with memory'}"
    return ""


def require_references(reference: object, same_precision: object) -> None:
    """Raise CannotJudgeError unless the references are tensors of the right dtype and shape."""
    reference = require_plain("the float64 reference", reference)
    same_precision = require_plain("the same-precision reference", same_precision)
    wide = torch.complex128 if same_precision.is_complex() else torch.float64
    if reference.dtype != wide:
        raise CannotJudgeError(
            f"the reference is {dtype_name(reference.dtype)}; "
            f"for {dtype_name(same_precision.dtype)} it must be {dtype_name(wide)}"
        )
    if reference.shape != same_precision.shape:
        raise CannotJudgeError(
            f"the references differ in shape: float64 {tuple(reference.shape)}, "
            f"same precision {tuple(same_precision.shape)}"
        )


def _wide_pair(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two blocks in float64, on the CPU if their devices differ."""
    if left.device != right.device:
        left, right = left.cpu(), right.cpu()
    return widened(left), widened(right)
