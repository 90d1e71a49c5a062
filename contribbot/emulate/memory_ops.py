"""Translate memory instructions to C++: address space, address, width and registers."""

from __future__ import annotations

import re
from typing import Final

from contribbot.emulate.decode import Instruction, Operand
from contribbot.emulate.pseudocode import NotModelledError
from contribbot.emulate.registers import (
    ACCUMULATORS,
    FLAT,
    LOCAL,
    SCALAR,
    VECTOR_MEMORY,
    VGPR,
    MemoryWaits,
    Registers,
)

_SIZES: Final = {
    name: size
    for size, names in (
        (1, "UBYTE U8 SBYTE I8 BYTE B8"),
        (2, "USHORT U16 SSHORT I16 SHORT B16"),
        (4, "DWORD B32"),
        (8, "DWORDX2 B64"),
        (12, "DWORDX3 B96"),
        *((16 << i, f"DWORDX{4 << i} B{128 << i}") for i in range(3)),
    )
    for name in names.split()
}
_ONE: Final = re.compile(r"(?:GLOBAL|FLAT|SCRATCH|BUFFER|DS)_(LOAD|STORE|READ|WRITE)_(\w+)$")
_DS_TWO: Final = re.compile(
    r"DS_(READ|LOAD|WRITE|STORE)_?(?:2|2ADDR_)(ST64_|STRIDE64_)?_?(B32|B64)$"
)
_SCALAR: Final = re.compile(r"S_(BUFFER_)?LOAD_(\w+)$")
#: The spaces of machine.hpp for instructions whose names begin otherwise.
_SPACES: Final = {"BUFFER": "GLOBAL", "DS": "SHARED"}
#: The result of an atomic operation on the memory's `old` value and the operand `value`. A minimum
#: or maximum keeps `old` unless `value` is smaller or larger, also for NaN, as the vendor's text
#: does.
_ACTIONS: Final = {
    "ADD": "old + value",
    "SUB": "old - value",
    "AND": "old & value",
    "OR": "old | value",
    "RSUB": "value - old",
    "XOR": "old ^ value",
    "INC": "old >= value ? 0 : old + 1",
    "DEC": "old == 0 || old > value ? value : old - 1",
    **dict.fromkeys(("SWAP", "WRXCHG", "STOREXCHG"), "value"),
    **dict.fromkeys(("MIN", "SMIN", "UMIN"), "value < old ? value : old"),
    **dict.fromkeys(("MAX", "SMAX", "UMAX"), "value > old ? value : old"),
    "MIN_NUM": "f::v_min_num(old, value)",
    "MAX_NUM": "f::v_max_num(old, value)",
    **dict.fromkeys(("CSUB", "SUB_CLAMP"), "old < value ? 0 : old - value"),
    "COND_SUB": "old < value ? old : old - value",
    **dict.fromkeys(("CMPSWAP", "CMPST", "CMPSTORE"), "old == compared ? value : old"),
    "PK_ADD": "both<{}>(old, value)",
}
_ATOMIC: Final = re.compile(
    rf"(?:(?:GLOBAL|FLAT|BUFFER)_ATOMIC|DS)_(?P<action>{'|'.join(_ACTIONS)})"
    r"(?P<returns>_RTN)?(?:_(?P<kind>[UIBF](?:32|64)|B?F16|X2))?$"
)
_ATOMIC_TYPES: Final = {
    **dict.fromkeys(("", "B32", "F16", "BF16"), "u32"),
    **dict.fromkeys(("B64", "X2"), "u64"),
    **{name: name.lower() for name in ("U32", "I32", "U64", "I64", "F32", "F64")},
}


def write(writer: Registers, instruction: Instruction) -> bool:
    """Write a memory instruction as C++; return False for an instruction of another kind."""
    name = instruction.name
    if found := _SCALAR.match(name):
        _scalar(writer, instruction, found[2], buffer=bool(found[1]))
    elif found := _DS_TWO.match(name):
        stride = (64 if found[2] else 1) * _SIZES[found[3]]
        offsets = [instruction.fields[f"offset{i}"] * stride for i in (0, 1)]
        addresses = [_local(writer, instruction, offset) for offset in offsets]
        _access(writer, instruction, found[1], found[3], addresses)
    elif found := _ONE.match(name):
        _access(writer, instruction, found[1], found[2], [_address(writer, instruction)])
    elif found := _ATOMIC.match(name):
        _atomic(writer, instruction, found)
    else:
        return False
    return True


