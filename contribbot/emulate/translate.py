"""Translate instructions to C++ on the registers of one wave.

A vector instruction becomes a loop over the active lanes (`x`, from EXEC). `v` and `s` are the
wave's registers, `l` is a lane, and `m` the machine. Numbers of registers and constants are
parameters (`op`, of which the first is the offset of the next instruction), so that instructions
of one form share their code.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.emulate import memory_ops
from contribbot.emulate.decode import Instruction, Operand, halves
from contribbot.emulate.memory import CODE
from contribbot.emulate.pseudocode import NotModelledError, Translation, saturates, text_of
from contribbot.emulate.registers import ACCUMULATORS, LOCAL, VGPR, FloatMode, Registers

_VCC, _EXEC = 106, 126
_VCC_WORDS: Final = frozenset({_VCC, _VCC + 1})
#: Instructions that only wait, give a hint, or act on caches.
_NOTHING: Final = re.compile(
    r"S_(NOP|WAITCNT.*|WAIT_.*|DELAY_ALU|CLAUSE|SLEEP|SETPRIO|SET_INST_PREFETCH_DISTANCE|"
    r"INST_PREFETCH|ICACHE_INV|SENDMSG|CODE_END|DCACHE_\w+|PREFETCH_\w+|GL1_INV|BARRIER_SIGNAL|"
    r"TTRACEDATA\w*|INCPERFLEVEL|DECPERFLEVEL|SINGLEUSE_VDST|ALLOC_VGPR)$|"
    r"V_NOP$|BUFFER_(INV|WBL2|GL[01]_INV|WBINVL1\w*)$|GLOBAL_(INV|WB|WBINV)$"
)
_WORD, _MASK = Operand(32, "B32"), Operand(64, "B64")
_CONDITIONS: Final = {
    "SCC0": "!s[SCC_]",
    "SCC1": "s[SCC_]",
    "VCCZ": "!mask(s, VCC_)",
    "VCCNZ": "mask(s, VCC_)",
    "EXECZ": "!mask(s, EXEC_)",
    "EXECNZ": "mask(s, EXEC_)",
}
#: Shifts, with the source that is the distance: the first source if the order is reversed.
_SHIFT: Final = re.compile(
    r"[VS]_((?P<S0>(LSHL|LSHR|ASHR)REV)|(?P<S1>(LSHL|LSHR|ASHR)(_ADD|_OR)?)|(?P<S2>ADD_LSHL))"
    r"_[BIU](?P<width>16|32|64)$"
)
#: Formats whose two signs a packed instruction can change.
_SIGNED: Final = re.compile(r"^PK2_B?F(16|32)$")
_FLOAT: Final = re.compile(r"(PK2_)?F(16|32|64)$")
#: Calls of mathematical functions, which are not vectorised: inactive lanes are skipped.
_CALLS: Final = re.compile(
    r"f::(exp2|log2|pow|sin_turns|cos_turns|mantissa|frexp_exponent)\b|f::ldexp\(as<f64>"
)
#: Instructions that keep the other half of their destination on CDNA.
_KEEPS: Final = re.compile(r"V_(MAD_[FUI]16|FMA_F16|DIV_FIXUP_F16|(FMA|MAD)_MIX(LO|HI)_F16)$")
#: Instructions that read a mask of lanes, which is the third source in VOP3.
_READS_MASK: Final = re.compile(r"CNDMASK|_CI_|ADDC|SUBB")
_COMMON: Final = {
    "IEEE_MODE": "IEEE",
    "WAVE_MODE": "0",
    "ROUND_MODE": "0",
    "ROUND_NEAREST_EVEN": "0",
    "ROUND_TOWARD_ZERO": "3",
    "WAVE32": "(LANES == 32)",
    "WAVE64": "(LANES == 64)",
    **{f"BYTE{i}": str(i) for i in range(4)},
    "WORD0": "4",
    "WORD1": "5",
}
_NAMES: Final = frozenset(_COMMON) | {
    *("S0", "S1", "S2", "D0", "VCC", "EXEC", "SCC", "laneId", "LANES_BELOW"),
    *("OPSEL", "OPSEL_HI", "NEG", "SDWA_SRC0_SEL", "SIMM32", "SIMM16"),
}


@functools.cache
def _translation(text: str, *, lanes: bool, flush: frozenset[str]) -> Translation:
    return Translation(text, _NAMES, lanes=lanes, flush=flush)


def _shifted(instruction: Instruction) -> str:
    """Return the condition that a shift is by the operand's width or more; empty: no shift."""
    if not (shift := _SHIFT.match(instruction.name)):
        return ""
    by = next(name for name in ("S0", "S1", "S2") if shift[name])
    return f"(u32){by} >= {shift['width']}"


