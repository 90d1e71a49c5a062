"""Launch a kernel: pack the arguments, run the workgroups, and copy the results back."""

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

from contribbot.emulate import code_object
from contribbot.emulate.code_object import Kernel
from contribbot.emulate.decode import FACTS, LDS, decode
from contribbot.emulate.errors import KernelError, RequestError, SourceLocation, UnmodelledError
from contribbot.emulate.memory import ARGUMENTS, CODE, DISPATCH, HOST, MEMORY, QUEUE, U8, Buffer
from contribbot.emulate.program import Program
from contribbot.emulate.workgroup import Launch, LaunchWatch

if TYPE_CHECKING:
    import torch

Dim: TypeAlias = "int | tuple[int, ...]"
Xyz: TypeAlias = tuple[int, int, int]
#: The number of runs with `bounds`: one exact, one at each end, and others with a mix of ends.
_RUNS: Final = 16
#: The number of registers of each thing that a kernel may ask for, by the descriptor's bit: buffer
#: of scratch, dispatch, queue, arguments, number of the dispatch, flat scratch, size of scratch.
_ASKED: Final = (4, 2, 2, 2, 2, 2, 1)
_SCRATCH_BITS: Final = 0b100001  # gfx90a finds scratch by these bits
_POINTERS: Final = frozenset({"global_buffer", "dynamic_shared_pointer"})


@dataclass(frozen=True)
class Uninitialised:
    """A tensor argument that counts as unwritten: a kernel's read before a write is a fault."""

    tensor: torch.Tensor | NDArray[np.generic]


Argument: TypeAlias = (
    "torch.Tensor | NDArray[np.generic] | Uninitialised | np.generic | bool | int | float | bytes"
)


@dataclass(frozen=True)
class Launched:
    """The effects of a launch; a source line has the form `file.hip:12`."""

    lines: tuple[str, ...]  # the lines with executed instructions, in order
    lane_instructions: int  # instructions times lanes, also inactive lanes
    #: With `bounds`, by the argument's name: the bytes that differ within the 1 ULP that AMD's
    #: documents allow to instructions.
    undetermined: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    #: Lines that shift by the operand's width or more: AMD uses the low bits, C++ defines none.
    wide_shifts: tuple[str, ...] = ()
    #: Lines with a word or half at an unaligned address: C++ leaves such an access undefined.
    unaligned: tuple[str, ...] = ()
    #: With `trace`, by the argument's name: the line that wrote each byte last, or empty.
    writers: dict[str, NDArray[np.str_]] = field(default_factory=dict)


def _three(size: Dim, what: str) -> Xyz:
    try:
        given = tuple(map(operator.index, size if isinstance(size, (tuple, list)) else (size,)))
    except TypeError:
        given = ()
    if not 1 <= len(given) <= 3 or min(given) < 1:
        raise RequestError(f"{what} is {size}: it must be one to three whole numbers, none below 1")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


