"""Decode AMD GPU instructions by tinygrad's tables, which are generated from AMD's documents."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Final, NamedTuple, Protocol

from contribbot.emulate.errors import NoResultError, RequestError
from contribbot.emulator_host import INSTALL

#: The tables of each target. gfx90a and gfx942 use the tables of gfx950, which has their set, too.
#: The tables of rdna3 are for RDNA 3.5 (amdgpu_isa_rdna3_5.xml), which adds scalar floats.
TABLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), "cdna"),
    **dict.fromkeys(("gfx1100", "gfx1150", "gfx1151", "gfx1152"), "rdna3"),
    "gfx1201": "rdna4",
}
#: The bytes of LDS of a workgroup (AddressableLocalMemorySize of LLVM's AMDGPU.td).
LDS: Final[Mapping[str, int]] = {
    target: (160 if target == "gfx950" else 64) << 10 for target in TABLES
}


class GpuModel(NamedTuple):
    """A GPU: capability, compute units, lanes of a wave, GiB of memory, features, registers."""

    capability: tuple[int, int]
    units: int
    lanes: int
    gib: int
    features: str = ""
    registers: int = 1536  # vector registers of a SIMD, for each lane
    granule: int = 24  # the number in which waves get registers


#: From LLVM's AMDGPUUsage (features) and AMDGPUBaseInfo.cpp (registers), and AMD's data sheets of
#: half an MI250X, MI300X, MI355X, RX 7900 XTX, Radeon 890M, 8060S and 860M, and RX 9070 XT.
FACTS: Final[Mapping[str, GpuModel]] = {
    "gfx90a": GpuModel((9, 0), 104, 64, 64, ":sramecc+:xnack-", 512, 8),
    "gfx942": GpuModel((9, 4), 304, 64, 192, ":sramecc+:xnack-", 512, 8),
    "gfx950": GpuModel((9, 5), 256, 64, 288, ":sramecc+:xnack-", 512, 8),
    "gfx1100": GpuModel((11, 0), 96, 32, 24),
    "gfx1150": GpuModel((11, 5), 16, 32, 32, registers=1024, granule=16),
    "gfx1151": GpuModel((11, 5), 40, 32, 96),
    "gfx1152": GpuModel((11, 5), 8, 32, 32, registers=1024, granule=16),
    "gfx1201": GpuModel((12, 0), 64, 32, 16),
}
#: Instructions of gfx90a that the tables of gfx950 lack or decode as others, by the upper half of
#: the first word (LLVM's VOP3PInstructions.td, VOP3Instructions.td and BUFInstructions.td).
_GFX90A: Final = {
    **{
        0xD380 | int(line.split()[0]): f"V_MFMA_{line.split()[1]}"
        for line in """
            84 I32_32X32X8_I8
            85 I32_16X16X16_I8
            99 F32_32X32X4_2B_BF16
            100 F32_16X16X4_4B_BF16
            101 F32_4X4X4_16B_BF16
            102 F32_32X32X8_BF16
            103 F32_16X16X16_BF16
            104 F32_32X32X2_2B_BF16
            105 F32_16X16X2_4B_BF16
            107 F32_4X4X2_16B_BF16
            108 F32_32X32X4_BF16
            109 F32_16X16X8_BF16
            """.strip().splitlines()
    },
    0xD1C1: "V_MAD_F32",
    0xE0F8: "BUFFER_WBINVL1",
    0xE0FC: "BUFFER_WBINVL1_VOL",
}
#: Instructions of the same form in the tables: V_FMA_F32, V_MFMA_F32_32X32X8_F16, BUFFER_INV.
_LIKE: Final = {0xD1: 0xD1CB, 0xD3: 0xD3CC, 0xE0: 0xE0A4}
_VARIANT: Final = re.compile(r"_(E32|E64)$")
_DPP16: Final = 250  # the number in place of the first source
#: An operand has other names in scalar and in vector encodings.
_PLAIN: Final = {**{f"{kind}src{i}": f"src{i}" for kind in "sv" for i in (0, 1)}, "sdst": "vdst"}


def check_target(target: str) -> None:
    """Raise RequestError if the emulator does not model the target."""
    if target not in TABLES:
        raise RequestError(f"{target} is not modelled: {', '.join(TABLES)} are")


class _Inst(Protocol):
    operands: Mapping[str, object]

    def size(self) -> int: ...


@dataclass(frozen=True)
class Operand:
    """An operand in the tables: the width in bits and the format, such as `F32`."""

    bits: int
    format: str


@dataclass(frozen=True, eq=False)
class Instruction:
    """A decoded instruction without its offset: field values, operands and AMD's pseudo-code."""

    decoded: _Inst
    name: str  # without `_E32` and `_E64`
    encoding: str  # such as `VOP3` or `VOP2_SDWA`
    fields: Mapping[str, int]
    operands: Mapping[str, Operand]
    pseudocode: str

    @property
    def size(self) -> int:
        """The size of the instruction in bytes."""
        return self.decoded.size()

    @property
    def text(self) -> str:
        """The instruction as assembly text, without modifiers."""
        inst = self.decoded
        if self.encoding.startswith("VOPD"):
            return repr(inst)
        names = [name for name in self.fields if name in inst.operands]
        words = ", ".join(str(getattr(inst, name)).lower() for name in names)
        if self.name.startswith(("GLOBAL", "SCRATCH")):
            words = re.sub(r"\b(exec_hi|null)\b", "off", words)  # no scalar base
        return f"{self.name.lower()} {words}".strip()

    def get(self, name: str, default: int = 0) -> int:
        """Return the value of a field, or a default if the encoding lacks the field."""
        return self.fields.get(name, default)


