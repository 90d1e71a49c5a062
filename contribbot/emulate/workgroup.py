"""Execute workgroups in threads, by machine.hpp, and report faults and hazards."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from contribbot.emulate.errors import KernelError, UnmodelledError
from contribbot.emulate.memory import ABSENT, CODE, HOST, PAGE, ROW, Memory
from contribbot.emulate.registers import ACCUMULATORS

if TYPE_CHECKING:
    from contribbot.emulate.errors import Fault, SourceLocation
    from contribbot.emulate.program import Program

_SCALARS: Final = 256
#: The number of bytes of machine.hpp's Wave.
_WAVE: Final = 8 * (19 + 128 + 768 + 256)
#: The counters for which code waits, by the kind of memory operation in machine.hpp.
_COUNTERS: Final = {
    "cdna": ("vmcnt", "lgkmcnt", "lgkmcnt", "vmcnt and lgkmcnt"),
    "rdna3": ("vmcnt", "lgkmcnt", "lgkmcnt", "vmcnt and lgkmcnt"),
    "rdna4": ("loadcnt", "dscnt", "kmcnt", "loadcnt and dscnt"),
}
#: The number of instructions after which a workgroup counts as endless.
_LONGEST: Final = 200_000_000
_SEVERAL: Final = 63  # in place of a wave's number: several waves read the byte
#: The faults of machine.hpp, in order.
_FAULTS: Final = (
    *("", "outside", "nowhere", "read only", "misaligned", "unwritten", "read", "wrote"),
    *("pending", "unfenced", "unstored", "endless", "unmodelled", "unknown"),
)
#: The fields of machine.hpp's Machine before and after its two memories.
_FIRST_FIELDS: Final = """
    code code_size pages buffers registers initial initials stride waves groups columns rows
    id_x id_y id_z next group wave started side hits executed limit epoch
"""
_LAST_FIELDS: Final = """
    notes writer reader at fault space address size other turn reverse hazards clash places
    clashes tracks late loads into first split word near watch most scalar
"""


class _Machine(ctypes.Structure):
    """The struct `Machine` of machine.hpp: numbers and pointers of 64 bits each."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *_FIRST_FIELDS.split(),
            *(f"{memory}_{name}" for memory in ("shared", "scratch") for name in ROW),
            *_LAST_FIELDS.split(),
        )
    ]


@dataclass(frozen=True)
class Hazard:
    """A race, or a read of unwritten memory: the instruction's address, the buffer, the byte."""

    kind: Literal["race", "unwritten"]
    at: int
    row: int  # the number of the buffer
    byte: int
    wave: int
    other: int  # the wave with the earlier access, or `_SEVERAL`

    def error(self, place: SourceLocation, memory: Memory, differ: str) -> KernelError:
        """Return the error for a hazard, after a second run with a different result."""
        name = f"byte {self.byte} of {memory.at(self.row).name}"
        if self.kind == "unwritten":
            said = f"{name}, which nobody wrote; with other contents {differ}"
        else:
            who = "other waves do" if self.other == _SEVERAL else f"wave {self.other} does"
            said = f"wave {self.wave} reaches {name}, as {who} with no barrier between; "
            said += f"in another order {differ}"
        return KernelError(self.kind, said, place)


@dataclass
class LaunchWatch:
    """Makes a launch record its hazards; `reverse`: the last wave runs first."""

    reverse: bool = False
    hazards: tuple[Hazard, ...] = ()


