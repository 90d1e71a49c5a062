"""MFMA and WMMA: matrix products over the registers of a whole wave.

Documents fix which lane holds which element and leave open in which order the products are added
and how each sum is rounded. The result here is the sum, in float64, rounded once. With `bounds`, a
launch also takes both ends of what any order of additions in the format of D can give (Higham,
Accuracy and Stability of Numerical Algorithms, section 4.2).

Where only the lanes' order of the K products matters, A and B agree on it; with scales, or of two
formats, it is that of AMD's CDNA 4 instruction set: 32 products side by side in a lane, but those
of 8 bits in two runs of 16 (as ROCm/rocm-systems has it, emulation/rocjitsu, mma_layout.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from contribbot.emulate.decode import Instruction, Operand
from contribbot.emulate.pseudocode import NotModelledError
from contribbot.emulate.registers import VGPR, FloatMode, Registers

_EIGHT: Final = r"(?:FP8|BF8)_(?:FP8|BF8)"
_MFMA: Final = re.compile(
    rf"V_MFMA_(?:SCALE_)?(?P<d>[FI]32|F64)_(?P<size>\d+)X\d+X(?P<k>\d+)(_(?P<blocks>\d+)B)?"
    rf"_(?P<ab>X?F32|F64|B?F16|I8|F8F6F4|{_EIGHT})$"
)
_WMMA: Final = re.compile(
    rf"V_WMMA_(?P<d>F32|I32|B?F16)_(?P<size>16)X16X(?P<k>\d+)_(?P<ab>B?F16|IU[84]|{_EIGHT})$"
)
#: The formats of V_MFMA_*_F8F6F4, by the fields CBSZ and BLGP.
_FORMATS: Final = ("FP8", "BF8", "FP6", "BF6", "FP4")
#: The bits of an element; all others have those of their name.
_BITS: Final = {"FP8": 8, "BF8": 8, "FP6": 6, "BF6": 6, "FP4": 4}


@dataclass(frozen=True)
class _Shape:
    size: int  # the rows of A and the columns of B
    products: int  # those that make one sum
    blocks: int  # how many matrices it multiplies with as many others
    formats: tuple[str, str, str]  # of A, of B, and of C and D
    only: int = -1  # the one block of A that all of B take; -1: each has its own


def write(writer: Registers, instruction: Instruction) -> bool:
    """Write a matrix instruction; say whether it is one."""
    if not instruction.name.startswith(("V_MFMA_", "V_WMMA_", "V_SMFMAC_", "V_SWMMAC_")):
        return False
    mode, fields = writer.mode, instruction.fields
    lanes = 64 if mode.family == "cdna" else 32
    if mode.lanes != lanes:
        raise NotModelledError("matrix instructions of waves of 64 lanes on RDNA")
    shape = _shape(instruction, mode)
    bits = [_BITS.get(name) or int(re.sub(r"\D", "", name)) for name in shape.formats]
    rows = 16 if mode.family == "rdna3" else lanes  # gfx11 holds A and B twice
    inputs = [shape.size * shape.blocks * shape.products * width // (32 * rows) for width in bits]
    elements = shape.size * shape.size * shape.blocks // lanes
    packed = bits[2] == 16 and mode.family == "rdna4"
    outputs = elements // 2 if packed else elements * max(32, bits[2]) // 32
    both, result = fields.get("acc", 0), fields.get("acc_cd", 0)
    banks = {"src0": both & 1, "src1": both >> 1 & 1, "src2": result, "vdst": result}
    counts = {"src0": inputs[0], "src1": inputs[1], "src2": outputs, "vdst": outputs}
    registers, constant = {}, "0"
    for name, bank in banks.items():
        first = fields[name] - VGPR
        if name == "src2" and first < 0:
            kind = shape.formats[2].removeprefix("FLUSHED_")
            constant = writer.read(fields[name], Operand(bits[2], kind))
            registers[name] = "nullptr"
            continue
        registers[name] = f"&{writer.vector(first + 256 * bank)}"
        writer.vgpr(first + 256 * bank + counts[name] - 1)
    scales = _scales(writer, instruction)
    template = f"{', '.join(shape.formats)}, {shape.size}, {shape.products}, {shape.blocks}"
    inputs_of = [
        f"{{{registers[f'src{place}']}, {f'scale{place}' if scales else 'nullptr'}}}"
        for place in range(2)
    ]
    arguments = ", ".join([
        "m->side", registers["vdst"], *inputs_of, registers["src2"], constant, str(shape.only),
        str(instruction.get("opsel") >> 2),
    ])  # fmt: skip
    kept = [f"KEEP(scale{place}, {code})" for place, code in enumerate(scales)]
    writer.lines += ["{", *kept, f"multiply<{template}>({arguments});", "}"]
    return True


def _scales(writer: Registers, instruction: Instruction) -> list[str]:
    """Return a lane's exponents, of A's elements and of B's: one byte of a register each."""
    if "scale_src0" not in instruction.fields:
        return []
    if instruction.get("neg") or instruction.get("neg_hi"):
        raise NotModelledError("scales with modifiers")
    chosen = [
        (instruction.get("opsel") >> place & 1) | (instruction.get("opsel_hi") >> place & 1) << 1
        for place in range(2)
    ]
    words = [writer.read(instruction.fields[f"scale_src{i}"], Operand(32, "B32")) for i in range(2)]
    return [f"{word} >> {8 * byte} & 255" for word, byte in zip(words, chosen, strict=True)]


def _shape(instruction: Instruction, mode: FloatMode) -> _Shape:
    get, only = instruction.get, -1
    found = _MFMA.match(instruction.name) or _WMMA.match(instruction.name)
    if not found:
        raise NotModelledError("this matrix instruction")
    blocks = int(found.groupdict().get("blocks") or 1)
    kinds, result = found["ab"].split("_"), found["d"]
    if found["ab"] == "F8F6F4":
        chosen = get("cbsz"), get("blgp")
        if max(chosen) >= len(_FORMATS):
            raise NotModelledError("these formats of matrices")
        kinds = [_FORMATS[place] for place in chosen]
    elif found.re is _MFMA:
        if get("blgp") or (get("cbsz") and 1 << get("cbsz") != blocks):
            raise NotModelledError("a matrix instruction that permutes blocks or negates")
        only = get("abid") if get("cbsz") else -1
        if found["d"] == "F64" and found["size"] != "16":
            raise NotModelledError("this matrix instruction of float64")
    elif get("clmp") or get("neg_hi") or get("neg") & (4 if found["d"] == "I32" else 7):
        raise NotModelledError("a matrix instruction with modifiers")
    elif found["d"] == "F16" and mode.saturates:
        raise NotModelledError("a product in float16 where the kernel has overflow saturate")
    if kinds[0].startswith("IU"):
        kinds = [f"{'I' if get('neg') >> place & 1 else 'U'}{kinds[0][2:]}" for place in range(2)]
    if mode.target == "gfx90a" and kinds[0].endswith("F16"):
        kinds, result = [f"FLUSHED_{kinds[0]}"], "FLUSHED_F32"
    formats = kinds[0], kinds[-1], result
    return _Shape(int(found["size"]), int(found["k"]), blocks, formats, only)
