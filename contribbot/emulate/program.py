"""A kernel as basic blocks, each decoded and compiled when it is first reached."""

from __future__ import annotations

import bisect
import functools
import traceback
from dataclasses import replace
from types import FunctionType, SimpleNamespace
from typing import Final

import numpy as np

from contribbot.emulate import arithmetic
from contribbot.emulate.code_object import Kernel
from contribbot.emulate.decode import TABLES, Instruction, decode
from contribbot.emulate.errors import SourceLocation, UnmodelledError
from contribbot.emulate.lanes import lanes_below
from contribbot.emulate.machine import high, join, low, put, within
from contribbot.emulate.matrix import Multiplier
from contribbot.emulate.pseudocode import NotModelledError
from contribbot.emulate.translate import (
    Block,
    FloatMode,
    Writer,
    ends_block,
    sets_saturation,
    target,
)

_TYPES: Final = {name: np.dtype(f"{name[0]}{int(name[1:]) // 8}") for name in (
    "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "f32", "f64",
)}  # fmt: skip


class Program:
    """A kernel's blocks.

    `side` is 0 for exact results of instructions that documents bound by 1 ULP, and -1 or 1 for
    an end of that interval.
    """

    def __init__(self, kernel: Kernel, side: int = 0) -> None:
        descriptor, family = kernel.descriptor, TABLES[kernel.target]
        if descriptor.round_modes or descriptor.odd_denormals:
            raise UnmodelledError(
                f"{kernel.name}: rounding other than to nearest even is not modelled"
            )
        self.kernel = kernel
        flush32, flush16 = descriptor.flushes
        old = family != "rdna4"  # whose minimum and maximum have no such mode
        self._instructions: dict[int, Instruction] = {}
        self.mode = FloatMode(
            kernel.target, family, kernel.metadata.wavefront_size,
            ieee=old and bool(descriptor.rsrc1 >> 23 & 1),
            clamp_nan=not old or bool(descriptor.rsrc1 >> 21 & 1),
            flush32=flush32, flush16=flush16,
            saturates=descriptor.saturates or self._sets_saturation(),
        )  # fmt: skip
        self._blocks: dict[int, Block] = {}
        self._leaders = self._find_leaders()
        formats = (
            (arithmetic.E4M3_FNUZ, arithmetic.E5M2_FNUZ)
            if kernel.target == "gfx942"
            else (arithmetic.E4M3, arithmetic.E5M2)
        )
        fp8, bf8 = (replace(form, saturates=self.mode.saturates) for form in formats)
        ieee = self.mode.ieee
        below = lanes_below(self.mode.lanes)
        self._namespace: dict[str, object] = {
            "np": np, "a": arithmetic, "put": put, "join": join, "low": low,
            "high": high, "within": within,
            "LANES_LO": below[0], "LANES_HI": below[1], "bool": np.bool_, "False": False, **_TYPES,
            "f": SimpleNamespace(
                fp8=fp8, bf8=bf8, multiply=Multiplier(fp8, bf8, side),
                maximum=arithmetic.maximum_ieee if ieee else arithmetic.maximum_number,
                minimum=arithmetic.minimum_ieee if ieee else arithmetic.minimum_number,
                bounded=functools.partial(arithmetic.bounded, side=side),
                coarse=functools.partial(arithmetic.coarse, side=side),
            ),
        }  # fmt: skip

    def place(self, offset: int) -> SourceLocation:
        """Return where in the source an instruction is."""
        kernel = self.kernel
        found = self._instructions.get(offset)
        text = found.text if found else "?"
        return SourceLocation(
            kernel.name, text, offset - kernel.descriptor.entry, kernel.lines.at(offset)
        )

    def own_fault(self, start: int, error: Exception) -> UnmodelledError:
        """Return the error for what went wrong in this program, not in the kernel, in a block."""
        at, block = start, self._blocks.get(start)
        for frame, line in traceback.walk_tb(error.__traceback__):
            if block is not None and frame.f_code is block.run.__code__:
                at = block.instructions[bisect.bisect(block.lines, line) - 1].offset
        if isinstance(error, NotModelledError):
            return UnmodelledError(f"not modelled: {error}", self.place(at))
        said = f"{type(error).__name__}: {error}"
        return UnmodelledError(f"a fault of contribbot; please report it ({said})", self.place(at))

    def _sets_saturation(self) -> bool:
        """Say whether every wave sets FP16_OVFL before anything can part them."""
        offset = self.kernel.descriptor.entry
        while True:
            try:
                instruction = self._at(offset)
            except UnmodelledError:
                return False  # told when it is reached
            if sets_saturation(instruction):
                return True
            if instruction.name != "S_BRANCH" and ends_block(instruction):
                return False
            ahead = instruction.name == "S_BRANCH" and target(instruction)
            if ahead and ahead <= offset:
                return False
            offset = ahead or offset + instruction.size

    def block(self, start: int) -> Block:
        """Return the block that begins at a place of the image."""
        if start not in self._blocks:
            self._blocks[start] = self._compiled(start)
        return self._blocks[start]

    def _at(self, offset: int) -> Instruction:
        if offset >= len(self.kernel.image):
            raise UnmodelledError("the code goes on past its end", self.place(offset))
        if offset not in self._instructions:
            try:
                self._instructions[offset] = decode(self.kernel.image, offset, self.kernel.target)
            except (ValueError, AssertionError, IndexError, KeyError) as error:
                word = int.from_bytes(self.kernel.image[offset : offset + 4], "little")
                raise UnmodelledError(
                    f"this is no instruction that the tables know ({word:#010x})",
                    self.place(offset),
                ) from error
        return self._instructions[offset]

    def _find_leaders(self) -> set[int]:
        """Return where blocks begin: the targets of branches, and what follows them."""
        leaders, todo = set[int](), [self.kernel.descriptor.entry]
        while todo:
            offset = todo.pop()
            if offset in leaders:
                continue
            leaders.add(offset)
            while True:
                try:
                    instruction = self._at(offset)
                except UnmodelledError:
                    break  # told when it is reached
                offset += instruction.size
                if not ends_block(instruction):
                    continue
                name = instruction.name
                if name.startswith("S_CBRANCH_") or name == "S_BRANCH":
                    todo.append(target(instruction))
                if not name.startswith(("S_ENDPGM", "S_SETPC", "S_TRAP")) and name != "S_BRANCH":
                    todo.append(offset)
                break
        return leaders

    def _compiled(self, start: int) -> Block:
        writer = Writer(self.mode, dict(self._namespace))
        instructions: list[Instruction] = []
        lines: list[int] = []
        offset, last = start, None
        while last is None and (offset == start or offset not in self._leaders):
            instruction = self._at(offset)
            offset += instruction.size
            instructions.append(instruction)
            lines.append(len(writer.lines) + 2)  # the first is the function's head
            if ends_block(instruction):
                last = instruction
            else:
                self._write(writer, instruction)
        try:
            writer.end(last, offset)
        except NotModelledError as error:
            raise UnmodelledError(
                f"not modelled: {error}", self.place(instructions[-1].offset)
            ) from error
        source = "def run(m, v, s):\n" + "".join(f"    {line}\n" for line in writer.lines)
        namespace = writer.namespace
        exec(compile(source, f"{self.kernel.name}+{start:#x}", "exec"), namespace)  # noqa: S102  made here, of names and numbers
        run = namespace["run"]
        assert isinstance(run, FunctionType)  # noqa: S101
        return Block(
            start, instructions, lines, run,
            frozenset(writer.touched), frozenset(writer.written), source,
        )  # fmt: skip

    def _write(self, writer: Writer, instruction: Instruction) -> None:
        lines = len(writer.lines)
        try:
            writer.write(instruction)
        except NotModelledError as error:
            # Told when it is reached: other waves, or none, may come by.
            del writer.lines[lines:]
            writer.lines.append(f"m.unmodelled({instruction.offset}, {str(error)!r})")
        except Exception as error:
            raise self.own_fault(instruction.offset, error) from error
