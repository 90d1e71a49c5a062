"""Time of group quantisation over sizes of groups, types and kernels.

The shapes of many rows are those of vLLM's benchmarks/kernels/benchmark_per_token_group_quant.py.
A call for few rows takes less than its launch: those are replayed from graphs, as vLLM decodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import torch
from group_quant import fp8, int8, packed

from contribbot import bench

ROWS, COLUMNS = 8192, 7168
#: Up to this many rows a case is a graph.
GRAPH_ROWS = 256


def _case(
    name: str,
    run: Callable[..., object],
    dtype: torch.dtype,
    group: int,
    rows: int,
    columns: int = COLUMNS,
) -> bench.Case:
    def prepare() -> tuple[torch.Tensor]:
        return (torch.randn(rows, columns, device=bench.device()).to(dtype),)

    kind = str(dtype).removeprefix("torch.")
    moved = rows * columns * (dtype.itemsize + 1) + rows * columns // group * 4
    full = f"{name} {kind} {rows}x{columns} group {group}"
    return bench.Case(full, prepare, run, bytes_moved=moved, graph=rows <= GRAPH_ROWS)


def cases() -> Iterator[bench.Case]:
    """Yield each kernel: registers (128), shared memory (the other groups, float32), packed."""
    for dtype, group in itertools.product(
        (torch.bfloat16, torch.float16, torch.float32), (32, 64, 128)
    ):
        for ue8m0 in (False, True):
            run = partial(fp8, group_size=group, ue8m0=ue8m0)
            yield _case("fp8" + " ue8m0" * ue8m0, run, dtype, group, ROWS)
    register = partial(fp8, group_size=128)
    for rows in (1, 16, 64, 256, 1024):
        yield _case("fp8", register, torch.bfloat16, 128, rows)
    for rows in (1024, ROWS):
        yield _case("fp8", register, torch.bfloat16, 128, rows, 6144)
    yield _case("int8", partial(int8, group_size=128), torch.bfloat16, 128, ROWS)
    for group, rows in ((32, ROWS), (128, ROWS), (128, 1), (128, 16), (128, 64), (128, 256)):
        yield _case("packed", partial(packed, group_size=group), torch.bfloat16, group, rows)
