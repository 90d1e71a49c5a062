"""Instructions, decoded by tinygrad's tables, which are made from AMD's own documents."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from contribbot.errors import MachineError
from contribbot.hardware.needs import EMULATOR

#: The tables of each target. gfx90a and gfx942 are decoded as gfx950, whose set contains theirs.
TABLES: Final[Mapping[str, str]] = {
    "gfx90a": "cdna", "gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4",
}  # fmt: skip
#: How v_mfma_ld_scale_b32 begins, the only instruction of CDNA that is longer than 8 bytes.
_LD_SCALE: Final = b"\xac\xd3"
#: Bytes of an instruction.
_SIZES: Final = (4, 8, 12, 16)
_VARIANT: Final = re.compile(r"_(E32|E64)$")
#: The same operand has other names in scalar and vector encodings.
_PLAIN: Final = {
    "ssrc0": "src0", "vsrc0": "src0", "ssrc1": "src1", "vsrc1": "src1", "sdst": "vdst",
}  # fmt: skip


class _Field(Protocol):
    """Some bits of an encoding."""

    lo: int
    mask: int


class _Op(Protocol):
    """An opcode."""

    name: str


class _Format(Protocol):
    """A data format, such as `FMT_NUM_F32`."""

    name: str


class _Inst(Protocol):
    """What tinygrad decodes."""

    _raw: int
    _fields: list[tuple[str, _Field]]
    op: _Op
    operands: dict[str, tuple[_Format, int, object]]

    def size(self) -> int: ...


class _Decoder(Protocol):
    """tinygrad's decoder."""

    def __call__(self, data: bytes, arch: str) -> _Inst: ...


@dataclass(frozen=True)
class Operand:
    """What the tables say of an operand: its width in bits and its format, such as `F32`."""

    bits: int
    format: str


@dataclass(frozen=True, eq=False)
class Instruction:
    """An instruction, wherever it stands: its fields as numbers, and the vendor's pseudo-code."""

    decoded: _Inst
    name: str  # without `_E32` and `_E64`
    encoding: str  # such as `VOP3` or `VOP2_SDWA`
    fields: Mapping[str, int]
    operands: Mapping[str, Operand]
    pseudocode: str

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.decoded.size()

    @property
    def text(self) -> str:
        """The instruction as a listing has it, but for modifiers."""
        inst = self.decoded
        if self.encoding.startswith("VOPD"):
            return repr(inst)
        names = [name for name in self.fields if name in inst.operands]
        words = ", ".join(str(getattr(inst, name)).lower() for name in names)
        if self.name.startswith(("GLOBAL", "SCRATCH")):
            words = re.sub(r"\b(exec_hi|null)\b", "off", words)  # no scalar base
        return f"{self.name.lower()} {words}".strip()

    def get(self, name: str, default: int = 0) -> int:
        """Return a field, or what it is where the encoding has none."""
        return self.fields.get(name, default)


#: What was decoded, by its bytes: kernels of one source share most of their instructions.
_decoded: Final[dict[tuple[str, bytes], Instruction]] = {}


@functools.cache
def _tables(table: str) -> tuple[_Decoder, Mapping[_Op, str], Mapping[str, str]]:
    """Return the decoder, and the pseudo-code by opcode and by name without its encoding."""
    try:
        decoder: _Decoder = importlib.import_module("tinygrad.renderer.amd").decode_inst
        module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{table}.str_pcode")
    except ImportError as error:
        raise MachineError(
            f"{error.name} is not installed, which describes AMD's instructions", hint=EMULATOR
        ) from error
    texts: Mapping[_Op, str] = module.PCODE
    return decoder, texts, {_VARIANT.sub("", op.name): text for op, text in texts.items()}


def decode(image: bytes, offset: int, target: str) -> Instruction:
    """Decode the instruction at a place of an image.

    Raises:
        ValueError: What stands there is no instruction that the tables know.
    """
    table = TABLES[target]
    # Its first word says how long it is, so that no other's bytes begin with those of another.
    for size in _SIZES:
        known = _decoded.get((table, image[offset : offset + size]))
        if known is not None:
            return known
    found = _decode(image[offset : offset + 16].ljust(16, b"\0"), table)
    _decoded[table, image[offset : offset + found.size]] = found
    return found


def _decode(data: bytes, table: str) -> Instruction:
    decoder, texts, by_name = _tables(table)
    inst = _read(data, table, decoder)
    fields = {name: _number(inst, field) for name, field in inst._fields}  # it has no other
    operands = {
        _PLAIN.get(name, name): Operand(bits, form.name.removeprefix("FMT_").removeprefix("NUM_"))
        for name, (form, bits, _) in inst.operands.items()
    }
    encoding = type(inst).__name__
    if encoding.startswith("VOPD"):
        return Instruction(inst, "VOPD", encoding, fields, operands, "")
    name = _VARIANT.sub("", inst.op.name)
    if name == "S_CVT_HI_F32_F16":
        operands["src0"] = Operand(32, "B32")  # the tables have the half that it converts
    text = texts.get(inst.op) or by_name.get(name, "")
    return Instruction(inst, name, encoding, fields, operands, text)


def _read(data: bytes, table: str, decoder: _Decoder) -> _Inst:
    """Decode, also the buffer instructions of RDNA, which tinygrad's decoder leaves out."""
    if table == "cdna" and data[2:4] != _LD_SCALE:
        # It would take any instruction before an MFMA for the first half of a scaled one.
        data = data[:8].ljust(16, b"\0")
    try:
        return decoder(data, table)
    except ValueError:
        module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{table}.ins")
        encoding = next(
            (found for name in ("MUBUF", "VBUFFER") if (found := getattr(module, name, None))), None
        )
        word = int.from_bytes(data[:4], "little")
        if encoding is None or word >> 26 != encoding.encoding.default:
            raise
        inst: _Inst = encoding.from_bytes(data)
        return inst


def halves(instruction: Instruction, target: str) -> tuple[Instruction, Instruction]:
    """Return the two instructions of a dual-issue one."""
    table = TABLES[target]
    _, _, by_name = _tables(table)
    names = importlib.import_module(f"tinygrad.runtime.autogen.amd.{table}.enum").VOPDOp
    given = instruction.fields
    results = []
    for half in "xy":
        name = names(given[f"op{half}"]).name.replace("V_DUAL_", "V_")
        fields = {
            "src0": given[f"src{half}0"],
            "vsrc1": given[f"vsrc{half}1"],
            "vdst": given[f"vdst{half}"],
        }
        if half == "y":
            # Its destination is odd where the other's is even.
            fields["vdst"] = 256 + (given["vdsty"] << 1 | (given["vdstx"] & 1 ^ 1))
        if "literal" in given:
            fields["literal"] = given["literal"]
        operands = dict.fromkeys(("src0", "src1", "vdst"), Operand(32, "F32"))
        text = by_name.get(name, "")
        results.append(Instruction(instruction.decoded, name, "VOP2", fields, operands, text))
    return results[0], results[1]


def _number(inst: _Inst, field: _Field) -> int:
    """Return a field; of a register, its number among all operands (v0 is 256)."""
    number = (inst._raw >> field.lo) & field.mask  # noqa: SLF001  it has no other name
    first, _ = getattr(field, "_valid_range", (0, 0))
    return (number + int(first)) * int(getattr(field, "_align", 1))
