"""Memory instructions as C++: which space, address, width and register."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from contribbot.emulate.decode import Instruction, Operand
from contribbot.emulate.pseudocode import NotModelledError

if TYPE_CHECKING:
    from contribbot.emulate.translate import Writer

#: Buffers lie 64 GiB apart, the code object first; above them the windows of LDS and scratch.
APART: Final = 36
FIRST_BUFFER: Final = 15
CODE: Final = FIRST_BUFFER << APART
#: What the operands `src_shared_base` and `src_private_base` hold.
APERTURES: Final = {235: 1 << 48, 237: 2 << 48}
_VGPR: Final = 256

_SIZES: Final = {
    name: size
    for names, size in (
        ("UBYTE U8 SBYTE I8 BYTE B8", 1), ("USHORT U16 SSHORT I16 SHORT B16", 2), ("DWORD B32", 4),
        ("DWORDX2 B64", 8), ("DWORDX3 B96", 12), ("DWORDX4 B128", 16), ("DWORDX8 B256", 32),
        ("DWORDX16 B512", 64),
    )
    for name in names.split()
}  # fmt: skip
_ONE: Final = re.compile(r"(?:GLOBAL|FLAT|SCRATCH|BUFFER|DS)_(LOAD|STORE|READ|WRITE)_(\w+)$")
_DS_TWO: Final = re.compile(
    r"DS_(READ|LOAD|WRITE|STORE)_?(?:2|2ADDR_)(ST64_|STRIDE64_)?_?(B32|B64)$"
)
_SCALAR: Final = re.compile(r"S_LOAD_(\w+)$")
_ATOMIC: Final = re.compile(
    r"(?:GLOBAL|FLAT|BUFFER)_ATOMIC_(\w+)|"
    r"DS_((?:ADD|SUB|MIN|MAX|AND|OR|XOR|WRXCHG|STOREXCHG|CMPST|CMPSTORE)_\w+)"
)
#: What machine.hpp calls the space that instructions of other names reach.
_SPACES: Final = {"BUFFER": "GLOBAL", "DS": "SHARED"}
#: What an atomic operation leaves of the `old` value and its `value`.
_ACTIONS: Final = {
    "ADD": "old + value", "SUB": "old - value", "AND": "old & value", "OR": "old | value",
    "XOR": "old ^ value", "SWAP": "value", "WRXCHG": "value", "STOREXCHG": "value",
    **dict.fromkeys(("MIN", "SMIN", "UMIN"), "old < value ? old : value"),
    **dict.fromkeys(("MAX", "SMAX", "UMAX"), "old > value ? old : value"),
    "MIN_NUM": "f::v_min_num(old, value)", "MAX_NUM": "f::v_max_num(old, value)",
    "CMPSWAP": "old == compared ? value : old",
}  # fmt: skip
_ATOMIC_TYPES: Final = {
    "U32": "u32", "I32": "i32", "B32": "u32", "U64": "u64", "I64": "i64", "B64": "u64",
    "F32": "f32", "F64": "f64", "X2": "u64",
}  # fmt: skip


def write(writer: Writer, instruction: Instruction) -> bool:
    """Write a memory instruction; say whether it is one."""
    name = instruction.name
    if found := _SCALAR.match(name):
        _scalar(writer, instruction, found[1])
    elif found := _DS_TWO.match(name):
        stride = (64 if found[2] else 1) * _SIZES[found[3]]
        offsets = [instruction.fields[f"offset{i}"] * stride for i in (0, 1)]
        addresses = [_local(writer, instruction, offset) for offset in offsets]
        _access(writer, instruction, found[1], found[3], addresses)
    elif found := _ONE.match(name):
        _access(writer, instruction, found[1], found[2], [_address(writer, instruction)])
    elif found := _ATOMIC.match(name):
        _atomic(writer, instruction, found[1] or found[2])
    else:
        return False
    return True


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (number >> (bits - 1) << bits)


def _scalar(writer: Writer, instruction: Instruction, kind: str) -> None:
    fields, family = instruction.fields, writer.mode.family
    if kind not in _SIZES or _SIZES[kind] < 4:
        raise NotModelledError("scalar loads of kinds that are not of whole words")
    if family == "cdna":
        imm = _signed(fields["offset"], 21) if fields["imm"] else 0
        dynamic = bool(fields["soffset_en"]) or not fields["imm"]
        offset = fields["soffset"] if fields["soffset_en"] else fields["offset"] & 127
    else:
        field = "ioffset" if "ioffset" in fields else "offset"
        imm = _signed(fields[field], 24 if family == "rdna4" else 21)
        offset, dynamic = fields["soffset"], fields["soffset"] != 124  # NULL
    base = writer.read(fields["sbase"], Operand(64, "B64"))
    extra = f" + {writer.sgpr(offset)}" if dynamic else ""
    size = _SIZES[kind]
    writer.lines += [
        "{ const int l = 0;",
        f"const u64 address = ({base} + {writer.number(imm)}{extra}) & ~3ull;",
        f"REACH(p, GLOBAL, address, {size}, READ)",
        *(writer.set_sgpr(fields["sdata"] + i, f"get<u32>(p + {4 * i})") for i in range(size // 4)),
        "}",
    ]


def _local(writer: Writer, instruction: Instruction, offset: int) -> str:
    """Return a lane's address in LDS."""
    return f"(u32)({writer.vgpr(instruction.fields['addr'] - _VGPR)} + {writer.number(offset)})"


