"""What a bench file of a patch is written with: `from contribbot import bench`.

A bench file is `checks/bench_NAME.py`. It defines one function:

```python
from collections.abc import Iterator

import torch
from contribbot import bench


def cases() -> Iterator[bench.Case]:
    for rows in (64, 4096):
        def prepare(rows: int = rows) -> tuple[torch.Tensor]:
            return (torch.randn(rows, 1024, device=bench.device()),)

        yield bench.Case(
            name=f"float32 {rows}x1024",
            prepare=prepare,
            run=lambda x: torch.softmax(x, dim=-1),
            bytes_moved=2 * rows * 1024 * 4,  # reads x, writes the result
        )
```

The same file is imported in two processes, one on the base tree and one on the
patched tree, with the environment of a check (docs/bench.md). Each of them yields the
same names. For each name the results of the two sides are compared; then they are measured
in turns, base, patched, patched, base, …, while the other one idles, by several pairs of
processes.

Rules for an author:

- `cases()` is cheap: it describes. Tensors are made in `prepare`.
- `run` does the work that is claimed and nothing else, and returns all that it computes, also
  what it writes into a buffer among its inputs: tensors, arrays, numbers, strings, in tuples,
  lists, dicts and dataclasses. It is called many times on the same inputs: it must not change
  them.
- `prepare` makes the same inputs on both trees, without the tree: their types, shapes and values
  are compared, and which of them `run` overwrites.
- Its results are compared before it is timed, for two sets of inputs: same types, shapes and
  devices, numbers within the tolerance of `Case`. If the patch is meant to change them,
  `rtol` and `atol` say how far; if nothing can be compared, `not_compared` says why.
- Random numbers: the generators of `random`, numpy and torch are seeded before each
  `prepare`, and before each `run` whose results are compared, on both sides alike. Each pair of
  processes has another seed.
- Nothing of the upstream's that differs between the trees may decide which cases there
  are: a claim needs both sides.
- Beware late binding of loop variables in `lambda`s and inner functions (above: `rows=rows`).
- What the file prints goes to the log. It may print what it likes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

#: Where a case computes. A HIP device is `cuda` too, as torch calls it.
Device: TypeAlias = Literal["cpu", "cuda"]
#: Element types whose matrix multiplication can be measured as a ceiling.
MatmulDtype: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]

#: Set by the stage in both processes: the device that the entry's `requires` asks for.
DEVICE_VARIABLE: Final = "CONTRIBBOT_BENCH_DEVICE"


def device() -> Device:
    """Return the device that this bench is about: `cpu` or `cuda`.

    It follows from the entry's `requires` in `patch.toml`, so that one file can serve an
    entry for the processor and another for a GPU (a gfx target is `cuda` for torch).
    Outside a bench it is `cpu`.
    """
    return "cuda" if os.environ.get(DEVICE_VARIABLE) == "cuda" else "cpu"


def byte_count(*tensors: object) -> int:
    """Return the bytes that the elements of some tensors take; for `bytes_moved`.

    Args:
        tensors: Tensors, or lists and tuples of them; anything else counts nothing.
    """
    total = 0
    for tensor in tensors:
        if isinstance(tensor, list | tuple):
            total += byte_count(*tensor)
        else:
            elements, size = (getattr(tensor, name, None) for name in ("numel", "element_size"))
            if callable(elements) and callable(size):
                total += elements() * size()
    return total


@dataclass(frozen=True)
class Case:
    """One thing whose time is compared between base and patched tree.

    Attributes:
        name: What people call it, and what `cases` in `patch.toml` is searched in; the same
            on both sides, unique in the file.
        prepare: Makes one set of inputs: a tuple, the arguments of `run`; the same on both
            sides. Called once a side; on a GPU once more for each further set, where a set is
            smaller than the last-level cache, so that a call does not find the inputs of the
            call before it.
        run: What is timed. Gets the inputs, returns its results. Must not change the inputs.
        bytes_moved: Bytes that the work must at least read and write, or None. Shown as
            bytes a second and as a share of the copy speed that was measured on the spot.
        flops: Arithmetic operations of the work (a multiply-add counts two), or None. Shown
            as operations a second.
        matmul: The element type whose measured matrix multiplication is the ceiling for
            `flops`, or None: no ceiling is shown.
        rtol: How far a result may lie from the base's: `abs(patched - base) <= atol + rtol *
            max(abs(base), m)`, m being the median magnitude in that tensor; at least 0 and
            below 1. None: by dtype, in units of its epsilon: 64 for float32 and float64, 4 in
            16 bits, 1 in 8 bits, 0 for whole numbers. NaN equals NaN, infinity itself.
        atol: See `rtol`; None: 0.
        not_compared: Why results are not compared, in one line that the record and the outcome
            show; empty: they are.
        device: Where `run` computes; by default what the entry asks for. On `cuda` it is
            measured with events on the device, on `cpu` with a clock.
        control: Whether it is a yardstick without code of the tree, such as a copy: it is
            measured and shown, and the claim is not about it.
        graph: Whether calls are captured once in a CUDA (HIP) graph and its replay is timed, as
            servers decode, so that what the host takes for launches does not count. `run` must
            not wait for the GPU. Without meaning on `cpu`.
    """

    name: str
    prepare: Callable[[], tuple[object, ...]]
    run: Callable[..., object]
    bytes_moved: int | None = None
    flops: int | None = None
    matmul: MatmulDtype | None = None
    rtol: float | None = None
    atol: float | None = None
    not_compared: str = ""
    device: Device = field(default_factory=device)
    control: bool = False
    graph: bool = False

    def inputs(self) -> tuple[object, ...]:
        """Make one set of inputs.

        Raises:
            TypeError: It is no tuple: the rows of a lone tensor would pass for arguments.
        """
        inputs = self.prepare()
        if not isinstance(inputs, tuple):
            raise TypeError(f"prepare() gave a {type(inputs).__name__}, not a tuple")
        return inputs


__all__ = ["Case", "Device", "MatmulDtype", "byte_count", "device"]
