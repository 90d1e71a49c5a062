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

- `cases()` is cheap: it describes. Tensors are made in `prepare`, without the tree.
- `run` does the work that is claimed and nothing else. It is called many times on the same inputs
  and must not change them. That its results are right is for a check; return them all the same,
  for where a gain is claimed those of both trees are compared.
- The generators of `random`, numpy and torch are seeded alike on both trees before `prepare`.
- Nothing of the upstream's that differs between the trees may decide which cases there are.
- Beware late binding of loop variables in `lambda`s and inner functions (above: `rows=rows`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

#: Set by the stage in both processes: the device that the entry's `requires` asks for.
DEVICE_VARIABLE: Final = "CONTRIBBOT_BENCH_DEVICE"


def device() -> Literal["cpu", "cuda"]:
    """Return the device that this bench is about: `cpu` or `cuda`.

    It follows from the entry's `requires` in `patch.toml`, so that one file can serve an
    entry for the processor and another for a GPU (a gfx target is `cuda` for torch).
    Outside a bench it is `cpu`.
    """
    return "cuda" if os.environ.get(DEVICE_VARIABLE) == "cuda" else "cpu"


@dataclass(frozen=True)
class Case:
    """One thing whose time is compared between base and patched tree.

    Attributes:
        name: Shown, and searched for `cases` of `patch.toml`; unique in the file.
        prepare: Makes one set of inputs, a tuple: the arguments of `run`. On a GPU it is called
            again for further sets, which take turns, while all fit into the last-level cache.
        run: The work that is timed: gets the inputs, returns its results.
        bytes_moved: Bytes that the work must at least read and write, shown as bytes a second.
        flops: Operations of the work (a multiply-add counts two), shown as operations a second.
        not_compared: Ignored; files of the last release state it.
        graph: Whether a CUDA (HIP) graph of a call is timed, so that launches do not count. `run`
            must not wait for the GPU. Without meaning on `cpu`.
    """

    name: str
    prepare: Callable[[], tuple[object, ...]]
    run: Callable[..., object]
    bytes_moved: int | None = None
    flops: int | None = None
    not_compared: str = ""
    graph: bool = False

    def inputs(self) -> tuple[object, ...]:
        """Make one set of inputs.

        Raises:
            TypeError: `prepare` returned no tuple.
        """
        inputs = self.prepare()
        if not isinstance(inputs, tuple):
            raise TypeError(f"prepare() gave a {type(inputs).__name__}, not a tuple")
        return inputs


__all__ = ["Case", "device"]
