"""The operands of an instruction as C++: the registers of one wave, and constants."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from contribbot.emulate.decode import Operand
from contribbot.emulate.pseudocode import NotModelledError

#: The values of the operands 240 to 248.
_FLOATS: Final = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532)
#: The values of the operands `src_shared_base` and `src_private_base`.
APERTURES: Final = {235: 1 << 48, 237: 2 << 48}
_UNREAD: Final = {233: "DPP8", 234: "DPP8"}
_SCC, _LITERAL, VGPR = 253, 255, 256
#: The first accumulation register among a wave's vector registers.
ACCUMULATORS: Final = 256
#: The number of the register M0 by family; on RDNA, the other of 124 and 125 is NULL.
_M0: Final = {"cdna": 124, "rdna3": 125, "rdna4": 125}


@dataclass(frozen=True)
class FloatMode:
    """The target and the floating-point modes on which a kernel's code depends."""

    target: str
    family: str
    lanes: int  # the number of lanes of a wave
    ieee: bool  # whether a minimum of a signalling NaN is NaN
    clamp_nan: bool  # whether a clamp turns NaN into 0
    flush: frozenset[str]  # the types whose subnormals count as zero
    saturates: bool = False  # whether overflow of FP8 and float16 gives the largest number


#: The kinds of operations for which a wave does not wait, as in machine.hpp: vector memory,
#: LDS, scalar memory (unordered), and flat memory, which counts as both of the first two.
VECTOR_MEMORY, LOCAL, SCALAR, FLAT = range(4)
_ANY: Final = 0xFFFF


@dataclass(frozen=True)
class MemoryWaits:
    """The number of unfinished operations of each kind after a wait; None: any number."""

    vector: int | None = None
    local: int | None = None
    scalar: int | None = None
    stores: int | None = None  # stores with a counter of their own


