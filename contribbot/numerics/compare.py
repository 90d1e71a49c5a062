"""Comparing one tensor with what it should be, a block at a time.

Tensors are widened to float64 in blocks, so that judging a result costs little memory
beside the result itself, however it is laid out.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch

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


@dataclass(frozen=True)
class Comparison:
    """One result of one seed, compared; fields as in `OutputRecord`."""

    kind: Literal["error", "exact"]
    dtype: str
    shape: tuple[int, ...]
    elements: int = 0
    mismatches: int = 0
    non_finite: int = 0
    place: tuple[int, ...] | None = None
    max_abs: float = 0.0
    max_rel: float | None = None
    reference_abs: float = 0.0
    floor: float = 0.0
    allowed: float = 0.0
    largest: float = 0.0
    ratio: float | None = None
    complaint: str = ""

    @property
    def vacuous(self) -> bool:
        """Whether it passes and shows nothing: it is empty, or zeros would pass as well."""
        zeros = self.kind == "error" and self.allowed >= self.largest
        return not self.complaint and (not self.elements or zeros)

    @property
    def badness(self) -> tuple[bool, int, float, int, float]:
        """Orders the results and seeds of a cell: the worst is the largest."""
        plain = bool(self.complaint) and not self.elements
        return plain, self.non_finite, self.ratio or 0.0, self.mismatches, self.max_abs


def compare(
    actual: object,
    *,
    reference: torch.Tensor,
    same_precision: torch.Tensor,
    limits: Limits,
    device: torch.device | None = None,
) -> Comparison:
    """Judge a result by the error that a same-precision reference makes."""
    require_references(reference, same_precision)
    floor = limits.floor_for(dtype_name(same_precision.dtype))
    reference_abs = _error_of_reference(reference, same_precision)
    yardstick = max(reference_abs, floor)
    allowed = min(limits.fudge * yardstick, _LARGEST)
    judged_by = Comparison(
        "error", dtype_name(same_precision.dtype), tuple(same_precision.shape),
        reference_abs=reference_abs, floor=floor, allowed=allowed,
    )  # fmt: skip
    actual = own_tensor(actual)
    odd = _plain_mismatch(actual, same_precision, device)
    if odd or not isinstance(actual, torch.Tensor):
        return replace(judged_by, complaint=odd)
    _require_apart(actual, same_precision)
    _require_apart(actual, reference)
    seen = _measure(actual, reference, allowed)
    ratio = min(seen.max_abs / yardstick, _LARGEST)
    complaint = seen.complaint_if_non_finite(reference.numel())
    if not complaint and seen.max_abs > allowed and seen.place is not None:
        complaint = (
            f"max abs error {number(seen.max_abs)} at {place_of(seen.place)} is "
            f"{multiple(ratio, reference_abs, floor)}; allowed {times(limits.fudge)} times"
        )
    seen_fields = {**vars(seen), "ratio": ratio, "complaint": complaint}
    return replace(judged_by, elements=reference.numel(), **seen_fields)


def compare_exact(
    actual: object, expected: torch.Tensor, *, device: torch.device | None = None
) -> Comparison:
    """Compare a result bit by bit."""
    require_plain("the expected tensor", expected)
    require_finite("the expected tensor", expected)
    dtype, shape = dtype_name(expected.dtype), tuple(expected.shape)
    actual = own_tensor(actual)
    odd = _plain_mismatch(actual, expected, device)
    if odd or not isinstance(actual, torch.Tensor):
        return Comparison("exact", dtype, shape, complaint=odd)
    _require_apart(actual, expected)
    seen = _measure(actual, expected, 0.0)
    wrong, first = 0, None
    for block in blocks(shape):
        there = differing(actual[block], expected[block])
        if first is None and bool(there.any()):
            first = index_of(there, block)
        wrong += int(there.sum())
    complaint = seen.complaint_if_non_finite(expected.numel())
    if not complaint and first is not None:
        got, right = (_shown(one[first]) for one in (actual, expected))
        complaint = (
            f"{count(wrong)} of {count(expected.numel())} elements differ, "
            f"first at {place_of(first)}: {got} instead of {right}"
        )
    seen.mismatches, seen.place = wrong, seen.place if seen.non_finite else first
    elements = expected.numel()
    return Comparison("exact", dtype, shape, elements=elements, complaint=complaint, **vars(seen))


@dataclass
class _Seen:
    """What a pass over a result and its reference found."""

    max_abs: float = 0.0
    max_rel: float | None = None
    largest: float = 0.0
    mismatches: int = 0
    non_finite: int = 0
    place: tuple[int, ...] | None = None

    def complaint_if_non_finite(self, elements: int) -> str:
        if not self.non_finite or self.place is None:
            return ""
        what = f"{count(self.non_finite)} of {count(elements)} elements are NaN or infinite"
        return f"{what}, first at {place_of(self.place)}"


def _measure(actual: torch.Tensor, reference: torch.Tensor, allowed: float) -> _Seen:
    """Take the errors of a result; an element that is not finite mismatches."""
    seen = _Seen()
    for block in blocks(tuple(reference.shape)):
        got, right = _wide_pair(actual[block], reference[block])
        error = (got - right).abs()
        largest = float(error.max())
        if not math.isfinite(largest):  # NaN and infinity win every maximum
            finite = torch.isfinite(got)
            bad = int(finite.numel() - int(finite.sum()))
            if bad and not seen.non_finite:
                seen.place = index_of(~finite, block)
            seen.non_finite += bad
            seen.mismatches += bad
            # What overflows here is the difference of two finite numbers.
            error = torch.where(finite, error.clamp_max(_LARGEST), 0.0)
            largest = float(error.max())
        if largest > seen.max_abs:
            seen.max_abs = largest
            if not seen.non_finite:
                seen.place = index_of(error, block)
        if largest > allowed:
            seen.mismatches += int((error > allowed).sum())
        magnitude = right.abs()
        seen.largest = max(seen.largest, min(float(magnitude.max()), _LARGEST))
        relative = torch.where(right != 0, error / magnitude, -1.0).max()
        if relative >= 0:
            seen.max_rel = max(min(float(relative), _LARGEST), seen.max_rel or 0.0)
    return seen


def _error_of_reference(reference: torch.Tensor, same_precision: torch.Tensor) -> float:
    require_finite("the float64 reference", reference)
    require_finite("the same-precision reference", same_precision)
    largest = 0.0
    for block in blocks(tuple(reference.shape)):
        usual, right = _wide_pair(same_precision[block], reference[block])
        largest = max(largest, min(float((usual - right).abs().max()), _LARGEST))
    return largest


def _plain_mismatch(actual: object, expected: torch.Tensor, device: torch.device | None) -> str:
    """Say what is wrong with a result before its numbers, or nothing."""
    if not isinstance(actual, torch.Tensor):
        return f"is {type(actual).__name__}, not a tensor"
    if actual.layout != torch.strided or actual.is_nested or has_rules(actual):
        kind = type(actual).__name__ if has_rules(actual) else actual.layout
        return f"is {kind}, not a dense tensor"
    if actual.shape != expected.shape:
        return f"shape {place_of(tuple(actual.shape))} instead of {place_of(tuple(expected.shape))}"
    if actual.dtype != expected.dtype:
        return f"dtype {dtype_name(actual.dtype)} instead of {dtype_name(expected.dtype)}"
    if actual.is_meta or (device is not None and not _lies_on(actual, device)):
        return f"lies on {actual.device}, not on {device or 'a device with memory'}"
    return ""


def _lies_on(tensor: torch.Tensor, device: torch.device) -> bool:
    """Say whether a tensor lies on a device; `cuda` stands for every one of them."""
    if ":" in str(device):
        return tensor.device == device
    return tensor.device.type == device.type


def _require_apart(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Refuse to judge a result by itself, which always passes."""
    memory = [one.untyped_storage().data_ptr() for one in (actual, expected)]
    if actual.numel() and memory[0] == memory[1]:
        raise CannotJudgeError("the result and its reference are the same memory: clone one")


def require_references(reference: object, same_precision: object) -> None:
    """Refuse references that are no tensors of their precision, or do not fit each other."""
    reference = require_plain("the float64 reference", reference)
    same_precision = require_plain("the same-precision reference", same_precision)
    wanted = torch.complex128 if same_precision.is_complex() else torch.float64
    if reference.dtype != wanted:
        raise CannotJudgeError(
            f"the reference is {dtype_name(reference.dtype)}; "
            f"for {dtype_name(same_precision.dtype)} it must be {dtype_name(wanted)}"
        )
    if reference.shape != same_precision.shape:
        raise CannotJudgeError(
            f"the references differ in shape: float64 {place_of(tuple(reference.shape))}, "
            f"same precision {place_of(tuple(same_precision.shape))}"
        )


def _wide_pair(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Widen two blocks, on their device, or on the CPU where they lie apart."""
    if one.device != other.device:
        one, other = one.cpu(), other.cpu()
    return widened(one), widened(other)


def _shown(element: torch.Tensor) -> str:
    return str(element.detach().cpu().item())
