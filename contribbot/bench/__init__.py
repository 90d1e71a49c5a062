"""The library for bench files of a patch: `from contribbot import bench`.

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

The same file is imported in two processes, one on the base tree and one on the patched tree,
with the environment of a check (docs/bench.md). Several pairs of processes measure in turns.

Rules for an author:

- `cases()` only describes, and is cheap. `prepare` makes tensors, and does not use the tree.
- `run` does the claimed work and nothing else. `run` is called many times on the same inputs
  and must not change the inputs. A check tests the results; return the results all the same, as
  for a claimed gain the results of both trees are compared.
- Before `prepare`, `random`, numpy and torch get the same seed on both trees.
- The list of cases must not depend on upstream code that differs between the trees.
- Beware late binding of loop variables in `lambda`s and inner functions (above: `rows=rows`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

#: The variable that tells both processes the device of the bench: `cpu` or `cuda`.
DEVICE_VARIABLE: Final = "CONTRIBBOT_BENCH_DEVICE"


def device() -> Literal["cpu", "cuda"]:
    """Return the device on which this bench measures: `cpu` or `cuda`.

    `requires` of the `[[bench]]` entry in `patch.toml` decides, so that one file can serve an
    entry for the CPU and another for a GPU (a gfx target is `cuda` for torch).
    Outside a bench, the device is `cpu`.
    """
    return "cuda" if os.environ.get(DEVICE_VARIABLE) == "cuda" else "cpu"


@dataclass(frozen=True)
class Case:
    """A piece of work whose time is compared between the base and the patched tree.

    Attributes:
        name: A name, unique in the file, that `cases` in `patch.toml` can match.
        prepare: Returns one set of inputs, a tuple: the arguments of `run`. On a GPU, called again
            for up to 8 sets, used in turns, so that the last-level cache cannot hold all sets.
        run: The timed work: takes one set of inputs as its arguments, and returns the results.
        bytes_moved: The least number of bytes that a call reads and writes, shown per second.
        flops: Floating-point operations of a call (a multiply-add counts two), shown per second.
        not_compared: Ignored; the last release of contribbot had this argument.
        graph: Whether to time a CUDA (HIP) graph of a call, so that launches do not count. `run`
            must not wait for the GPU. Ignored on `cpu`.
    """

    name: str
    prepare: Callable[[], tuple[object, ...]]
    run: Callable[..., object]
    bytes_moved: int | None = None
    flops: int | None = None
    not_compared: str = ""
    graph: bool = False

    def inputs(self) -> tuple[object, ...]:
        """Return one set of inputs from `prepare`.

        Raises:
            TypeError: `prepare` returned something other than a tuple.
        """
        inputs = self.prepare()
        if not isinstance(inputs, tuple):
            raise TypeError(f"prepare() gave a {type(inputs).__name__}, not a tuple")
        return inputs


__all__ = ["Case", "device"]
