"""Read or compile AMD code objects: kernels, their descriptors and arguments, the line table."""

from __future__ import annotations

import bisect
import functools
import importlib
import io
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contribbot.emulate.errors import NoResultError, RequestError, UnmodelledError
from contribbot.emulate.outcomes import LaunchRecord
from contribbot.emulator_host import INSTALL, ToolError, hip_code, triton_code

#: The type of the note with the metadata, in MessagePack (llvm.org/docs/AMDGPUUsage.html).
_METADATA: Final = 32
#: Targets by the lowest byte of e_flags (EF_AMDGPU_MACH_AMDGCN_* of LLVM's BinaryFormat/ELF.h).
_MACHINES: Final = {
    0x3F: "gfx90a",
    0x4C: "gfx942",
    0x4F: "gfx950",
    0x41: "gfx1100",
    0x43: "gfx1150",
    0x4A: "gfx1151",
    0x55: "gfx1152",
    0x4E: "gfx1201",
}


class _MetadataEntry(BaseModel):
    """An entry of a code object's metadata; its keys begin with a dot."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", alias_generator=".{}".format, defer_build=True
    )


class Argument(_MetadataEntry):
    """A kernel argument of the metadata: name, offset and size in bytes, and kind."""

    name: str = ""
    offset: int
    size: int
    value_kind: str


class Metadata(_MetadataEntry):
    """A kernel's metadata, with the keys of LLVM's AMDGPUUsage."""

    name: str
    symbol: str
    args: list[Argument] = Field(default=[])
    kernarg_segment_size: int
    wavefront_size: int
    max_flat_workgroup_size: int
    reqd_workgroup_size: list[int] = Field(default=[])
    vgpr_count: int = 0
    agpr_count: int = 0
    sgpr_count: int = 0
    vgpr_spill_count: int = 0
    sgpr_spill_count: int = 0
    uses_dynamic_stack: bool = False


@dataclass(frozen=True)
class Descriptor:
    """A kernel's descriptor: 64 bytes at the symbol `NAME.kd`."""

    group_segment: int  # bytes of LDS
    private_segment: int  # bytes of scratch for each lane
    entry: int  # the offset in the image at which the kernel begins
    rsrc1: int
    rsrc2: int
    properties: int

    @property
    def round_modes(self) -> int:
        """The rounding modes of float32 (bits 0-1) and of float16 and float64 (bits 2-3)."""
        return self.rsrc1 >> 12 & 15

    @property
    def flushes(self) -> tuple[bool, bool]:
        """Whether float32 subnormals become zero, and whether float16 and float64 subnormals do."""
        return not self.rsrc1 >> 16 & 3, not self.rsrc1 >> 18 & 3

    @property
    def saturates(self) -> bool:
        """Whether overflow of FP8 and float16 gives the largest number (FP16_OVFL)."""
        return bool(self.rsrc1 >> 26 & 1)

    @property
    def odd_denormals(self) -> bool:
        """Whether subnormals become zero only as operands, or only as results."""
        return {self.rsrc1 >> 16 & 3, self.rsrc1 >> 18 & 3} - {0, 3} != set()


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel of a code object, from `load`, `compile_hip` or `compile_triton`."""

    target: str  # such as `gfx942`
    image: bytes = field(repr=False)  # the loaded bytes, from address 0
    descriptor: Descriptor
    metadata: Metadata
    lines: LineTable = field(repr=False)  # empty: the code has no line table
    end: int  # the end of the kernel's code in the image
    shared: int = 0  # bytes of LDS that every launch adds to the descriptor's
    ran: set[int] = field(default_factory=set)  # offsets of executed instructions
    record: LaunchRecord = field(default_factory=LaunchRecord, repr=False)  # of launches

    @property
    def name(self) -> str:
        """The kernel's name in the source; a C++ name is mangled."""
        return self.metadata.name


