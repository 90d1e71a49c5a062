"""MFMA and WMMA: matrix products over the registers of a whole wave.

Documents fix which lane holds which element and leave open in which order the products are added
and how each sum is rounded. The result here is the sum rounded once. With `bounds`, a launch also
takes both ends of what any order of float32 additions can give (Higham, Accuracy and Stability of
Numerical Algorithms, section 4.2).

Which of the K products a register takes part in does not matter: A and B agree on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from contribbot.emulate.arithmetic import F32, F64, U8, U32, Array, bf16_to_f32
from contribbot.emulate.decode import Instruction, Operand
from contribbot.emulate.pseudocode import NotModelledError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contribbot.emulate.translate import Writer

_VGPR: Final = 256
_MFMA: Final = re.compile(
    r"V_MFMA_([FI]32)_(16|32)X\2X\d+_(F32|F16|BF16|I8|(?:FP8|BF8)_(?:FP8|BF8))$"
)
_F8F6F4: Final = re.compile(r"V_MFMA_F32_(16|32)X\1X\d+_F8F6F4$")
_WMMA: Final = re.compile(r"V_WMMA_(F32|I32)_16X16X16_(F16|BF16|IU8|(?:FP8|BF8)_(?:FP8|BF8))$")
_PAIR: Final = re.compile(r"(FP8|BF8)_(FP8|BF8)$")
#: The formats of V_MFMA_*_F8F6F4, by the fields CBSZ and BLGP.
_EIGHT_BITS: Final = {0: "FP8", 1: "BF8"}


class Decoder(Protocol):
    """A format of 8 bits."""

    def decode(self, codes: U8) -> F32:
        """Return the float32 of each code."""


@dataclass(frozen=True)
class Shape:
    """What an instruction multiplies: A (size, K) and B (K, size), in which formats."""

    family: str
    size: int  # rows of A, columns of B
    kinds: tuple[str, str]
    whole: bool  # integers

    def place(self, lanes: int, registers: int) -> tuple[Array, Array]:
        """Return the row and the column of C and D of each register in each lane."""
        lane, register = np.arange(lanes)[None, :], np.arange(registers)[:, None]
        column = np.broadcast_to(lane % self.size, (registers, lanes))
        if self.family == "rdna3":
            return 2 * register + lane // 16, column
        if self.family == "rdna4":
            return 8 * (lane // 16) + register, column
        groups = lanes // self.size
        return register // 4 * (4 * groups) + lane // self.size * 4 + register % 4, column


def write(writer: Writer, instruction: Instruction) -> bool:
    """Write a matrix instruction; say whether it is one."""
    if not instruction.name.startswith(("V_MFMA_", "V_WMMA_", "V_SMFMAC_", "V_SWMMAC_")):
        return False
    shape = _shape(instruction, writer.mode.family)
    if writer.mode.target == "gfx90a" or writer.mode.lanes != _lanes(writer.mode.family):
        raise NotModelledError("matrix instructions of gfx90a, and of waves of 64 lanes on RDNA")
    fields = instruction.fields
    both = fields.get("acc", 0)
    accumulators = (both & 1, both >> 1, fields.get("acc_cd", 0))
    sources = []
    for place, accumulator in enumerate(accumulators):
        number = fields[f"src{place}"]
        count = instruction.operands[f"src{place}"].bits // 32
        if place == 2 and number < _VGPR:
            value = writer.read(number, Operand(32, "I32" if shape.whole else "F32"))
            sources.append(f"[{writer.constant(value.number or 0, 'u32')}] * {count}")
            continue
        first = number - _VGPR + 256 * accumulator
        sources.append(f"[{', '.join(writer.vgpr(first + i) for i in range(count))}]")
    name = f"shape_{instruction.offset}"
    writer.namespace[name] = shape
    result = writer.name(f"m.matrix(f.multiply, {name}, {', '.join(sources)})")
    # Also in lanes that are not active: documents have EXEC ignored.
    first = fields["vdst"] - _VGPR + 256 * accumulators[2]
    for place in range(instruction.operands["vdst"].bits // 32):
        writer.vgpr(first + place)
        writer.lines.append(f"v[{first + place}] = {result}[{place}]")
        writer.written.add(("v", first + place))
    return True


def _lanes(family: str) -> int:
    return 64 if family == "cdna" else 32


def _shape(instruction: Instruction, family: str) -> Shape:
    get = instruction.get
    if found := _F8F6F4.match(instruction.name):
        kinds = _EIGHT_BITS.get(get("cbsz"), ""), _EIGHT_BITS.get(get("blgp"), "")
        if not all(kinds) or "scale_src0" in instruction.fields:
            raise NotModelledError("matrices of FP6 or FP4, and scaled ones")
        return Shape(family, int(found[1]), kinds, whole=False)
    if found := _MFMA.match(instruction.name):
        if get("cbsz") or get("abid") or get("blgp"):
            raise NotModelledError("a matrix instruction that repeats or permutes blocks")
        size, kind, whole = int(found[2]), found[3], found[1] == "I32"
    elif found := _WMMA.match(instruction.name):
        if get("neg") & 4 or get("neg_hi") & 4 or get("clmp"):
            raise NotModelledError("a matrix instruction with modifiers")
        size, kind, whole = 16, found[2], found[1] == "I32"
    else:
        raise NotModelledError("this matrix instruction")
    if kind == "IU8":
        signed = [get("neg") >> place & 1 for place in range(2)]
        kinds = "I8" if signed[0] else "U8", "I8" if signed[1] else "U8"
        return Shape(family, size, kinds, whole=True)
    if get("neg") or get("neg_hi"):
        raise NotModelledError("a matrix instruction with modifiers")
    pair = _PAIR.match(kind)
    return Shape(family, size, (pair[1], pair[2]) if pair else (kind, kind), whole)


@dataclass(frozen=True)
class Multiplier:
    """Matrix products in a target's formats, at one end of their bound or between them."""

    fp8: Decoder
    bf8: Decoder
    side: int

    def __call__(
        self, shape: Shape, a: Sequence[U32], b: Sequence[U32], c: Sequence[U32]
    ) -> list[U32]:
        """Return A B + C; registers have the shape (waves, lanes)."""
        left = self._matrix(shape, a, shape.kinds[0])
        right = self._matrix(shape, b, shape.kinds[1]).swapaxes(1, 2)
        rows, columns = shape.place(c[0].shape[1], len(c))
        stacked = np.stack(c, axis=1)
        if shape.whole:
            added = stacked.view(np.int32) + np.matmul(left, right)[:, rows, columns]
            raw = added.astype(np.int64).astype(np.uint32)
            return [raw[:, place] for place in range(len(c))]
        before = stacked.view(np.float32).astype(np.float64)
        total = before + np.matmul(left, right)[:, rows, columns]
        if self.side:
            sizes = np.abs(before) + np.matmul(np.abs(left), np.abs(right))[:, rows, columns]
            total = total + self.side * left.shape[2] * 2.0**-23 * sizes
        result = total.astype(np.float32).view(np.uint32)
        return [result[:, place] for place in range(len(c))]

    def _matrix(self, shape: Shape, registers: Sequence[U32], kind: str) -> F64:
        """Return the rows of A, or the columns of B: (waves, size, K)."""
        words = np.ascontiguousarray(np.stack(registers, axis=2))
        waves, lanes, _ = words.shape
        if kind in {"FP8", "BF8"}:
            codes = words.view(np.uint8)
            values: Array = (self.fp8 if kind == "FP8" else self.bf8).decode(codes)
        elif kind == "BF16":
            values = bf16_to_f32(words.view(np.uint16))
        else:
            types = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "U8": np.uint8}
            values = words.view(types[kind])
        wide = values.astype(np.float64)
        if shape.family == "rdna3":  # the upper lanes repeat the lower ones
            return wide[:, : shape.size]
        groups = lanes // shape.size
        grouped = wide.reshape(waves, groups, shape.size, -1).swapaxes(1, 2)
        return grouped.reshape(waves, shape.size, -1)
