"""From instructions to Python functions, one for each basic block of a kernel.

A function takes `m` (the machine: memory and what crosses lanes), `v` and `s` (the registers
of the waves that stand here, each an array of (waves, lanes) or (waves, 1)) and returns where
these waves go on. Registers are never changed in place: two may be the same array.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Final

import numpy as np

from contribbot.emulate import matrix, memory_ops, overrides
from contribbot.emulate.decode import Instruction, Operand, halves
from contribbot.emulate.lanes import dpp8_table, dpp_table
from contribbot.emulate.pseudocode import NotModelledError, Translation, Value, known

#: The values of operands 240 to 248.
_FLOATS: Final = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532)
_VCC, _EXEC, _SCC = 106, 126, 253
_LITERAL, _VGPR = 255, 256
#: Where each family keeps M0; the other number is NULL on RDNA.
_M0: Final = {"cdna": 124, "rdna3": 125, "rdna4": 125}
#: What only waits, or hints, or speaks to caches.
_NOTHING: Final = re.compile(
    r"S_(NOP|WAITCNT.*|WAIT_.*|DELAY_ALU|CLAUSE|SLEEP|SETPRIO|SET_INST_PREFETCH_DISTANCE|"
    r"INST_PREFETCH|ICACHE_INV|SENDMSG|CODE_END|DCACHE_\w+|PREFETCH_\w+|GL1_INV|BARRIER_SIGNAL|"
    r"TTRACEDATA\w*|INCPERFLEVEL|DECPERFLEVEL|SINGLEUSE_VDST|ALLOC_VGPR)$|"
    r"V_NOP$|BUFFER_(INV|WBL2|GL[01]_INV|WBINVL1\w*)$|GLOBAL_(INV|WB|WBINV)$"
)
_CONDITIONS: Final = {
    "SCC0": "~s[253]", "SCC1": "s[253]", "VCCZ": "m.zero({vcc})", "VCCNZ": "~m.zero({vcc})",
    "EXECZ": "m.zero({exec})", "EXECNZ": "~m.zero({exec})",
}  # fmt: skip


@dataclass(frozen=True)
class FloatMode:
    """What a kernel's instructions depend on beside themselves."""

    target: str
    family: str
    lanes: int  # of a wave
    ieee: bool  # a signalling NaN comes out of a minimum
    clamp_nan: bool  # a clamp makes 0 of NaN
    flush32: bool
    flush16: bool  # and float64
    saturates: bool = False  # FP8 and float16, where they overflow


@dataclass
class Block:
    """A basic block: its function, and which registers it touches."""

    start: int
    instructions: list[Instruction]
    lines: list[int]  # of `source`, where each instruction begins
    run: FunctionType
    touched: frozenset[tuple[str, int]]  # `v` or `s`, and the number
    written: frozenset[tuple[str, int]]
    source: str