def _address(writer: Writer, instruction: Instruction) -> str:
    """Return a lane's address; of a buffer, the part that its number of records bounds."""
    fields, family = instruction.fields, writer.mode.family
    space = instruction.name.partition("_")[0]
    if space == "DS":
        return _local(writer, instruction, fields["offset0"] | fields["offset1"] << 8)
    vector = fields.get("vaddr", fields.get("addr", 0))
    if space == "BUFFER":
        if fields.get("lds") or fields.get("idxen"):
            raise NotModelledError("buffer instructions with an index, or into LDS")
        offset = writer.number(fields.get("ioffset", fields.get("offset", 0)))
        return offset + (f" + {writer.vgpr(vector - _VGPR)}" if fields.get("offen") else "")
    base = fields.get("saddr", 124)
    # A flat instruction has no scalar base: CDNA encodes 0 there, and RDNA its null.
    scalar = space != "FLAT" and base != (127 if family == "cdna" else 124)
    if "ioffset" in fields:
        imm = _signed(fields["ioffset"], 24)
    elif space == "FLAT" and family == "cdna":
        imm = fields["offset"] & 0xFFF
    else:
        imm = _signed(fields["offset"], 13)
    parts = [writer.number(imm)]
    if space == "SCRATCH":
        parts += [writer.vgpr(vector - _VGPR)] if fields.get("sve") else []
        parts += [writer.sgpr(base)] if scalar else []
    elif scalar:
        parts += [writer.read(base, Operand(64, "B64")), writer.vgpr(vector - _VGPR)]
    else:
        parts.append(writer.read(vector, Operand(64, "B64")))
    return " + ".join(parts)


