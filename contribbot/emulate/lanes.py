"""What moves between lanes, as C++: DPP, permutations, single lanes; by the vendor's documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from contribbot.emulate.decode import Instruction, Operand
from contribbot.emulate.pseudocode import NotModelledError
from contribbot.emulate.registers import VGPR, Registers

_ACCUMULATORS = 256
#: What reads or writes other lanes than its own. `x` are the active ones; `$v_`, `$a_` and `$s_`
#: stand for the vector, accumulation or scalar register of a field, `$src0` for its value.
_TEXTS: Final = {
    "V_READFIRSTLANE_B32": "const int l = first_lane(x); $s_vdst = $src0;",
    "V_READLANE_B32": "const int l = $src1 % LANES; $s_vdst = $src0;",
    "V_WRITELANE_B32": "const int l = $src1 % LANES; $v_vdst = $src0;",
    **{f"V_PERMLANE{kind}_B32": f"""KEEP(t, $src0) EACH {{
        const int from = ((l ^ {by}) & 48) | (join($src1, $src2) >> l % 16 * 4 & 15);
        $v_vdst = $opsel & 1 || x >> from & 1 ? t[from] : $opsel & 2 ? 0u : $v_vdst;
    }}""" for kind, by in (("16", 0), ("X16", 16))},
    **{f"V_PERMLANE{size}_SWAP_B32": f"""KEEP(t, $v_vdst) KEEP(u, $v_src0) EACH {{
        if (l & {size}) $v_vdst = u[l - {size}]; else $v_src0 = t[l + {size}];
    }}"""
        for size in (16, 32)},
    # It does nothing in waves of 32.
    "V_PERMLANE64_B32": "KEEP(t, $src0) if (LANES == 64) EACH $v_vdst = t[l ^ 32];",
    # A lane that is not active gives 0.
    "DS_BPERMUTE_B32": """KEEP(t, x >> l & 1 ? $v_data0 : 0u)
        EACH $v_vdst = t[(($v_addr + $offset) >> 2) % LANES];""",
    "DS_PERMUTE_B32": """u32 t[LANES] = {};
        EACH t[(($v_addr + $offset) >> 2) % LANES] = $v_data0;
        EACH $v_vdst = t[l];""",
    "DS_SWIZZLE_B32": """KEEP(t, x >> l & 1 ? $v_addr : 0u)
        static const i8 from[] = $swizzled;
        EACH $v_vdst = t[from[l]];""",
    "V_SWAP_B32": "EACH { const u32 t = $v_vdst; $v_vdst = $v_src0; $v_src0 = t; }",
    "V_ACCVGPR_READ": "EACH $v_vdst = $a_src0;",
    "V_ACCVGPR_WRITE": "EACH $a_vdst = $src0;",
    "V_ACCVGPR_MOV_B32": "EACH $a_vdst = $a_src0;",
}  # fmt: skip


def write(writer: Registers, instruction: Instruction) -> bool:
    """Write what reads or writes other lanes than its own; say whether it is that."""
    if code := _TEXTS.get(instruction.name, ""):
        code = re.sub(r"\$(\w+)", lambda found: _named(writer, instruction, found[1]), code)
        writer.lines.append(f"{{ const u64 x = mask(s, EXEC_); {code} }}")
    return bool(code)


def _named(writer: Registers, instruction: Instruction, name: str) -> str:
    """Return what a name stands for in `_TEXTS`."""
    fields, get = instruction.fields, instruction.get
    kind, _, field = name.rpartition("_")
    offset = get("offset0") | get("offset1") << 8
    match kind:
        case "v":
            return writer.vgpr(fields[field] - VGPR)
        case "a":
            return writer.vgpr(fields[field] % VGPR + _ACCUMULATORS)
        case "s":
            return writer.sgpr(fields[field] % VGPR)
    match name:
        case "offset":
            return f"{offset}u"
        case "swizzled":
            return _listed(_swizzle(offset, writer.mode.lanes))
        case "opsel":
            return str(get("opsel"))
    number = fields.get(name, fields.get(f"v{name}", 0))
    return writer.read(number, Operand(32, "B32"), get("literal"))


def moved(writer: Registers, instruction: Instruction, number: int) -> str:
    """Return a source that comes from other lanes (DPP)."""
    get, lanes = instruction.get, writer.mode.lanes
    if "DPP8" in instruction.encoding:
        chosen = [instruction.fields[f"lane_sel_{i}"] for i in range(8)]
        table = _table(lanes, lambda lane, *_: lane & ~7 | chosen[lane % 8])
    else:
        table = _dpp(instruction.fields["dpp"], lanes)
    # `from` is -1 for a lane that has no source: it reads 0, or is not written.
    readable = "from[l] >= 0" + ("" if get("fi") else " && (x >> from[l] & 1)")
    writer.before += [
        f"KEEP(t, {writer.vgpr(number - VGPR)})",
        f"static const i8 from[] = {_listed(table)};",
        f"u64 usable = 0; for (int l = 0; l < LANES; l++) usable |= (u64)({readable}) << l;",
    ]
    skipped = [] if get("bc") else ["!(usable >> l & 1)"]
    rows, banks = get("row_mask", 15), get("bank_mask", 15)
    if (rows, banks) != (15, 15):
        skipped.append(f"!({rows} >> l / 16 % 4 & {banks} >> l / 4 % 4 & 1)")
    writer.skipped = " || ".join(skipped)
    return "(usable >> l & 1 ? t[from[l]] : 0u)"


def _listed(table: Sequence[int]) -> str:
    return f"{{{', '.join(map(str, table))}}}"


def _table(lanes: int, source: Callable[[int, int, int], int | None]) -> list[int]:
    """Return for each lane its source, by its row's first lane and its place there; -1: none."""
    found = [source(lane, lane // 16 * 16, lane % 16) for lane in range(lanes)]
    return [place if place is not None and 0 <= place < lanes else -1 for place in found]


def _dpp(control: int, lanes: int) -> list[int]:
    """Return the source of each lane under a DPP control; -1: it has none."""
    by = control & 15
    sources: dict[int, Callable[[int, int, int], int | None]] = {
        0x100: lambda _, row, place: row + place + by if place + by < 16 else None,
        0x110: lambda _, row, place: row + place - by if place >= by else None,
        0x120: lambda _, row, place: row + (place - by) % 16,
        0x130: lambda lane, *_: lane + 1,
        0x134: lambda lane, *_: (lane + 1) % lanes,
        0x138: lambda lane, *_: lane - 1,
        0x13C: lambda lane, *_: (lane - 1) % lanes,
        0x140: lambda _, row, place: row + 15 - place,
        0x141: lambda lane, *_: lane ^ 7,
        0x142: lambda _, row, __: row - 1,
        0x143: lambda lane, *_: 31 if lane >= 32 else None,
        0x150: lambda _, row, __: row + by,
        0x160: lambda _, row, place: row + (place ^ by),
    }
    if control < 0x100:
        return _table(lanes, lambda lane, *_: lane & ~3 | control >> lane % 4 * 2 & 3)
    known = sources.get(control if 0x130 <= control < 0x150 else control & ~15)
    if known is None:
        raise NotModelledError(f"the DPP control {control:#x}")
    return _table(lanes, known)


def _swizzle(offset: int, lanes: int) -> list[int]:
    """Return the source of each lane under the offset of a ds_swizzle."""

    def source(lane: int, *_: int) -> int:
        group, place = lane & ~31, lane % 32
        if offset & 0x8000 == 0:
            return group + (((place & offset) | (offset >> 5)) ^ (offset >> 10)) % 32
        if offset < 0xC000:  # four lanes
            return lane & ~3 | offset >> lane % 4 * 2 & 3
        if offset < 0xE000:  # rotate
            by, kept = offset >> 5 & 31, offset & 31
            moved = place - by if offset & 0x400 else place + by
            return group + ((place & kept) | (moved & 31 & ~kept))
        raise NotModelledError(f"the swizzle {offset:#x}")

    return _table(lanes, source)
