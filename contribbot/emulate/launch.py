"""A launch: arguments into a kernel's argument buffer, workgroups into waves, results back."""

from __future__ import annotations

import functools
import importlib
import operator
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contribbot.emulate.code_object import Kernel
from contribbot.emulate.errors import UnmodelledError
from contribbot.emulate.machine import Buffer, Executor, Memory
from contribbot.emulate.program import Program
from contribbot.errors import UsageError

if TYPE_CHECKING:
    import torch

Dim: TypeAlias = "int | tuple[int, ...]"
Xyz: TypeAlias = tuple[int, int, int]
#: Lanes that run together: enough to hide Python's share, few enough for a processor's cache.
_LANES: Final = 16384
#: Bytes of LDS of a workgroup (AddressableLocalMemorySize of LLVM's AMDGPU.td), where not 64 KiB.
_LDS: Final = {"gfx950": 160 << 10}
#: What a kernel may ask of its launch, by the descriptor's bit.
_ASKED: Final = (
    "buffer resource of scratch", "dispatch pointer (as printf and assert do)", "queue pointer", "",
    "dispatch's number", "address of flat scratch",
)  # fmt: skip
_POINTERS: Final = frozenset({"global_buffer", "dynamic_shared_pointer"})


@dataclass(frozen=True)
class Uninitialised:
    """A tensor whose contents nobody wrote: reading it before the kernel has is a fault."""

    tensor: torch.Tensor | NDArray[np.generic]


Argument: TypeAlias = (
    "torch.Tensor | NDArray[np.generic] | Uninitialised | np.generic | bool | int | float | bytes"
)


@dataclass(frozen=True)
class Launched:
    """What a launch did.

    Attributes:
        lines: The source lines whose instructions ran (`file.hip:12`), in order.
        lane_instructions: Instructions times lanes, active or not.
        undetermined: By argument's name, a mask over its bytes that differ between the exact
            results of instructions that AMD's documents bound by 1 ULP, and the ends of that
            bound. Empty without `bounds`.
        wide_shifts: The source lines with a shift whose distance reached the width of what is
            shifted: the instruction takes the low bits of the distance, C++ leaves it undefined.
        unaligned: Those with a word that is no multiple of 4 in memory, or a half at an odd
            address: hardware takes them, and so does LLVM; C++ leaves a cast to such a pointer
            undefined.
        writers: By argument's name, for each of its bytes the source line whose instruction wrote
            it last; empty where none did. Empty without `trace`.
    """

    lines: tuple[str, ...]
    lane_instructions: int
    undetermined: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    wide_shifts: tuple[str, ...] = ()
    unaligned: tuple[str, ...] = ()
    writers: dict[str, NDArray[np.str_]] = field(default_factory=dict)


def _three(size: Dim, what: str) -> Xyz:
    try:
        given = tuple(map(operator.index, size if isinstance(size, (tuple, list)) else (size,)))
    except TypeError:
        given = ()
    if not 1 <= len(given) <= 3 or min(given) < 1:
        raise UsageError(f"{what} is {size}: it must be one to three whole numbers, none below 1")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


class _Tensor(NamedTuple):
    """The storage of one or more tensors."""

    content: NDArray[np.uint8]  # a view, written in the end
    buffer: Buffer


