"""Comparing one tensor with what it should be, a block at a time.

Tensors are widened to float64 in blocks, so that judging a result costs little memory
beside the result itself, however it is laid out.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import torch
from pydantic import BaseModel

from contribbot.model.checks import Positive

#: Set by the stage: `{"fudge": 2.0, "floor": 1e-6}`, or a floor for each dtype.
VARIABLE: Final = "CONTRIBBOT_NUMERICS"


class CannotJudgeError(Exception):
    """A reference, or the limits, can judge nothing: the check is broken, not the code.

    Attributes:
        contribbot_broken: Read by the child pytest: never the stated reason of a failure.
    """

    contribbot_broken = True


@dataclass(frozen=True)
class Limits:
    """The error that is allowed.

    Attributes:
        fudge: How many times the same-precision reference's own error.
        floor: The absolute error below which that error is not believed; one number,
            or one for each dtype, by name (`float16`).
    """

    fudge: float
    floor: float | Mapping[str, float]

    def floor_for(self, dtype: str) -> float:
        """Return the floor of a dtype.

        Args:
            dtype: Its name, such as `bfloat16`.

        Raises:
            CannotJudgeError: The floors are given by dtype, and this one has none.
        """
        if not isinstance(self.floor, Mapping):
            return self.floor
        if dtype not in self.floor:
            named = ", ".join(sorted(self.floor))
            raise CannotJudgeError(f"the patch states a floor for {named}, and none for {dtype}")
        return self.floor[dtype]

    @classmethod
    def stated(cls, check: Path) -> Limits:
        """Return what is stated for a check file.

        Args:
            check: The file; without the variable, `patch.toml` is looked for beside its folder.

        Raises:
            CannotJudgeError: Nothing is stated, or nothing that can be read.
        """
        text = os.environ.get(VARIABLE, "")
        try:
            entry = _Entry.model_validate(json.loads(text) if text else _beside(check))
        except (OSError, LookupError, ValueError) as error:
            raise CannotJudgeError(
                f"no fudge and floor for {check.name}: set {VARIABLE} to "
                '{"fudge": 2, "floor": 1e-6}, or state them in its [[numerics]] of the patch.toml'
                f" beside checks/ ({type(error).__name__}: {error})"
            ) from None
        return cls(entry.fudge, entry.floor)


class _Entry(BaseModel):
    """The part of a `[[numerics]]` that is read here."""

    fudge: Positive
    floor: Positive | dict[str, Positive]


def _beside(check: Path) -> Mapping[str, object]:
    """Read the entry of a check file from its patch."""
    content = tomllib.loads((check.parent.parent / "patch.toml").read_text(encoding="utf-8"))
    for entry in content.get("numerics", ()):
        if entry["file"] == check.name:
            found: Mapping[str, object] = entry
            return found
    raise LookupError("the patch has no [[numerics]] with this file")


#: From here on a factor has no decimals; from `_MANY` on nobody counts its digits.
_WHOLE = 100
_MANY = 10**6


def number(value: float) -> str:
    """Return a magnitude with two digits, such as `1.9` or `1.1e-3`."""
    return re.sub(r"e([+-])0*", lambda found: f"e{found[1].strip('+')}", f"{value:.2g}")


def times(ratio: float) -> str:
    """Return a factor: `2`, `1.3`, `1,700`, `3e12`."""
    if ratio >= _MANY:
        return number(ratio)
    return f"{ratio:,.0f}" if ratio >= _WHOLE else f"{ratio:.3g}"


def multiple(ratio: float, reference_abs: float, floor: float) -> str:
    """Say what an error is a multiple of: the larger of the two decides."""
    if reference_abs >= floor:
        return f"{times(ratio)} times the same-precision reference's {number(reference_abs)}"
    reference = f"(same-precision reference: {number(reference_abs)})"
    return f"{times(ratio)} times the floor {number(floor)} {reference}"


def count(elements: int) -> str:
    """Return a count, with separators."""
    return f"{elements:,}"


def plain(text: str) -> str:
    """Spell out lone surrogates, which JSON readers refuse."""
    return text.encode("utf-8", "backslashreplace").decode()


def place_of(index: tuple[int, ...]) -> str:
    """Return an index or a shape as Python writes it."""
    return str(tuple(index))


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
