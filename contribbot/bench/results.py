"""What a case computes, handed to the other side and compared. Runs inside a measuring child.

A result is taken apart into leaves: tensors, which are copied to the processor at once, since
the next call may write into the same memory, and plain values. Without tensors there is no torch.
A child imports this: no pydantic, which takes longer than all else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.bench import Case

if TYPE_CHECKING:
    import torch

#: Relative tolerance in units of a dtype's epsilon, by the bytes of an element: the last digit in
#: eight bits, a few in sixteen, where sums are kept wider; beyond, another order of a sum.
_STEPS: Final = {1: 1, 2: 4}
_STEPS_BEYOND: Final = 64
#: Elements from which a tensor's usual magnitude is taken.
_SAMPLE: Final = 2**18
#: Words before a difference, by the set of inputs.
_SETS: Final = ("", "with other inputs, ")
_NONE: Final = ("nothing", "")
#: What is said of a result that a call did not write.
_IDLE: Final = "is an input as it was"
_STALE: Final = "lies in the same memory with the same values for other inputs; draw them by random"
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_SAYS_NOTHING: Final = frozenset(
    {"None", "False", "0", "0.0", "-0.0", "0j", "nan", "inf", "-inf", "''", "b''"}
)


class ResultFinding(enum.StrEnum):
    """What comparing the results of the two sides came to."""

    SAME = "same bits"
    WITHIN = "within tolerance"
    DIFFERENT = "different"
    #: The base's results cannot tell any other from them: all are 0, NaN, None or empty; or a
    #: result is what was there before.
    VACUOUS = "says nothing"
    #: The sides got other inputs, or one of them overwrites its own.
    UNLIKE = "other work"


class UncomparableError(Exception):
    """A result holds what cannot be compared; says what and the next step."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One tensor or plain value of a result: where it stands, its type, and the value.

    A tensor's `value` says that the call did not write it; `tensor` is a copy of `memory`.
    """

    where: str
    kind: str
    value: str = ""
    tensor: torch.Tensor | None = None
    memory: torch.Tensor | None = None

    @property
    def address(self) -> int:
        """Where the memory of a tensor begins; 0: it has none of its own."""
        return 0 if self.memory is None else self.memory.untyped_storage().data_ptr()

    @property
    def tells(self) -> bool:
        """Say whether it holds anything that a result of zeros does not."""
        if self.tensor is None:
            return self.value not in _SAYS_NOTHING
        return not self.value and any(
            bool((wide.isfinite() & (wide != 0)).any()) for wide in _wide(self.tensor)
        )


Leaves = list[Leaf]


def compute(case: Case, seed: Callable[[int], None]) -> tuple[list[Leaves], str]:
    """Return the results of two sets of inputs, and how the first differs when it is run again.

    The last of the list says what the first set was, and which of it `run` overwrote.
    """

    def prepared(number: int) -> tuple[object, ...]:
        seed(number)
        with _filled():
            return case.inputs()

    def call(number: int, inputs: tuple[object, ...]) -> Leaves:
        seed(number)
        result = case.run(*inputs)
        return [] if case.not_compared else [*_leaves(result, "result")]

    drawn, inputs = _described(prepared(0)), prepared(0)
    before, first, after = _described(inputs), call(0, inputs), _described(inputs)
    work, idle = [], {0}
    for one, old, new in zip(drawn, before, after, strict=False):
        written = "" if old.value == new.value else ", overwritten by run"
        value = old.value if one.value == old.value else "another in each call"
        work.append(Leaf(old.where, old.kind + written, value))
        idle |= set() if written else {old.address}
    if case.not_compared:
        return [work], ""
    _, unlike = _compare(first, call(0, inputs), case)
    del inputs, before, after  # memory may suffice for one set only
    other = call(1, prepared(1))
    for place, (one, two) in enumerate(zip(first, other, strict=False)):
        lasts = one.address and one.address == two.address and _compare([one], [two], case)[0]
        said = _IDLE if one.address in idle - {0} else _STALE if lasts else one.value
        first[place] = dataclasses.replace(one, value=said)
    return [first, other, work], unlike


@contextlib.contextmanager
def _filled() -> Iterator[None]:
    """Have torch fill what it allocates and nobody writes: the same on both sides."""
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode(1)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def _described(inputs: tuple[object, ...]) -> Leaves:
    """Say what inputs are: types and shapes, plain values and digests of tensors."""
    leaves = list(_leaves(inputs, "inputs", opaque=True))
    for place, leaf in enumerate(leaves):
        if leaf.tensor is not None:
            from contribbot.numerics.tensors import digest  # noqa: PLC0415  imports torch

            kind, value = f"{leaf.kind} {[*leaf.tensor.shape]}", f"values {digest(leaf.tensor)}"
            leaves[place] = Leaf(leaf.where, kind, value, memory=leaf.memory)
    return leaves


def _leaves(result: object, where: str, *, opaque: bool = False) -> Iterator[Leaf]:
    """Take a result apart, or inputs, of which some are `opaque`."""
    parts: list[tuple[str, object]] | None = None
    tensor = _tensor(result)
    if tensor is not None and tensor.is_nested:
        parts = [(f"[{number}]", part) for number, part in enumerate(tensor.unbind())]
    elif isinstance(result, list | tuple):
        parts = [(f"[{number}]", part) for number, part in enumerate(result)]
    elif isinstance(result, dict):
        named = [(f"[{key!r}]", part) for key, part in result.items()]
        parts = sorted(named, key=lambda pair: pair[0])
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        names = [field.name for field in dataclasses.fields(result)]
        parts = [(f".{name}", getattr(result, name)) for name in names]
    if parts is not None:
        for name, part in parts:
            yield from _leaves(part, f"{where}{name}", opaque=opaque)
    elif tensor is not None:
        device = "" if tensor.device.type == "cpu" else f" on {tensor.device.type}"
        plain = tensor.to_dense() if str(tensor.layout) != "torch.strided" else tensor
        plain = plain.dequantize() if plain.is_quantized else plain
        copied = plain.resolve_conj().resolve_neg().to("cpu", copy=True).contiguous()
        kind = f"{str(copied.dtype).removeprefix('torch.')}{device}"
        memory = plain if hasattr(result, "untyped_storage") else None
        yield Leaf(where, kind, tensor=copied, memory=memory)
    elif type(result) in _PLAIN:
        yield Leaf(where, type(result).__name__, repr(result))
    elif opaque:
        yield Leaf(where, type(result).__name__)
    else:
        raise UncomparableError(
            f"{where} is a {type(result).__name__}, which cannot be compared: return tensors and"
            " numbers, or say in `not_compared` why not"
        )


def _tensor(result: object) -> torch.Tensor | None:
    """Return a tensor or an array as a tensor, anything else as None."""
    if not hasattr(result, "__array__"):
        return None
    import torch  # noqa: PLC0415  takes a second; plain values need none

    try:
        tensor = torch.as_tensor(result).detach()
    except (TypeError, ValueError, RuntimeError):
        return None  # such as an array of objects
    return None if tensor.is_meta else tensor


def write(results: Sequence[Leaves], path: Path) -> None:
    """Write results into a file: a line of JSON, then the bytes of the tensors."""
    rows = [
        [(leaf.where, leaf.kind, leaf.value, None if leaf.tensor is None else [*leaf.tensor.shape])
         for leaf in leaves]
        for leaves in results
    ]  # fmt: skip
    with path.open("wb") as file:
        file.write(json.dumps(rows).encode() + b"\n")
        for tensor in (leaf.tensor for leaves in results for leaf in leaves):
            if tensor is not None:
                file.write(_bytes(tensor).numpy().data)


def read(path: Path) -> list[Leaves]:
    """Read results from a file; nothing in it is run."""
    results = []
    with path.open("rb") as file:
        for rows in json.loads(file.readline()):
            leaves = []
            for where, kind, value, shape in rows:
                tensor = None
                if shape is not None:
                    import torch  # noqa: PLC0415  see _tensor

                    tensor = torch.empty(shape, dtype=getattr(torch, kind.partition(" ")[0]))
                    file.readinto(_bytes(tensor).numpy().data)
                leaves.append(Leaf(where, kind, value, tensor))
            results.append(leaves)
    return results


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    import torch  # noqa: PLC0415  see _tensor

    return tensor.reshape(-1).view(torch.uint8)


def compare(
    ours: Sequence[Leaves], theirs: Sequence[Leaves], case: Case
) -> tuple[ResultFinding, str]:
    """Return what comparing the results of all sets of inputs comes to, and the difference."""
    if text := _other_work(ours[-1], theirs[-1]):
        return ResultFinding.UNLIKE, text
    finding = ResultFinding.SAME
    if case.not_compared:
        return finding, ""
    if not any(leaf.tells for leaf in ours[0]):
        unwritten = [leaf for leaf in ours[0] if leaf.tensor is not None and leaf.value]
        said = f"{unwritten[0].where} {unwritten[0].value}" if unwritten else ""
        return ResultFinding.VACUOUS, said
    for words, mine, others in zip(_SETS, ours, theirs, strict=False):
        same, text = _compare(mine, others, case)
        if text:
            return ResultFinding.DIFFERENT, words + text
        finding = finding if same else ResultFinding.WITHIN
    for our, their in zip(ours[0], theirs[0], strict=True):
        if their.tensor is not None and their.value and not our.value:
            return ResultFinding.VACUOUS, f"{their.where} on the patched tree {their.value}"
    return finding, ""


def _other_work(ours: Leaves, theirs: Leaves) -> str:
    """Say in which inputs two sides differ, or in what became of them."""
    base, patched = (
        {leaf.where: (leaf.kind, leaf.value) for leaf in side} for side in (ours, theirs)
    )
    for where in {**base, **patched}:
        for old, new in zip(base.get(where, _NONE), patched.get(where, _NONE), strict=True):
            if old != new:
                return f"{where}: {new[:60]} on the patched tree, {old[:60]} on the base"
    return ""


def _compare(ours: Leaves, theirs: Leaves, case: Case) -> tuple[bool, str]:
    """Return whether results are the same bit by bit, and the first difference beyond tolerance."""
    if [leaf.where for leaf in ours] != [leaf.where for leaf in theirs]:
        return False, f"{len(theirs)} values instead of {len(ours)}, or under other names"
    exact = True
    for our, their in zip(ours, theirs, strict=True):
        same, text = _compare_leaves(our, their, case)
        if text:
            return False, f"{our.where}: {text}"
        exact = exact and same
    return exact, ""


def _compare_leaves(our: Leaf, their: Leaf, case: Case) -> tuple[bool, str]:
    if our.kind != their.kind:
        return False, f"{their.kind} instead of {our.kind}"
    if our.tensor is not None and their.tensor is not None:
        if our.tensor.shape != their.tensor.shape:
            return False, f"shape {[*their.tensor.shape]} instead of {[*our.tensor.shape]}"
        return _compare_tensors(our, their, our.tensor, their.tensor, case)
    same = our.value == their.value
    if same or (our.kind in {"int", "float", "complex"} and _near(our, their, case)):
        return same, ""
    return False, f"{their.value[:60]} instead of {our.value[:60]}"


def _near(our: Leaf, their: Leaf, case: Case) -> bool:
    """Say whether two numbers lie within tolerance."""
    usual = 0.0 if our.kind == "int" else _STEPS_BEYOND * sys.float_info.epsilon
    rtol = usual if case.rtol is None else case.rtol
    left, right = (complex(leaf.value) for leaf in (our, their))
    allowed = (case.atol or 0.0) + rtol * abs(left)
    return allowed > 0 and abs(left - right) <= allowed and (their.tells or not our.tells)


def _compare_tensors(
    our: Leaf, their: Leaf, left: torch.Tensor, right: torch.Tensor, case: Case
) -> tuple[bool, str]:
    from contribbot.numerics.tensors import blocks, differing, index_of  # noqa: PLC0415  torch
    from contribbot.numerics.words import count, place_of  # noqa: PLC0415  with it

    shape = tuple(left.shape)
    if not any(bool(differing(left[block], right[block]).any()) for block in blocks(shape)):
        return True, ""
    if our.tells and not their.tells:
        return False, f"{count(left.numel())} elements, none of them finite and not 0"
    rtol, atol, scale = _rtol(left, case), case.atol or 0.0, _magnitude(left)
    wrong, place = 0, None
    for block, ours, theirs in zip(blocks(shape), _wide(left), _wide(right), strict=True):
        allowed = atol + rtol * ours.abs().clamp_min(scale)
        near = ((theirs - ours).abs() <= allowed) & ours.isfinite() & theirs.isfinite()
        bad = ~(near | (ours == theirs) | (ours.isnan() & theirs.isnan()))
        if not allowed.any():  # float64 does not hold every whole number
            bad |= differing(left[block], right[block]) & ~ours.isnan()
        if place is None and bool(bad.any()):
            place = index_of(bad, block)
        wrong += int(bad.sum())
    if place is None:
        return False, ""
    got, wanted = right[place].item(), left[place].item()
    return False, (
        f"{count(wrong)} of {count(left.numel())} elements differ, "
        f"first at {place_of(place)}: {got:.6g} instead of {wanted:.6g}"
    )


def _rtol(tensor: torch.Tensor, case: Case) -> float:
    """Return the relative tolerance: as stated, or by dtype; whole numbers are exact."""
    import torch  # noqa: PLC0415  see _tensor

    if case.rtol is not None:
        return case.rtol
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0
    epsilon = torch.finfo(tensor.dtype).eps
    rtol = _STEPS.get(tensor.dtype.itemsize, _STEPS_BEYOND) * epsilon
    return rtol if rtol < 1 else 0.0  # a dtype of powers of two


def _magnitude(tensor: torch.Tensor) -> float:
    """Return the median magnitude of what is finite and not 0, over a sample.

    A sum whose terms cancel errs by a part of them, however small it is. A median, since one
    huge value, such as a mask's, must not excuse the others.
    """
    flat = tensor.reshape(-1)
    values = next(_wide(flat[:: math.ceil(flat.numel() / _SAMPLE)])).abs()
    values = values[values.isfinite() & (values != 0)]
    return float(values.median()) if values.numel() else 0.0


def _wide(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Give a tensor in float64 or complex128, block by block."""
    from contribbot.numerics.tensors import blocks, widened  # noqa: PLC0415  imports torch

    return (widened(tensor[block]) for block in blocks(tuple(tensor.shape)))