def launch(
    kernel: Kernel,
    grid: Dim,
    block: Dim,
    args: Sequence[Argument],
    *,
    shared: int = 0,
    bounds: bool = False,
    trace: bool = False,
) -> Launched:
    """Execute a kernel for all workgroups of a grid.

    Tensors are written in place, in the end: a launch that fails changes none.

    Args:
        kernel: A kernel, from `load`, `compile_hip` or `compile_triton`.
        grid: Workgroups along x, y and z.
        block: Work-items of a workgroup along x, y and z.
        args: One for each argument that the source declares: tensors and arrays (of processors)
            for pointers, numbers for the rest. A Python number takes the argument's size; bytes
            are taken as they are (a struct).
        shared: Bytes of LDS beyond what the kernel declares.
        bounds: Run thrice more with the results of `v_rcp`, `v_rsq`, `v_sqrt`, `v_exp` and `v_log`
            at one end of their documented bound of 1 ULP, at the other, and some at each; and
            report what depends on them.
        trace: Report which source line wrote each byte.

    Returns:
        What it did. The tensors hold exact results.

    Raises:
        KernelError: The kernel does what it must not; the error names the source line.
        UnmodelledError: It needs something that is not modelled.
        UsageError: The arguments do not fit.
    """
    if not isinstance(kernel, Kernel):
        raise UsageError(f"launch takes a Kernel, {type(kernel).__name__} is given: kernels[NAME]")
    sides = (0, -1, 1, 2) if bounds else (0,)
    sizes = _three(grid, "grid"), _three(block, "block")
    total = shared + kernel.shared
    try:
        with _LOCK:
            program = _program(kernel)
            ran, *others = [
                _run(program, *sizes, args, total, side, trace=trace and not side) for side in sides
            ]
    except UnmodelledError as error:
        kernel.untold.append(error)
        raise
    undetermined, writers = {}, {}
    for tensor, *elsewhere in zip(ran.tensors, *(other.tensors for other in others), strict=True):
        content, buffer = tensor
        differs = [other.buffer.data != buffer.data for other in elsewhere]
        if np.any(differs):
            undetermined[buffer.name] = np.any(differs, axis=0)
        if not buffer.changed:
            continue
        if buffer.writers is not None:
            offsets, which = np.unique(buffer.writers, return_inverse=True)
            lines = [kernel.lines.at(int(offset)) if offset else "" for offset in offsets]
            writers[buffer.name] = np.array(lines)[which]
        content[:] = buffer.data
    kernel.ran.update(filter(None, map(kernel.lines.place, _offsets(ran.hits))))
    return Launched(
        _lines(kernel, ran.hits), int(ran.hits.sum()) * program.mode.lanes, undetermined,
        _lines(kernel, ran.notes & np.uint8(1)), _lines(kernel, ran.notes & np.uint8(2)), writers,
    )  # fmt: skip


def _offsets(marks: NDArray[np.unsignedinteger]) -> list[int]:
    """Return where in the image the instructions stand that are marked."""
    return [4 * int(place) for place in np.flatnonzero(marks)]


def _lines(kernel: Kernel, marks: NDArray[np.unsignedinteger]) -> tuple[str, ...]:
    """Return their source lines."""
    lines = dict.fromkeys(map(kernel.lines.at, _offsets(marks)))
    return tuple(line for line in lines if line)


#: A kernel's program, which stays compiled from one launch to the next.
_program: Final = functools.lru_cache(maxsize=64)(Program)
#: A run extends its program, and registers are allotted for what the program has: one at a time.
_LOCK: Final = threading.Lock()


class _Ran(NamedTuple):
    """What the workgroups of a launch left, and by word of the image what they did."""

    tensors: list[_Tensor]
    hits: NDArray[np.uint64]
    notes: NDArray[np.uint8]