class Writer:
    """Writes the function of one block."""

    def __init__(self, mode: FloatMode, namespace: dict[str, object]) -> None:
        self.mode = mode
        self.namespace = namespace
        self.lines: list[str] = []
        self.touched: set[tuple[str, int]] = set()
        self.written: set[tuple[str, int]] = set()
        #: Masks over lanes whose bits stand in scalar registers, by the first of them.
        self.masks: dict[int, str] = {}
        self._exec_known = False
        self._names = 0

    # Registers

    def constant(self, number: float, kind: str) -> str:
        """Return the name of a constant in the function's namespace."""
        if kind == "bool":
            value = np.array([[bool(number)]])
        elif kind[0] == "f":
            value = np.array([[number]], kind[0] + str(int(kind[1:]) // 8))
        else:
            width = int(kind[1:])
            bits = int(number) & ((1 << width) - 1)
            value = np.array([[bits]], f"u{width // 8}").view(f"{kind[0]}{width // 8}")
        name = f"k_{kind}_{value.tobytes().hex()}"
        self.namespace[name] = value
        return name

    def name(self, code: str) -> str:
        """Return a local name for an expression."""
        if code.isidentifier():
            return code
        self._names += 1
        self.lines.append(f"n{self._names} = {code}")
        return f"n{self._names}"

    def vgpr(self, number: int) -> str:
        """Return a vector register's source."""
        self.touched.add(("v", number))
        return f"v[{number}]"

    def sgpr(self, number: int) -> str:
        """Return a scalar operand's source, 32 bits of it."""
        if number == _M0[self.mode.family]:
            number = 124
        elif number in {124, 125}:
            return self.constant(0, "u32")
        self.touched.add(("s", number))
        return f"s[{number}]"

    def set_vgpr(self, number: int, code: str) -> None:
        """Write a vector register in the lanes that EXEC names."""
        self.lines.append(f"v[{number}] = put(x, {code}, {self.vgpr(number)})")
        self.written.add(("v", number))

    def set_sgpr(self, number: int, code: str) -> None:
        """Write 32 bits of a scalar register."""
        if number == _M0[self.mode.family]:
            number = 124
        elif number in {124, 125}:
            return
        self.touched.add(("s", number))
        self.written.add(("s", number))
        self.lines.append(f"s[{number}] = {code}")
        self.masks = {
            place: mask for place, mask in self.masks.items() if number not in {place, place + 1}
        }
        if number in {_EXEC, _EXEC + 1}:
            self._exec_known = False

    def need_exec(self) -> None:
        """Have `x`: which lanes are active; None: all."""
        if not self._exec_known:
            self.lines.append(f"x = m.lanes({self.sgpr(_EXEC)}, {self.sgpr(_EXEC + 1)})")
            self._exec_known = True

    def lane_mask(self, number: int) -> str:
        """Return the lanes that the bits in scalar registers name."""
        if number in self.masks:
            return self.masks[number]
        if number >= 128:  # a constant
            both = self.scalar64(number, 0)
            return self.name(
                f"m.bits({both}.astype(u32), ({both} >> {self.constant(32, 'u64')}).astype(u32))"
            )
        high = self.sgpr(number + 1) if self.mode.lanes == 64 else self.constant(0, "u32")
        return self.name(f"m.bits({self.sgpr(number)}, {high})")

    def set_lane_mask(self, number: int, code: str) -> None:
        """Write the bits of the lanes of a mask; lanes that are not active give 0."""
        self.need_exec()
        mask = self.name(f"within(x, {code})")
        packed = self.name(f"m.pack({mask})")
        self.set_sgpr(number, f"{packed}[0]")
        if self.mode.lanes == 64:
            self.set_sgpr(number + 1, f"{packed}[1]")
        if number not in {124, 125}:
            self.masks[number] = mask

    def scalar64(self, number: int, literal: int) -> str:
        """Return 64 bits of a scalar operand."""
        value = self.read(number, Operand(64, "B64"), literal)
        return value.code if value.number is None else self.constant(value.number, "u64")

    def read(self, number: int, operand: Operand, literal: int = 0) -> Value:
        """Return what a source operand holds: its bits."""
        bits = max(operand.bits, 8)
        width = 64 if bits > 32 else 16 if bits == 16 else 32
        if bits > 64:
            raise NotModelledError(f"an operand of {bits} bits")
        if 128 <= number <= 208:
            return known(
                (number - 128 if number <= 192 else 192 - number) & ((1 << width) - 1), f"u{width}"
            )
        if 240 <= number <= 248:
            form = {16: "e", 32: "f", 64: "d"}[width]
            packed = struct.pack(
                f"<{'e' if operand.format.endswith(('F16', 'BF16')) else form}",
                _FLOATS[number - 240],
            )
            return known(int.from_bytes(packed, "little"), f"u{width}")
        if number == _LITERAL:
            if width == 64:
                signed = literal - ((literal >> 31) << 32)
                wide = (
                    literal << 32
                    if "F64" in operand.format
                    else signed
                    if "I64" in operand.format
                    else literal
                )
                return known(wide & (2**64 - 1), "u64")
            return known(literal & ((1 << width) - 1), f"u{width}")
        if number == _SCC:
            self.touched.add(("s", _SCC))
            return Value(f"s[253].astype(u{width})", f"u{width}")
        if number >= _VGPR:
            low, high = self.vgpr, number - _VGPR
            first, second = low(high), low(high + 1) if width == 64 else ""
        elif number in {235, 237}:
            return known(memory_ops.APERTURES[number], f"u{width}")
        elif number < 128:
            first, second = self.sgpr(number), self.sgpr(number + 1) if width == 64 else ""
        else:
            raise NotModelledError(f"the source operand {number}")
        if width == 64:
            return Value(self.name(f"join({first}, {second})"), "u64")
        return Value(f"{first}.astype(u16)" if width == 16 else first, f"u{width}")

    # Instructions

    def write(self, instruction: Instruction) -> None:
        """Write one instruction that goes on to the next."""
        name, encoding = instruction.name, instruction.encoding
        if _NOTHING.match(name) or (self.mode.saturates and sets_saturation(instruction)):
            return
        if encoding.startswith("VOPD"):
            self._dual(halves(instruction, self.mode.target))
        elif any(
            wrote(instruction)
            for wrote in (
                partial(memory_ops.write, self), self._across_lanes, partial(matrix.write, self)
            )
        ):  # fmt: skip
            pass
        elif encoding.startswith("SOP"):
            self._scalar(instruction)
        elif encoding.startswith(("VOP1", "VOP2", "VOP3", "VOPC")):
            self.need_exec()
            for store in self._vector(instruction):
                store()
        else:
            raise NotModelledError(f"the encoding {encoding}")

    def _dual(self, pair: Sequence[Instruction]) -> None:
        self.need_exec()
        stores = [store for half in pair for store in self._vector(half)]
        for store in stores:
            store()

    def _translation(
        self, instruction: Instruction, operand: Callable[[str], Value | None]
    ) -> Translation:
        self._names += 1
        translation = Translation(operand, self.constant, f"t{self._names}_", self.lines)
        text = overrides.text(instruction)
        if not text:
            raise NotModelledError("it has no pseudo-code")
        translation.run(text)
        return translation

    def _scalar(self, instruction: Instruction) -> None:
        fields, operands = instruction.fields, instruction.operands
        literal = instruction.get("literal")
        destination = instruction.get("sdst")
        simm = known(instruction.get("simm16"), "u16")

        def operand(name: str) -> Value | None:
            if instruction.encoding.startswith("SOPK"):
                compares = "CMPK" in instruction.name
                if name == ("S1" if compares else "S0"):
                    return simm
                if name == "S0" and compares:
                    return Value(self.sgpr(destination), "u32")
            match name:
                case "S0" | "S1":
                    number = (
                        fields["src" + name[1]]
                        if "src" + name[1] in fields
                        else fields["ssrc" + name[1]]
                    )
                    return self.read(
                        number, operands.get(f"src{name[1]}", Operand(32, "B32")), literal
                    )
                case "D0":
                    return self.read(destination, operands.get("vdst", Operand(32, "B32")))
                case "SCC":
                    self.touched.add(("s", _SCC))
                    return Value("s[253]", "bool")
                case "EXEC" | "VCC":
                    number = _EXEC if name == "EXEC" else _VCC
                    return self.read(number, Operand(64, "B64"))
                case "SIMM16":
                    return simm
                case "SIMM32":
                    return known(literal, "u32")
                case "PC":
                    return known(memory_ops.CODE + instruction.offset + instruction.size - 4, "i64")
            return self.common(name)

        done = self._translation(instruction, operand)
        for name in ("D0", "EXEC", "SCC"):
            if name not in done.assigned:
                continue
            value = done.values[name]
            if name == "SCC":
                self.touched.add(("s", _SCC))
                self.written.add(("s", _SCC))
                self.lines.append(f"s[253] = {done.source(done.truth(value), 'bool')}")
                continue
            number = destination if name == "D0" else _EXEC
            wide = operands["vdst"].bits if name == "D0" else value.bits
            raw = self.name(done.raw(value, max(32, wide)))
            if wide > 32:
                low, high = self.name(f"low({raw})"), self.name(f"high({raw})")
                self.set_sgpr(number, low)
                self.set_sgpr(number + 1, high)
            else:
                self.set_sgpr(number, raw)
        if "PC" in done.assigned:
            raise NotModelledError("it jumps")

    def common(self, name: str) -> Value | None:
        """Return what every instruction can name."""
        mode = self.mode
        constants = {
            "WAVE32": mode.lanes == 32, "WAVE64": mode.lanes == 64, "ROUND_MODE": 0,
            "ROUND_NEAREST_EVEN": 0, "ROUND_TOWARD_ZERO": 3, "IEEE": mode.ieee, "WAVE_MODE": 0,
            "FLUSH_f32": mode.flush32, "FLUSH_f16": mode.flush16, "FLUSH_f64": mode.flush16,
            "BYTE0": 0, "BYTE1": 1, "BYTE2": 2, "BYTE3": 3, "WORD0": 4, "WORD1": 5,
        }  # fmt: skip
        if name in constants:
            return known(int(constants[name]), "i32")
        if name in {"LANES_LO", "LANES_HI"}:
            return Value(name, "u32")
        return None

    def source(self, instruction: Instruction, place: int) -> Value:
        """Return a vector instruction's source, with what its encoding does to it."""
        name = f"src{place}"
        number = instruction.fields.get(name, instruction.fields.get(f"v{name}"))
        if number is None:
            raise NotModelledError(f"it has no source {place}")
        spec = instruction.operands.get(name, Operand(32, "B32"))
        encoding = instruction.encoding
        literal = instruction.get("literal")
        if place == 0 and ("DPP" in encoding or "SDWA" in encoding):
            number = instruction.fields["vsrc0"]
            scalar = "SDWA" in encoding and instruction.get("s0")
            number = number - _VGPR if scalar else number
        elif place == 1 and "SDWA" in encoding and instruction.get("s1"):
            number -= _VGPR
        if encoding.startswith("VOP3P"):
            return self._packed(instruction, place, number, spec)
        half = 0
        if spec.bits == 16:
            if encoding.startswith("VOP3"):
                half = instruction.get("opsel") >> place & 1
            elif self.mode.family != "cdna" and number >= _VGPR + 128:
                half, number = 1, number - 128
            wide = self.read(
                number, Operand(32 if number < 128 or number >= _VGPR else 16, spec.format), literal
            )
        else:
            wide = self.read(number, spec, literal)
        if place == 0 and "DPP" in encoding:
            wide = self._moved(instruction, wide)
        if "SDWA" in encoding and not (place == 0 and "SDWA_SRC0_SEL" in instruction.pseudocode):
            wide = self._selected(instruction, place, wide)
        if half:
            wide = Value(f"({wide.code} >> {self.constant(16, 'u32')})", "u32")
        if spec.bits == 16 and wide.bits == 32 and wide.number is None:
            wide = Value(f"{wide.code}.astype(u16)", "u16")
        negated = instruction.get("neg") >> place & 1 or instruction.get(f"src{place}_neg")
        absolute = instruction.get("abs") >> place & 1 or instruction.get(f"src{place}_abs")
        if encoding.startswith("VOP3SD"):
            absolute = 0
        if "BITOP3" in instruction.name:
            return wide  # these bits are its truth table
        return self._signed(wide, negated, absolute)

    def _signed(self, value: Value, negated: int, absolute: int) -> Value:
        top = 1 << (value.bits - 1)
        if value.number is not None:
            bits = int(value.number)
            bits = bits & ~top if absolute else bits
            return known(bits ^ top if negated else bits, value.kind)
        code = value.code
        if absolute:
            code = f"({code} & {self.constant(top - 1, value.kind)})"
        if negated:
            code = f"({code} ^ {self.constant(top, value.kind)})"
        return Value(self.name(code) if code != value.code else code, value.kind)

    def _packed(self, instruction: Instruction, place: int, number: int, spec: Operand) -> Value:
        """Return a source of a packed instruction: each half chosen, each with its sign."""
        low = instruction.get("opsel") >> place & 1
        high = (instruction.get("opsel_hi") | instruction.get("opsel_hi2") << 2) >> place & 1
        minus = instruction.get("neg") >> place & 1
        minus_high = instruction.get("neg_hi") >> place & 1
        literal = instruction.get("literal")
        if "_MIX" in instruction.name:
            form = Operand(32, "F16" if high else "F32")
            value = self.read(number, form, literal)
            tops = self.constant(0x80008000 if high else 0x80000000, "u32")
            code = self.constant(value.number, "u32") if value.number is not None else value.code
            code = f"({code} & ~{tops})" if minus_high else code
            return Value(f"({code} ^ {tops})" if minus else code, "u32")
        size = 32 if spec.bits == 64 else 16
        if size == 32 and number < 128:  # two scalar registers
            value = self.read(number, spec, literal)
        elif size == 32 and number < _VGPR:  # a constant stands in both halves
            value = self.read(number, Operand(32, "F32"), literal)
            value = known(int(value.number or 0) * (1 + (1 << 32)), "u64")
        else:
            value = self.read(number, spec, literal)
        if "MOV" in instruction.name or not spec.format.startswith(("PK", "F", "B", "U", "I")):
            return value
        kind, mask = f"u{2 * size}", (1 << size) - 1
        top = 1 << (size - 1)
        if value.number is not None:
            bits = int(value.number)
            parts = [bits >> (size * chosen) & mask for chosen in (low, high)]
            parts[0] ^= top * minus
            parts[1] ^= top * minus_high
            return known(parts[0] | parts[1] << size, kind)
        code = value.code
        if (low, high) != (0, 1):
            code = self.name(code)
            by, lows = self.constant(size, kind), self.constant(mask, kind)
            first = f"({code} >> {by})" if low else f"({code} & {lows})"
            second = f"({code} & ~{lows})" if high else f"({code} << {by})"
            code = f"({first} | {second})"
        signs = top * minus | (top * minus_high) << size
        return Value(self.name(f"({code} ^ {self.constant(signs, kind)})" if signs else code), kind)

    def _moved(self, instruction: Instruction, value: Value) -> Value:
        """Return a source that comes from other lanes (DPP)."""
        if value.number is not None or value.bits != 32:
            raise NotModelledError("a DPP source that is not one vector register")
        if "DPP8" in instruction.encoding:
            table, valid = dpp8_table(
                [instruction.fields[f"lane_sel_{i}"] for i in range(8)], self.mode.lanes
            )
        else:
            table, valid = dpp_table(instruction.fields["dpp"], self.mode.lanes)
        self._names += 1
        name = f"d{self._names}_{instruction.offset}"
        self.namespace[f"{name}_from"], self.namespace[f"{name}_valid"] = table, valid
        fetch = bool(instruction.get("fi"))
        zero = bool(instruction.get("bc"))
        banks = (instruction.get("row_mask", 15), instruction.get("bank_mask", 15))
        self.lines.append(
            f"{name}, x_{name} = m.dpp(x, {value.code}, {name}_from, {name}_valid, "
            f"{fetch}, {zero}, {banks})"
        )
        self._dpp_mask = f"x_{name}"
        return Value(name, "u32")

    _dpp_mask = ""

    def _selected(self, instruction: Instruction, place: int, value: Value) -> Value:
        """Return the byte or half of a source that SDWA selects."""
        chosen = instruction.get(f"src{place}_sel", 6)
        if chosen == 6:  # all of it
            return value
        shift, width = (8 * chosen, 8) if chosen < 4 else (16 * (chosen - 4), 16)
        code = f"({value.code} >> {self.constant(shift, 'u32')}).astype(u{width})"
        if instruction.get(f"src{place}_sext"):
            code = f"{code}.view(i{width}).astype(i32).view(u32)"
        else:
            code = f"{code}.astype(u32)"
        return Value(self.name(code), "u32")

    def _vector(self, instruction: Instruction) -> list[Callable[[], None]]:
        """Translate a vector instruction, and return what stores its results."""
        fields, operands = instruction.fields, instruction.operands
        name, encoding = instruction.name, instruction.encoding
        self._dpp_mask = ""
        sources: dict[str, Value] = {}
        destination = fields.get("vdst", 0)
        spec = operands.get("vdst", Operand(32, "B32"))
        takes_mask = encoding.startswith("VOP3") and re.search(r"CNDMASK|_CI_|ADDC|SUBB", name)
        true16 = self.mode.family != "cdna" and spec.bits == 16
        high_half = (
            encoding.startswith("VOP3")
            and not encoding.startswith("VOP3P")
            and instruction.get("opsel") >> 3 & 1
        )
        if true16 and not encoding.startswith("VOP3") and destination >= _VGPR + 128:
            high_half, destination = 1, destination - 128

        def old() -> Value:
            return self.read(destination, Operand(64 if spec.bits > 32 else 32, spec.format))

        def operand(asked: str) -> Value | None:
            if asked in {"S0", "S1", "S2"}:
                if asked not in sources:
                    value = self.source(instruction, int(asked[1]))
                    if value.number is None:
                        value = Value(self.name(value.code), value.kind)
                    sources[asked] = value
                return sources[asked]
            match asked:
                case "D0":
                    return old()
                case "VCC[laneId]":
                    return Value(self.lane_mask(fields["src2"] if takes_mask else _VCC), "bool")
                case "OPSEL":
                    return known(instruction.get("opsel"), "u32")
                case "OPSEL_HI":
                    return known(
                        instruction.get("opsel_hi") | instruction.get("opsel_hi2") << 2, "u32"
                    )
                case "SDWA_SRC0_SEL":
                    return known(instruction.get("src0_sel", 0), "u32")
                case "SIMM32":
                    return known(instruction.get("literal"), "u32")
            return self.common(asked)

        done = self._translation(instruction, operand)
        stores: list[Callable[[], None]] = []
        active = self._dpp_mask
        if set(done.assigned) & {"EXEC", "SCC", "PC", "M0"}:
            raise NotModelledError("it writes what vector instructions seldom write")
        for mask, code in done.masks.items():
            number = _EXEC if mask == "EXEC" else _VCC
            if mask == "D0" and "sdst" in fields and not encoding.endswith("SDWA_SDST"):
                number = fields["sdst"]
            elif mask == "D0" and encoding.endswith("SDWA_SDST"):
                number = fields["sdst"] if instruction.get("sd") else _VCC
            elif mask == "D0" and encoding.startswith("VOP3"):
                number = fields["vdst"]
            elif mask in {"VCC", "D1"} and "sdst" in fields:
                number = fields["sdst"]
            if active:
                raise NotModelledError("a compare or carry with DPP")
            stores.append(partial(self.set_lane_mask, number, done.source(code, "bool")))
        if "D0" in done.assigned:
            value = self._modified(instruction, done, done.values["D0"])
            if spec.bits > 32:
                raw = self.name(done.raw(value, 64))
                parts = [self.name(f"low({raw})"), self.name(f"high({raw})")]
            elif spec.bits == 16 and value.bits <= 16:
                raw = done.raw(value, 16)
                raw = f"a.finite16({raw})" if self.mode.saturates and spec.format == "F16" else raw
                parts = [self._half(raw, high_half, true16 or high_half, old)]
            else:
                raw = done.raw(value, 32)
                packed = self.mode.saturates and spec.format.endswith("_F16")
                parts = [self.name(f"a.finite16({raw})" if packed else raw)]
            if "SDWA" in encoding:
                parts = [self._placed(instruction, parts[0], old)]
            for place, part in enumerate(parts):
                number = destination - _VGPR + place
                if number < 0:  # v_s_rcp_f32 and its like: from scalar registers into one
                    stores.append(partial(self.set_sgpr, destination + place, part))
                else:
                    stores.append(partial(self._store, number, part, active))
        return stores

    def _store(self, number: int, code: str, active: str) -> None:
        if active:
            self.lines.append(f"v[{number}] = put({active}, {code}, {self.vgpr(number)})")
            self.written.add(("v", number))
        else:
            self.set_vgpr(number, code)

    def _half(self, code: str, high: int, keeps: int, old: Callable[[], Value]) -> str:
        """Return a register one half of which is new; older targets zero the other."""
        wide = f"{code}.astype(u32)"
        if high:
            wide = f"({wide} << {self.constant(16, 'u32')})"
        if not keeps:
            return self.name(wide)
        kept = self.constant(0xFFFF if high else 0xFFFF0000, "u32")
        return self.name(f"({wide} | ({old().code} & {kept}))")

    def _placed(self, instruction: Instruction, code: str, old: Callable[[], Value]) -> str:
        """Return a register with a result in the byte or half that SDWA selects."""
        chosen, unused = instruction.get("dst_sel", 6), instruction.get("dst_unused")
        if chosen == 6:
            return code
        shift, width = (8 * chosen, 8) if chosen < 4 else (16 * (chosen - 4), 16)
        if unused == 1:
            raise NotModelledError("SDWA that extends the sign of its result")
        mask = ((1 << width) - 1) << shift
        new = f"(({code} << {self.constant(shift, 'u32')}) & {self.constant(mask, 'u32')})"
        if unused == 0:
            return self.name(new)
        return self.name(f"({new} | ({old().code} & {self.constant(~mask & 0xFFFFFFFF, 'u32')}))")

    def _modified(self, instruction: Instruction, done: Translation, value: Value) -> Value:
        """Apply the output modifiers: a factor, the clamp, flushed subnormals."""
        form = instruction.operands.get("vdst", Operand(32, "B32")).format
        clamp, factor = instruction.get("clmp"), instruction.get("omod")
        kind = {"F32": "f32", "F16": "f16", "F64": "f64"}.get(form, "")
        if not kind:
            if clamp and not done.masks and "_MIX" not in instruction.name:
                raise NotModelledError("a clamp of integers or packed numbers")
            return value
        flush = self.mode.flush32 if kind == "f32" else self.mode.flush16
        moves = re.search(r"CNDMASK|_MOV_", instruction.name)
        if not (clamp or factor or (flush and not moves)):
            return value
        code = self.name(done.typed(value, kind).code or self.constant(value.number or 0, kind))
        if factor:
            code = f"({code} * {self.constant((1, 2, 4, 0.5)[factor], kind)})"
        if clamp:
            code = f"a.clamp({code}, {self.mode.clamp_nan})"
        if flush and not moves:
            code = f"a.flush({code})"
        return Value(self.name(code), kind)

    def _across_lanes(self, instruction: Instruction) -> bool:
        """Write what reads or writes other lanes than its own."""
        name, fields = instruction.name, instruction.fields
        word = Operand(32, "B32")
        literal = instruction.get("literal")

        def word_of(field_name: str) -> str:
            number = fields.get(field_name, fields.get(f"v{field_name}", 0))
            value = self.read(number, word, literal)
            return self.constant(value.number, "u32") if value.number is not None else value.code

        if name == "V_READFIRSTLANE_B32":
            self.need_exec()
            self.set_sgpr(fields["vdst"] % _VGPR, f"m.first({word_of('src0')}, x)")
        elif name == "V_READLANE_B32":
            self.set_sgpr(
                fields["vdst"] % _VGPR, f"m.read_lane({word_of('src0')}, {word_of('src1')})"
            )
        elif name == "V_WRITELANE_B32":
            number = fields["vdst"] - _VGPR
            lanes = f"m.write_lane({self.vgpr(number)}, {word_of('src0')}, {word_of('src1')})"
            self.lines.append(f"v[{number}] = {lanes}")
            self.written.add(("v", number))
        elif name in {"V_PERMLANE16_B32", "V_PERMLANEX16_B32"}:
            self.need_exec()
            number, opsel = fields["vdst"] - _VGPR, instruction.get("opsel")
            parts = ", ".join(map(word_of, ("src0", "src1", "src2")))
            how = f"{name == 'V_PERMLANEX16_B32'}, {bool(opsel & 1)}, {bool(opsel & 2)}"
            self.set_vgpr(number, f"m.permlane(x, {parts}, {self.vgpr(number)}, {how})")
        elif name in {"V_PERMLANE32_SWAP_B32", "V_PERMLANE16_SWAP_B32"}:
            self.need_exec()
            first, second = fields["vdst"] - _VGPR, fields["src0"] - _VGPR
            size = 32 if "32_SWAP" in name else 16
            pair = self.name(f"m.swap({self.vgpr(first)}, {self.vgpr(second)}, {size})")
            self.set_vgpr(first, f"{pair}[0]")
            self.set_vgpr(second, f"{pair}[1]")
        elif name == "V_PERMLANE64_B32":
            self.need_exec()
            self.set_vgpr(fields["vdst"] - _VGPR, f"m.turn({word_of('src0')}, 32)")
        elif name in {"DS_BPERMUTE_B32", "DS_PERMUTE_B32"}:
            self.need_exec()
            offset = instruction.get("offset0") | instruction.get("offset1") << 8
            parts = f"{self.vgpr(fields['addr'] - _VGPR)}, {self.vgpr(fields['data0'] - _VGPR)}"
            call = "gather" if name == "DS_BPERMUTE_B32" else "scatter"
            self.set_vgpr(fields["vdst"] - _VGPR, f"m.{call}(x, {parts}, {offset})")
        elif name == "DS_SWIZZLE_B32":
            self.need_exec()
            offset = instruction.get("offset0") | instruction.get("offset1") << 8
            self.set_vgpr(
                fields["vdst"] - _VGPR,
                f"m.swizzle(x, {self.vgpr(fields['addr'] - _VGPR)}, {offset})",
            )
        elif name == "V_SWAP_B32":
            self.need_exec()
            first, second = fields["vdst"] - _VGPR, fields["src0"] - _VGPR
            kept = self.name(self.vgpr(first))
            self.set_vgpr(first, self.vgpr(second))
            self.set_vgpr(second, kept)
        elif name in {"V_ACCVGPR_READ_B32", "V_ACCVGPR_READ"}:
            self.need_exec()
            self.set_vgpr(fields["vdst"] - _VGPR, self.vgpr(fields["src0"]))
        elif name == "V_ACCVGPR_MOV_B32":
            self.need_exec()
            self.set_vgpr(fields["vdst"], self.vgpr(fields["src0"]))
        elif name in {"V_ACCVGPR_WRITE_B32", "V_ACCVGPR_WRITE"}:
            self.need_exec()
            self.set_vgpr(fields["vdst"], word_of("src0"))
        elif name == "S_GETPC_B64":
            place = memory_ops.CODE + instruction.offset + instruction.size
            self.set_sgpr(fields["sdst"], self.constant(place & 0xFFFFFFFF, "u32"))
            self.set_sgpr(fields["sdst"] + 1, self.constant(place >> 32, "u32"))
        else:
            return False
        return True

    def end(self, instruction: Instruction | None, following: int) -> None:
        """Write where the waves go after the block."""
        name = instruction.name if instruction else ""
        if instruction is None or _NOTHING.match(name):
            self.lines.append(f"return {following}")
        elif name.startswith("S_CBRANCH_"):
            pair = [self.sgpr(number) for number in (_VCC, _VCC + 1, _EXEC, _EXEC + 1)]
            wide = self.mode.lanes == 64
            vcc = f"{pair[0]}, {pair[1]}" if wide else pair[0]
            execs = f"{pair[2]}, {pair[3]}" if wide else pair[2]
            self.touched.add(("s", _SCC))
            test = _CONDITIONS.get(name.removeprefix("S_CBRANCH_"))
            if test is None:
                raise NotModelledError("its condition")
            condition = test.format(vcc=vcc, exec=execs)
            self.lines.append(f"return np.where({condition}, {target(instruction)}, {following})")
        elif name == "S_BRANCH":
            self.lines.append(f"return {target(instruction)}")
        elif name in {"S_ENDPGM", "S_ENDPGM_SAVED"}:
            self.lines.append("return -1")
        elif name in {"S_BARRIER", "S_BARRIER_WAIT"}:
            self.lines.append(f"return m.wait({following})")
        elif name in {"S_SETPC_B64", "S_SWAPPC_B64"}:
            to = self.name(f"m.jump({self.scalar64(instruction.fields['ssrc0'], 0)})")
            if name == "S_SWAPPC_B64":
                place = memory_ops.CODE + following
                self.set_sgpr(instruction.fields["sdst"], self.constant(place & 0xFFFFFFFF, "u32"))
                self.set_sgpr(instruction.fields["sdst"] + 1, self.constant(place >> 32, "u32"))
            self.lines.append(f"return {to}")
        else:
            raise NotModelledError("it ends a block in a way that is not modelled")


def sets_saturation(instruction: Instruction) -> bool:
    """Say whether an instruction sets FP16_OVFL, one bit of the register MODE, at its place 23."""
    return (
        instruction.name == "S_SETREG_IMM32_B32"
        and instruction.fields["simm16"] == 1 | 23 << 6
        and instruction.get("literal") == 1
    )


def target(instruction: Instruction) -> int:
    """Return where a branch goes to, in the image."""
    by = instruction.fields["simm16"]
    return instruction.offset + instruction.size + 4 * (by - ((by >> 15) << 16))


def ends_block(instruction: Instruction) -> bool:
    """Say whether waves may part after an instruction."""
    return instruction.name.startswith(("S_CBRANCH_", "S_ENDPGM")) or instruction.name in {
        "S_BRANCH", "S_BARRIER", "S_BARRIER_WAIT", "S_SETPC_B64", "S_SWAPPC_B64", "S_TRAP",
    }  # fmt: skip
