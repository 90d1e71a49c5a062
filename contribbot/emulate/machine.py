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
_BUFFER: Final = ("base", "size", "data", "written", "writable", "changed", "writers")
#: The faults and spaces of machine.hpp.
_FAULTS: Final = (
    "", "outside", "nowhere", "read only", "misaligned", "unwritten", "read", "wrote", "endless",
    "unmodelled", "unknown",
)  # fmt: skip
_SPACES: Final = ("global", "LDS", "scratch")


class _Machine(ctypes.Structure):
    """`Machine` of machine.hpp: numbers and pointers of 64 bits each."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "code", "code_size", "buffers", "buffer_count", "registers", "stride", "groups",
            "group", "waves", "wave", "started", "side", "hits", "executed", "limit", "epoch",
            *(f"{memory}_{name}" for memory in ("shared", "scratch") for name in _BUFFER),
            "wide", "writer", "reader", "at", "fault", "space", "address", "size", "other",
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
        wide: Which of them are shifts whose distance reached the width of what they shift.
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
            "wide": np.zeros(len(program.code), np.uint8),
            "writer": np.zeros(shared, np.uint32), "reader": np.zeros(shared, np.uint32),
            **{f"shared_{name}": np.zeros(shared, np.uint8) for name in ("data", "written")},
            **{f"scratch_{name}": np.zeros(waves * lanes * private, np.uint8)
               for name in ("data", "written")},
        }  # fmt: skip
        self.hits, self.wide = self._arrays["hits"], self._arrays["wide"]
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
        state = self._state
        place, cause = self.program.place(state.at), _FAULTS[state.fault]
        offset, size, wave = state.address, state.size, state.wave
        if cause == "unmodelled":
            why = self.program.unmodelled.get(state.at, "the code goes on past its end")
            return UnmodelledError(why, place)
        name, total = "", 0
        if cause not in {"read", "wrote"}:
            name, total = _SPACES[state.space], state.shared_size or state.scratch_size
        if cause != "nowhere" and name == "global":
            buffer = self.memory.buffers[state.other]
            name, total = buffer.name, buffer.data.size
        reached = f"{size} bytes at offset {offset} of {name}"
        who = "other waves" if state.other == 63 else f"wave {state.other}"
        does = "writes" if state.space == 2 else "reads"
        nobody = "no wave" if name == "LDS" else "nobody"
        beyond = f", {offset + size - total} bytes past its end" if state.space == 0 else ""
        if cause == "outside" and state.space == 0 and offset >> (APART - 1):
            following = self.memory.buffers[state.other + 1 : state.other + 2]
            below = (
                f" {(1 << APART) - offset} bytes before the start of {following[0].name}"
                if following
                else ""
            )
            reached, beyond = f"{size} bytes{below}", ""
        told: dict[str, tuple[Fault, str]] = {
            "outside": ("out of bounds", f"{reached} ({total} bytes){beyond}"),
            "nowhere": ("out of bounds", f"{size} bytes at {offset:#x}, where nothing lies"),
            "read only": ("out of bounds", f"a write to {name}, which may only be read"),
            "misaligned": (
                "misaligned",
                f"{size} bytes at offset {offset}, no multiple of {min(size, 4)}",
            ),
            "unwritten": ("unwritten", f"byte {offset} of {name}, which {nobody} wrote"),
            "endless": ("endless", f"it still runs after {_LONGEST} instructions"),
        }
        fault, message = told.get(cause) or (
            "race",
            f"wave {wave} {does} byte {offset} of LDS, which {who} {cause} since the last barrier",
        )
        return KernelError(fault, message, place)