def _run(
    program: Program,
    grid: Xyz,
    block: Xyz,
    args: Sequence[Argument],
    shared: int,
    side: int,
    *,
    trace: bool,
) -> _Ran:
    kernel, metadata = program.kernel, program.kernel.metadata
    if np.prod(block) > metadata.max_flat_workgroup_size:
        raise UsageError(
            f"{kernel.name}: {np.prod(block)} work-items, the most are "
            f"{metadata.max_flat_workgroup_size}"
        )
    local, most = kernel.descriptor.group_segment + shared, _LDS.get(kernel.target, 64 << 10)
    if local > most or shared < 0:
        raise UsageError(f"{kernel.name}: {local} bytes of LDS, the most are {most}")
    memory = Memory()
    memory.add(Buffer("the code object", np.frombuffer(kernel.image, np.uint8), writable=False))
    tensors, packed = _pack(kernel, memory, args, grid, block, shared)
    for _, buffer in tensors:
        buffer.writers = np.zeros(buffer.data.size, np.uint32) if trace else None
    kernarg = memory.add(Buffer("the arguments", packed, writable=False))
    lanes = program.mode.lanes
    waves = -(-int(np.prod(block)) // lanes)
    groups = int(np.prod(grid))
    step = max(1, _LANES // (waves * lanes))
    hits, notes = np.zeros(len(program.code), np.uint64), np.zeros(len(program.code), np.uint8)
    for first in range(0, groups, step):
        numbers = np.arange(first, min(first + step, groups))
        machine = Executor(program, memory, numbers.size, waves, local, side)
        _registers(machine, numbers, grid, block, kernarg)
        machine.run()
        hits += machine.hits
        notes |= machine.notes
    return _Ran(tensors, hits, notes)


def _bytes(
    tensor: torch.Tensor | NDArray[np.generic], name: str
) -> tuple[int, NDArray[np.uint8], int]:
    """Return the address of a tensor's storage, its bytes, and where in them the tensor begins."""
    if isinstance(tensor, np.ndarray):
        if not tensor.flags.c_contiguous:
            raise UsageError(f"{name}: an array must be contiguous")
        return tensor.ctypes.data, tensor.reshape(-1).view(np.uint8), 0
    if tensor.device.type != "cpu":
        raise UsageError(
            f"{name} is on {tensor.device}: the kernel runs on the processor; call .cpu()"
        )
    torch = importlib.import_module("torch")
    if tensor.layout is not torch.strided:
        raise UsageError(f"{name} is {tensor.layout}: call .to_dense()")
    storage = tensor.untyped_storage()
    flat = torch.tensor([], dtype=torch.uint8).set_(storage)
    content: NDArray[np.uint8] = flat.numpy()
    return storage.data_ptr(), content, int(tensor.storage_offset()) * tensor.element_size()


def _pack(
    kernel: Kernel, memory: Memory, args: Sequence[Argument], grid: Xyz, block: Xyz, shared: int
) -> tuple[list[_Tensor], NDArray[np.uint8]]:
    """Return the tensors that were given, and the argument buffer with their addresses."""
    listed = kernel.metadata.args
    declared = [found for found in listed if not found.value_kind.startswith("hidden_")]
    if len(args) != len(declared):
        raise UsageError(f"{kernel.name} takes {len(declared)} arguments, {len(args)} are given")
    # LLVM loads three words as four, also the last three: a runtime allots more than it is asked.
    packed = np.zeros(-(-max(1, kernel.metadata.kernarg_segment_size) // 16) * 16, np.uint8)
    tensors: dict[tuple[int, int], _Tensor] = {}
    for place, (argument, given) in enumerate(zip(declared, args, strict=True)):
        name = f"argument {place}" + (f" ({argument.name})" if argument.name else "")
        written = not isinstance(given, Uninitialised)
        value = given.tensor if isinstance(given, Uninitialised) else given
        pointer = argument.value_kind in _POINTERS
        if not isinstance(value, (np.generic, bool, int, float, bytes)) and hasattr(value, "shape"):
            if not pointer:
                raise UsageError(f"{kernel.name}: {name} is no pointer, a tensor is given")
            address, content, offset = _bytes(value, name)
            key = (address, content.size)
            if key not in tensors:
                for (other, size), tensor in tensors.items():
                    if other < address + content.size and address < other + size:
                        raise UsageError(
                            f"{kernel.name}: {name} overlaps {tensor.buffer.name}: pass the same "
                            "array, or tensors of one storage"
                        )
                marks = None if written else np.zeros(content.size, np.bool_)
                buffer = Buffer(name, content.copy(), content.flags.writeable, marks)
                tensors[key] = _Tensor(content, buffer)
                memory.add(tensors[key].buffer)
            raw = struct.pack("<Q", tensors[key].buffer.base + offset)
        elif pointer and (not isinstance(value, int) or value):
            raise UsageError(f"{kernel.name}: {name} is a pointer, {type(value).__name__} is given")
        else:
            raw = _scalar(value, argument.size, f"{kernel.name}: {name}")
        packed[argument.offset : argument.offset + argument.size] = np.frombuffer(raw, np.uint8)
    # What the runtime passes beside the declared arguments (code object 5 and 6).
    dims = max([i + 1 for i in range(3) if grid[i] * block[i] > 1], default=1)
    hidden = {"hidden_grid_dims": dims, "hidden_dynamic_lds_size": shared}
    for axis, groups, items in zip("xyz", grid, block, strict=True):
        hidden |= {f"hidden_block_count_{axis}": groups, f"hidden_group_size_{axis}": items}
    for argument in listed:
        if number := hidden.get(argument.value_kind):
            raw = number.to_bytes(argument.size, "little")
            packed[argument.offset : argument.offset + argument.size] = np.frombuffer(raw, np.uint8)
    return list(tensors.values()), packed


def _scalar(value: Argument, size: int, name: str) -> bytes:
    """Return a number's bytes: of its own type, or a Python number's in the argument's size."""
    if isinstance(value, bytes):
        raw = value
    elif isinstance(value, np.generic):
        raw = value.tobytes()
    elif isinstance(value, float):
        raw = struct.pack({2: "<e", 4: "<f", 8: "<d"}.get(size, "<d"), value)
    elif isinstance(value, int):
        if not -(1 << 8 * size - 1) <= value < 1 << 8 * size:
            raise UsageError(f"{name} has {size} bytes, {value} takes more")
        raw = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    else:
        raise UsageError(f"{name}: {type(value).__name__} cannot be passed")
    if len(raw) != size:
        raise UsageError(f"{name} has {size} bytes, {len(raw)} are given")
    return raw


def _split(number: NDArray[np.intp], size: Xyz) -> tuple[NDArray[np.intp], ...]:
    """Return the x, y and z of what is counted along x first."""
    return number % size[0], number // size[0] % size[1], number // (size[0] * size[1])


def _registers(
    machine: Executor, numbers: NDArray[np.intp], grid: Xyz, block: Xyz, kernarg: int
) -> None:
    """Set the registers that a wave begins with (llvm.org/docs/AMDGPUUsage.html)."""
    program = machine.program
    descriptor, lanes = program.kernel.descriptor, program.mode.lanes
    item = machine.wave[:, None] * lanes + np.arange(lanes)[None, :]
    active = item < np.prod(block)
    x, y, z = _split(item, block)
    machine.vector[:, 0] = x | y << 10 | z << 20
    bits = np.packbits(active, axis=1, bitorder="little").view(np.uint32)
    machine.scalar[:, 126 : 126 + lanes // 32] = bits
    waves = np.repeat(numbers, machine.waves // numbers.size)
    ids = [number.astype(np.uint32) for number in _split(waves, grid)]
    place = 0
    # The buffer resource of scratch, then pointers to the dispatch, the queue, the arguments, ...
    for bit, size in enumerate((4, 2, 2, 2, 2, 2, 1)):
        if not descriptor.properties >> bit & 1:
            continue
        if bit not in {0, 3, 6} or (bit == 0 and descriptor.private_segment):
            raise UnmodelledError(
                f"{program.kernel.name}: it wants the {_ASKED[bit]}, which is not modelled"
            )
        value = {3: kernarg, 6: descriptor.private_segment}.get(bit, 0)
        for half in range(size):
            machine.scalar[:, place + half] = value >> 32 * half & 0xFFFFFFFF
        place += size
    place = max(place, descriptor.rsrc2 >> 1 & 31)
    if program.mode.family == "rdna4":
        # TTMP7 to TTMP9: y and z, the wave's number in its workgroup at bit 25, x.
        rows = (ids[1] | ids[2] << np.uint32(16), machine.wave << 25, ids[0])
        machine.scalar[:, 115:118] = np.stack(rows, axis=1)
        return
    for axis in range(3):
        if descriptor.rsrc2 >> (7 + axis) & 1:
            machine.scalar[:, place] = ids[axis]
            place += 1
