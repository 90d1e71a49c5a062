"""Modifiers of operands and results, with each kind of instruction, against their own model.

The model knows no pseudo-code: it reads operands as the modifiers say, computes with exact numbers,
and rounds once. The assembler says which combinations a target has. What ends as not modelled is
listed (`REFUSED`); whatever runs must give the model's bits.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_uint64
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from contribbot.emulate import program as programs
from contribbot.emulate.code_object import Descriptor, Kernel, LineTable, Metadata
from contribbot.emulate.decode import TABLES, decode
from contribbot.emulate.memory import Memory
from contribbot.emulate.program import Program
from contribbot.emulate.registers import FloatMode
from contribbot.emulate.translate import Writer
from contribbot.emulate.workgroup import Executor, Launch
from tests.test_emulate_corners import assembled, initial_registers, split
from tests.tools import kinds

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
#: Bits of the fraction and the bias of the exponent.
FLOATS = {"f16": (10, 15), "bf16": (7, 127), "f32": (23, 127), "f64": (52, 1023)}
SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
BEFORE = 0x7654CBA9  # what a destination holds before
FACTORS: dict[str, int | Fraction] = {"": 1, "mul:2": 2, "mul:4": 4, "div:2": Fraction(1, 2)}
Number: TypeAlias = "Fraction | int"


@dataclass(frozen=True)
class Operation:
    """What an instruction computes, of exact numbers, part by part."""

    name: str
    to: str  # the type of the result, or "lane": a bit of each lane
    of: tuple[str, ...]  # the types of its operands
    compute: Callable[..., Number]
    parts: int = 1  # numbers in each operand
    families: tuple[str, ...] = ("e64",)
    preserves: bool = False  # the other half of the destination, also on CDNA

    @property
    def bits(self) -> int:
        return bits_of(self.to) * self.parts


@dataclass(frozen=True)
class Case:
    """An instruction with its modifiers."""

    operation: Operation
    family: str
    selects: tuple[str, ...] = ()  # parts of the operands, and of the result
    into: tuple[str, str] = ("DWORD", "UNUSED_PAD")
    negated: tuple[int, ...] = ()
    absolute: tuple[int, ...] = ()
    extended: tuple[int, ...] = ()
    low: tuple[int, ...] = ()  # op_sel
    high: tuple[int, ...] = ()  # op_sel_hi
    neg_lo: tuple[int, ...] = ()
    neg_hi: tuple[int, ...] = ()
    clamp: bool = False
    factor: str = ""

    def __str__(self) -> str:
        operation = self.operation
        name = operation.name + ("" if self.family == "e64" else f"_{self.family}")
        words = [
            "s[8:9]" if operation.to == "lane" else registers(operation.to, operation.parts, 0)
        ]
        for place, kind in enumerate(operation.of):
            word = registers(kind, operation.parts, 2 + 2 * place)
            word = f"sext({word})" if place in self.extended else word
            word = f"|{word}|" if place in self.absolute else word
            words.append(f"-{word}" if place in self.negated else word)
        said = []
        if self.family == "sdwa":
            into = (
                []
                if operation.to == "lane"
                else [f"dst_sel:{self.into[0]}", f"dst_unused:{self.into[1]}"]
            )
            said += into + [f"src{i}_sel:{select}" for i, select in enumerate(self.selects)]
        if "dpp" in self.family:
            said.append("quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf")
            said.append("bound_ctrl:1" * (operation.to == "lane"))
        lists = {
            "op_sel": self.low,
            "op_sel_hi": self.high,
            "neg_lo": self.neg_lo,
            "neg_hi": self.neg_hi,
        }
        said = (
            [f"{name}:[{','.join(map(str, bits))}]" for name, bits in lists.items() if bits]
            + ["clamp" * self.clamp, self.factor]
            + said
        )
        return f"{name} {', '.join(words)} {' '.join(filter(None, said))}".strip()


def registers(kind: str, parts: int, first: int) -> str:
    return f"v[{first}:{first + 1}]" if bits_of(kind) * parts > 32 else f"v{first}"


def bits_of(kind: str) -> int:
    return int(kind[-2:].replace("24", "32")) if kind[-1].isdigit() else 32


def read(raw: int, kind: str, *, flush: bool) -> Number:
    """Return the number that some bits are."""
    if kind in FLOATS:
        stored, bias = FLOATS[kind]
        width = bits_of(kind)
        sign, place, digits = (
            raw >> width - 1,
            raw >> stored & (1 << width - 1 - stored) - 1,
            raw & (1 << stored) - 1,
        )
        if not place and flush:
            digits = 0
        size = Fraction(digits + (1 << stored if place else 0)) * Fraction(2) ** (
            max(place, 1) - bias - stored
        )
        return -size if sign else size
    digits = int(kind[1:])
    raw &= (1 << digits) - 1
    return raw - (1 << digits) if kind[0] == "i" and raw >> digits - 1 else raw


def write(number: Number, kind: str, *, clamp: bool) -> int:
    """Return a number's bits, rounded to the nearest even; a whole one wraps or saturates."""
    if kind not in FLOATS:
        width = bits_of(kind)
        least, most = (
            (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "i" else (0, (1 << width) - 1)
        )
        assert isinstance(number, int)
        return (min(max(number, least), most) if clamp else number) & (1 << width) - 1
    stored, bias = FLOATS[kind]
    number = Fraction(min(max(number, 0), 1) if clamp else number)
    size = abs(number)
    place = 1 - bias
    while size >= Fraction(2) ** (place + 1):
        place += 1
    scaled = size / Fraction(2) ** (place - stored)
    whole = round(scaled)  # ties to even
    raw = whole + (place + bias - 1 << stored) if whole else 0
    raw = min(raw, 2 * bias + 1 << stored)  # infinity
    return raw | (number < 0) << bits_of(kind) - 1


def multiplied(a: Number, b: Number) -> Number:
    return a * b


def added(a: Number, b: Number) -> Number:
    return a + b


def subtracted(a: Number, b: Number) -> Number:
    return a - b


def fused(a: Number, b: Number, c: Number) -> Number:
    return a * b + c


def same(a: Number) -> Number:
    return a


def middle(*numbers: Number) -> Number:
    return sorted(numbers)[1]


VOP3 = ("e64", "e64_dpp")
ALL = ("e32", "e64", "sdwa", "dpp", "e64_dpp")
#: One of each kind of instruction, by its operands; assemblers leave out what a target lacks.
OPERATIONS = [
    Operation("v_add_f32", "f32", ("f32", "f32"), added, families=ALL),
    Operation("v_mul_f16", "f16", ("f16", "f16"), multiplied, families=ALL),
    Operation("v_max_f32", "f32", ("f32", "f32"), max),
    Operation("v_add_f64", "f64", ("f64", "f64"), added),
    Operation("v_max_num_f16", "f16", ("f16", "f16"), max, families=VOP3),
    *(Operation(f"v_fma_{kind}", kind, 3 * (kind,), fused, families=VOP3, preserves=kind == "f16")
      for kind in ("f16", "f32", "f64")),
    Operation("v_med3_f32", "f32", 3 * ("f32",), middle),
    Operation("v_med3_u32", "u32", 3 * ("u32",), middle),
    Operation("v_mov_b32", "u32", ("u32",), same, families=("sdwa", "dpp")),
    Operation("v_cvt_f32_f16", "f32", ("f16",), same, families=ALL),
    Operation("v_cvt_f16_f32", "f16", ("f32",), same, families=VOP3),
    Operation("v_cvt_f32_f64", "f32", ("f64",), same),
    Operation("v_cvt_f64_f32", "f64", ("f32",), same),
    Operation("v_cvt_f32_i32", "f32", ("i32",), same, families=("e64", "sdwa")),
    Operation("v_cvt_i32_f32", "i32", ("f32",), int),
    Operation("v_cvt_f16_i16", "f16", ("i16",), same),
    *(Operation(f"v_{name}{kind}", kind, (kind, kind), compute)
      for kind in ("u32", "u16", "i32", "i16")
      for name, compute in (("add_", added), ("sub_", subtracted), ("add_nc_", added),
                            ("sub_nc_", subtracted), ("subrev_", lambda a, b: b - a),
                            ("subrev_nc_", lambda a, b: b - a))),
    Operation("v_sub_u32", "u32", ("u32", "u32"), subtracted, families=("sdwa", "dpp")),
    Operation("v_max_i16", "i16", ("i16", "i16"), max, families=("sdwa",)),
    Operation("v_mul_i32_i24", "i32", ("i24", "i24"), multiplied),
    Operation("v_lshlrev_b16", "u16", ("u16", "u16"), lambda a, b: b << a % 16),
    *(Operation(f"v_mad_{kind}", kind, 3 * (kind,), fused, preserves=True)
      for kind in ("u16", "i16")),
    *(Operation(f"v_mad_{wide}_{kind}", wide, (kind, kind, wide), fused, families=VOP3)
      for wide, kind in (("u32", "u16"), ("i32", "i16"), ("u32", "u24"), ("i32", "i24"))),
    Operation("v_add3_u32", "u32", 3 * ("u32",), lambda a, b, c: a + b + c),
    *(Operation(f"v_pk_{name}_{kind}", kind, (kind, kind), compute, 2)
      for name, kind, compute in (
          ("add", "f16", added), ("mul", "f32", multiplied), ("add", "u16", added),
          ("add", "i16", added),
          ("sub", "u16", subtracted), ("sub", "i16", subtracted), ("mul_lo", "u16", multiplied))),
    *(Operation(f"v_pk_{name}_{kind}", kind, 3 * (kind,), fused, 2)
      for name, kind in (("fma", "f16"), ("fma", "f32"), ("mad", "u16"), ("mad", "i16"))),
    *(Operation(f"v_cmp_lt_{kind}", "lane", (kind, kind), lambda a, b: int(a < b),
                families=("e64", "sdwa", "e64_dpp"))
      for kind in ("f16", "f32", "i32")),
    *(Operation(f"v_fma_mix{name}", to, 3 * ("mix",), fused, families=VOP3, preserves=True)
      for name, to in (("_f32", "f32"), ("lo_f16", "f16"), ("hi_f16", "f16"))),
]  # fmt: skip


def cases(operation: Operation) -> Iterator[Case]:
    """Yield an operation with each of its modifiers; most are no instruction of most targets."""
    places = range(len(operation.of))
    for family in operation.families:
        selects = tuple("DWORD" for _ in places) if family == "sdwa" else ()
        plain = Case(operation, family, selects)
        yield plain
        if family == "e32":
            continue
        yield replace(plain, clamp=True)
        for factor in list(FACTORS)[1:]:
            yield replace(plain, factor=factor)
        yield replace(plain, factor="mul:2", clamp=True, negated=(0,))
        if family == "sdwa":
            yield from of_parts(plain)
        elif operation.parts > 1:
            yield from of_both(plain)
        elif "mix" in operation.of:
            for high in itertools.product((0, 1), repeat=3):
                yield replace(plain, high=high, low=high, negated=(0,), absolute=(1,))
                yield replace(plain, high=high, clamp=True)
        else:
            for low in itertools.product((0, 1), repeat=len(places) + 1):
                yield replace(plain, low=low)
            yield replace(plain, low=(1,) * (len(places) + 1), negated=(0,), clamp=True)
        for chosen in (
            [*((place,) for place in places), tuple(places)] if operation.parts == 1 else []
        ):
            yield replace(plain, negated=chosen)
            yield replace(plain, negated=chosen, absolute=chosen)


def of_both(plain: Case) -> Iterator[Case]:
    """Yield what chooses the halves of packed operands, and their signs."""
    bits = [*itertools.product((0, 1), repeat=len(plain.operation.of))]
    for low, high in itertools.product(bits, bits):
        if len(bits) == 4 or (low, high) in {
            (bits[1], bits[6]),
            (bits[4], bits[3]),
            (bits[7], bits[0]),
        }:
            yield replace(plain, low=low, high=high)
    for chosen in bits[1:]:
        yield replace(plain, neg_lo=chosen)
        yield replace(plain, low=bits[-1], high=bits[1], neg_lo=chosen, neg_hi=bits[-2], clamp=True)


def of_parts(plain: Case) -> Iterator[Case]:
    """Yield what reads or writes parts of registers (SDWA)."""
    first, *others = plain.selects
    for select in SELECTS:
        for selects in ((select, *others), (first, *(select for _ in others))):
            yield replace(plain, selects=selects)
            yield replace(plain, selects=selects, extended=(len(others),))
            yield replace(plain, selects=selects, negated=(0,), absolute=(0,))
    for into in itertools.product(SELECTS[2:], UNUSED):
        yield replace(plain, into=into)
    halves = tuple("WORD_1" for _ in plain.selects)
    yield replace(plain, into=("WORD_1", "UNUSED_PRESERVE"), selects=halves, clamp=True)


def operand(case: Case, place: int, part: int, word: int, *, flush: bool) -> Number:
    """Return the number that an instruction reads."""
    kind = case.operation.of[place]
    high = part
    if kind == "mix":
        kind = "f16" if case.high and case.high[place] else "f32"
        high = case.low[place] if case.low and kind == "f16" else 0
    elif case.operation.parts > 1:
        given = case.high if part else case.low
        high = given[place] if given else part
    elif case.low:
        high = case.low[place] if bits_of(kind) == 16 else 0
    raw = word >> bits_of(kind) * high & (1 << bits_of(kind)) - 1
    if case.selects and case.selects[place] != "DWORD":
        size, number = case.selects[place].split("_")
        width = 8 if size == "BYTE" else 16
        raw = word >> width * int(number) & (1 << width) - 1
        if place in case.extended and raw >> width - 1:
            raw |= 0xFFFFFFFF << width & 0xFFFFFFFF
        raw &= (1 << bits_of(kind)) - 1
    number_ = read(raw, kind, flush=flush)
    if place in case.absolute and number_ < 0:
        number_ = -number_
    minus = case.neg_hi if part else case.neg_lo
    negated = place in case.negated or bool(minus and minus[place])
    return -number_ if negated else number_


def result(case: Case, part: int, words: Sequence[int], *, flush: bool) -> int:
    """Return the bits of one number of a result."""
    operation, kind = case.operation, case.operation.to
    numbers = [operand(case, i, part, word, flush=flush) for i, word in enumerate(words)]
    exact = operation.compute(*numbers)
    if kind == "lane":
        return int(exact)
    if case.factor and kind in FLOATS:
        exact = (
            Fraction(read(write(exact, kind, clamp=False), kind, flush=False))
            * FACTORS[case.factor]
        )
    if "mixlo" in operation.name or "mixhi" in operation.name:
        exact = read(write(exact, "f32", clamp=False), "f32", flush=False)
    raw = write(exact, kind, clamp=case.clamp)
    return raw if not flush or kind not in FLOATS or read(raw, kind, flush=True) else 0


def expected(case: Case, words: Sequence[int], target: str, *, flush: bool) -> int:
    """Return what the destination holds."""
    operation = case.operation
    parts = [result(case, part, words, flush=flush) for part in range(operation.parts)]
    if operation.to == "lane":
        return parts[0]
    width = bits_of(operation.to)
    bits = sum(part << width * place for place, part in enumerate(parts))
    if case.family == "sdwa" and case.into[0] != "DWORD":
        (size, number), unused = case.into[0].split("_"), case.into[1]
        narrow = 8 if size == "BYTE" else 16
        shift, kept = narrow * int(number), (1 << narrow) - 1
        bits &= kept
        if unused == "UNUSED_SEXT" and bits >> narrow - 1:
            bits |= 0xFFFFFFFF << narrow
        bits = bits << shift & 0xFFFFFFFF
        return bits | BEFORE & ~(kept << shift) if unused == "UNUSED_PRESERVE" else bits
    if width * operation.parts == 16:
        high = "mixhi" in operation.name or case.low[len(operation.of) :] == (1,)
        keeps = TABLES[target] != "cdna" or operation.preserves or high
        bits = bits << 16 * high | (BEFORE & (0xFFFF if high else 0xFFFF0000) if keeps else 0)
    return bits


def words(kind: str, parts: int, generator: np.random.Generator, count: int) -> list[int]:
    """Return operands: floats of moderate size, whole numbers of any, with their ends."""
    if kind not in FLOATS and kind != "mix":
        ends = [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFF8000, 0x8000FFFF, 0xFFFF7FFF, 1, 0x10000]
        return [*ends, *map(int, generator.integers(1 << 32, size=count - len(ends)))]
    stored, bias = FLOATS.get(kind, FLOATS["f32"])
    width = 32 if kind == "mix" else bits_of(kind)
    total = max(32, width * parts)
    results = [0] * count
    for place in range(0, total, width):
        for i in range(count):
            sign, exponent = generator.integers(2), generator.integers(bias - 3, bias + 4)
            bits = (
                int(sign) << width - 1
                | int(exponent) << stored
                | int(generator.integers(1 << stored))
            )
            results[i] |= bits << place
    return (
        [bits & ~0x4000 for bits in results] if kind == "mix" else results
    )  # also finite as float16


def kernel(target: str, text: str, modes: int) -> Program:
    """Return a program of a text under float modes (the descriptor's rsrc1)."""
    with tempfile.TemporaryDirectory() as folder:
        image = assembled(text, target, Path(folder)) + bytes(16)
    metadata = Metadata.model_validate({
        ".name": "table", ".symbol": "table.kd", ".kernarg_segment_size": 0,
        ".wavefront_size": 64 if TABLES[target] == "cdna" else 32, ".max_flat_workgroup_size": 64,
    })  # fmt: skip
    descriptor = Descriptor(0, 0, 0, modes, 0, 0)
    return Program(Kernel(target, image, descriptor, metadata, LineTable(b""), len(image)))


def known(target: str, candidates: Sequence[Case]) -> list[Case]:
    """Return those that are instructions of a target, by the assembler's word."""
    text = "\n".join(map(str, candidates))
    try:
        with tempfile.TemporaryDirectory() as folder:
            assembled(text + "\n", target, Path(folder), quiet=True)
    except subprocess.CalledProcessError as error:
        wrong = {int(line) for line in re.findall(r"text\.s:(\d+):", error.stderr)}
        return [case for line, case in enumerate(candidates, 1) if line not in wrong]
    return list(candidates)


def written(target: str, chosen: Sequence[Case], *, kept: bool) -> list[Writer]:
    """Return what executes each case, or says why nothing does."""
    with tempfile.TemporaryDirectory() as folder:
        image = assembled("\n".join(map(str, chosen)) + "\n", target, Path(folder)) + bytes(16)
    family, offset, found = TABLES[target], 0, []
    flush = frozenset[str]() if kept else frozenset({"f16", "f32", "f64"})
    mode = FloatMode(
        target, family, 64 if family == "cdna" else 32, ieee=kept and family != "rdna4",
        clamp_nan=True, flush=flush,
    )  # fmt: skip
    for _ in chosen:
        instruction = decode(image, offset, target)
        found.append(programs._written(mode, instruction))
        offset += instruction.size
    return found


def executed(target: str, chosen: Sequence[Case], *, kept: bool) -> Iterator[str]:
    """Yield where a case differs from the model; kept: subnormals, in IEEE mode."""
    jumps = [f"s_cmp_eq_u32 s100, {i}\ns_cbranch_scc1 case{i}" for i in range(len(chosen))]
    bodies = [f"case{i}:\n{case}\ns_endpgm" for i, case in enumerate(chosen)]
    modes = 1 << 21 | (0xF0000 | (TABLES[target] != "rdna4") << 23) * kept
    made = kernel(target, "\n".join(["v_mov_b32 v9, 0", *jumps, "s_endpgm", *bodies, ""]), modes)
    lanes = made.mode.lanes
    banks, initial = initial_registers(made, len(chosen))
    banks["s"][:, 100] = range(len(chosen))
    banks["v"][:, :2] = BEFORE
    generator = np.random.default_rng(0)
    given = [[words(kind, case.operation.parts, generator, lanes) for kind in case.operation.of]
             for case in chosen]  # fmt: skip
    for wave, sources in enumerate(given):
        for place, source in enumerate(sources):
            for half in (0, 1):
                row = [word >> 32 * half & 0xFFFFFFFF for word in source]
                banks["v"][wave, 2 + 2 * place + half] = row
    machine = Executor(Launch(made, Memory(), (1, 1, 1), initial, [None] * 3, 0), 1, c_uint64(0))
    machine.run()
    if machine.cause:
        raise machine.error()
    scalar, vector = split(made, machine.registers)
    for wave, case in enumerate(chosen):
        for lane in range(lanes):
            row = [
                source[lane ^ ("dpp" in case.family and not i)]
                for i, source in enumerate(given[wave])
            ]
            wanted = expected(case, row, target, flush=not kept)
            low, high = (int(word) for word in vector[wave, :2, lane])
            if case.operation.to == "lane":
                found = int(scalar[wave, 8 + lane // 32]) >> lane % 32 & 1
            else:
                found = low | (high << 32 if case.operation.bits > 32 else 0)
            if without_zeros(found, case) != without_zeros(wanted, case):
                yield f"{case}: {found:#x}, not {wanted:#x}, of {[hex(word) for word in row]}"
                break


def without_zeros(bits: int, case: Case) -> int:
    """Return a result without the signs of zeros, which exact numbers have not."""
    width = bits_of(case.operation.to)
    for place in range(0, 64, width) if case.operation.to in FLOATS else ():
        if bits >> place & (1 << width) - 1 == 1 << width - 1:
            bits ^= 1 << place + width - 1
    return bits


def left_open(case: Case, *, kept: bool) -> bool:
    """Say whether nothing known to us says what a case does."""
    operation = case.operation
    whole = operation.to not in FLOATS
    if case.factor and (kept or whole):
        return True
    if operation.parts > 1 and whole and any(case.neg_lo + case.neg_hi):
        return True
    saturates = re.match(r"v_(pk_)?(add|sub|subrev|mad)_(?!lshl)", operation.name)
    return case.clamp and whole and operation.to != "lane" and not saturates


@pytest.mark.parametrize("target", kinds(sorted(TARGETS), "gfx1201".__eq__))
@pytest.mark.parametrize(
    "kept",
    kinds(
        (True, False),
        lambda kept: not kept,
        {True: "subnormals are kept", False: "subnormals are zero"}.get,
    ),
)
def test_modifiers(target: str, *, kept: bool) -> None:
    candidates = [case for operation in OPERATIONS for case in cases(operation)]
    if not kept:
        candidates = [case for case in candidates if case.factor or case.clamp]
    candidates = known(target, candidates)
    results = written(target, candidates, kept=kept)
    refused = [case for case, writer in zip(candidates, results, strict=True) if writer.doubt]
    assert [str(case) for case in refused if not left_open(case, kept=kept)] == []
    others: list[str | None] = [None] * len(candidates)
    if target in {"gfx90a", "gfx950"}:  # what is the same as for gfx942 is executed for that
        others = [writer.code for writer in written("gfx942", candidates, kept=kept)]
    chosen = [
        case
        for case, writer, other in zip(candidates, results, others, strict=True)
        if not writer.doubt and writer.code != other
    ]
    assert target in {"gfx90a", "gfx950"} or len(chosen) > (300 if kept else 80)
    # A branch reaches 32,768 words.
    parts = [chosen[first : first + 400] for first in range(0, len(chosen), 400)]
    assert [wrong for part in parts for wrong in executed(target, part, kept=kept)] == []