class Writer(Registers):
    """Writes one instruction as C++ statements."""

    def write(self, instruction: Instruction) -> None:
        """Write one instruction as C++; `end` writes branches and other ends of a block."""
        name, encoding = instruction.name, instruction.encoding
        sets = _rounds_to_nearest(instruction) or (
            self.mode.saturates and sets_saturation(instruction)
        )
        if _NOTHING.match(name) or sets:
            memory_ops.wait(self, instruction)
            self.arrives = name == "S_BARRIER_SIGNAL"
            return
        if any(write(self, instruction) for write in _WRITERS):
            return
        if encoding.startswith("VOPD"):
            self._vector(halves(instruction, self.mode.target))
        elif encoding.startswith("SOP"):
            self._scalar(instruction)
        elif encoding.startswith(("VOP1", "VOP2", "VOP3", "VOPC")):
            self._vector([instruction])
        else:
            raise NotModelledError(f"the encoding {encoding}")

    def _translation(self, instruction: Instruction, *, lanes: bool) -> Translation:
        text = text_of(instruction)
        if not text:
            raise NotModelledError("it has no pseudo-code")
        # Measured: dot products of gfx90a flush float16 in every mode (llvm/llvm-project#205101).
        flushes = self.mode.target == "gfx90a" and "DOT2" in instruction.name
        flush = self.mode.flush | {"f16"} if flushes else self.mode.flush
        return _translation(text, lanes=lanes, flush=flush)

    def _constants(self, instruction: Instruction, done: Translation) -> list[str]:
        """Return the declarations of the constants that an instruction's pseudo-code uses."""
        get = instruction.get
        known = {
            **_COMMON,
            "OPSEL": f"{get('opsel')}u",
            "SIMM32": self.number(get("literal")),
            "OPSEL_HI": f"{get('opsel_hi') | get('opsel_hi2') << 2}u",
            "SDWA_SRC0_SEL": f"{get('src0_sel')}u",
            "SIMM16": self.number(get("simm16")),
            "NEG": f"{get('neg')}u",
            "laneId": "l",
            "LANES_BELOW": "low(~0ull, l)",
        }
        types = {"laneId": "int", "LANES_BELOW": "u64"}
        return [
            f"{types.get(name, 'u32')} {name} = {code};"
            for name, code in known.items()
            if name in done.used
        ]

    def _scalar(self, instruction: Instruction) -> None:
        fields, operands = instruction.fields, instruction.operands
        done = self._translation(instruction, lanes=False)
        destination, result = instruction.get("sdst"), operands.get("vdst", _WORD)
        lines = self._constants(instruction, done)
        if instruction.encoding.startswith("SOPK"):
            compares = "CMPK" in instruction.name
            simm16 = self.number(instruction.get("simm16"))
            lines.append(f"u16 {'S1' if compares else 'S0'} = {simm16};")
            lines += [f"u32 S0 = {self.sgpr(destination)};"] if compares else []
        else:
            for name in sorted(done.used & {"S0", "S1"}):
                field = f"src{name[1]}"
                spec = operands.get(field, _WORD)
                code = self.read(fields[f"s{field}"], spec, instruction.get("literal"))
                lines.append(f"auto {name} = {code};")
        shifted = _shifted(instruction)
        lines += [f"SHIFTED({shifted})"] if shifted else []
        named = done.used | done.assigned
        lines += [f"u64 D0 = {self.read(destination, result)};"] if "D0" in named else []
        lines += ["u32 SCC = s[SCC_];"] if "SCC" in named else []
        for name, number in (("EXEC", _EXEC), ("VCC", _VCC)):
            lines += [f"u64 {name} = {self.read(number, _MASK)};"] if name in named else []
        lines += done.lines
        for name, number in (("D0", destination), ("EXEC", _EXEC), ("VCC", _VCC)):
            if name in done.assigned:
                wide = result.bits > 32
                lines += self.set_pair(number, name) if wide else [self.set_sgpr(number, name)]
        lines += ["s[SCC_] = SCC != 0;"] if "SCC" in done.assigned else []
        self.lines += ["{", *lines, "}"]

    def _source(self, instruction: Instruction, place: int) -> str:
        """Return the expression for a vector instruction's source, with the operand's modifiers."""
        name, encoding, get = f"src{place}", instruction.encoding, instruction.get
        number = instruction.fields.get(name, instruction.fields.get(f"v{name}"))
        if number is None:
            raise NotModelledError(f"it has no source {place}")
        spec = instruction.operands.get(name, _WORD)
        sdwa = "SDWA" in encoding
        if place == 0 and ("DPP" in encoding or sdwa):
            number = instruction.fields["vsrc0"]
        if sdwa and get(f"s{place}"):
            number -= VGPR
        if encoding.startswith("VOP3P"):
            return self._packed(instruction, place, number, spec)
        negated = get("neg") >> place & 1 or get(f"{name}_neg")
        absolute = get("abs") >> place & 1 or get(f"{name}_abs")
        selects = "SDWA_SRC0_SEL" if sdwa else "[SRC0"  # the text selects a part of the register
        if place == 0 and selects in instruction.pseudocode:
            if negated or absolute or get("src0_sext"):
                raise NotModelledError("a sign of a part that the text selects")
            return self._operand(instruction, place, number, _WORD)
        width, high = spec.bits, 0
        if width == 16:
            if encoding.startswith("VOP3"):
                high = get("opsel") >> place & 1
            elif self.mode.family != "cdna" and number >= VGPR + 128:
                high, number = 1, number - 128
            whole = number < 128 or number >= VGPR
            spec = Operand(32 if whole else 16, spec.format)
        code = self._operand(instruction, place, number, spec, half=high if width == 16 else None)
        chosen = get(f"{name}_sel", 6)
        if sdwa and chosen != 6:
            shift, size = (8 * chosen, 8) if chosen < 4 else (16 * (chosen - 4), 16)
            kind = "i" if get(f"{name}_sext") else "u"
            code = f"u32(({kind}{size})({code} >> {shift}))"
        if width == 16:
            code = f"u16({code} >> {16 * high})"
        if "BITOP3" in instruction.name:
            return code  # the modifiers' bits are the truth table
        if (negated or absolute) and spec.format.startswith("PK"):
            raise NotModelledError("a sign of two numbers at once")
        size = width if width in {16, 64} else 32
        top = f"u{size}(1ull << {size - 1})"
        if absolute and not encoding.startswith("VOP3SD"):
            code = f"({code} & ~{top})"
        return f"({code} ^ {top})" if negated else code

    def _operand(
        self,
        instruction: Instruction,
        place: int,
        number: int,
        spec: Operand,
        *,
        half: int | None = None,
    ) -> str:
        if place == 0 and "DPP" in instruction.encoding:
            if spec.bits > 32:
                raise NotModelledError("64 bits of another lane")
            return _moved(self, instruction, number)
        return self.read(number, spec, instruction.get("literal"), half=half)

    def _packed(self, instruction: Instruction, place: int, number: int, spec: Operand) -> str:
        """Return the expression for a packed instruction's source: opsel and neg of each half."""
        get = instruction.get
        low, minus, minus_high = (get(name) >> place & 1 for name in ("opsel", "neg", "neg_hi"))
        high = (get("opsel_hi") | get("opsel_hi2") << 2) >> place & 1
        if "_MIX" in instruction.name:
            code = self._operand(instruction, place, number, Operand(32, "F16" if high else "F32"))
            tops = "0x80008000u" if high else "0x80000000u"
            code = f"({code} & ~{tops})" if minus_high else code
            return f"({code} ^ {tops})" if minus else code
        size = 32 if spec.bits == 64 else 16
        if size == 32 and 128 <= number < VGPR:  # both halves have the constant
            half = self.read(number, Operand(32, "F32"), get("literal"))
            code = f"join({half}, {half})"
        else:
            code = self._operand(instruction, place, number, spec)
        plain = "MOV" in instruction.name or not spec.format.startswith(("PK", "F", "B", "U", "I"))
        if plain or "IU" in spec.format:  # for IU, NEG tells which operands are signed
            return code
        kind = f"u{2 * size}"
        if (low, high) != (0, 1) and (spec.format.startswith("PK2") or low):
            first, second = (f"(u{size})({code} >> {size * chosen})" for chosen in (low, high))
            code = f"({first} | ({kind}){second} << {size})"
        if (minus or minus_high) and not _SIGNED.search(spec.format):
            raise NotModelledError("a sign of a number that is no float")
        signs = minus << (size - 1) | minus_high << (2 * size - 1)
        return f"{kind}({code} ^ {signs:#x}ull)" if signs else f"{kind}({code})"

    def _vector(self, pair: Sequence[Instruction]) -> None:
        """Write one vector instruction, or two instructions that are issued together."""
        lines, after, stores = list[str](), list[str](), list[str]()
        words, merged = list[str](), list[str]()  # masks of 32 lanes, and the masks that get them
        scalar = False
        for half, instruction in enumerate(pair):
            fields, encoding = instruction.fields, instruction.encoding
            done = self._translation(instruction, lanes=True)
            if done.assigned - {"D0"}:
                raise NotModelledError("it writes what vector instructions seldom write")
            inner = self._constants(instruction, done)
            for name in sorted(done.used & {"S0", "S1", "S2"}):
                inner.append(f"auto {name} = {self._source(instruction, int(name[1]))};")
            spec = instruction.operands.get("vdst", _WORD)
            if shifted := _shifted(instruction):
                self.before.append("u32 wide = 0;")
                inner.append(f"wide |= on && {shifted};")
                after.append("SHIFTED(wide)")
            if "VCC" in done.used:
                given = encoding.startswith("VOP3") and _READS_MASK.search(instruction.name)
                number = fields["src2"] if given else _VCC
                code = f"mask(s, {self.mask(number)})" if number < 128 else self.read(number, _MASK)
                self.before.append(f"const u64 VCC{half} = {code};")
                inner.append(f"const u64 VCC = VCC{half};")
            if "EXEC" in done.used:
                raise NotModelledError("it reads EXEC")
            tail = []
            for name in sorted(done.masks):
                self.before.append(f"u64 lanes_{name}{half} = 0;")
                words.append(f"u32 word_{name}{half} = 0;")
                inner.append(f"bool lane_{name} = false;")
                number = self._mask_register(instruction, name)
                after.append(self.set_mask(number, f"lanes_{name}{half}"))
                tail.append(f"word_{name}{half} |= (u32)(on & lane_{name}) << i;")
                merged.append(f"lanes_{name}{half} |= (u64)word_{name}{half} << first;")
            body = [*done.lines]
            if "D0" in done.used | done.assigned:
                destination = fields.get("vdst", 0)
                scalar = destination < VGPR
                registers, value, old = self._result(instruction, destination, spec, done, body)
                inner.append(f"u64 D0 = {old};")
                # The register is written after a pair's other instruction has read its sources.
                lines.append(f"u{32 * len(registers) or 32} result{half};")
                tail.append(f"result{half} = {value};")
                for place, register in enumerate(registers):
                    value = f"(u32)(result{half} >> {32 * place})"
                    stores.append(f"{register} = on ? {value} : {register};")
            lines += ["{", *inner, *body, *tail, "}"]
        if self.skipped and merged:
            raise NotModelledError("a compare or carry with DPP")
        if scalar:  # v_s_rcp_f32 and similar: scalar source and destination
            self.lines += ["{", "const bool on = true;", *self.before, *lines, *stores, "}"]
            return
        on = "part >> i & 1" + (f" && !({self.skipped})" if self.skipped else "")
        each = ["const int l = first + i;", f"const bool on = {on};"]
        each += ["if (!on) continue;"] if _CALLS.search("".join(lines)) else []
        self.lines += ["{ const u64 x = mask(s, EXEC_);", *self.before, "HALVES {", *words]
        self.lines += ["LANEWISE {", *each, *lines, *stores, "}", *merged, "}", *after, "}"]

    @staticmethod
    def _mask_register(instruction: Instruction, name: str) -> int:
        """Return the first scalar register of a lane mask that an instruction writes."""
        fields, encoding = instruction.fields, instruction.encoding
        if name == "EXEC":
            return _EXEC
        if encoding.endswith("SDWA_SDST"):
            return fields["sdst"] if name == "D0" and instruction.get("sd") else _VCC
        if "sdst" in fields:
            return fields["sdst"]
        return fields["vdst"] if name == "D0" and encoding.startswith("VOP3") else _VCC

    def _result(
        self,
        instruction: Instruction,
        destination: int,
        spec: Operand,
        done: Translation,
        lines: list[str],
    ) -> tuple[list[str], str, str]:
        """Return a result's registers, value and old value; add the modifiers to `lines`."""
        encoding, get = instruction.encoding, instruction.get
        true16 = self.mode.family != "cdna" and spec.bits == 16
        vop3 = encoding.startswith("VOP3")
        high = vop3 and not encoding.startswith("VOP3P") and get("opsel") >> 3 & 1
        if true16 and not vop3 and destination >= VGPR + 128:
            high, destination = 1, destination - 128
        half = int(high) if true16 and done.width <= 16 else None
        old = self.read(destination, Operand(64 if spec.bits > 32 else 32, spec.format), half=half)
        if "D0" not in done.assigned:
            return [], "0", old
        vector = destination >= VGPR
        register = self.vgpr(destination - VGPR, half=half) if vector else self.sgpr(destination)
        lines += self._modified(instruction, done)
        if self.mode.saturates and spec.format.endswith("F16") and "BF16" not in spec.format:
            self.doubt = (
                "not modelled: an infinity of float16 where the kernel has overflow saturate"
            )
            lines += ["FINITE(D0)"] + (["FINITE(D0 >> 16)"] if spec.bits == 32 else [])
        if spec.bits > 32:
            return [register, self.vgpr(destination + 1 - VGPR)], "D0", old
        code = "(u32)D0"
        if spec.bits == 16 and done.width <= 16:
            lines[:0] = ["D0 >>= 16;"] if high else []
            kept = 0xFFFF if high else 0xFFFF0000
            code = f"(u32)(u16)D0 << {16 * high}"
            # Older targets zero the other half, with a few exceptions (LLVM's GCNSubtarget.cpp,
            # zeroesHigh16BitsOfDest; instructions with a LEGACY form, AMD's documents of CDNA 3).
            if true16 or high or _KEEPS.match(instruction.name):
                code = f"({code} | ({old} & {kept:#x}u))"
        chosen, unused = get("dst_sel", 6), get("dst_unused")
        if "SDWA" in encoding and chosen != 6:
            shift, width = (8 * chosen, 8) if chosen < 4 else (16 * (chosen - 4), 16)
            bits = ((1 << width) - 1) << shift
            signed = f"(u32)(i{width})({code}) << {shift}"
            code = signed if unused == 1 else f"({code} << {shift} & {bits:#x}u)"
            code = f"({code} | ({old} & ~{bits:#x}u))" if unused == 2 else code
        return [register], code, old

    def _modified(self, instruction: Instruction, done: Translation) -> list[str]:
        """Return the output modifiers' statements: a factor, the clamp, flushed subnormals."""
        name, clamp = instruction.name, instruction.get("clmp")
        factor = 0 if "BITOP3" in name else instruction.get("omod")
        form = _FLOAT.match(instruction.operands.get("vdst", _WORD).format)
        if not form:
            if clamp and "D0" in done.assigned and not saturates(instruction):
                raise NotModelledError("a clamp of integers")
            if factor:
                raise NotModelledError("a factor of what is no float")
            return []
        size, kind = int(form[2]), f"f{form[2]}"
        flush = kind in self.mode.flush and not re.search(r"CNDMASK|_MOV_", name)
        # LLVM's SIFoldOperands.cpp: IEEE mode ignores the factor; it gives no subnormals or -0.
        if factor and (self.mode.ieee or kind not in self.mode.flush):
            raise NotModelledError("a factor in IEEE mode, or where subnormals are kept")
        lines = []
        for low in (0, size) if form[1] else (16,) if "_MIXHI_" in name else (0,):
            code = f"as<{kind}>(D0 >> {low})"
            code = f"f::scaled({code}, {(1, 2, 4, 0.5)[factor]})" if factor else code
            code = f"f::clamp({code})" if clamp else code
            code = f"f::flush({code})" if flush else code
            lines.append(f"set(D0, {low + size - 1}, {low}, as<u64>({code}));")
        return lines if factor or clamp or flush else []

    def end(self, instruction: Instruction) -> bool:
        """Write a branch or another instruction that needs its offset; else return False."""
        name, fields = instruction.name, instruction.fields
        if test := _CONDITIONS.get(name.removeprefix("S_CBRANCH_")):
            self.uses |= _VCC_WORDS if "VCC" in test else set()
            self.lines.append(f"if ({test}) return op[0] + {self.number(jump(instruction))};")
        elif name == "S_BRANCH":
            self.lines.append(f"return op[0] + {self.number(jump(instruction))};")
        elif name in {"S_ENDPGM", "S_ENDPGM_SAVED"}:
            self.arrives = True
            self.lines.append("return s[PC_] = ENDED, PAUSED;")
        elif name in {"S_BARRIER", "S_BARRIER_WAIT"}:
            self.arrives = name == "S_BARRIER"
            self.lines.append("return s[PC_] = op[0], PAUSED;")
        elif name in {"S_GETPC_B64", "S_SETPC_B64", "S_SWAPPC_B64"}:
            code = self.number(CODE)
            self.lines.append(f"const u64 after = op[0] + {code};")
            if name != "S_GETPC_B64":
                to = self.read(fields["ssrc0"], Operand(64, "B64"))
                self.lines.append(f"const u64 to = {to} - {code};")
            if name != "S_SETPC_B64":
                self.lines += self.set_pair(fields["sdst"], "after")
            self.lines += ["return to;"] if name != "S_GETPC_B64" else []
        elif ends_block(instruction):
            raise NotModelledError("it ends a block in a way that is not modelled")
        else:
            return False
        return True


