"""Time of group quantisation on CUDA, from one token to 16,384, for widths of linear layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from group_quant import fp8, int8, packed

from contribbot import bench

#: Bytes of a scale.
_SCALE = 4


@dataclass(frozen=True)
class _Input:
    rows: int
    columns: int
    dtype: torch.dtype = torch.bfloat16

    def prepare(self) -> tuple[torch.Tensor]:
        x = torch.randn(self.rows, self.columns, device=bench.device())
        return (x.to(self.dtype),)

    def case(self, kind: str, run: Callable[..., object], group: int = 128) -> bench.Case:
        elements = self.rows * self.columns
        dtype = str(self.dtype).removeprefix("torch.")
        return bench.Case(
            name=f"{kind} {dtype} {self.rows}x{self.columns} group {group}",
            prepare=self.prepare,
            run=run,
            bytes_moved=elements * (self.dtype.itemsize + 1) + elements // group * _SCALE,
        )


def cases() -> Iterator[bench.Case]:
    """Yield the cases; 8192x7168 in bfloat16 is where #42758 was slower."""
    for rows in (1, 64, 512, 2048, 8192, 16384):
        yield _Input(rows, 7168).case("fp8", fp8)
    for rows, columns in ((8192, 2048), (4096, 18432), (1000, 5376)):
        yield _Input(rows, columns).case("fp8", fp8)
    for dtype in (torch.float16, torch.float32):
        yield _Input(8192, 7168, dtype).case("fp8", fp8)
    large = _Input(8192, 7168)
    yield large.case("fp8", partial(fp8, group_size=64), 64)
    yield large.case("fp8 ue8m0", partial(fp8, ue8m0=True))
    yield large.case("fp8 column-major", partial(fp8, column_major=True))
    yield large.case("int8", int8)
    yield large.case("packed", packed)
