"""Compare a result with its references, block by block.

Only a block at a time is converted to float64, so that the judgement needs little memory
in addition to the result, in any layout.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import torch

from contribbot.model.record import OutputRecord
from contribbot.numerics.limits import CannotJudgeError, Limits
from contribbot.numerics.tensors import (
    blocks,
    differing,
    dtype_name,
    has_rules,
    index_of,
    own_tensor,
    require_finite,
    require_plain,
    widened,
)
from contribbot.numerics.words import count, multiple, number, place_of, times

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

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the expected tensor."""
        return tuple(self.expected.shape)

    def take(
        self, actual: object, reference: torch.Tensor, device: torch.device | None
    ) -> torch.Tensor | None:
        """Measure and return a result; None: its type, shape, dtype or device is wrong."""
        actual = own_tensor(actual)
        self.complaint = _plain_mismatch(actual, self.expected, device)
        if not isinstance(actual, torch.Tensor) or self.complaint:
            return None
        for judge in (self.expected, reference):
            memory = [tensor.untyped_storage().data_ptr() for tensor in (actual, judge)]
            if actual.numel() and memory[0] == memory[1]:
                # A result that is compared with itself always passes.
                raise CannotJudgeError(
                    "the result and its reference are the same memory: clone one"
                )
        self.elements = reference.numel()
        self._measure(actual, reference)
        return actual

    def _measure(self, actual: torch.Tensor, reference: torch.Tensor) -> None:
        """Measure the errors of a result; an element that is not finite is a mismatch."""
        for block in blocks(self.shape):
            got, right = _wide_pair(actual[block], reference[block])
            error = (got - right).abs()
            largest = float(error.max())
            if not math.isfinite(largest):  # the maximum with NaN or infinity is NaN or infinity
                finite = torch.isfinite(got)
                bad = int(finite.numel() - int(finite.sum()))
                if bad and not self.non_finite:
                    self.place = index_of(~finite, block)
                self.non_finite += bad
                self.mismatches += bad
                # The difference of two finite numbers may overflow.
                error = torch.where(finite, error.clamp_max(_LARGEST), 0.0)
                largest = float(error.max())
            if largest > self.max_abs:
                self.max_abs = largest
                if not self.non_finite:
                    self.place = index_of(error, block)
            if largest > self.allowed:
                self.mismatches += int((error > self.allowed).sum())
            magnitude = right.abs()
            if not right.is_complex():
                self.low = min(self.low, float(right.min()))
                self.high = max(self.high, float(right.max()))
            self.largest = max(self.largest, min(float(magnitude.max()), _LARGEST))
            relative = torch.where(right != 0, error / magnitude, -1.0).max()
            if relative >= 0:
                self.max_rel = max(min(float(relative), _LARGEST), self.max_rel or 0.0)
        if self.non_finite:
            share = f"{count(self.non_finite)} of {count(self.elements)}"
            first = place_of(self.place or ())
            self.complaint = f"{share} elements are NaN or infinite, first at {first}"

    def _nothing(self) -> str:
        """Return why zeros or a constant would pass; empty: neither would."""
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
        facts |= {"dtype": dtype_name(self.expected.dtype), "shape": self.shape}
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
    """Return the judgement of a result by the error of a same-precision reference."""
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
    if (result := comparison.take(actual, reference, device)) is not None:
        comparison.why_vacuous = _hidden(result, reference, same_precision, limits.fudge) or (
            _coarse(result, same_precision) if usual > floor else ""
        )
        comparison.ratio = min(comparison.max_abs / yardstick, _LARGEST)
        if not comparison.complaint and comparison.max_abs > allowed:
            error = multiple(comparison.ratio, usual, floor)
            comparison.complaint = (
                f"max abs error {number(comparison.max_abs)} at {place_of(comparison.place or ())} "
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
    result = comparison.take(actual, expected, device)
    if result is None:
        return comparison.record(name, seed)
    wrong, first = 0, None
    for block in blocks(comparison.shape):
        unlike = differing(result[block], expected[block])
        if first is None and bool(unlike.any()):
            first = index_of(unlike, block)
        wrong += int(unlike.sum())
    comparison.mismatches = wrong
    if not comparison.non_finite:
        comparison.place = first
    if not comparison.complaint and first is not None:
        got, right = (tensor[first].detach().cpu().item() for tensor in (result, expected))
        comparison.complaint = (
            f"{count(wrong)} of {count(comparison.elements)} elements differ, "
            f"first at {place_of(first)}: {got} instead of {right}"
        )
    return comparison.record(name, seed)


def _hidden(
    actual: torch.Tensor, reference: torch.Tensor, same_precision: torch.Tensor, fudge: float
) -> str:
    """Return why a row or column of small values is not judged well; empty: all are."""
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
                    f"{count(many)} elements from {place_of(place)} on err by "
                    f"{number(float(error[first]))}, as zeros or a constant would, and plain code "
                    f"by {number(float(usual[first] / fudge))}: larger ones hide it; "
                    "draw inputs whose rows and columns are of one size, or judge them apart"
                )
    return ""


def _lines(
    shape: tuple[int, ...], device: torch.device
) -> Iterator[tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor, int]]:
    """Yield, for rows and then columns, a function for their maxima, their starts and length.

    Rows or columns of fewer than `_ROW` elements are taken together.
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
    """Return what is wrong with a result's type, shape, dtype or device; empty: nothing."""
    if not isinstance(actual, torch.Tensor):
        return f"is {type(actual).__name__}, not a tensor"
    if actual.layout != torch.strided or actual.is_nested or has_rules(actual):
        kind = type(actual).__name__ if has_rules(actual) else actual.layout
        return f"is {kind}, not a dense tensor"
    if actual.shape != expected.shape:
        return f"shape {place_of(tuple(actual.shape))} instead of {place_of(tuple(expected.shape))}"
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
            f"the references differ in shape: float64 {place_of(tuple(reference.shape))}, "
            f"same precision {place_of(tuple(same_precision.shape))}"
        )


def _wide_pair(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two blocks in float64, on the CPU if their devices differ."""
    if left.device != right.device:
        left, right = left.cpu(), right.cpu()
    return widened(left), widened(right)