def sets_saturation(instruction: Instruction) -> bool:
    """Return whether an instruction sets FP16_OVFL, which is bit 23 of the register MODE."""
    return (
        instruction.name == "S_SETREG_IMM32_B32"
        and instruction.fields["simm16"] == 1 | 23 << 6
        and instruction.get("literal") == 1
    )


def _rounds_to_nearest(instruction: Instruction) -> bool:
    """Return whether an instruction sets MODE's rounding to nearest even, the initial mode."""
    place = instruction.get("simm16")
    return (
        instruction.name == "S_SETREG_IMM32_B32"
        and place & 63 == 1
        and (place >> 6 & 31) + (place >> 11) < 4
        and instruction.get("literal") == 0
    )


def jump(instruction: Instruction) -> int:
    """Return the distance of a branch from the next instruction, in bytes; negative: backwards."""
    by = instruction.fields["simm16"]
    return 4 * (by - ((by >> 15) << 16))


def ends_block(instruction: Instruction) -> bool:
    """Return whether an instruction ends a basic block: a branch, barrier, jump or the end."""
    return instruction.name.startswith(("S_CBRANCH_", "S_ENDPGM")) or instruction.name in {
        *("S_BRANCH", "S_BARRIER", "S_BARRIER_WAIT", "S_SETPC_B64", "S_SWAPPC_B64", "S_TRAP")
    }


