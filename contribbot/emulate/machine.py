"""The waves of workgroups that run together: their registers, their memory, and their faults."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contribbot.emulate.errors import KernelError, UnmodelledError
from contribbot.emulate.memory_ops import APART, FIRST_BUFFER

if TYPE_CHECKING:
    from contribbot.emulate.errors import Fault
    from contribbot.emulate.program import Program

U8: TypeAlias = NDArray[np.uint8]
_SCALARS: Final = 256
_PLACE: Final = 254  # the scalar register that holds where a wave stands
#: Instructions that the waves of one workgroup may run before it counts as endless.
_LONGEST: Final = 200_000_000
_SEVERAL: Final = 63  # where a wave's number would stand that read
_BUFFER: Final = ("base", "size", "data", "written", "writable", "changed", "writers")
#: The faults of machine.hpp.
_FAULTS: Final = (
    "", "outside", "nowhere", "read only", "misaligned", "unwritten", "read", "wrote", "endless",
    "unmodelled", "unknown",
)  # fmt: skip


class _Machine(ctypes.Structure):
    """`Machine` of machine.hpp: numbers and pointers of 64 bits each."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "code", "code_size", "buffers", "buffer_count", "registers", "stride", "groups",
            "group", "waves", "wave", "started", "side", "hits", "executed", "limit", "epoch",
            *(f"{memory}_{name}" for memory in ("shared", "scratch") for name in _BUFFER),
            "notes", "writer", "reader", "at", "fault", "space", "address", "size", "other",
        )
    ]  # fmt: skip


@dataclass
class Buffer:
    """Bytes that a kernel may reach, and what people call them."""

    name: str
    data: U8  # a copy
    writable: bool = True
    written: NDArray[np.bool_] | None = None  # which bytes anybody wrote; None: all
    writers: NDArray[np.uint32] | None = None  # where the instruction stands that wrote a byte
    base: int = 0
    changed: bool = False


