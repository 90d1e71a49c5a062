"""Memory instructions, as calls of the machine: which space, address, width and register."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from contribbot.emulate.decode import Instruction, Operand
from contribbot.emulate.pseudocode import NotModelledError

if TYPE_CHECKING:
    from contribbot.emulate.translate import Writer

#: Where the code object is loaded; and the windows of LDS and scratch among flat addresses.
CODE: Final = 15 << 36
SHARED_WINDOW: Final = 1 << 48
PRIVATE_WINDOW: Final = 2 << 48
#: What the operands `src_shared_base` and `src_private_base` hold.
APERTURES: Final = {235: SHARED_WINDOW, 237: PRIVATE_WINDOW}
_VGPR: Final = 256

#: Bytes, whether the sign is extended, and the half of the register that is written (-1: all).
_KINDS: Final[dict[str, tuple[int, bool, int]]] = {
    **{name: (size, False, -1)
       for names, size in (
           (("UBYTE", "U8", "BYTE", "B8"), 1), (("USHORT", "U16", "SHORT", "B16"), 2),
           (("DWORD", "B32"), 4), (("DWORDX2", "B64"), 8), (("DWORDX3", "B96"), 12),
           (("DWORDX4", "B128"), 16), (("DWORDX8", "B256"), 32), (("DWORDX16", "B512"), 64),
       ) for name in names},
    "SBYTE": (1, True, -1), "I8": (1, True, -1), "SSHORT": (2, True, -1), "I16": (2, True, -1),
    **{name: (2, False, half)
       for names, half in ((("SHORT_D16", "D16_B16", "U16_D16"), 0),
                           (("SHORT_D16_HI", "D16_HI_B16", "U16_D16_HI"), 1)) for name in names},
    **{name: (1, signed, half)
       for names, signed, half in (
           (("UBYTE_D16", "D16_U8", "U8_D16"), False, 0),
            (("SBYTE_D16", "D16_I8", "I8_D16"), True, 0),
           (("UBYTE_D16_HI", "D16_HI_U8", "U8_D16_HI"), False, 1),
           (("SBYTE_D16_HI", "D16_HI_I8", "I8_D16_HI"), True, 1)) for name in names},
}  # fmt: skip
_STORE_HIGH: Final = {
    "BYTE_D16_HI": 1, "SHORT_D16_HI": 2, "D16_HI_B8": 1, "D16_HI_B16": 2,
    "B8_D16_HI": 1, "B16_D16_HI": 2,
}  # fmt: skip
_FLAT: Final = re.compile(r"(GLOBAL|FLAT|SCRATCH|BUFFER)_(LOAD|STORE)_(\w+)$")
_DS: Final = re.compile(r"DS_(READ|LOAD|WRITE|STORE)_(\w+)$")
_DS_TWO: Final = re.compile(
    r"DS_(READ|LOAD|WRITE|STORE)_?(?:2|2ADDR_)(ST64_|STRIDE64_)?_?(B32|B64)$"
)
_SCALAR: Final = re.compile(r"S_(BUFFER_)?LOAD_(\w+)$")


def write(writer: Writer, instruction: Instruction) -> bool:
    """Write a memory instruction; say whether it is one."""
    name = instruction.name
    if name.startswith(("DS_BPERMUTE", "DS_PERMUTE", "DS_SWIZZLE")):
        return False
    if found := _SCALAR.match(name):
        _scalar(writer, instruction, found[2], buffer=bool(found[1]))
    elif found := _FLAT.match(name):
        _flat(writer, instruction, found[1], found[2], found[3])
    elif found := _DS_TWO.match(name):
        _two(writer, instruction, found[1], 64 if found[2] else 1, found[3])
    elif found := _DS.match(name):
        _shared(writer, instruction, found[1], found[2])
    elif re.match(
        r"(GLOBAL|FLAT|BUFFER)_ATOMIC_|DS_(ADD|SUB|MIN|MAX|AND|OR|XOR|WRXCHG|STOREXCHG|CMPST|CMPSTORE)_",
        name,
    ):
        _atomic(writer, instruction)
    else:
        return False
    return True


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (number >> (bits - 1) << bits)


def _scalar(writer: Writer, instruction: Instruction, kind: str, *, buffer: bool) -> None:
    fields, family = instruction.fields, writer.mode.family
    if kind not in _KINDS or buffer:
        raise NotModelledError("scalar buffer loads, and kinds that are not of whole words")
    size, extends, _ = _KINDS[kind]
    base = writer.scalar64(fields["sbase"], 0)
    if family == "cdna":
        imm = _signed(fields["offset"], 21) if fields["imm"] else 0
        offset = (
            fields["soffset"]
            if fields["soffset_en"]
            else 0
            if fields["imm"]
            else fields["offset"] & 127
        )
        dynamic = bool(fields["soffset_en"]) or not fields["imm"]
    else:
        imm = _signed(
            fields["ioffset" if "ioffset" in fields else "offset"], 24 if family == "rdna4" else 21
        )
        offset = fields["soffset"]
        dynamic = offset != 124  # NULL
    address = f"{base} + {writer.constant(imm, 'u64')}"
    if dynamic:
        address = f"{address} + {writer.sgpr(offset)}.astype(u64)"
    loaded = writer.name(
        f"m.load({instruction.offset}, None, {address}, {size}, {extends}, 'scalar')"
    )
    for place in range(max(1, size // 4)):
        writer.set_sgpr(fields["sdata"] + place, f"{loaded}[{place}]")


def _address(writer: Writer, instruction: Instruction, space: str) -> str:
    """Return the source of a vector address, 64 bits of it, or 32 in scratch."""
    fields, family = instruction.fields, writer.mode.family
    vector = fields.get("vaddr", fields.get("addr", 0))
    base = fields.get("saddr", 124)
    # A flat instruction has no scalar base: CDNA encodes 0 there, and RDNA its null.
    scalar = space != "FLAT" and base != (127 if family == "cdna" else 124)
    if "ioffset" in fields:
        imm = _signed(fields["ioffset"], 24)
    elif space == "FLAT" and family == "cdna":
        imm = fields["offset"] & 0xFFF
    else:
        imm = _signed(fields["offset"], 13)
    offset = writer.constant(imm, "u64")
    if space == "SCRATCH":
        parts = [offset]
        if fields.get("sve"):
            parts.append(f"{writer.vgpr(vector - _VGPR)}.astype(u64)")
        if scalar:
            parts.append(f"{writer.sgpr(base)}.astype(u64)")
        return " + ".join(parts)
    if scalar:
        return f"{writer.scalar64(base, 0)} + {writer.vgpr(vector - _VGPR)}.astype(u64) + {offset}"
    wide = writer.read(vector, Operand(64, "B64")).code
    return f"{wide} + {offset}" if imm else wide


def _buffer(writer: Writer, instruction: Instruction) -> str:
    """Return the source of the address that a buffer instruction means.

    Beyond the number of records hardware reads 0 and drops writes: that is no fault.
    """
    fields = instruction.fields
    if fields.get("lds") or fields.get("idxen"):
        raise NotModelledError("buffer instructions with an index, or into LDS")
    resource = fields.get("srsrc", fields.get("rsrc", 0))
    imm = fields.get("ioffset", fields.get("offset", 0))
    parts = [writer.constant(imm, "u64")]
    if fields.get("offen"):
        parts.append(f"{writer.vgpr(fields['vaddr'] - _VGPR)}.astype(u64)")
    offset = writer.name(" + ".join(parts))
    number = fields["soffset"]
    value = writer.read(number, Operand(32, "B32"))
    extra = (
        writer.constant(value.number, "u64")
        if value.number is not None
        else f"{value.code}.astype(u64)"
    )
    words = ", ".join(writer.sgpr(resource + place) for place in range(4))
    return writer.name(f"m.buffer(x, {offset}, {extra}, {words})")


def _flat(writer: Writer, instruction: Instruction, space: str, action: str, kind: str) -> None:
    writer.need_exec()
    fields = instruction.fields
    mask = "x"
    if space == "BUFFER":
        pair = _buffer(writer, instruction)
        address, mask = f"{pair}[0]", f"{pair}[1]"
    else:
        address = _address(writer, instruction, space)
    where = f"'{'global' if space == 'BUFFER' else space.lower()}'"
    accumulator = 256 if fields.get("acc") else 0
    if action == "LOAD":
        number = fields.get("vdst", fields.get("vdata", 0)) - _VGPR + accumulator
        _load(writer, instruction, address, kind, where, number, mask)
        return
    number = fields.get("vdata", fields.get("vsrc", fields.get("data", 0))) - _VGPR + accumulator
    _store(writer, instruction, address, kind, where, number, mask)


def _load(
    writer: Writer,
    instruction: Instruction,
    address: str,
    kind: str,
    where: str,
    number: int,
    mask: str = "x",
) -> None:
    if kind not in _KINDS:
        raise NotModelledError(f"loads of the kind {kind}")
    size, extends, half = _KINDS[kind]
    loaded = writer.name(
        f"m.load({instruction.offset}, {mask}, {address}, {size}, {extends}, {where})"
    )
    if half >= 0:
        old, kept = writer.vgpr(number), writer.constant(0xFFFF if half else 0xFFFF0000, "u32")
        low = f"({loaded}[0] & {writer.constant(0xFFFF, 'u32')})"
        new = f"({low} << {writer.constant(16, 'u32')})" if half else low
        writer.set_vgpr(number, f"({new} | ({old} & {kept}))")
        return
    for place in range(max(1, size // 4)):
        word = f"{loaded}[{place}]"
        if mask != "x":  # a buffer's lanes beyond its records read 0
            word = f"np.where({mask}, {word}, {writer.constant(0, 'u32')})"
        writer.set_vgpr(number + place, word)


def _store(
    writer: Writer,
    instruction: Instruction,
    address: str,
    kind: str,
    where: str,
    number: int,
    mask: str = "x",
) -> None:
    size = _STORE_HIGH.get(kind) or _KINDS.get(kind, (0, False, 0))[0]
    if not size:
        raise NotModelledError(f"stores of the kind {kind}")
    words = [writer.vgpr(number + place) for place in range(max(1, size // 4))]
    if kind in _STORE_HIGH:
        words = [f"({words[0]} >> {writer.constant(16, 'u32')})"]
    writer.lines.append(
        f"m.store({instruction.offset}, {mask}, {address}, {size}, [{', '.join(words)}], {where})"
    )


def _ds_address(writer: Writer, instruction: Instruction, offset: int) -> str:
    register = writer.vgpr(instruction.fields["addr"] - _VGPR)
    return f"({register} + {writer.constant(offset, 'u32')}).astype(u64)"


def _shared(writer: Writer, instruction: Instruction, action: str, kind: str) -> None:
    writer.need_exec()
    fields = instruction.fields
    address = _ds_address(writer, instruction, fields["offset0"] | fields["offset1"] << 8)
    accumulator = 256 if fields.get("acc") else 0
    if kind in {"B64_TR_B16", "B64_TR_B8"}:
        number = fields["vdst"] - _VGPR + accumulator
        loaded = f"m.load({instruction.offset}, x, {address}, 8, False, 'shared')"
        words = writer.name(f"m.transposed({instruction.offset}, x, {loaded}, {kind[8:]})")
        writer.set_vgpr(number, f"{words}[0]")
        writer.set_vgpr(number + 1, f"{words}[1]")
    elif action in {"READ", "LOAD"}:
        _load(writer, instruction, address, kind, "'shared'", fields["vdst"] - _VGPR + accumulator)
    else:
        _store(
            writer, instruction, address, kind, "'shared'", fields["data0"] - _VGPR + accumulator
        )


def _two(writer: Writer, instruction: Instruction, action: str, stride: int, kind: str) -> None:
    writer.need_exec()
    fields = instruction.fields
    size = _KINDS[kind][0]
    words = size // 4
    accumulator = 256 if fields.get("acc") else 0
    addresses = [
        _ds_address(writer, instruction, fields[f"offset{i}"] * size * stride) for i in (0, 1)
    ]
    if action in {"READ", "LOAD"}:
        # Both are read before either is written: the address may be among the registers.
        names = [
            writer.name(f"m.load({instruction.offset}, x, {address}, {size}, False, 'shared')")
            for address in addresses
        ]
        number = fields["vdst"] - _VGPR + accumulator
        for place in range(2 * words):
            writer.set_vgpr(number + place, f"{names[place // words]}[{place % words}]")
        return
    for i, address in enumerate(addresses):
        _store(
            writer, instruction, address, kind, "'shared'", fields[f"data{i}"] - _VGPR + accumulator
        )


#: The last part of a name, and what it means: numpy's type.
_ATOMIC_TYPES: Final = {
    "U32": "u32", "I32": "i32", "B32": "u32", "U64": "u64", "I64": "i64", "B64": "u64",
    "F32": "f32", "F64": "f64", "X2": "u64",
}  # fmt: skip
_ACTIONS: Final = {
    "ADD": "add", "SUB": "subtract", "AND": "bitwise_and", "OR": "bitwise_or", "XOR": "bitwise_xor",
    "SMIN": "minimum", "SMAX": "maximum", "UMIN": "minimum", "UMAX": "maximum", "MIN": "minimum",
    "MAX": "maximum", "MIN_NUM": "fmin", "MAX_NUM": "fmax", "SWAP": "swap", "WRXCHG": "swap",
    "STOREXCHG": "swap", "CMPSWAP": "compare", "CMPST": "compare", "CMPSTORE": "compare",
}  # fmt: skip


def _atomic(writer: Writer, instruction: Instruction) -> None:
    writer.need_exec()
    name, fields = instruction.name, instruction.fields
    space, _, rest = name.partition("_")
    rest = rest.removeprefix("ATOMIC_")
    returns = (
        "RTN" in rest
        if space == "DS"
        else bool(fields.get("sc0") or fields.get("glc") or fields.get("th", 0) & 1)
    )
    rest = rest.replace("_RTN", "")
    action, _, suffix = rest.rpartition("_")
    if suffix not in _ATOMIC_TYPES:
        action, suffix = rest, "U32"
    kind = _ATOMIC_TYPES[suffix]
    if action in {"SMIN", "SMAX"}:
        kind = kind.replace("u", "i")
    if action not in _ACTIONS or space == "BUFFER":
        raise NotModelledError("this atomic operation")
    words = int(kind[1:]) // 32
    if space == "DS":
        address = _ds_address(writer, instruction, fields["offset0"] | fields["offset1"] << 8)
        data, space = fields["data0"] - _VGPR, "SHARED"
    else:
        address = _address(writer, instruction, space)
        data = fields.get("vsrc", fields.get("data", 0)) - _VGPR
    compares = _ACTIONS[action] == "compare"
    operands = [writer.vgpr(data + place) for place in range(words)]
    other = [writer.vgpr(data + words + place) for place in range(words)] if compares else []
    if compares and space == "SHARED":
        other = (
            operands
            if name.startswith("DS_CMPST_")
            else [writer.vgpr(fields["data1"] - _VGPR + i) for i in range(words)]
        )
        raise NotModelledError("compare-and-store in LDS")
    call = (
        f"m.atomic({instruction.offset}, x, {address}, '{kind}', '{_ACTIONS[action]}', "
        f"[{', '.join(operands)}], [{', '.join(other)}], '{space.lower()}', {returns})"
    )
    if not returns:
        writer.lines.append(call)
        return
    before = writer.name(call)
    for place in range(words):
        writer.set_vgpr(fields["vdst"] - _VGPR + place, f"{before}[{place}]")