def wait(writer: Registers, instruction: Instruction) -> None:
    """Record the counters that an instruction waits for, or the memory operation that it starts."""
    name, bits = instruction.name, instruction.get("simm16")
    cdna = writer.mode.family == "cdna"
    if name == "S_WAITCNT" and cdna:
        local = bits >> 8 & 15
        writer.waits = MemoryWaits(bits & 15 | bits >> 10 & 48, local, local)
    elif name == "S_WAITCNT":
        writer.waits = MemoryWaits(bits >> 10 & 63, bits >> 4 & 63, bits >> 4 & 63)
    elif name in {"S_WAITCNT_VMCNT", "S_WAIT_LOADCNT"}:
        writer.waits = MemoryWaits(vector=bits & 63)
    elif name == "S_WAITCNT_LGKMCNT":
        writer.waits = MemoryWaits(local=bits & 63, scalar=bits & 63)
    elif name == "S_WAIT_DSCNT":
        writer.waits = MemoryWaits(local=bits & 63)
    elif name == "S_WAIT_KMCNT":
        writer.waits = MemoryWaits(scalar=bits & 31)
    elif name == "S_WAIT_LOADCNT_DSCNT":
        writer.waits = MemoryWaits(bits >> 8 & 63, bits & 63)
    elif name in {"S_WAITCNT_VSCNT", "S_WAIT_STORECNT"}:
        writer.waits = MemoryWaits(stores=bits & 63)
    elif name == "S_WAIT_STORECNT_DSCNT":
        writer.waits = MemoryWaits(local=bits & 63, stores=bits >> 8 & 63)
    elif name == "S_WAIT_IDLE":
        writer.waits = MemoryWaits(0, 0, 0, 0)
    elif name == "GLOBAL_INV" or (name == "BUFFER_WBL2" and cdna):
        writer.begins = VECTOR_MEMORY


def _begin(writer: Registers, name: str, *, loads: bool) -> None:
    """Record the kind of a memory operation; the stores of RDNA have a counter of their own."""
    space, counted = name.partition("_")[0], loads or writer.mode.family == "cdna"
    writer.stores = not counted and space != "DS"
    if space == "DS" or (space == "FLAT" and not counted):
        writer.begins = LOCAL
    elif counted:
        writer.begins = FLAT if space == "FLAT" else VECTOR_MEMORY


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (number >> (bits - 1) << bits)