@dataclass(frozen=True)
class Launch:
    """The state that all workgroups of a launch share; with `watch`, workgroups run one by one."""

    program: Program
    memory: Memory
    grid: tuple[int, int, int]
    initial: NDArray[np.uint32]
    id_registers: Sequence[int | None]
    shared: int
    side: int = 0
    watch: LaunchWatch | None = None

    def run(self) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Run all workgroups; return executions and notes (1 wide shift, 2 unaligned) by word."""
        following = ctypes.c_uint64(0)  # the number of the next workgroup
        groups = int(np.prod(self.grid, dtype=np.int64))
        count = min(threads(), groups) if self.program.parallel and not self.watch else 1
        machines = [Executor(self, groups, following) for _ in range(count)]
        running = machines
        while running:
            # The code after a wave's unknown jump is compiled when all executors have stopped.
            _in_threads(running)
            running = [machine for machine in running if machine.cause == "unknown"]
            for machine in running:
                self.program.extend(machine.state.at)
        if self.watch:
            self.watch.hazards = tuple(machines[0].hazards())
        if faulty := [machine for machine in machines if machine.cause]:
            raise min(faulty, key=lambda machine: int(machine.state.group)).error()
        hits, notes = machines[0].hits, machines[0].notes
        for machine in machines[1:]:
            hits += machine.hits
            notes |= machine.notes
        return hits, notes


class Executor:
    """The `Machine` of one thread; `registers` has the last workgroup's registers, by wave."""

    def __init__(self, launch: Launch, groups: int, following: ctypes.c_uint64) -> None:
        self._launch, self._following = launch, following
        program, memory, shared = launch.program, launch.memory, launch.shared
        lanes, words = program.mode.lanes, len(program.code)
        waves = len(launch.initial)
        private = program.kernel.descriptor.private_segment
        x, y, z = (0 if place is None else place + 1 for place in launch.id_registers)
        self.state = _Machine(
            code=program.code.ctypes.data,
            code_size=words,
            pages=memory.pages.ctypes.data,
            buffers=memory.rows.ctypes.data,
            initial=launch.initial.ctypes.data,
            initials=launch.initial.shape[1],
            groups=groups,
            columns=launch.grid[0],
            rows=launch.grid[1],
            id_x=x,
            id_y=y,
            id_z=z,
            next=ctypes.addressof(following),
            waves=waves,
            side=launch.side & (2**64 - 1),
            limit=_LONGEST,
            epoch=1,
            split=program.splits,
            shared_size=shared,
            scratch_size=private,
            reverse=bool(launch.watch and launch.watch.reverse),
        )
        self._arrays: dict[str, NDArray[np.unsignedinteger]] = {
            "hits": np.zeros(words, np.uint64),
            "notes": np.zeros(words, np.uint8),
            "writer": np.zeros(shared, np.uint32),
            "reader": np.zeros(shared, np.uint32),
            "hazards": np.zeros((words if launch.watch else 0, 2), np.uint64),
            # A store writes at most 16 bytes for each lane.
            "tracks": np.zeros(waves * _WAVE, np.uint8),
            "late": np.zeros(shared, np.uint64),
            "clash": np.zeros(shared, np.uint16),
            "places": np.zeros(16 * lanes, np.uint32),
            **{f"shared_{name}": np.zeros(shared, np.uint8) for name in ("data", "written")},
            **{
                f"scratch_{name}": np.zeros(waves * lanes * private, np.uint8)
                for name in ("data", "written")
            },
        }
        self.hits: NDArray[np.uint64] = self._arrays["hits"].view(np.uint64)
        self.notes: NDArray[np.uint8] = self._arrays["notes"].view(np.uint8)
        for name, array in self._arrays.items():
            setattr(self.state, name, array.ctypes.data)
        self.registers: NDArray[np.uint32] = np.zeros(launch.initial.shape, np.uint32)

    def hazards(self) -> Iterator[Hazard]:
        """Yield the first hazard of each kind at each instruction."""
        for word, which in np.argwhere(self._arrays["hazards"]):
            found = int(self._arrays["hazards"][word, which])
            yield Hazard(
                "unwritten" if which else "race",
                4 * int(word),
                found >> 12 & 0xFFFF,
                found >> 28,
                found >> 6 & 63,
                found & 63,
            )

    @property
    def cause(self) -> str:
        """The fault that stopped the executor; empty: no workgroup was left."""
        return _FAULTS[self.state.fault]

    def run(self) -> None:
        """Run workgroups until no workgroup is left, or until a fault stops the executor."""
        program, state, old = self._launch.program, self.state, self.registers
        width = max(_SCALARS + program.vectors * program.mode.lanes, old.shape[1])
        if state.stride < width:  # the program needs more registers than before
            self.registers = np.zeros((len(old), width), np.uint32)
            self.registers[:, : old.shape[1]] = old
            state.registers, state.stride = self.registers.ctypes.data, width
        state.fault = 0
        program.run(ctypes.byref(state))

    def stop(self) -> None:
        """Stop the executor at the next instruction."""
        self.state.limit = 0

    def error(self) -> Exception:
        """Return the KernelError or UnmodelledError for the fault that stopped the executor."""
        state, memory, program = self.state, self._launch.memory, self._launch.program
        place, cause = program.place(state.at), self.cause
        offset, size = state.address, state.size
        fault: Fault = "out of bounds"
        nearby = {1: ("LDS", state.shared_size), 2: ("scratch", state.scratch_size)}
        near: tuple[str, int] | None = nearby.get(state.space)
        match cause:
            case "unmodelled":
                why = program.unmodelled.get(state.at, "the code goes on past its end")
                return UnmodelledError(why, place)
            case "endless":
                fault, told = cause, f"it still runs after {_LONGEST} instructions"
            case "read" | "wrote":  # `space` tells whether this wave reads or writes
                does = "reads" if state.space == 1 else "writes"
                who = "other waves" if state.other == _SEVERAL else f"wave {state.other}"
                fault, told = "race", f"wave {state.wave} {does} byte {offset} of LDS, which {who}"
                told += f" {cause} since the last barrier"
            case "pending":
                fault, counter = "missing wait", _COUNTERS[program.mode.family][state.space]
                told = _register(offset, program.mode.family)
                told += " may still be written by the operation at "
                told += f"{program.place(state.other)}, for which {counter} has not been waited"
            case "unfenced":
                fault, counter = "missing wait", _COUNTERS[program.mode.family][state.space]
                who = "this wave" if state.other == state.wave else f"wave {state.other}"
                told = f"byte {offset} of LDS may still be written by {who}, which has not waited "
                told += f"for {counter}" + (
                    "" if state.other == state.wave else " before the barrier"
                )
            case "unstored":
                counter = "storecnt" if program.mode.family == "rdna4" else "vscnt"
                fault, told = "missing wait", f"byte {offset} of {memory.at(state.other).name} may "
                told += f"still be written by wave {size}, which has not waited for {counter} "
                told += "before the barrier"
            case "unwritten":
                name = near[0] if near else memory.at(state.other).name
                nobody = "no wave" if name == "LDS" else "nobody"
                fault, told = cause, f"byte {offset} of {name}, which {nobody} wrote"
            case "misaligned":
                fault = cause
                told = f"{size} bytes at offset {offset}, no multiple of {min(size, 4)}"
            case "read only" if memory.at(state.other).base == CODE:
                return UnmodelledError(
                    "not modelled: a write to a variable of the code object", place
                )
            case "read only":
                told = f"a write to {memory.at(state.other).name}, which may only be read"
            case _ if near and near[0] == "scratch" and program.kernel.metadata.uses_dynamic_stack:
                return UnmodelledError(
                    "not modelled: a stack whose size the runtime decides", place
                )
            case _ if near:
                told = _past(size, offset, *near)
            case "outside":
                buffer = memory.at(state.other)
                told = _past(size, offset, buffer.name, buffer.size)
            case _ if offset >> PAGE == HOST >> PAGE:
                return UnmodelledError(f"not modelled: {ABSENT[offset >> 30 & 3]}", place)
            case _:
                told = f"{size} bytes at {offset:#x}, where nothing lies"
                # An address in the page before or after a buffer is reported with the buffer.
                if after := memory.find(offset + (1 << PAGE)):
                    told = f"{size} bytes {after.base - offset} bytes before the start of"
                    told += f" {after.name} ({after.size} bytes)"
                elif before := memory.find(offset - (1 << PAGE)):
                    told = _past(size, offset - before.base, before.name, before.size)
        return KernelError(fault, told, place)