class LineTable:
    """A code object's DWARF line table, parsed at the first use: the source line of an address."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @functools.cached_property
    def _rows(self) -> tuple[list[int], list[str]]:
        try:
            rows = sorted(_rows(self._content)) if self._content else []
        except _broken() as error:
            raise RequestError(f"the line table cannot be read: {error}") from error
        return [address for address, _ in rows], [place for _, place in rows]

    def place(self, address: int) -> str:
        """Return the `folder/file:line` of an address; empty: no row covers the address."""
        addresses, places = self._rows
        row = bisect.bisect_right(addresses, address) - 1
        return places[row] if row >= 0 else ""

    def at(self, address: int) -> str:
        """Return the `file:line` of an address; empty: no row covers the address."""
        return self.place(address).rpartition("/")[2]

    @property
    def places(self) -> frozenset[str]:
        """The lines that have instructions, each as `folder/file:line`."""
        return frozenset(self._rows[1])


def _broken() -> tuple[type[Exception], ...]:
    """Return the exception types that pyelftools, msgpack and pydantic raise for damaged bytes."""
    exceptions = importlib.import_module("elftools.common.exceptions")
    return (
        *(AssertionError, AttributeError, KeyError, MemoryError, OverflowError),
        *(StopIteration, TypeError, ValueError, struct.error, ValidationError),
        *(exceptions.ELFError, exceptions.DWARFError),
    )


@functools.cache
def load(content: bytes) -> dict[str, Kernel]:
    """Return the kernels of a code object, by name.

    Args:
        content: A linked AMD code object (ELF) of a modelled target.

    Raises:
        RequestError: The bytes are no AMD code object, or a damaged one.
        UnmodelledError: The code is for a target that is not modelled.
        NoResultError: A package that reads code objects is not installed.
    """
    try:
        elffile = importlib.import_module("elftools.elf.elffile")
        msgpack = importlib.import_module("msgpack")
    except ImportError as error:
        raise NoResultError(
            f"{error.name} is not installed, which reads code objects", hint=INSTALL
        ) from error
    if not isinstance(content, bytes):
        raise RequestError(f"load takes a code object's bytes, {type(content).__name__} is given")
    try:
        elf = elffile.ELFFile(io.BytesIO(content))
        segments = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
        if elf["e_machine"] != "EM_AMDGPU" or not segments:
            raise RequestError("this is no linked AMD code object")
        machine = elf["e_flags"] & 0xFF
        if not (target := _MACHINES.get(machine, "")):
            name = {0x36: "gfx1030"}.get(machine, f"the machine {machine:#x}")
            modelled = ", ".join(_MACHINES.values())
            raise UnmodelledError(f"code for {name} is not modelled: {modelled} are")
        image = bytearray(max(segment["p_vaddr"] + segment["p_memsz"] for segment in segments))
        for segment in segments:
            image[segment["p_vaddr"] : segment["p_vaddr"] + segment["p_filesz"]] = segment.data()
        described = next(
            note
            for segment in elf.iter_segments()
            if segment["p_type"] == "PT_NOTE"
            for note in segment.iter_notes()
            if note["n_type"] in {_METADATA, "NT_AMDGPU_METADATA"}
        )
        raw = described["n_descdata"] if "n_descdata" in described else described["n_desc"]
        document = msgpack.unpackb(raw if isinstance(raw, bytes) else raw.encode("latin-1"))
        table = elf.get_section_by_name(".dynsym")
        symbols = {symbol.name: symbol for symbol in table.iter_symbols()}
        lines = LineTable(content)
        kernels = {}
        for found in document["amdhsa.kernels"]:
            metadata = Metadata.model_validate(found)
            code, place = symbols[metadata.name], symbols[metadata.symbol]["st_value"]
            group, private, entry, *more = struct.unpack_from("<II8xq24xIIH", image, place)
            kernels[metadata.name] = Kernel(
                target,
                bytes(image),
                Descriptor(group, private, place + entry, *more),
                metadata,
                lines,
                code["st_value"] + code["st_size"],
            )
    except _broken() as error:
        raise RequestError(
            f"the code object cannot be read: {type(error).__name__}: {error}"
        ) from error
    return kernels


def code_of(content: bytes) -> dict[str, tuple[object, ...]]:
    """Return each kernel's code, descriptor, metadata and constants for comparison, by name."""
    kernels = load(content)
    elf = importlib.import_module("elftools.elf.elffile").ELFFile(io.BytesIO(content))
    symbols = {symbol.name: symbol for symbol in elf.get_section_by_name(".dynsym").iter_symbols()}
    constants = {}
    for section in elf.iter_sections():
        if section.name.startswith((".rodata", ".data")):
            data, first = bytearray(section.data()), section["sh_addr"]
            for kernel in kernels.values():  # zero the descriptors, which say where code begins
                place = symbols[kernel.metadata.symbol]["st_value"] - first
                if 0 <= place < len(data):
                    data[place : place + 64] = bytes(64)
            constants[section.name] = bytes(data).strip(b"\0")  # without zeroed descriptors
    return {
        symbol: (
            kernel.image[kernel.descriptor.entry : kernel.end],
            replace(kernel.descriptor, entry=0),
            kernel.metadata.model_copy(update={"name": "", "symbol": ""}).model_dump_json(),
            *constants.items(),
        )
        for symbol, kernel in kernels.items()
    }


