"""MFMA and WMMA: matrix products over the registers of a whole wave.

Documents fix which lane holds which element and leave open in which order the products are added
and how each sum is rounded. The result here is the sum rounded once. With `bounds`, a launch also
takes both ends of what any order of float32 additions can give (Higham, Accuracy and Stability of
Numerical Algorithms, section 4.2).

Which of the K products a register takes part in does not matter: A and B agree on it.
"""

from __future__ import annotations

import re
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


def write(writer: Writer, instruction: Instruction) -> bool:
    """Write a matrix instruction; say whether it is one."""
    if not instruction.name.startswith(("V_MFMA_", "V_WMMA_", "V_SMFMAC_", "V_SWMMAC_")):
        return False
    size, formats, whole = _shape(instruction)
    family, fields = writer.mode.family, instruction.fields
    lanes = 64 if family == "cdna" else 32
    if writer.mode.target == "gfx90a" or writer.mode.lanes != lanes:
        raise NotModelledError("matrix instructions of gfx90a, and of waves of 64 lanes on RDNA")
    both = fields.get("acc", 0)
    accumulators = {
        "src0": both & 1, "src1": both >> 1, "src2": fields.get("acc_cd", 0),
        "vdst": fields.get("acc_cd", 0),
    }  # fmt: skip
    registers, counts, constant = {}, {}, "0"
    for name, accumulator in accumulators.items():
        counts[name] = instruction.operands[name].bits // 32
        first = fields[name] - _VGPR
        if name == "src2" and first < 0:
            constant = writer.read(fields[name], Operand(32, "I32" if whole else "F32"))
            registers[name] = "nullptr"
            continue
        registers[name] = f"&{writer.vector(first + 256 * accumulator)}"
        writer.vgpr(first + 256 * accumulator + counts[name] - 1)
    types = f"{', '.join(formats)}, {str(whole).lower()}, {size}"
    shape = f"{types}, {counts['src0']}, {counts['vdst']}"
    writer.lines.append(
        f"multiply<{shape}>(m->side, {registers['vdst']}, {registers['src0']}, "
        f"{registers['src1']}, {registers['src2']}, {constant});"
    )
    return True


def _shape(instruction: Instruction) -> tuple[int, tuple[str, str], bool]:
    """Return the rows of A, the formats of A and B, and whether the numbers are whole."""
    get = instruction.get
    if found := _F8F6F4.match(instruction.name):
        kinds = _EIGHT_BITS.get(get("cbsz"), ""), _EIGHT_BITS.get(get("blgp"), "")
        if not all(kinds) or "scale_src0" in instruction.fields:
            raise NotModelledError("matrices of FP6 or FP4, and scaled ones")
        return int(found[1]), kinds, False
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
        return size, ("I8" if signed[0] else "U8", "I8" if signed[1] else "U8"), True
    if get("neg") or get("neg_hi"):
        raise NotModelledError("a matrix instruction with modifiers")
    pair = _PAIR.match(kind)
    return size, (pair[1], pair[2]) if pair else (kind, kind), whole