class _Tensor(NamedTuple):
    """The storage that one or more tensors share."""

    content: U8  # a view of the storage, which the launch writes at its end
    copy: U8  # the bytes that the kernel reads and writes
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

    Tensors are written in place at the end: a launch that fails changes no tensor.

    Args:
        kernel: A kernel, from `load`, `compile_hip` or `compile_triton`.
        grid: Workgroups along x, y and z.
        block: Work-items of a workgroup along x, y and z.
        args: A value for each argument that the source declares: tensors and arrays (on the CPU)
            for pointers, numbers for the rest. A Python number takes the argument's size; bytes
            are passed as they are (a struct).
        shared: Bytes of LDS in addition to those that the kernel declares.
        bounds: Run 15 times more, with results of `v_rcp`, `v_rsq`, `v_sqrt`, `v_exp` and `v_log`
            at either end of their documented bound of 1 ULP, and with a mix of both ends; report
            which bytes depend on these results.
        trace: Report which source line wrote each byte.

    Returns:
        The effects of the launch. The tensors hold exact results.

    Raises:
        KernelError: The kernel breaks a rule; the error names the source line.
        UnmodelledError: The kernel needs a feature that the emulator does not model.
        RequestError: The arguments do not fit.
    """
    if not isinstance(kernel, Kernel):
        raise RequestError(
            f"launch takes a Kernel, {type(kernel).__name__} is given: kernels[NAME]"
        )
    sides = (0, -1, 1, *range(2, _RUNS)) if bounds else (0,)
    sizes = _three(grid, "grid"), _three(block, "block")
    try:
        ran, *others = [
            _run(kernel, sizes, args, shared + kernel.shared, side, trace=trace and not side)
            for side in sides
        ]
    except UnmodelledError as error:
        kernel.record.add(error)
        raise
    undetermined, writers = {}, {}
    for i, (tensor, changed) in enumerate(zip(ran.tensors, ran.changed, strict=True)):
        buffer = tensor.buffer
        differs = [other.tensors[i].copy != tensor.copy for other in others]
        if np.any(differs):
            undetermined[buffer.name] = np.any(differs, axis=0)
        if not changed:
            continue
        if buffer.writers is not None:
            offsets, which = np.unique(buffer.writers, return_inverse=True)
            lines = [kernel.lines.at(int(offset)) if offset else "" for offset in offsets]
            writers[buffer.name] = np.array(lines)[which]
        tensor.content[:] = tensor.copy
    return Launched(
        _lines(kernel, ran.hits),
        int(ran.hits.sum()) * kernel.metadata.wavefront_size,
        undetermined,
        _lines(kernel, ran.notes & np.uint8(1)),
        _lines(kernel, ran.notes & np.uint8(2)),
        writers,
    )


def _offsets(marks: NDArray[np.unsignedinteger]) -> list[int]:
    """Return the byte offset in the code image of each word whose mark is not 0."""
    return [4 * int(place) for place in np.flatnonzero(marks)]


def _lines(kernel: Kernel, marks: NDArray[np.unsignedinteger]) -> tuple[str, ...]:
    lines = dict.fromkeys(map(kernel.lines.at, _offsets(marks)))
    return tuple(line for line in lines if line)


#: The program of a kernel, which stays compiled from one launch to the next.
_program: Final = functools.lru_cache(maxsize=256)(Program)


def location(kernel: Kernel, offset: int) -> SourceLocation:
    """Return kernel, text, offset and source line of the instruction at an image offset."""
    return _program(kernel).place(offset)


#: Runs take turns: a run extends its program, and its code and arguments have fixed addresses.
_LOCK: Final = threading.RLock()


class _Ran(NamedTuple):
    """The tensors after a run; executions and notes (see `Launch.run`) by word of the image."""

    tensors: list[_Tensor]
    changed: list[bool]  # whether the kernel wrote to each tensor
    hits: NDArray[np.uint64]
    notes: NDArray[np.uint8]


def _run(
    kernel: Kernel,
    sizes: tuple[Xyz, Xyz],
    args: Sequence[Argument],
    shared: int,
    side: int,
    *,
    trace: bool,
) -> _Ran:
    """Execute a kernel on copies of the tensors; return the copies, executions and notes."""
    tensors = dict[tuple[int, int], _Tensor]()
    with _LOCK:
        try:
            packed = _pack(kernel, tensors, args, trace=trace)
            hits, notes = execute(kernel, *sizes, packed, shared, side)
            changed = [MEMORY.changed(tensor.buffer) for tensor in tensors.values()]
        finally:
            for tensor in tensors.values():
                MEMORY.remove(tensor.buffer)
    return _Ran([*tensors.values()], changed, hits, notes)


def execute(
    kernel: Kernel,
    grid: Xyz,
    block: Xyz,
    packed: U8,
    shared: int,
    side: int = 0,
    *,
    watch: LaunchWatch | None = None,
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Execute a kernel for all workgroups; return executions and notes, as `Launch.run` does."""
    if shared < 0:
        raise RequestError(f"{kernel.name}: shared is {shared}: it must not be below 0")
    local = kernel.descriptor.group_segment + shared
    _check_limits(kernel, block, local)
    _hidden(kernel, packed, grid, block, shared)
    image = np.frombuffer(kernel.image, np.uint8)
    ours = (
        (Buffer.of("the code object", image, writable=False), CODE),
        (Buffer.of("the arguments", packed, writable=False), ARGUMENTS),
    )
    with _LOCK:
        try:
            program = _program(kernel)
            initial, ids = _registers(program, block)
            for buffer, base in ours:
                MEMORY.add(buffer, base)
            MEMORY.forget_changes()
            hits, notes = Launch(program, MEMORY, grid, initial, ids, local, side, watch).run()
            kernel.record.stored |= MEMORY.changed()
        finally:
            for buffer, _ in ours:
                if buffer.row:
                    MEMORY.remove(buffer)
    kernel.ran.update(_offsets(hits))
    return hits, notes