def _register(number: int, family: str) -> str:
    """Return the name of a register by its number in a wave."""
    named = {106: "vcc", 107: "vcc_hi", 124: "m0"}
    vector = number - _SCALARS
    if vector < 0:
        return named.get(number, f"s{number}")
    if vector < ACCUMULATORS:
        return f"v{vector}"
    return f"a{vector - ACCUMULATORS}" if family == "cdna" else f"v{vector - ACCUMULATORS}.h"


def _past(size: int, offset: int, name: str, total: int) -> str:
    past = f", {offset + size - total} bytes past its end"
    return f"{size} bytes at offset {offset} of {name} ({total} bytes){past}"


def threads() -> int:
    """Return the number of threads of a launch; pytest-xdist's workers share the cores."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    cores = int(told) if told.isdigit() and int(told) else len(os.sched_getaffinity(0))
    return max(1, cores // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="emulated")


os.register_at_fork(after_in_child=_pool.cache_clear)


def _in_threads(machines: Sequence[Executor]) -> None:
    """Run each executor in a thread of the pool; stop all executors on an interrupt."""
    futures = [_pool().submit(machine.run) for machine in machines]
    try:
        for future in futures:
            future.result()
    except BaseException:
        for machine in machines:
            machine.stop()
        for future in futures:
            future.exception()
        raise