class Memory:
    """Global memory: buffers, so far apart that no index leads from one into another."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def add(self, buffer: Buffer) -> int:
        """Place a buffer, and return its address."""
        buffer.base = len(self.buffers) + FIRST_BUFFER << APART
        self.buffers.append(buffer)
        return buffer.base

    def table(self) -> NDArray[np.uint64]:
        """Return the buffers as machine.hpp reads them."""
        rows = [
            (buffer.base, buffer.data.size, buffer.data.ctypes.data,
             0 if buffer.written is None else buffer.written.ctypes.data, buffer.writable, 0,
             0 if buffer.writers is None else buffer.writers.ctypes.data)
            for buffer in self.buffers
        ]  # fmt: skip
        return np.array(rows, np.uint64)


class Executor:
    """The waves of some workgroups.

    Attributes:
        scalar: Scalar registers, by wave and number.
        vector: Vector registers, by wave, number and lane.
        hits: How often waves ran the instruction at each word of the image.
        notes: Of which of them something is to be told: 1, a shift whose distance reached the
            width of what it shifts; 2, an unaligned access.
    """

    def __init__(
        self, program: Program, memory: Memory, groups: int, waves: int, shared: int, side: int = 0
    ) -> None:
        self.program, self.memory = program, memory
        lanes = program.mode.lanes
        self.waves = groups * waves
        self.wave = np.tile(np.arange(waves), groups)
        self._table = memory.table()
        self._registers = np.zeros((0, _SCALARS), np.uint32)
        self._resize()
        self.scalar[:, _PLACE] = program.kernel.descriptor.entry
        private = program.kernel.descriptor.private_segment
        self._state = _Machine(
            code=program.code.ctypes.data, code_size=len(program.code),
            buffers=self._table.ctypes.data, buffer_count=len(memory.buffers), groups=groups,
            waves=waves, side=side & (2**64 - 1), limit=_LONGEST, epoch=1, shared_size=shared,
            scratch_size=private,
        )  # fmt: skip
        self._arrays: dict[str, NDArray[np.unsignedinteger]] = {
            "hits": np.zeros(len(program.code), np.uint64),
            "notes": np.zeros(len(program.code), np.uint8),
            "writer": np.zeros(shared, np.uint32), "reader": np.zeros(shared, np.uint32),
            **{f"shared_{name}": np.zeros(shared, np.uint8) for name in ("data", "written")},
            **{f"scratch_{name}": np.zeros(waves * lanes * private, np.uint8)
               for name in ("data", "written")},
        }  # fmt: skip
        self.hits, self.notes = self._arrays["hits"], self._arrays["notes"]
        for name, array in self._arrays.items():
            setattr(self._state, name, array.ctypes.data)

    def _resize(self) -> None:
        """Make room for the vector registers of the program."""
        old, lanes = self._registers, self.program.mode.lanes
        self._registers = np.zeros((self.waves, _SCALARS + self.program.vectors * lanes), np.uint32)
        self._registers[: len(old), : old.shape[1]] = old
        self.scalar = self._registers[:, :_SCALARS]
        self.vector = self._registers[:, _SCALARS:].reshape(self.waves, -1, lanes)

    def run(self) -> None:
        """Run all waves to their end."""
        state = self._state
        while True:
            state.registers, state.stride = self._registers.ctypes.data, self._registers.shape[1]
            if not self.program.run(ctypes.byref(state)):
                break
            if _FAULTS[state.fault] != "unknown":
                raise self._error()
            self.program.extend(state.at)
            self._resize()
        for buffer, row in zip(self.memory.buffers, self._table, strict=True):
            buffer.changed |= bool(row[_BUFFER.index("changed")])

    def _error(self) -> Exception:
        """Return the error for what the machine came upon."""
        state, buffers = self._state, self.memory.buffers
        place, cause = self.program.place(state.at), _FAULTS[state.fault]
        offset, size, other = state.address, state.size, state.other
        fault: Fault = "out of bounds"
        near = {1: ("LDS", state.shared_size), 2: ("scratch", state.scratch_size)}.get(state.space)
        name, total = near or (buffers[other].name, buffers[other].data.size)
        match cause:
            case "unmodelled":
                why = self.program.unmodelled.get(state.at, "the code goes on past its end")
                return UnmodelledError(why, place)
            case "endless":
                fault, told = cause, f"it still runs after {_LONGEST} instructions"
            case "read" | "wrote":  # the space says what the wave does itself
                does = "reads" if state.space == 1 else "writes"
                who = "other waves" if other == _SEVERAL else f"wave {other}"
                fault, told = "race", f"wave {state.wave} {does} byte {offset} of LDS, which {who}"
                told += f" {cause} since the last barrier"
            case "unwritten":
                nobody = "no wave" if name == "LDS" else "nobody"
                fault, told = cause, f"byte {offset} of {name}, which {nobody} wrote"
            case "misaligned":
                fault = cause
                told = f"{size} bytes at offset {offset}, no multiple of {min(size, 4)}"
            case "read only" if not other:  # the first buffer is the code object
                return UnmodelledError(
                    "not modelled: a write to a variable of the code object", place
                )
            case "read only":
                told = f"a write to {name}, which may only be read"
            case "nowhere":
                told = f"{size} bytes at {offset:#x}, where nothing lies"
            case _ if name == "scratch" and self.program.kernel.metadata.uses_dynamic_stack:
                return UnmodelledError(
                    "not modelled: a stack whose size the runtime decides", place
                )
            case _ if near or offset < 1 << (APART - 1):
                told = f"{size} bytes at offset {offset} of {name} ({total} bytes)"
                told += "" if near else f", {offset + size - total} bytes past its end"
            case _:
                told = f"{size} bytes ({total} bytes)"
                if following := buffers[other + 1 : other + 2]:
                    name, total = following[0].name, following[0].data.size
                    before = f"{(1 << APART) - offset} bytes before the start of"
                    told = f"{size} bytes {before} {name} ({total} bytes)"
        return KernelError(fault, told, place)
