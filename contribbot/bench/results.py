"""The results of a case on two trees: copied, handed over by a file, compared.

A measuring child imports this module: no pydantic, and torch only where a result holds tensors.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from contribbot.bench import Case

if TYPE_CHECKING:
    import torch

#: A result without its own memory: tensors on the processor and plain numbers, in lists and dicts.
Result: TypeAlias = "torch.Tensor | bool | int | float | list[Result] | dict[str, Result] | None"
#: Inputs that a case is computed for.
_SETS = 2
_IDLE = "run returns its inputs as they were"
_EMPTY = "run returns nothing that can be compared (None, or only 0 and NaN)"


class UncomparableError(Exception):
    """A result holds an object that cannot be compared; names the object and the next step."""


def copied(value: object, where: str = "result") -> Result:
    """Return a copy of a result: the next call may write into the same memory."""
    if hasattr(value, "__array__"):
        import torch  # noqa: PLC0415  takes a second; plain numbers need none

        return torch.as_tensor(value).detach().to("cpu", copy=True)
    if isinstance(value, list | tuple):
        return [copied(part, f"{where}[{place}]") for place, part in enumerate(value)]
    if isinstance(value, dict):
        return {str(key): copied(part, f"{where}[{key!r}]") for key, part in value.items()}
    if value is None or isinstance(value, bool | int | float):
        return value
    raise UncomparableError(
        f"{where} is a {type(value).__name__}, which cannot be compared: return tensors and"
        " numbers, or say in `not_compared` why not"
    )


def compute(case: Case, seed: Callable[[int], None]) -> tuple[list[Result], str]:
    """Return the results of two sets of inputs, and why results of this kind prove no work."""
    results: list[Result] = []
    useless = ""

    def prepared(number: int) -> tuple[object, ...]:
        seed(number)
        torch = sys.modules.get("torch")
        try:
            if torch:  # memory that nobody writes is NaN, and not an earlier call's result
                torch.set_deterministic_debug_mode("warn")
            return case.inputs()
        finally:
            if torch:
                torch.set_deterministic_debug_mode("default")

    for number in range(_SETS):
        inputs = prepared(number)
        seed(number)
        result = case.run(*inputs)
        if case.not_compared:
            return [], ""
        results.append(copied(result))
        original = functools.cache(functools.partial(prepared, number))
        if not _tells(results[-1]):
            useless = _EMPTY
        elif _unchanged(result, inputs, original):
            useless = _IDLE
    return results, useless


def _memory(value: object) -> int | None:
    """Return where a tensor, list or dict lies; None for any other object."""
    if hasattr(value, "untyped_storage"):
        address: int = value.untyped_storage().data_ptr()
        return address
    return id(value) if isinstance(value, list | dict) else None


def _unchanged(
    result: object, inputs: tuple[object, ...], original: Callable[[], tuple[object, ...]]
) -> bool:
    """Say whether a result, with all its parts, is an input that the call has not changed."""
    memory = _memory(result)
    for place, each in enumerate(inputs):
        if memory is not None and memory == _memory(each):
            return not difference(copied(original()[place]), copied(result), rtol=0.0, atol=0.0)
    if not isinstance(result, list | tuple | dict) or not result:
        return False
    parts = result.values() if isinstance(result, dict) else result
    return all(_unchanged(part, inputs, original) for part in parts)


def _tells(value: Result) -> bool:
    """Say whether a result holds a number that is finite and not 0."""
    if isinstance(value, list | dict):
        return any(map(_tells, value.values() if isinstance(value, dict) else value))
    if value is None or isinstance(value, bool | int | float):
        return bool(value) and math.isfinite(value or 0)
    # torch has no `isfinite` of 8-bit floats.
    wide = value.float() if value.is_floating_point() and value.itemsize == 1 else value
    return bool((wide.isfinite() & (wide != 0)).any())


def difference(
    base: Result, patched: Result, *, rtol: float | None = None, atol: float | None = None
) -> str:
    """Say where the patched tree's result differs from the base's beyond tolerance, or nothing."""
    if "torch" not in sys.modules and base == patched:
        return ""
    import torch  # noqa: PLC0415  as above

    if rtol is not None or atol is not None:
        rtol, atol = rtol or 0.0, atol or 0.0
    try:
        torch.testing.assert_close(patched, base, rtol=rtol, atol=atol, equal_nan=True)
    except (AssertionError, RuntimeError) as error:
        return "; ".join(line for line in str(error).splitlines() if line)
    if _tells(base) and not _tells(patched):
        return "the patched tree's is nothing but 0 and NaN"
    return ""


def write(results: list[Result], useless: str, path: Path) -> None:
    """Write results into a file: torch's where torch is loaded, else JSON."""
    if "torch" in sys.modules:
        sys.modules["torch"].save([useless, results], path)
    else:
        path.write_text(json.dumps([useless, results]))


def read(path: Path) -> tuple[list[Result], str]:
    """Read results from a file, and why such results prove no work; nothing in the file is run."""
    if path.read_bytes()[:1] == b"[":
        useless, results = json.loads(path.read_bytes())
    else:
        import torch  # noqa: PLC0415  as above

        useless, results = torch.load(path, weights_only=True)
    return results, useless