class Registers:
    """The C++ statements of an instruction, and the expressions for registers and constants."""

    def __init__(self, mode: FloatMode, *lines: str) -> None:
        self.mode = mode
        self.lines = [*lines]
        self.parameters: list[int] = []  # all but the first parameter
        self.vectors = 1  # the number of vector registers
        self.before: list[str] = []  # statements before the loop over lanes
        self.skipped = ""  # the condition of lanes that keep their values
        #: The registers that the instruction names, scalar registers first: `uses` at once, and
        #: `results` when the memory operation `begins` ends.
        self.uses, self.results = set[int](), set[int]()
        self.begins: int | None = None
        self.waits = MemoryWaits()
        self.into_lds = self.arrives = False  # a load into LDS; arrival at a barrier
        self.stores = False  # whether it begins a store with a counter of its own
        self.doubt = ""  # why an error at this instruction is no result

    @property
    def code(self) -> str:
        """The statements as one text."""
        return "\n".join(self.lines)

    @property
    def counts(self) -> bool:
        """Whether the instruction begins or awaits memory operations, or arrives at a barrier."""
        begins = self.begins is not None or self.stores
        return begins or self.arrives or self.waits != MemoryWaits()

    @property
    def bits(self) -> int:
        """A bit mask of the named registers, to test quickly; several registers share a bit."""
        numbers = self.uses | self.results
        banks = 512 if self.mode.family == "cdna" else 256  # RDNA's halves share a bit
        places = {16 + n % banks % 48 if n >= VGPR else n // 2 % 16 for n in numbers}
        return sum(1 << place for place in places)

    @functools.cached_property
    def track(self) -> NDArray[np.uint16]:
        """Return the registers and waits in the form of `Track` in machine.hpp."""
        waits = self.waits.vector, self.waits.local, self.waits.scalar, self.waits.stores
        numbers = [
            len(self.uses),
            len(self.results),
            0 if self.begins is None else self.begins + 1,
            self.into_lds,
            self.arrives,
            self.stores,
            *(_ANY if most is None else most for most in waits),
            *sorted(self.uses),
            *sorted(self.results),
        ]
        return np.array(numbers, np.uint16)

    def number(self, value: int) -> str:
        """Make a number a parameter of the generated C++; return the expression that reads it."""
        self.parameters.append(value & (1 << 64) - 1)
        return f"op[{len(self.parameters)}]"

    def vgpr(self, number: int, *, late: bool = False, half: int | None = None) -> str:
        """Return the expression for a lane of a VGPR; `late`: as a memory operation's result.

        An instruction that names one half of a VGPR (0 or 1) does not wait for the other half.
        """
        return f"{self.vector(number, late=late, half=half)}[l]"

    def vector(self, number: int, *, late: bool = False, half: int | None = None) -> str:
        """Return the expression for all lanes of a VGPR."""
        if number < 0:
            raise NotModelledError("a scalar register where a vector register is expected")
        self.vectors = max(self.vectors, number + 1)
        self.name_vector(number, late=late, half=half)
        return f"v[{self.number(number)}]"

    def name_vector(self, number: int, *, late: bool = False, half: int | None = None) -> None:
        """Record that an instruction names a VGPR; RDNA's high halves count apart."""
        halves = (0,) if self.mode.family == "cdna" else (0, 1) if half is None else (half,)
        named = self.results if late else self.uses
        named.update(VGPR + number + ACCUMULATORS * each for each in halves)

    def sgpr(self, number: int, *, late: bool = False) -> str:
        """Return the expression for a scalar register; the null register is 0."""
        m0 = number == _M0[self.mode.family]
        if number in {124, 125} and not m0:
            return "0u"
        (self.results if late else self.uses).add(124 if m0 else number)
        return "s[124]" if m0 else f"s[{self.number(number)}]"

    def set_sgpr(self, number: int, code: str, *, late: bool = False) -> str:
        """Return the statement that writes a scalar register."""
        register = self.sgpr(number, late=late)
        return f"{register} = {code};" if register != "0u" else ""

    def set_pair(self, number: int, code: str) -> list[str]:
        """Return the statements that write two scalar registers."""
        return [self.set_sgpr(number + i, f"{code} >> {32 * i}") for i in (0, 1)]

    def set_mask(self, number: int, code: str) -> str:
        """Return the statement that writes a mask of lanes into scalar registers."""
        null = number in {124, 125} and self.mode.family != "cdna"
        return "" if null else f"set_mask(s, {self.mask(number)}, {code});"

    def mask(self, number: int) -> str:
        """Return the expression for the number of a lane mask's first scalar register."""
        self.uses.update(range(number, number + self.mode.lanes // 32))
        return self.number(number)

    def read(
        self, number: int, operand: Operand, literal: int = 0, *, half: int | None = None
    ) -> str:
        """Return the expression for the bits of a source operand: 16, 32 or 64 bits."""
        if operand.bits > 64:
            raise NotModelledError(f"an operand of {operand.bits} bits")
        width = 64 if operand.bits > 32 else 16 if operand.bits == 16 else 32
        if 128 <= number <= 208:
            bits = number - 128 if number <= 192 else 192 - number
        elif 240 <= number <= 248:
            form = "e" if operand.format.endswith("F16") else {16: "e", 32: "f", 64: "d"}[width]
            bits = int.from_bytes(struct.pack(f"<{form}", _FLOATS[number - 240]), "little")
        elif number == _LITERAL:
            signed = literal - (literal >> 31 << 32)
            wide = signed if "I64" in operand.format else literal
            bits = literal << 32 if width == 64 and "F64" in operand.format else wide
        elif number in APERTURES:
            bits = APERTURES[number]
        elif number < 128 or number == _SCC or number >= VGPR:
            if number >= VGPR and width != 64:
                return f"u{width}({self.vgpr(number - VGPR, half=half)})"
            vector = number >= VGPR
            register, first = (self.vgpr, number - VGPR) if vector else (self.sgpr, number)
            if width == 64:
                return f"join({register(first)}, {register(first + 1)})"
            return f"u{width}({register(first)})"
        else:
            raise NotModelledError(_UNREAD.get(number, f"the source operand {number}"))
        return f"u{width}({self.number(bits)})"

    def each(self, *lines: str, after: Sequence[str] = ()) -> None:
        """Write statements for each active lane, between `self.before` and `after`."""
        self.lines += ["{ const u64 x = mask(s, EXEC_);", *self.before]
        self.lines += ["EACH {", *lines, "}", *after, "}"]