#: Instructions that read or write other lanes. `x` are the active lanes; `$v_`, `$a_` and `$s_`
#: stand for the vector, accumulation or scalar register of a field, and `$src0` for the value of a
#: source.
_BETWEEN_LANES: Final = {
    "V_READFIRSTLANE_B32": "const int l = first_lane(x); $s_vdst = $src0;",
    "V_READLANE_B32": "const int l = $src1 % LANES; $s_vdst = $src0;",
    "V_WRITELANE_B32": "const int l = $src1 % LANES; $v_vdst = $src0;",
    **{
        f"V_PERMLANE{kind}_B32": f"""KEEP(t, $src0) EACH {{
        const int from = ((l ^ {by}) & 48) | (join($src1, $src2) >> l % 16 * 4 & 15);
        $v_vdst = $opsel & 1 || x >> from & 1 ? t[from] : $opsel & 2 ? 0u : $v_vdst;
    }}"""
        for kind, by in (("16", 0), ("X16", 16))
    },
    **{
        f"V_PERMLANE{size}_SWAP_B32": f"""KEEP(t, $v_vdst) KEEP(u, $v_src0) EACH {{
        if (l & {size}) $v_vdst = u[l - {size}]; else $v_src0 = t[l + {size}];
    }}"""
        for size in (16, 32)
    },
    # In waves of 32 lanes this instruction does nothing.
    "V_PERMLANE64_B32": "KEEP(t, $src0) if (LANES == 64) EACH $v_vdst = t[l ^ 32];",
    # An inactive lane gives 0.
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
}