def _check_limits(kernel: Kernel, block: Xyz, local: int) -> None:
    """Raise KernelError for a workgroup that the kernel's bounds or the GPU do not allow."""
    items, metadata, facts = int(np.prod(block)), kernel.metadata, FACTS[kernel.target]
    most, wanted = metadata.max_flat_workgroup_size, metadata.reqd_workgroup_size
    waves = -(-items // metadata.wavefront_size)
    # A workgroup runs on one compute unit, or on a pair of units of RDNA (WGP_MODE).
    simds = 4 if facts.lanes == 64 or kernel.descriptor.rsrc1 >> 29 & 1 else 2
    granule = facts.granule * facts.lanes // metadata.wavefront_size
    registers = max(1, -(-metadata.vgpr_count // granule)) * granule
    room = facts.registers * facts.lanes // metadata.wavefront_size // registers * simds
    told = ""
    if items > most:
        told = f"{items} work-items, its launch bounds allow {most}"
    elif wanted and block != (*wanted,):
        told = f"a workgroup of {block}, the kernel is for {(*wanted,)}"
    elif local > LDS[kernel.target]:
        told = f"{local} bytes of LDS, {kernel.target} has {LDS[kernel.target]}"
    elif waves > room:
        told = f"{waves} waves of {metadata.vgpr_count} vector registers, {room} fit"
    if told:
        entry = kernel.descriptor.entry
        text = decode(kernel.image, entry, kernel.target).text
        raise KernelError(
            "launch limits", told, SourceLocation(kernel.name, text, 0, kernel.lines.at(entry))
        )


def _bytes(tensor: torch.Tensor | NDArray[np.generic], name: str) -> tuple[int, U8, int]:
    """Return the address and the bytes of a tensor's storage, and the tensor's offset in bytes."""
    if isinstance(tensor, np.ndarray):
        if not tensor.flags.c_contiguous:
            raise RequestError(f"{name}: an array must be contiguous")
        return tensor.ctypes.data, tensor.reshape(-1).view(np.uint8), 0
    if tensor.device.type != "cpu":
        said = f"{name} is on {tensor.device}"
        raise RequestError(f"{said}: the kernel runs on the processor; call .cpu()")
    torch = importlib.import_module("torch")
    if tensor.layout is not torch.strided:
        raise RequestError(f"{name} is {tensor.layout}: call .to_dense()")
    storage = tensor.untyped_storage()
    content: U8 = torch.tensor([], dtype=torch.uint8).set_(storage).numpy()
    return storage.data_ptr(), content, int(tensor.storage_offset()) * tensor.element_size()


def _pack(
    kernel: Kernel,
    tensors: dict[tuple[int, int], _Tensor],
    args: Sequence[Argument],
    *,
    trace: bool,
) -> U8:
    """Return the argument buffer; add the tensor arguments to `tensors` and to `MEMORY`."""
    declared = declared_arguments(kernel)
    if len(args) != len(declared):
        raise RequestError(f"{kernel.name} takes {len(declared)} arguments, {len(args)} are given")
    packed = argument_buffer(kernel)
    for place, (argument, given) in enumerate(zip(declared, args, strict=True)):
        name = f"argument {place}" + (f" ({argument.name})" if argument.name else "")
        unwritten = isinstance(given, Uninitialised)
        value = given.tensor if isinstance(given, Uninitialised) else given
        pointer = argument.value_kind in _POINTERS
        if not isinstance(value, (np.generic, bool, int, float, bytes)) and hasattr(value, "shape"):
            if not pointer:
                raise RequestError(f"{kernel.name}: {name} is no pointer, a tensor is given")
            address, content, offset = _bytes(value, name)
            key = (address, content.size)
            if key not in tensors:
                for (other, size), tensor in tensors.items():
                    if other < address + content.size and address < other + size:
                        said = f"{kernel.name}: {name} overlaps {tensor.buffer.name}"
                        raise RequestError(
                            f"{said}: pass the same array, or tensors of one storage"
                        )
                copy = content.copy()
                buffer = Buffer.of(name, copy, writable=content.flags.writeable)
                buffer.written = np.zeros(content.size, np.bool_) if unwritten else None
                buffer.writers = np.zeros(content.size, np.uint32) if trace else None
                MEMORY.add(buffer)
                tensors[key] = _Tensor(content, copy, buffer)
            raw = struct.pack("<Q", tensors[key].buffer.base + offset)
        elif pointer and (not isinstance(value, int) or value):
            raise RequestError(
                f"{kernel.name}: {name} is a pointer, {type(value).__name__} is given"
            )
        else:
            raw = _scalar(value, argument.size, f"{kernel.name}: {name}")
        put(packed, argument.offset, raw)
    return packed


def declared_arguments(kernel: Kernel) -> list[code_object.Argument]:
    """Return a kernel's arguments without the hidden arguments, which a runtime adds."""
    return [each for each in kernel.metadata.args if not each.value_kind.startswith("hidden_")]


def argument_buffer(kernel: Kernel) -> U8:
    """Return a kernel's argument buffer, filled with 0."""
    # LLVM loads three words as four, also at the end: a runtime allots more bytes than needed.
    return np.zeros(-(-max(1, kernel.metadata.kernarg_segment_size) // 16) * 16, np.uint8)


def put(packed: U8, offset: int, raw: bytes) -> None:
    """Write bytes into an argument buffer at a byte offset."""
    packed[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)


def _hidden(kernel: Kernel, packed: U8, grid: Xyz, block: Xyz, shared: int) -> None:
    """Write the hidden arguments, which a runtime adds (code object versions 5 and 6)."""
    dims = max([i + 1 for i in range(3) if grid[i] * block[i] > 1], default=1)
    hidden = {
        "hidden_grid_dims": dims,
        "hidden_dynamic_lds_size": shared,
        # Device code talks to the host by these (LLVM's AMDGPUUsage, code object metadata).
        "hidden_hostcall_buffer": HOST,
        "hidden_heap_v1": HOST,
    }
    for axis, groups, items in zip("xyz", grid, block, strict=True):
        hidden |= {f"hidden_block_count_{axis}": groups, f"hidden_group_size_{axis}": items}
    for argument in kernel.metadata.args:
        if number := hidden.get(argument.value_kind):
            put(packed, argument.offset, number.to_bytes(argument.size, "little"))


def _scalar(value: Argument, size: int, name: str) -> bytes:
    """Return a value's bytes: a NumPy number keeps its type, a Python number takes `size` bytes."""
    if isinstance(value, bytes):
        raw = value
    elif isinstance(value, np.generic):
        raw = value.tobytes()
    elif isinstance(value, float):
        raw = struct.pack({2: "<e", 4: "<f", 8: "<d"}.get(size, "<d"), value)
    elif isinstance(value, int):
        if not -(1 << 8 * size - 1) <= value < 1 << 8 * size:
            raise RequestError(f"{name} has {size} bytes, {value} takes more")
        raw = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    else:
        raise RequestError(f"{name}: {type(value).__name__} cannot be passed")
    if len(raw) != size:
        raise RequestError(f"{name} has {size} bytes, {len(raw)} are given")
    return raw


def _registers(program: Program, block: Xyz) -> tuple[NDArray[np.uint32], list[int | None]]:
    """Return each wave's initial SGPRs and v0, and the SGPRs for the workgroup's x, y and z."""
    # llvm.org/docs/AMDGPUUsage.html, initial kernel execution state.
    descriptor, lanes = program.kernel.descriptor, program.mode.lanes
    items = int(np.prod(block))
    item = np.arange(-(-items // lanes) * lanes).reshape(-1, lanes)
    initial = np.zeros((len(item), 256 + lanes), np.uint32)
    x, y, z = item % block[0], item // block[0] % block[1], item // (block[0] * block[1])
    initial[:, 256:] = x | y << 10 | z << 20
    exec_ = np.packbits(item < items, axis=1, bitorder="little").view(np.uint32)
    initial[:, 126 : 126 + lanes // 32] = exec_
    initial[:, 254] = descriptor.entry  # the program counter
    place = 0
    if descriptor.private_segment and descriptor.properties & _SCRATCH_BITS:
        raise UnmodelledError(f"{program.kernel.name}: the scratch of gfx90a is not modelled")
    values = {1: DISPATCH, 2: QUEUE, 3: ARGUMENTS, 6: descriptor.private_segment}
    for bit, size in enumerate(_ASKED):
        if not descriptor.properties >> bit & 1:
            continue
        value = values.get(bit, 0)
        for half in range(size):
            initial[:, place + half] = value >> 32 * half & 0xFFFFFFFF
        place += size
    place = max(place, descriptor.rsrc2 >> 1 & 31)
    if program.mode.family == "rdna4":
        # Bits 25 and up of TTMP8 have the number of the wave in its workgroup.
        initial[:, 116] = np.arange(len(item)) << 25
        return initial, [None, None, None]
    axes = [descriptor.rsrc2 >> (7 + axis) & 1 for axis in range(3)]
    return initial, [place + sum(axes[:axis]) if axes[axis] else None for axis in range(3)]