def _access(
    writer: Writer, instruction: Instruction, action: str, kind: str, addresses: list[str]
) -> None:
    """Write a load or store of one or two places."""
    fields = instruction.fields
    named = instruction.name.partition("_")[0]
    loads = action in {"READ", "LOAD"}
    # Half a register is loaded, or its high half stored; the other half stays.
    half = re.search(r"_?D16(_HI)?_?", kind)
    high = bool(half and "HI" in half[0])
    turned = re.fullmatch(r"(B64)_TR_B(16|8)", kind)
    kind = turned[1] if turned else kind
    size = _SIZES.get((kind.replace(half[0], "") if half else kind).strip("_"), 0)
    if not size:
        raise NotModelledError(f"{'loads' if loads else 'stores'} of the kind {kind}")
    accumulator = 256 if fields.get("acc") else 0
    names = ("vdst", "vdata") if loads else ("vdata", "vsrc", "data", "data0")
    first = next(fields[name] for name in names if name in fields) - _VGPR + accumulator
    step = max(1, size // 4)
    firsts = [first, first + step if loads else fields.get("data1", 0) - _VGPR + accumulator]
    registers = [[writer.vgpr(firsts[i] + word) for word in range(step)]
                 for i in range(len(addresses))]  # fmt: skip
    lines, space = list[str](), _SPACES.get(named, named)
    if buffer := named == "BUFFER":
        resource = fields.get("srsrc", fields.get("rsrc", 0))
        extra = writer.read(fields["soffset"], Operand(32, "B32"))
        low, high_word, records = (writer.sgpr(resource + i) for i in range(3))
        writer.before.append(f"const u64 records = {records}, base = {extra} +")
        writer.before.append(f"join({low}, {high_word} & 0xFFFF);")
    for i, address in enumerate(addresses):
        lines.append(f"const u64 a{i} = {address};")
        if buffer:  # beyond its records hardware reads 0 and drops writes: no fault
            zero = " = ".join([*registers[i], "0;"]) if loads else ""
            lines.append(f"if (a{i} >= records) {{ {zero} continue; }}")
        reached = f"a{i} + base" if buffer else f"a{i}"
        how = "READ" if loads else f"WRITE, (u8 *)&{registers[i][0]} + {2 * high}"
        lines.append(f"REACH(p{i}, {space}, {reached}, {size}, {how})")
    narrow = f"{'i' if re.search(r'SBYTE|SSHORT|I8|I16', kind) else 'u'}{min(size, 4) * 8}"
    # Both are read before either is written: the address may be among the registers.
    for i, words in enumerate(registers):
        for word, register in enumerate(words):
            at = f"p{i} + {4 * word}"
            if not loads:
                lines.append(f"put({at}, ({narrow})({register} >> {16 * high}));")
            elif half:
                kept = "0xFFFFu" if high else "0xFFFF0000u"
                value = f"(u32)(u16)get<{narrow}>({at}) << {16 * high}"
                lines.append(f"{register} = {value} | ({register} & {kept});")
            else:
                lines.append(f"{register} = (u32)get<{narrow}>({at});")
    after = []
    if turned:
        doubt = "a transposing load that not all lanes take part in"
        writer.doubt = f"not modelled: {doubt}"
        writer.before.append("if (x != low(~0ull, LANES)) STOP(UNMODELLED)")
        register = f"&{writer.vector(first)}"
        after.append(f"u32 t[2][LANES]; __builtin_memcpy(t, {register}, sizeof t);")
        after.append(f"transpose<u{turned[2]}>(t, {register});")
    writer.each(*lines, after=after)


def _atomic(writer: Writer, instruction: Instruction, rest: str) -> None:
    fields, space = instruction.fields, instruction.name.partition("_")[0]
    flagged = fields.get("sc0") or fields.get("glc") or fields.get("th", 0) & 1
    returns = "RTN" in rest if space == "DS" else bool(flagged)
    action, _, suffix = rest.replace("_RTN", "").rpartition("_")
    if suffix not in _ATOMIC_TYPES:
        action, suffix = rest, "U32"
    kind = _ATOMIC_TYPES[suffix]
    kind = kind.replace("u", "i") if action in {"SMIN", "SMAX"} else kind
    if action not in _ACTIONS or space == "BUFFER":
        raise NotModelledError("this atomic operation")
    words = int(kind[1:]) // 32
    data = next(fields[name] for name in ("vsrc", "data", "data0") if name in fields) - _VGPR
    address = _address(writer, instruction)

    def number(first: int) -> str:
        return f"as<{kind}>({writer.read(_VGPR + first, Operand(32 * words, 'B'))})"

    lines = [
        f"REACH(p, {_SPACES.get(space, space)}, {address}, {4 * words}, ATOMIC)",
        f"const {kind} old = get<{kind}>(p), value = {number(data)};",
    ]
    if "CMP" in action:
        lines.append(f"const {kind} compared = {number(data + words)};")
    lines.append(f"put(p, ({kind})({_ACTIONS[action]}));")
    if returns:
        registers = [writer.vgpr(fields["vdst"] - _VGPR + place) for place in range(words)]
        lines += [f"{name} = as<u64>(old) >> {32 * i};" for i, name in enumerate(registers)]
    writer.each(*lines)
