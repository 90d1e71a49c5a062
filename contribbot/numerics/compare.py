"""Comparing one tensor with what it should be, a block at a time.

Tensors are widened to float64 in blocks, so that judging a result costs little memory
beside the result itself, however it is laid out.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Final, Literal

import torch

from contribbot.numerics.limits import CannotJudgeError, Limits
from contribbot.numerics.tensors import (
    blocks,
    differing,
    dtype_name,
    index_of,
    require_finite,
    require_plain,
    widened,
)
from contribbot.numerics.words import count, number, place_of, times

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
    allowed: float = 0.0
    largest: float = 0.0
    ratio: float | None = None
    complaint: str = ""

    @property
    def badness(self) -> tuple[bool, int, float, float]:
        """Orders the seeds of a result: the worst is the largest."""
        plain = bool(self.complaint) and not self.elements
        ratio = math.inf if self.ratio is None and self.max_abs > 0 else self.ratio or 0.0
        bad = self.mismatches if self.kind == "exact" else self.non_finite
        return plain, bad, ratio, self.max_abs


def compare(
    actual: object,
    *,
    reference: torch.Tensor,
    same_precision: torch.Tensor,
    limits: Limits,
    device: torch.device | None = None,
) -> Comparison:
    """Judge a result by the error that a same-precision reference makes.

    Args:
        actual: The result.
        reference: The same in float64, or complex128.
        same_precision: The same as plain code in the result's dtype gives it.
        limits: What is allowed.
        device: Where the result must lie; None: anywhere.

    Raises:
        CannotJudgeError: A reference is not finite, not of higher precision, or does not
            fit the other, or is the result itself.
    """
    _require_reference(reference, same_precision)
    floor = limits.floor_for(dtype_name(same_precision.dtype))
    reference_abs = _error_of_reference(reference, same_precision)
    yardstick = max(reference_abs, floor)
    allowed = min(limits.fudge * yardstick, _LARGEST)
    dtype, shape = dtype_name(same_precision.dtype), tuple(same_precision.shape)
    odd = _plain_mismatch(actual, same_precision, device)
    if odd or not isinstance(actual, torch.Tensor):
        return Comparison(
            "error",
            dtype,
            shape,
            reference_abs=reference_abs,
            allowed=allowed,
            complaint=odd,
        )
    _require_apart(actual, same_precision)
    _require_apart(actual, reference)
    seen = _measure(actual, reference, allowed)
    ratio = min(seen.max_abs / yardstick, _LARGEST) if yardstick else None
    return Comparison(
        "error", dtype, shape,
        elements=reference.numel(),
        mismatches=seen.mismatches,
        non_finite=seen.non_finite,
        place=seen.place,
        max_abs=seen.max_abs,
        max_rel=seen.max_rel,
        reference_abs=reference_abs,
        allowed=allowed,
        largest=seen.largest,
        ratio=ratio,
        complaint=_complaint(seen, reference.numel(), limits.fudge, reference_abs, floor),
    )  # fmt: skip


def compare_exact(
    actual: object, expected: torch.Tensor, *, device: torch.device | None = None
) -> Comparison:
    """Compare a result bit by bit.

    Args:
        actual: The result.
        expected: What it must be; any dtype.
        device: Where the result must lie; None: anywhere.

    Raises:
        CannotJudgeError: What is expected is not finite, no plain tensor, or the result itself.
    """
    require_plain("the expected tensor", expected)
    require_finite("the expected tensor", expected)
    dtype, shape = dtype_name(expected.dtype), tuple(expected.shape)
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
    return Comparison(
        "exact", dtype, shape,
        elements=expected.numel(),
        mismatches=wrong,
        non_finite=seen.non_finite,
        place=seen.place if seen.non_finite else first,
        max_abs=seen.max_abs,
        max_rel=seen.max_rel,
        complaint=complaint,
    )  # fmt: skip


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


def _complaint(seen: _Seen, elements: int, fudge: float, reference_abs: float, floor: float) -> str:
    """Say why a result is not good enough, or nothing."""
    yardstick = max(reference_abs, floor)
    if seen.non_finite:
        return seen.complaint_if_non_finite(elements)
    if seen.max_abs <= fudge * yardstick or seen.place is None:
        return ""
    found = f"max abs error {number(seen.max_abs)} at {place_of(seen.place)}"
    if not yardstick:
        return f"{found}; the same-precision reference makes none, and the floor is 0"
    by = f"{times(seen.max_abs / yardstick)} times"
    if reference_abs >= floor:
        than = f"the same-precision reference's {number(reference_abs)}"
    else:
        than = f"the floor {number(floor)} (same-precision reference: {number(reference_abs)})"
    return f"{found} is {by} {than}; allowed {times(fudge)} times"


def _plain_mismatch(actual: object, expected: torch.Tensor, device: torch.device | None) -> str:
    """Say what is wrong with a result before its numbers, or nothing."""
    if not isinstance(actual, torch.Tensor):
        return f"is {type(actual).__name__}, not a tensor"
    if actual.layout != torch.strided or actual.is_nested:
        return f"is {actual.layout}, not a dense tensor"
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
    if actual.numel() and actual.data_ptr() == expected.data_ptr():
        raise CannotJudgeError("the result and its reference are the same memory: clone one")


def _require_reference(reference: torch.Tensor, same_precision: torch.Tensor) -> None:
    require_plain("the float64 reference", reference)
    require_plain("the same-precision reference", same_precision)
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