def _rows(content: bytes) -> Iterator[tuple[int, str]]:
    """Yield the address and the `folder/file:line` of each row of the DWARF line table."""
    elf = importlib.import_module("elftools.elf.elffile").ELFFile(io.BytesIO(content))
    if not elf.has_dwarf_info():
        return
    dwarf = elf.get_dwarf_info()
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        # Files are numbered from 0 since DWARF 5, and from 1 before.
        first = 0 if program.header.version >= 5 else 1
        folders = program.header.include_directory
        paths = []
        for entry in program.header.file_entry:
            known = entry.dir_index >= first
            folder = folders[entry.dir_index - first] + b"/" if known else b""
            paths.append(str(PurePosixPath((folder + entry.name).decode("utf-8", "replace"))))
        for state in (entry.state for entry in program.get_entries()):
            if state is not None and state.line and not state.end_sequence:
                yield state.address, f"{paths[state.file - first]}:{state.line}"


def compile_hip(
    source: str | Path,
    target: str,
    *,
    include: Sequence[Path] = (),
    defines: Sequence[str] = (),
    standard: str = "c++20",
    torch: bool = False,
) -> dict[str, Kernel]:
    """Compile HIP C++ for a target.

    Args:
        source: The text, or the path of a file.
        target: The target, such as `gfx942`.
        include: Folders for `#include`.
        defines: Macros, as `NAME` or `NAME=VALUE`.
        standard: The standard of C++.
        torch: Whether the source needs torch's headers.

    Returns:
        The kernels of the source, by name (C++ names are mangled; `extern "C"` keeps them).

    Raises:
        RequestError: The source does not compile; the error names the line.
        NoResultError: No compiler of this machine knows the target.
    """
    try:
        content = hip_code(
            source, target, include=include, defines=defines, standard=standard, torch=torch
        )
    except ToolError as error:
        raise _told(error) from error
    return load(content)


def compile_triton(
    path: Path,
    function: str,
    target: str,
    signature: Mapping[str, str],
    *,
    constants: Mapping[str, int | float | str | bool | None] | None = None,
    num_warps: int = 4,
    num_stages: int | None = None,
) -> Kernel:
    """Compile a Triton kernel for a target.

    Args:
        path: The file that defines the kernel.
        function: The kernel's name in the file.
        target: The target, such as `gfx942`.
        signature: The type of each parameter, such as `*fp32:16` or `i32`, or `constexpr`.
        constants: The values of the constant parameters; a type is the string `tl.float32`.
        num_warps: The number of waves of a workgroup.
        num_stages: The stages of a loop's pipeline; None: Triton's choice for the target.

    Returns:
        The kernel. Its last arguments are pointers to Triton's scratch memory: pass 0.

    Raises:
        RequestError: The kernel does not compile.
        NoResultError: This machine lacks Triton or a compiler.
    """
    try:
        content, shared = triton_code(
            path,
            function,
            target,
            signature,
            constants=constants or {},
            num_warps=num_warps,
            num_stages=num_stages,
        )
    except ToolError as error:
        raise _told(error) from error
    return replace(next(iter(load(content).values())), shared=shared)


def _told(error: ToolError) -> RequestError | NoResultError:
    return (RequestError if error.of_source else NoResultError)(error.message, hint=error.hint)
