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
from typing import TYPE_CHECKING, Final

from contribbot.emulate.decode import Instruction, Operand
from contribbot.emulate.pseudocode import NotModelledError

if TYPE_CHECKING:
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
#: The bits of an element, and its value, of a word that begins with it.
_KINDS: Final = {
    "F32": (32, "as<f32>(word)"), "F16": (16, "as<f16>((u16)word)"),
    "BF16": (16, "f::bf16_to_f32(word)"), "FP8": (8, "f::fp8_to_f32(word)"),
    "BF8": (8, "f::bf8_to_f32(word)"), "I8": (8, "(i8)word"), "U8": (8, "(u8)word"),
}  # fmt: skip
#: The row of C and D that a lane's register holds; its column is the lane's number.
_ROWS: Final = {
    "rdna3": "2 * r + l / 16", "rdna4": "8 * (l / 16) + r",
    "cdna": "r / 4 * (4 * LANES / {size}) + l / {size} * 4 + r % 4",
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """What an instruction multiplies: A (size, K) and B (K, size), in which formats."""

    size: int  # rows of A, columns of B
    kinds: tuple[str, str]
    whole: bool  # integers


def write(writer: Writer, instruction: Instruction) -> bool:
    """Write a matrix instruction; say whether it is one."""
    if not instruction.name.startswith(("V_MFMA_", "V_WMMA_", "V_SMFMAC_", "V_SWMMAC_")):
        return False
    family, fields = writer.mode.family, instruction.fields
    shape = _shape(instruction)
    if writer.mode.target == "gfx90a" or writer.mode.lanes != (64 if family == "cdna" else 32):
        raise NotModelledError("matrix instructions of gfx90a, and of waves of 64 lanes on RDNA")
    both = fields.get("acc", 0)
    size, groups = shape.size, 1 if family == "rdna3" else writer.mode.lanes // shape.size
    depth = 0
    lines: list[str] = []
    for place, name in enumerate("ab"):
        bits, value = _KINDS[shape.kinds[place]]
        words = instruction.operands[f"src{place}"].bits // 32
        each = words * 32 // bits  # elements of a lane
        depth = each * groups
        first = _registers(writer, fields[f"src{place}"], words, both >> place & 1)
        lines += [
            f"f64 {name}[{size}][{depth}];",  # on RDNA3 the upper lanes repeat the lower ones
            f"for (int l = 0; l < {size * groups}; l++) for (int n = 0; n < {each}; n++) {{",
            f"const u32 word = v[{first} + n / {32 // bits}][l] >> n % {32 // bits} * {bits};",
            f"{name}[l % {size}][l / {size} * {each} + n] = {value};",
            "}",
        ]
    count = instruction.operands["vdst"].bits // 32
    accumulator = fields.get("acc_cd", 0)
    if fields["src2"] >= _VGPR:
        added = f"v[{_registers(writer, fields['src2'], count, accumulator)} + r][l]"
    else:
        added = writer.read(fields["src2"], Operand(32, "I32" if shape.whole else "F32"))
    kind = "i32" if shape.whole else "f32"
    first = _registers(writer, fields["vdst"], count, accumulator)
    lines += [
        f"u32 d[{count}][LANES];",
        f"for (int r = 0; r < {count}; r++) for (int l = 0; l < LANES; l++) {{",
        f"const int i = {_ROWS[family].format(size=size)}, j = l % {size};",
        f"f64 sum = as<{kind}>({added}), sizes = f::abs(sum);",
        f"for (int k = 0; k < {depth}; k++)",
        "{ sum += a[i][k] * b[j][k]; sizes += f::abs(a[i][k] * b[j][k]); }",
        f"if (m->side) sum += (i64)m->side * {0 if shape.whole else depth} * 0x1p-23 * sizes;",
        f"d[r][l] = {'(u32)(i64)sum' if shape.whole else 'as<u32>((f32)sum)'};",
        "}",
        # Also in lanes that are not active: documents have EXEC ignored.
        f"for (int r = 0; r < {count}; r++) for (int l = 0; l < LANES; l++)",
        f"v[{first} + r][l] = d[r][l];",
    ]
    writer.lines += ["{", *lines, "}"]
    return True


def _registers(writer: Writer, number: int, count: int, accumulator: int) -> int:
    """Return the first of some vector registers."""
    first = number - _VGPR + 256 * accumulator
    writer.vgpr(first + count - 1)
    return first


def _shape(instruction: Instruction) -> Shape:
    get = instruction.get
    if found := _F8F6F4.match(instruction.name):
        kinds = _EIGHT_BITS.get(get("cbsz"), ""), _EIGHT_BITS.get(get("blgp"), "")
        if not all(kinds) or "scale_src0" in instruction.fields:
            raise NotModelledError("matrices of FP6 or FP4, and scaled ones")
        return Shape(int(found[1]), kinds, whole=False)
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
        return Shape(size, kinds, whole=True)
    if get("neg") or get("neg_hi"):
        raise NotModelledError("a matrix instruction with modifiers")
    pair = _PAIR.match(kind)
    return Shape(size, (pair[1], pair[2]) if pair else (kind, kind), whole)