def _scalar(writer: Registers, instruction: Instruction, kind: str, *, buffer: bool) -> None:
    fields, family = instruction.fields, writer.mode.family
    if kind not in _SIZES:
        raise NotModelledError("scalar loads of this kind")
    if family == "cdna":
        imm = _signed(fields["offset"], 21) if fields["imm"] else 0
        dynamic = bool(fields["soffset_en"]) or not fields["imm"]
        offset = fields["soffset"] if fields["soffset_en"] else fields["offset"] & 127
    else:
        imm = _signed(fields["ioffset"], 24) if family == "rdna4" else _signed(fields["offset"], 21)
        offset, dynamic = fields["soffset"], fields["soffset"] != 124  # NULL
    size, first = _SIZES[kind], fields["sbase"]
    base, records = writer.read(first, Operand(64, "B64")), "~0ull"
    check = list[str]()
    if buffer:
        base, records = f"({base} & {(1 << 48) - 1:#x})", writer.sgpr(first + 2)
        check = [f"if ({writer.sgpr(first + 1)} >> 16) STOP(UNMODELLED)"]
        writer.doubt = "not modelled: a scalar load from a buffer that has a stride"
    extra = f" + {writer.sgpr(offset)}" if dynamic else ""
    words = max(1, size // 4)
    writer.begins = SCALAR
    narrow = f"({kind[0].lower()}{8 * size})" if size < 4 else ""
    writer.lines += [
        f"{{ u32 word[{words}];",
        *check,
        f"if (!m->scalar(m, {base}, {writer.number(imm)}{extra}, {records}, {size}, word))",
        "return FAULTY;",
        *(
            writer.set_sgpr(fields["sdata"] + i, f"(u32){narrow}word[{i}]", late=True)
            for i in range(words)
        ),
        "}",
    ]


def _local(writer: Registers, instruction: Instruction, offset: int) -> str:
    return f"(u32)({writer.vgpr(instruction.fields['addr'] - VGPR)} + {writer.number(offset)})"


def _address(writer: Registers, instruction: Instruction) -> str:
    """Return the C++ of a lane's address; of a buffer instruction, of the offset in the buffer."""
    fields, family = instruction.fields, writer.mode.family
    space = instruction.name.partition("_")[0]
    if space == "DS":
        return _local(writer, instruction, fields["offset0"] | fields["offset1"] << 8)
    vector = fields.get("vaddr", fields.get("addr", 0))
    if space == "BUFFER":
        if fields.get("idxen"):
            raise NotModelledError("buffer instructions with an index")
        offset = writer.number(fields.get("ioffset", fields.get("offset", 0)))
        return offset + (f" + {writer.vgpr(vector - VGPR)}" if fields.get("offen") else "")
    base = fields.get("saddr", 124)
    # A flat instruction has no scalar base: CDNA encodes 0 for it, and RDNA its null register.
    scalar = space != "FLAT" and base != (127 if family == "cdna" else 124)
    if "ioffset" in fields:
        imm = _signed(fields["ioffset"], 24)
    else:
        unsigned = space == "FLAT" and family == "cdna"
        imm = fields["offset"] & 0xFFF if unsigned else _signed(fields["offset"], 13)
    parts = [writer.number(imm)]
    if space == "SCRATCH":
        parts += [writer.vgpr(vector - VGPR)] if fields.get("sve") else []
        parts += [writer.sgpr(base)] if scalar else []
    elif scalar:
        parts += [writer.read(base, Operand(64, "B64")), writer.vgpr(vector - VGPR)]
    else:
        parts.append(writer.read(vector, Operand(64, "B64")))
    return " + ".join(parts)


def _data(instruction: Instruction, *names: str) -> int:
    """Return the number of the first data register, from the first field in `names` that exists."""
    first = next(instruction.fields[name] for name in names if name in instruction.fields)
    return first - VGPR + (ACCUMULATORS if instruction.get("acc") else 0)


def _reached(instruction: Instruction, name: str, address: str, loaded: list[str]) -> list[str]:
    """Return C++ that computes an address; past a buffer's end, loads give 0, stores do nothing."""
    lines = [f"u64 {name} = {address};"]
    if instruction.name.startswith("BUFFER"):
        zero = " = ".join([*loaded, "0;"]) if loaded else ""
        lines += [f"if ({name} >= records) {{ {zero} continue; }}", f"{name} += base;"]
    return lines


def _resource(writer: Registers, instruction: Instruction) -> None:
    """Write C++ that declares `base` and `records` (bytes) of a buffer's resource descriptor."""
    fields = instruction.fields
    first = fields.get("srsrc", fields.get("rsrc", 0))
    extra = writer.read(fields["soffset"], Operand(32, "B32"))
    low, high, records = (writer.sgpr(first + i) for i in range(3))
    # The top bits swizzle; on CDNA the lower of both bits is for caches only.
    swizzled = 31 if writer.mode.family == "cdna" else 30
    writer.doubt = "not modelled: a swizzled buffer"
    writer.before += [
        f"if ({high} >> {swizzled}) STOP(UNMODELLED)",
        f"const u64 records = {records}, base = {extra} + join({low}, {high} & 0xFFFF);",
    ]


def _access(
    writer: Registers, instruction: Instruction, action: str, kind: str, addresses: list[str]
) -> None:
    fields = instruction.fields
    named = instruction.name.partition("_")[0]
    loads = action in {"READ", "LOAD"}
    _begin(writer, named, loads=loads)
    if kind.startswith("LDS_") or fields.get("lds"):
        _into_lds(writer, instruction, kind.removeprefix("LDS_"), addresses[0])
        return
    # A load or store of half a register leaves the other half unchanged.
    half = re.search(r"_?D16(_HI)?_?", kind)
    high = bool(half and "HI" in half[0])
    turned = re.fullmatch(r"(B64|B96)_TR_B(16|8|6|4)", kind)
    kind = turned[1] if turned else kind
    size = _SIZES.get((kind.replace(half[0], "") if half else kind).strip("_"), 0)
    if not size:
        raise NotModelledError(f"{'loads' if loads else 'stores'} of the kind {kind}")
    names = ("vdst", "vdata") if loads else ("vdata", "vsrc", "data", "data0")
    first, step = _data(instruction, *names), max(1, size // 4)
    firsts = [first]
    if len(addresses) == 2:
        firsts.append(first + step if loads else _data(instruction, "data1"))
    part = int(high) if half or (not loads and size < 4) else None
    registers = [
        [writer.vgpr(start + word, late=loads, half=part) for word in range(step)]
        for start in firsts
    ]
    lines, space = list[str](), _SPACES.get(named, named)
    if named == "BUFFER":
        _resource(writer, instruction)
    spill = named == "SCRATCH" and not fields.get("sve")  # one address for all lanes
    for i, address in enumerate(addresses):
        lines += _reached(instruction, f"a{i}", address, registers[i] if loads else [])
        read = "RELOAD" if spill else "READ"
        how = read if loads else f"WRITE, (u8 *)&{registers[i][0]} + {2 * high}"
        lines.append(f"REACH(p{i}, {space}, a{i}, {size}, {how})")
    narrow = f"{'i' if re.search(r'SBYTE|SSHORT|I8|I16', kind) else 'u'}{min(size, 4) * 8}"
    # All memory is read before any register is written, which may be an address register.
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
        writer.doubt = "not modelled: a transposing load that not all lanes take part in"
        writer.before.append("if (x != low(~0ull, LANES)) STOP(UNMODELLED)")
        after.append(f"transpose<{turned[2]}>(&{writer.vector(first, late=True)});")
    writer.each(*lines, after=after)


def _into_lds(writer: Registers, instruction: Instruction, kind: str, address: str) -> None:
    """Write code that loads all lanes' data into LDS, from M0 plus the instruction's offset.

    AMD's CDNA 3 instruction set, "Memory Buffer Load to LDS", has words of 4 bytes; LLVM's
    IntrinsicsAMDGPU.td (raw_ptr_buffer_load_lds, global_load_lds) has 12 and 16 bytes on gfx950.
    """
    writer.into_lds = True
    buffer, size = instruction.name.startswith("BUFFER"), _SIZES.get(kind, 0)
    if size not in {4, 12, 16} or writer.mode.family != "cdna":
        raise NotModelledError("loads into LDS of this kind")
    if buffer:
        _resource(writer, instruction)
    place = instruction.fields["offset"]
    offset = writer.number(place if buffer else _signed(place, 13))
    lines = [
        f"u8 word[{size}] = {{}};",
        f"const u64 a = {address};",
        "if (a < records) {" if buffer else "",  # past the records, hardware reads 0
        f"REACH(p, GLOBAL, {'a + base' if buffer else 'a'}, {size}, READ)",
        f"__builtin_memcpy(word, p, {size});",
        "}" if buffer else "",
        f"REACH(q, SHARED, (u32)({writer.sgpr(124)} + {offset} + l * {size}), {size}, WRITE)",
        f"__builtin_memcpy(q, word, {size});",
    ]
    writer.each(*lines)


def _atomic(writer: Registers, instruction: Instruction, found: re.Match[str]) -> None:
    fields, space = instruction.fields, instruction.name.partition("_")[0]
    action, suffix, compares = found["action"], found["kind"] or "", "CMP" in found["action"]
    flagged = fields.get("sc0") or fields.get("glc") or fields.get("th", 0) & 1
    returns = found["returns"] if space == "DS" else flagged
    kind = _ATOMIC_TYPES[suffix]
    kind = kind.replace("u", "i") if action in {"SMIN", "SMAX"} else kind
    code = _ACTIONS[action].format(suffix)
    if action == "PK_ADD" and writer.mode.flush & {"f16"}:
        raise NotModelledError("this atomic operation where subnormals of float16 count as zero")
    # "DS FP atomics do respect the denormal mode" (LLVM, D87864). Atomics in memory have a mode of
    # their own: only gfx90a's flush, and only float32 (FeatureMemoryAtomicFAddF32DenormalSupport).
    memory = (kind, writer.mode.target) == ("f32", "gfx90a")
    if action == "ADD" and (kind in writer.mode.flush if space == "DS" else memory):
        code = "f::flush(f::flush(old) + f::flush(value))"
    words, data = int(kind[1:]) // 32, _data(instruction, "vsrc", "vdata", "data", "data0")
    result = _data(instruction, "vdst", "vdata")  # for BUFFER, the field is both data and result

    def number(first: int) -> str:
        return f"as<{kind}>({writer.read(VGPR + first, Operand(32 * words, 'B'))})"

    _begin(writer, space, loads=bool(returns))
    registers = [writer.vgpr(result + i, late=True) for i in range(words)] if returns else []
    address = _address(writer, instruction)
    if space == "BUFFER":
        _resource(writer, instruction)
    # LLVM expands an atomic operation on 16 bits to the whole word (AtomicExpandPass.cpp), and
    # Triton to two halves: some bytes of the word may lie past the end of a tensor.
    least = 1 if words == 1 and (compares or action == "PK_ADD") else 4 * words
    lines = [
        *_reached(instruction, "a", address, registers),
        f"u64 size = {4 * words};",
        f"u8 *p = m->most(m, l, {_SPACES.get(space, space)}, a, size, {least}, ATOMIC);",
        "if (!p) return FAULTY;",
        f"{kind} old = 0; __builtin_memcpy(&old, p, size);",
    ]
    values = [data, data + words]
    if space == "DS" and compares:
        values[1] = _data(instruction, "data1")
        if action == "CMPST":  # on CDNA the compared value comes first
            values.reverse()
    lines.append(f"const {kind} value = {number(values[0])};")
    if compares:
        lines.append(f"const {kind} compared = {number(values[1])};")
    lines += [f"const {kind} result = {code};", "__builtin_memcpy(p, &result, size);"]
    lines += [f"{name} = as<u64>(old) >> {32 * i};" for i, name in enumerate(registers)]
    writer.each(*lines)