def _between_lanes(writer: Registers, instruction: Instruction) -> bool:
    """Write an instruction that uses other lanes; return False for any other instruction."""
    if code := _BETWEEN_LANES.get(instruction.name, ""):
        if instruction.name.startswith("DS_"):
            writer.begins = LOCAL
        code = re.sub(r"\$(\w+)", lambda found: _named(writer, instruction, found[1]), code)
        writer.lines.append(f"{{ const u64 x = mask(s, EXEC_); {code} }}")
    return bool(code)


def _named(writer: Registers, instruction: Instruction, name: str) -> str:
    fields, get = instruction.fields, instruction.get
    kind, _, field = name.rpartition("_")
    offset = get("offset0") | get("offset1") << 8
    match kind:
        case "v":
            late = field == "vdst" and writer.begins is not None
            return writer.vgpr(fields[field] - VGPR, late=late)
        case "a":
            return writer.vgpr(fields[field] % VGPR + ACCUMULATORS)
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


def _moved(writer: Registers, instruction: Instruction, number: int) -> str:
    """Return the expression for a source that comes from another lane (DPP)."""
    get, lanes = instruction.get, writer.mode.lanes
    table = _dpp(instruction.fields["dpp"], lanes)
    # For a lane without a source, `from` is -1: the lane reads 0, or is not written.
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
    """Return each lane's source lane (-1: none); `source` gets lane, row's start, place in row."""
    found = [source(lane, lane // 16 * 16, lane % 16) for lane in range(lanes)]
    return [place if place is not None and 0 <= place < lanes else -1 for place in found]


def _dpp(control: int, lanes: int) -> list[int]:
    """Return each lane's source lane under a DPP control; -1: no source."""
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
    """Return each lane's source lane under the offset of a ds_swizzle."""

    def source(lane: int, *_: int) -> int:
        group, place = lane & ~31, lane % 32
        if offset & 0x8000 == 0:
            return group + (((place & offset) | (offset >> 5)) ^ (offset >> 10)) % 32
        if offset < 0xC000:  # within four lanes
            return lane & ~3 | offset >> lane % 4 * 2 & 3
        if offset < 0xE000:  # a rotation
            by, kept = offset >> 5 & 31, offset & 31
            moved = place - by if offset & 0x400 else place + by
            return group + ((place & kept) | (moved & 31 & ~kept))
        raise NotModelledError(f"the swizzle {offset:#x}")

    return _table(lanes, source)


# MFMA and WMMA are matrix products over the registers of a whole wave. AMD's documents fix the
# lane of each element, but neither the order in which products are added nor the rounding of each
# sum. The result here is the sum in float64, rounded once. With `bounds`, a launch also takes both
# ends of the results of any order of additions in the format of D (Higham, Accuracy and Stability
# of Numerical Algorithms, section 4.2). If only the order of the K products over lanes is open, A
# and B use the same order. With scales, or with two formats, the order is that of AMD's CDNA 4
# instruction set: 32 products side by side in a lane, but products of 8 bits in two runs of 16 (as
# in ROCm/rocm-systems, emulation/rocjitsu, mma_layout.py).
_EIGHT_BITS: Final = r"(?:FP8|BF8)_(?:FP8|BF8)"
_MFMA: Final = re.compile(
    rf"V_MFMA_(?:SCALE_)?(?P<d>[FI]32|F64)_(?P<size>\d+)X\d+X(?P<k>\d+)(_(?P<blocks>\d+)B)?"
    rf"_(?P<ab>X?F32|F64|B?F16|I8|F8F6F4|{_EIGHT_BITS})$"
)
_WMMA: Final = re.compile(
    rf"V_WMMA_(?P<d>F32|I32|B?F16)_(?P<size>16)X16X(?P<k>\d+)_(?P<ab>B?F16|IU[84]|{_EIGHT_BITS})$"
)
#: The formats of V_MFMA_*_F8F6F4, by the fields CBSZ and BLGP.
_MATRIX_FORMATS: Final = ("FP8", "BF8", "FP6", "BF6", "FP4")
#: The bits of an element of these formats; other formats have the number of bits in their name.
_MATRIX_BITS: Final = {"FP8": 8, "BF8": 8, "FP6": 6, "BF6": 6, "FP4": 4}


@dataclass(frozen=True)
class _Shape:
    size: int  # the rows of A and the columns of B
    products: int  # the number of products in one sum
    blocks: int  # the number of independent matrix products
    formats: tuple[str, str, str]  # the formats of A, of B, and of C and D
    only: int = -1  # the block of A that all products use; -1: each its own block


def _matrix(writer: Registers, instruction: Instruction) -> bool:
    """Write a matrix instruction (MFMA, WMMA); return False for any other instruction."""
    if not instruction.name.startswith(("V_MFMA_", "V_WMMA_", "V_SMFMAC_", "V_SWMMAC_")):
        return False
    mode, fields = writer.mode, instruction.fields
    lanes = 64 if mode.family == "cdna" else 32
    if mode.lanes != lanes:
        raise NotModelledError("matrix instructions of waves of 64 lanes on RDNA")
    shape = _shape(instruction, mode)
    bits = [_MATRIX_BITS.get(name) or int(re.sub(r"\D", "", name)) for name in shape.formats]
    rows = 16 if mode.family == "rdna3" else lanes  # gfx11 has A and B twice
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
        first += ACCUMULATORS * bank
        registers[name] = f"&{writer.vector(first)}"
        writer.vgpr(first + counts[name] - 1)
        for number in range(first, first + counts[name]):
            writer.name_vector(number)
    scales = _scales(writer, instruction)
    template = f"{', '.join(shape.formats)}, {shape.size}, {shape.products}, {shape.blocks}"
    inputs_of = [
        f"{{{registers[f'src{place}']}, {f'scale{place}' if scales else 'nullptr'}}}"
        for place in range(2)
    ]
    places = registers["vdst"], *inputs_of, registers["src2"]
    limits = str(shape.only), str(instruction.get("opsel") >> 2)
    arguments = ", ".join(["m->side", *places, constant, *limits])
    kept = [f"KEEP(scale{place}, {code})" for place, code in enumerate(scales)]
    writer.lines += ["{", *kept, f"multiply<{template}>({arguments});", "}"]
    return True


def _scales(writer: Registers, instruction: Instruction) -> list[str]:
    """Return the expressions for the scale exponents of A and B, a byte each; none: no scales."""
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
        if max(chosen) >= len(_MATRIX_FORMATS):
            raise NotModelledError("these formats of matrices")
        kinds = [_MATRIX_FORMATS[place] for place in chosen]
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


#: Functions that write instructions of one kind, and return False for other instructions.
_WRITERS: Final = (Writer.end, memory_ops.write, _matrix, _between_lanes)
