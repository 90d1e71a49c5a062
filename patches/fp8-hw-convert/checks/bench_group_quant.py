"""Time of group quantisation over the shapes of linear layers, from one token to 16,384."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from group_quant import fp8, int8, packed

from contribbot import bench

Run = Callable[..., object]

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
#: Bytes of a scale.
_SCALE = 4


@dataclass(frozen=True)
class _Shape:
    rows: int
    columns: int
    group: int = 128
    dtype: torch.dtype = BF16

    def prepare(self) -> tuple[torch.Tensor]:
        x = torch.randn(self.rows, self.columns, device=bench.device())
        return (x.to(self.dtype),)

    def case(self, kind: str, run: Run) -> bench.Case:
        elements = self.rows * self.columns
        dtype = str(self.dtype).removeprefix("torch.")
        return bench.Case(
            name=f"{kind} {dtype} {self.rows}x{self.columns} group {self.group}",
            prepare=self.prepare,
            run=run,
            bytes_moved=elements * (self.dtype.itemsize + 1) + elements // self.group * _SCALE,
        )


def cases() -> Iterator[bench.Case]:
    """Yield the cases; 8192x7168 in bfloat16 is the one that the patch is about."""
    tokens = [_Shape(rows, 7168) for rows in (1, 64, 512, 2048, 8192, 16384)]
    widths = [_Shape(8192, 2048), _Shape(4096, 18432), _Shape(1000, 5376)]
    others = [_Shape(8192, 7168, 64), _Shape(8192, 7168, 256)]
    others += [_Shape(8192, 7168, 128, FP16), _Shape(8192, 7168, 128, FP32)]
    for shape in (*tokens, *widths, *others):
        yield shape.case("fp8", partial(fp8, group_size=shape.group))
    large = _Shape(8192, 7168)
    yield large.case("fp8 ue8m0", partial(fp8, group_size=128, ue8m0=True))
    yield large.case("fp8 column-major", partial(fp8, group_size=128, column_major=True))
    yield large.case("int8", partial(int8, group_size=128))
    for shape in (_Shape(64, 7168), large, _Shape(8192, 7168, 32)):
        yield shape.case("packed", partial(packed, group_size=shape.group))