#: Decoded instructions by bytes: kernels of one source share most instructions.
_decoded: Final[dict[tuple[str, bytes], Instruction]] = {}


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"tinygrad.{name}")
    except ImportError as error:
        raise NoResultError(
            f"{error.name} is not installed, which describes AMD's instructions", hint=INSTALL
        ) from error


@functools.cache
def _by_name(table: str) -> Mapping[str, str]:
    """Return a table's pseudo-code by instruction name without `_E32` and `_E64`."""
    texts = _module(f"runtime.autogen.amd.{table}.str_pcode").PCODE
    return {_VARIANT.sub("", op.name): text for op, text in texts.items()}


def decode(image: bytes, offset: int, target: str) -> Instruction:
    """Decode the instruction at a byte offset of a code image; ValueError: in no table."""
    table = target if target == "gfx90a" else TABLES[target]
    # The first word determines the size, so that known bytes match no other instruction.
    for size in (4, 8, 12, 16):
        known = _decoded.get((table, image[offset : offset + size]))
        if known is not None:
            return known
    data = image[offset : offset + 16].ljust(16, b"\0")
    upper = int.from_bytes(data[2:4], "little")
    if target == "gfx90a" and (name := _GFX90A.get(upper)):
        like = _LIKE[upper >> 8].to_bytes(2, "little")
        found = replace(_decode(data[:2] + like + data[4:], "cdna"), name=name)
    else:
        found = _decode(data, TABLES[target])
    _decoded[table, image[offset : offset + found.size]] = found
    return found


def _decode(data: bytes, table: str) -> Instruction:
    if table == "cdna" and data[2:4] != b"\xac\xd3":
        # Only v_mfma_ld_scale_b32 is longer than 8 bytes; given more, the decoder would take any
        # instruction before an MFMA for it.
        data = data[:8].ljust(16, b"\0")
    try:
        inst = _module("renderer.amd").decode_inst(data, table)
    except ValueError:
        # The decoder leaves out the buffer instructions of RDNA.
        forms = _module(f"runtime.autogen.amd.{table}.ins")
        buffer = getattr(forms, "MUBUF", None) or getattr(forms, "VBUFFER", None)
        if buffer is None or int.from_bytes(data[:4], "little") >> 26 != buffer.encoding.default:
            raise
        inst = buffer.from_bytes(data)
    if table == "cdna" and inst.op.name.endswith("_XF32"):  # the tables decode it as no MFMA
        inst = _module(f"runtime.autogen.amd.{table}.ins").VOP3P_MFMA.from_bytes(data[:8])
    if table != "cdna" and type(inst).__name__ == "VOP3_SDST" and inst.src0.offset == _DPP16:
        # The tables lack this form: a compare of VOP3 with a source from another lane.
        forms = _module(f"runtime.autogen.amd.{table}.ins")
        own = {name: vars(forms.VOP3_SDST)[name] for name in ("op", "vdst")}
        form = type(forms.VOP3_DPP16)("VOP3_SDST_DPP16", (forms.VOP3_DPP16,), own)
        inst = form.from_bytes(data)
    fields = {}
    for name, field in inst._fields:
        number = (inst._raw >> field.lo) & field.mask  # noqa: SLF001  no public name
        first, _ = getattr(field, "_valid_range", (0, 0))  # of a register: v0 is 256
        fields[name] = (number + first) * getattr(field, "_align", 1)
    operands = {
        _PLAIN.get(name, name): Operand(bits, form.name.removeprefix("FMT_").removeprefix("NUM_"))
        for name, (form, bits, _) in inst.operands.items()
    }
    encoding = type(inst).__name__
    if encoding.startswith("VOPD"):
        return Instruction(inst, "VOPD", encoding, fields, operands, "")
    name = _VARIANT.sub("", inst.op.name)
    if name == "S_CVT_HI_F32_F16":
        operands["src0"] = Operand(32, "B32")  # the tables have the converted half
    texts = _module(f"runtime.autogen.amd.{table}.str_pcode").PCODE
    text = texts.get(inst.op) or _by_name(table).get(name, "")
    return Instruction(inst, name, encoding, fields, operands, text)


def halves(instruction: Instruction, target: str) -> tuple[Instruction, Instruction]:
    """Return the instructions X and Y of a dual-issue (VOPD) instruction."""
    table = TABLES[target]
    names = _module(f"runtime.autogen.amd.{table}.enum").VOPDOp
    given, results = instruction.fields, []
    for half in "xy":
        name = names(given[f"op{half}"]).name.replace("V_DUAL_", "V_")
        fields = {
            "src0": given[f"src{half}0"],
            "vsrc1": given[f"vsrc{half}1"],
            "vdst": given[f"vdst{half}"],
        }
        if half == "y":  # the destination is odd if the other destination is even, and vice versa
            fields["vdst"] = 256 + (given["vdsty"] << 1 | (given["vdstx"] & 1 ^ 1))
        fields |= {"literal": given["literal"]} if "literal" in given else {}
        operands = dict.fromkeys(("src0", "src1", "vdst"), Operand(32, "F32"))
        text = _by_name(table).get(name, "")
        results.append(Instruction(instruction.decoded, name, "VOP2", fields, operands, text))
    return results[0], results[1]
