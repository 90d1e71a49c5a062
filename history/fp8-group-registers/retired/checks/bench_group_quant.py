"""Time of group quantisation over the shapes of linear layers, from one token to 16,384.

A call for few tokens takes less than its launch: those are replayed from graphs, as vLLM decodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from group_quant import Layout, fp8, int8, packed

from contribbot import bench

Run = Callable[..., object]

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
#: The sizes of group that the patch is about, and those that packed scales can have.
GROUPS, PACKED_GROUPS = (32, 64, 128, 256), (32, 128)
#: How scales lie in memory, and what a case's name says of it.
_LAYOUTS: dict[Layout, str] = {"rows": "", "columns": " columns"}
#: Bytes of a scale, by itself and as one of four exponents in an int32.
_SCALE, _PACKED_SCALE = 4, 1
#: Up to this many rows a case is a graph.
_GRAPH_ROWS = 64


@dataclass(frozen=True)
class _Shape:
    rows: int
    columns: int
    group: int = 128
    dtype: torch.dtype = BF16

    def inputs(self) -> torch.Tensor:
        return torch.randn(self.rows, self.columns, device=bench.device()).to(self.dtype)

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{dtype} {self.rows}x{self.columns} group {self.group}"

    def moved(self, scale: int = _SCALE) -> int:
        elements = self.rows * self.columns
        return elements * (self.dtype.itemsize + 1) + elements // self.group * scale

    def copy(self) -> bench.Case:
        """Return a copy of as many bytes: what no kernel can beat by much."""
        half = self.moved() // 2

        def prepare() -> tuple[torch.Tensor]:
            return (torch.randint(256, (half,), dtype=torch.uint8, device=bench.device()),)

        name = f"copy of as many bytes as {self}"
        return bench.Case(name, prepare, torch.clone, self.moved(), control=True)

    def case(self, kind: str, run: Run, scale: int = _SCALE) -> bench.Case:
        return bench.Case(
            name=f"{kind} {self}",
            prepare=lambda: (self.inputs(),),
            run=run,
            bytes_moved=self.moved(scale),
            graph=self.rows <= _GRAPH_ROWS,
        )


def cases() -> Iterator[bench.Case]:
    """Yield the cases: each kind of call at 8192x7168, then other numbers of rows and columns."""
    for dtype, group in itertools.product((BF16, FP16, FP32), GROUPS):
        shape = _Shape(8192, 7168, group, dtype)
        for ue8m0, layout in itertools.product((False, True), _LAYOUTS):
            kind = "fp8" + " ue8m0" * ue8m0 + _LAYOUTS[layout]
            yield shape.case(kind, partial(fp8, group_size=group, ue8m0=ue8m0, layout=layout))
        yield shape.case("int8", partial(int8, group_size=group))
    for dtype, group in itertools.product((BF16, FP16), PACKED_GROUPS):
        shape = _Shape(8192, 7168, group, dtype)
        yield shape.case("packed", partial(packed, group_size=group), _PACKED_SCALE)
    for rows in (1, 64, 2048):
        for group in GROUPS:
            yield _Shape(rows, 7168, group).case("fp8", partial(fp8, group_size=group))
        shape = _Shape(rows, 7168)
        yield shape.case("fp8 aligned columns", partial(fp8, group_size=128, layout="aligned"))
        yield shape.case("packed", partial(packed, group_size=128), _PACKED_SCALE)
    for rows, columns in ((512, 7168), (16384, 7168), (4096, 18432)):
        yield _Shape(rows, columns).case("fp8", partial(fp8, group_size=128))
    # Rows of few groups, which do not fill a block.
    for columns in (128, 640, 1152):
        narrow = partial(fp8, group_size=128, layout="columns")
        yield _Shape(65536, columns).case("fp8 columns", narrow)
    for shape in (_Shape(8192, 7168, 64), _Shape(8192, 7168, 64, FP32), _Shape(2048, 7168, 64)):
        yield shape.copy()
    # Not a power of two: the shared-memory kernel.
    yield _Shape(8192, 6144, 192).case("fp8", partial(fp8, group_size=192))
