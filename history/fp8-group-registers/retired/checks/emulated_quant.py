"""vLLM's group quantisation kernels, executed as the host code of either tree launches them.

The kernels are machine code for an AMD GPU, and a processor executes it by AMD's description of
each instruction. The host code is followed here: which kernel, in how many blocks, with what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from group_quant import PACKED, Layout, packed_scales_for, scales_for
from rounding import E4M3FN, E4M3FNUZ, EPS, Quantized, Target

from contribbot import emulate

_NAME = "per_token_group_quant_8bit"
_CPP = {
    torch.float32: "float",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.int8: "signed char",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
    torch.float8_e4m3fnuz: "c10::Float8_e4m3fnuz",
}
#: Threads of a block of the register-resident kernels.
_BLOCK = 256
#: What stands where a kernel has not written.
_UNWRITTEN = 0x5A


def _blocks(size: int, block: int) -> int:
    """Return how many blocks a size takes; for nothing, one that must write nothing."""
    return max(1, -(-size // block))


@dataclass(frozen=True)
class _Launch:
    """A kernel and the shape of its launch."""

    kernel: str
    grid: int | tuple[int, int]
    block: int
    arguments: tuple[emulate.Argument, ...]  # those after the tensors
    shared: int = 0  # bytes


@dataclass(frozen=True)
class GroupQuant:
    """The kernels of a tree for a target.

    Attributes:
        kernels: By name.
        target: Such as `gfx942`.
    """

    kernels: Mapping[str, emulate.Kernel]
    target: str

    @property
    def fp8(self) -> Target:
        """The format that vLLM takes on this target."""
        return E4M3FNUZ if self.target.startswith("gfx94") else E4M3FN

    def unpacked(
        self,
        x: torch.Tensor,
        group: int,
        to: Target,
        *,
        ue8m0: bool = False,
        layout: Layout = "rows",
    ) -> Quantized:
        """Quantise with float32 scales.

        Args:
            x: (rows, columns) of 16 or 32 bits.
            group: Columns that share a scale.
            to: The 8-bit type.
            ue8m0: Whether scales are rounded up to powers of two.
            layout: Of the scales.
        """
        values = torch.full(x.shape, _UNWRITTEN, dtype=torch.uint8)
        scales = scales_for(x, group, layout).fill_(-1)
        self._run(self._unpacked(x, scales, group, to, ue8m0=ue8m0), x, values, scales)
        return Quantized(values.view(to.dtype), scales)

    def packed(self, x: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Quantise with four scales in a word.

        Returns:
            The bytes of the values, with zero rows up to a multiple of four, and the words.
        """
        scales = packed_scales_for(x, group).fill_(-1)
        values = torch.full((scales.stride(1), x.shape[1]), _UNWRITTEN, dtype=torch.uint8)
        self._run(self._packed(x, scales, group), x, values, scales)
        return values, scales

    def _run(self, launch: _Launch, *tensors: torch.Tensor) -> None:
        kernel, arguments = self.kernels[launch.kernel], [*tensors, *launch.arguments]
        emulate.launch(kernel, launch.grid, launch.block, arguments, shared=launch.shared)

    def _unpacked(
        self, x: torch.Tensor, scales: torch.Tensor, group: int, to: Target, *, ue8m0: bool
    ) -> _Launch:
        """Follow `per_token_group_quant_8bit`; on the base, registers hold 128 of 16 bits."""
        types, size = f"{_CPP[x.dtype]}, {_CPP[to.dtype]}", x.element_size()
        (rows, groups), stride = scales.shape, scales.stride(1)
        count, limits = rows * groups, (EPS, to.low, to.high)
        column_major = scales.stride(0) < stride
        layout = f"{column_major}, {ue8m0}".lower()
        if x.data_ptr() % 16 == 0:
            patched = f"{_NAME}_register_kernel<{types}, {group}>"
            if patched in self.kernels:
                each, tall = _BLOCK // (group * size // 32), 3
                while each >> (tall + 1) >= groups:
                    tall += 1
                while tall and 1 << (tall - 1) >= rows:
                    tall -= 1
                tiles = _blocks(rows, 1 << tall) * _blocks(groups, each >> tall)
                grid = tiles if column_major else _blocks(count, each)
                more = ue8m0, column_major, tall, groups, stride
                return _Launch(patched, grid, _BLOCK, (count, *limits, *more))
            base = f"{_NAME}_register_kernel<{types}, {layout}, {group}>"
            if base in self.kernels and size == 2:
                last = count, *limits, groups, stride
                return _Launch(base, _blocks(count, _BLOCK // 8), _BLOCK, last)
        even = (rows + rows % 2) * groups
        each = next(each for each in (16, 8, 4, 2, 1) if even % each == 0)
        bounds = str(count % each != 0).lower()
        return _Launch(
            f"{_NAME}_kernel<{types}, {layout}, float, {bounds}>", _blocks(count, each), 16 * each,
            (group, count, each, *limits, groups, stride), shared=each * group * size,
        )  # fmt: skip

    def _packed(self, x: torch.Tensor, scales: torch.Tensor, group: int) -> _Launch:
        """Follow `per_token_group_quant_8bit_packed`."""
        to, types = self.fp8, f"{_CPP[x.dtype]}, {_CPP[self.fp8.dtype]}, {group}"
        (rows, packs), aligned = scales.shape, scales.stride(1)
        words = rows + (packs - 1) * aligned
        more = x.shape[1] // group, rows, aligned, aligned, words, EPS, to.low, to.high
        patched = f"{_NAME}_packed_register_kernel<{types}>"
        if patched in self.kernels:
            grid = _blocks(aligned, _BLOCK // (group // 4)) * packs
            return _Launch(patched, grid, _BLOCK, (packs, *more))
        padded = packs * PACKED
        across = next(across for across in (16, 8, 4) if padded % across == 0)
        down = 16 // across
        base = f"{_NAME}_packed_register_kernel<{types}, {across}, {down}>"
        return _Launch(base, (_blocks(aligned, down), padded // across), group, (padded, *more))
