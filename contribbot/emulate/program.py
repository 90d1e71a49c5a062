"""Compile a kernel's instructions to CPU functions; instructions of one form share a function."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np

from contribbot.emulate.code_object import Kernel
from contribbot.emulate.decode import TABLES, Instruction, decode
from contribbot.emulate.errors import SourceLocation, UnmodelledError
from contribbot.emulate.outcomes import FOLDER
from contribbot.emulate.pseudocode import MACHINE, NotModelledError
from contribbot.emulate.registers import FloatMode
from contribbot.emulate.translate import Writer, ends_block, jump, sets_saturation
from contribbot.emulator_host import ToolError, compile_native, native_cache, write_atomically

#: With FMA and conversions of float16; without AVX-512, where clang 22 crashes on divisions.
_PROCESSOR: Final = ("-march=x86-64-v3",) if platform.machine() == "x86_64" else ()
#: Each operation is rounded separately, and integers wrap around.
_FLAGS: Final = (
    *("-x", "c++", "-std=c++20", "-O2", "-mtune=native", *_PROCESSOR, "-fPIC", "-w", "-fwrapv"),
    *("-nostdinc", "-ffp-contract=off", "-Xclang", "-ffloat16-excess-precision=none"),
    *("-fno-strict-aliasing", "-fno-math-errno", "-fno-exceptions", "-fno-rtti"),
    # Loops over lanes are vectorised; these passes only make the compiler slower.
    *("-fno-slp-vectorize", "-fno-unroll-loops"),
)
_OURS: Final = "a fault of contribbot; please report it"
#: Instructions that make results depend on the order of workgroups, or that go to unknown code.
_ORDERED: Final = re.compile(r"(GLOBAL|FLAT|BUFFER)_ATOMIC|S_(SETPC|SWAPPC)_B64")
#: LLVM expands an atomic operation on 16 bits to a load of the whole word and a loop of
#: compare-and-swap (AtomicExpandPass.cpp): bytes of that word may lie past the end of a tensor.
_SWAP: Final = re.compile(r"(GLOBAL|FLAT|BUFFER)_ATOMIC_CMPSWAP(_B32)?$")
_WORD: Final = re.compile(r"(GLOBAL|FLAT|BUFFER)_LOAD_(DWORD|B32)$")
_SCRATCH: Final = re.compile(r"SCRATCH_LOAD_")
#: Scalar operands that are constants, no register, or the stack and frame pointers.
_FIXED: Final = frozenset({32, 33, 124, 127, *range(128, 209), 255})
_UNMODELLED: Final = "STOP(UNMODELLED)"


class Program:
    """A kernel's compiled instructions, as far as branches and jumps have reached."""

    def __init__(self, kernel: Kernel) -> None:
        descriptor, family = kernel.descriptor, TABLES[kernel.target]
        if descriptor.round_modes or descriptor.odd_denormals:
            raise UnmodelledError(
                f"{kernel.name}: rounding other than to nearest even is not modelled"
            )
        self.kernel = kernel
        self.unmodelled: dict[int, str] = {}  # why an instruction has no code, by offset
        self.vectors = 1  # the number of vector registers of a wave
        # Whether workgroups may run at the same time: none waits for another, and no two add to
        # the same memory.
        self.parallel = True
        # For each word of the image: the function, its parameters and the registers that it waits
        # for, as machine.hpp reads the array.
        self.code = np.zeros((len(kernel.image) // 4 + 1, 5), np.uint64)
        self._parameters: dict[int, tuple[ctypes.Array[ctypes.c_uint64], Writer]] = {}
        self._instructions: dict[int, Instruction] = {}
        flush32, flush16 = descriptor.flushes
        old = family != "rdna4"  # the minimum and maximum of rdna4 have no such mode
        flush = {"f32": flush32, "f16": flush16, "f64": flush16}
        self.mode = FloatMode(
            kernel.target,
            family,
            kernel.metadata.wavefront_size,
            ieee=old and bool(descriptor.rsrc1 >> 23 & 1),
            clamp_nan=not old or bool(descriptor.rsrc1 >> 21 & 1),
            flush=frozenset(kind for kind, flushed in flush.items() if flushed),
            saturates=descriptor.saturates or self._sets_saturation(),
        )
        #: Whether the waves of a workgroup may have separate caches: RDNA's WGP mode.
        self.splits = family != "cdna" and bool(descriptor.rsrc1 >> 29 & 1)
        self._functions = _functions(self.mode)
        self.extend(descriptor.entry)
        self.run = self._functions.run

    def place(self, offset: int) -> SourceLocation:
        """Return kernel, text, offset and source line of the instruction at an image offset."""
        kernel, found = self.kernel, self._instructions.get(offset)
        text, distance = found.text if found else "?", offset - kernel.descriptor.entry
        return SourceLocation(kernel.name, text, distance, kernel.lines.at(offset))

    def _sets_saturation(self) -> bool:
        """Return whether every wave sets FP16_OVFL before waves can diverge."""
        offset = self.kernel.descriptor.entry
        while instruction := self._at(offset):
            if sets_saturation(instruction):
                return True
            offset += instruction.size
            if instruction.name == "S_BRANCH" and jump(instruction) >= 0:
                offset += jump(instruction)
            elif ends_block(instruction):
                return False
        return False  # a wave that reaches a later S_SETREG stops: not modelled

    def extend(self, start: int) -> None:
        """Compile all code that is reachable from an offset."""
        todo, found = [start], dict[int, tuple[int, Writer]]()
        while todo:
            offset = todo.pop()
            known = offset in self._parameters or offset in found
            if known or not 0 <= offset // 4 < len(self.code):
                continue
            instruction = self._at(offset)
            if instruction is None:
                found[offset] = offset, Writer(self.mode, _UNMODELLED)
                continue
            name, following = instruction.name, offset + instruction.size
            if name.startswith("S_CBRANCH_") or name == "S_BRANCH":
                todo.append(following + jump(instruction))
            if not name.startswith(("S_ENDPGM", "S_SETPC", "S_TRAP", "S_BRANCH")):
                todo.append(following)
            try:
                written = _written(self.mode, instruction)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                raise UnmodelledError(f"{_OURS} ({said})", self.place(offset)) from error
            found[offset] = following, written
            self.parallel &= not _ORDERED.match(name)
            self.vectors = max(self.vectors, written.vectors)
            if written.doubt:
                self.unmodelled[offset] = written.doubt
        swaps = {self._line(offset) for offset in found if self._is(offset, _SWAP)} - {""}
        addresses = self._functions.addresses(written.code for _, written in found.values())
        for offset, (following, written) in found.items():
            numbers = (following, *written.parameters)
            parameters = (ctypes.c_uint64 * len(numbers))(*numbers)
            self._parameters[offset] = parameters, written
            self.code[offset // 4] = (
                addresses[written.code],
                ctypes.addressof(parameters),
                written.track.ctypes.data,
                written.bits,
                written.counts
                + 2 * (self._is(offset, _WORD) and self._line(offset) in swaps)
                + 4 * (self._is(offset, _SCRATCH) and self._indexes(offset)),
            )

    def _is(self, offset: int, names: re.Pattern[str]) -> bool:
        found = self._instructions.get(offset)
        return bool(found and names.match(found.name))

    def _line(self, offset: int) -> str:
        return self.kernel.lines.at(offset)

    def _indexes(self, offset: int) -> bool:
        """Return whether a scratch load's scalar base is computed, not that of a spill's reload."""
        base = self._instructions[offset].get("saddr")
        if base in _FIXED:
            return False
        for before in range(offset - 4, -1, -4):
            each = self._instructions.get(before)
            if each and each.get("sdst", each.get("sdata", each.get("vdst"))) == base:
                sources = each.get("ssrc0"), each.get("ssrc1", 128)
                return not each.name.startswith("S_MOVK") and not _FIXED.issuperset(sources)
        return False

    def _at(self, offset: int) -> Instruction | None:
        """Return the instruction at an offset of the code; None: no table has the instruction."""
        image = self.kernel.image
        if offset not in self._instructions and offset not in self.unmodelled:
            try:
                self._instructions[offset] = decode(image, offset, self.kernel.target)
            except (ValueError, AssertionError, IndexError, KeyError):
                word = int.from_bytes(image[offset : offset + 4], "little")
                why = f"this is no instruction that the tables know ({word:#010x})"
                self.unmodelled[offset] = why
        return self._instructions.get(offset)


@functools.cache
def _written(mode: FloatMode, instruction: Instruction) -> Writer:
    """Return a `Writer` with the C++ of an instruction, which is the same at each offset."""
    writer = Writer(mode)
    try:
        writer.write(instruction)
    except NotModelledError as error:
        # A wave that reaches the instruction reports it; perhaps no wave does.
        writer = Writer(mode, _UNMODELLED)
        writer.doubt = f"not modelled: {error}"
    return writer


class _Functions:
    """The compiled functions of instructions under a `FloatMode`, in memory and in a disk cache.

    Next to each library on disk, a text file lists the digest of each function's C++.
    """

    run: Callable[[object], int]  # of machine.hpp; 0: no workgroup is left, 1: stopped

    def __init__(self, mode: FloatMode) -> None:
        self._mode = mode
        self._addresses: dict[str, int] = {}
        defined = {
            "LANES": mode.lanes,
            "IEEE": int(mode.ieee),
            "FNUZ": int(mode.target == "gfx942"),
            "CLAMP_NAN": int(mode.clamp_nan),
            "SATURATES": int(mode.saturates),
            "RDNA": {"cdna": 0, "rdna3": 3, "rdna4": 4}[mode.family],
        }
        self._defined = "".join(f"#define {name} {value}\n" for name, value in defined.items())
        self._folder = native_cache(_digest(f"{_FLAGS}{self._defined}{MACHINE}"))
        self._lists = set[str]()  # the lists that were read
        #: The library of each function on disk, the function's number, and the count of functions.
        self._found: dict[str, tuple[Path, int, int]] = {}

    def addresses(self, bodies: Iterable[str]) -> dict[str, int]:
        """Compile the `bodies` that are new; return the functions' addresses, by C++ body."""
        new = {*bodies, _RUNNER} - {*self._addresses}
        if new:
            self._search()
            for body in [*new]:
                if (address := self._recall(_digest(body))) is not None:
                    self._addresses[body] = address
                    new.discard(body)
        if new:
            self._compile(sorted(new))
        if not hasattr(self, "run"):
            self.run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._addresses[_RUNNER])
        return self._addresses

    def _search(self) -> None:
        """Read the lists of functions that are new on disk."""
        for path in self._folder.glob("*.txt"):
            if path.name not in self._lists:
                self._lists.add(path.name)
                digests = path.read_text(encoding="ascii").split()
                library = path.with_suffix(".so")
                for number, each in enumerate(digests):
                    self._found[each] = library, number, len(digests)

    def _recall(self, digest: str) -> int | None:
        """Return the address of a function in the disk cache; None: it must be compiled."""
        if digest not in self._found:
            return None
        path, number, count = self._found[digest]
        try:
            return _table(path, count)[number]
        except (OSError, ValueError):  # the library was removed, or is damaged
            return None

    def _compile(self, bodies: list[str]) -> None:
        names = [f"execute_{i}" for i in range(len(bodies))]
        functions = [
            "" if body == _RUNNER else f"EXECUTE({name})\n{body}\nreturn op[0]; }}\n"
            for name, body in zip(names, bodies, strict=True)
        ]
        listed = [
            "(void *)run" if body == _RUNNER else f"(void *){name}"
            for name, body in zip(names, bodies, strict=True)
        ]
        table = f'extern "C" void *const table[] = {{{", ".join(listed)}}};'
        runner = f"#define RUNNER {int(_RUNNER in bodies)}\n"
        source = "".join([self._defined, runner, MACHINE, *functions, f"{table}\n"])
        # In the folder of the command, the files are removed however this process ends.
        place = os.environ.get(FOLDER)
        with tempfile.TemporaryDirectory(prefix="contribbot-", dir=place) as name:
            built = Path(name) / "kernel.so"
            try:
                compile_native(source, _FLAGS, self._mode.target, Path(name), built)
            except ToolError as error:
                said = f"{_OURS} ({error})" if error.of_source else f"{error}; {error.hint}"
                raise UnmodelledError(said) from error
            self._addresses.update(zip(bodies, _table(built, len(bodies)), strict=True))
            digests = "\n".join(map(_digest, bodies))
            with contextlib.suppress(OSError):  # without room, or write access
                for suffix, content in (("so", built.read_bytes()), ("txt", digests.encode())):
                    write_atomically(self._folder / f"{_digest(source)}.{suffix}", content)


#: In place of a body in C++: the function that runs workgroups.
_RUNNER: Final = "run"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@functools.cache
def _table(path: Path, count: int) -> ctypes.Array[ctypes.c_uint64]:
    """Load a library, and return the addresses of its `count` functions."""
    ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
    return (ctypes.c_uint64 * count).in_dll(ctypes.CDLL(str(path)), "table")


_functions = functools.cache(_Functions)
