"""A kernel as basic blocks, compiled for this processor."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from contribbot.emulate.code_object import Kernel
from contribbot.emulate.decode import TABLES, Instruction, decode
from contribbot.emulate.errors import SourceLocation, UnmodelledError
from contribbot.emulate.memory_ops import FIRST_BUFFER
from contribbot.emulate.pseudocode import MACHINE, NotModelledError
from contribbot.emulate.translate import FloatMode, Writer, ends_block, sets_saturation, target
from contribbot.errors import MachineError
from contribbot.hardware.build_cache import CompileError
from contribbot.hardware.hip import Compiler, hip_toolchain
from contribbot.hardware.toolchain import Lacking, find_linker

_SECONDS: Final = 300.0
#: FMA, and conversions of float16; with AVX-512, clang 22 crashes on divisions of float64.
_PROCESSOR: Final = ("-march=x86-64-v3",) if platform.machine() == "x86_64" else ()
#: Each operation is rounded by itself, and integers wrap around.
_FLAGS: Final = (
    "-x", "c++", "-std=c++20", "-O1", *_PROCESSOR, "-fPIC", "-w", "-fwrapv", "-nostdinc",
    "-ffp-contract=off", "-Xclang", "-ffloat16-excess-precision=none", "-fno-strict-aliasing",
    "-fno-math-errno", "-fno-exceptions", "-fno-rtti",
)  # fmt: skip


class Program:
    """A kernel's blocks: what is reached by branches, and what calls turn out to reach.

    Attributes:
        blocks: Instructions by where each block begins in the image.
        vectors: How many vector registers a wave has.
        unmodelled: What cannot be executed: why, by where it stands.
        run: The compiled `run` of machine.hpp.
    """

    run: Callable[[object], int]

    def __init__(self, kernel: Kernel) -> None:
        descriptor, family = kernel.descriptor, TABLES[kernel.target]
        if descriptor.round_modes or descriptor.odd_denormals:
            raise UnmodelledError(
                f"{kernel.name}: rounding other than to nearest even is not modelled"
            )
        self.kernel = kernel
        self.blocks: dict[int, list[Instruction]] = {}
        self.unmodelled: dict[int, str] = {}
        self.vectors = 1
        self._instructions: dict[int, Instruction] = {}
        flush32, flush16 = descriptor.flushes
        old = family != "rdna4"  # whose minimum and maximum have no such mode
        flush = {"f32": flush32, "f16": flush16, "f64": flush16}
        self.mode = FloatMode(
            kernel.target, family, kernel.metadata.wavefront_size,
            ieee=old and bool(descriptor.rsrc1 >> 23 & 1),
            clamp_nan=not old or bool(descriptor.rsrc1 >> 21 & 1),
            flush=frozenset(kind for kind, flushed in flush.items() if flushed),
            saturates=descriptor.saturates or self._sets_saturation(),
        )  # fmt: skip
        self._leaders = set[int]()
        self.extend(descriptor.entry)

    def place(self, offset: int) -> SourceLocation:
        """Return where in the source an instruction is."""
        kernel = self.kernel
        found = self._instructions.get(offset)
        text = found.text if found else "?"
        return SourceLocation(
            kernel.name, text, offset - kernel.descriptor.entry, kernel.lines.at(offset)
        )

    def _sets_saturation(self) -> bool:
        """Say whether every wave sets FP16_OVFL before anything can part them."""
        offset = self.kernel.descriptor.entry
        while instruction := self._at(offset):
            if sets_saturation(instruction):
                return True
            offset += instruction.size
            if instruction.name == "S_BRANCH" and target(instruction) >= offset:
                offset = target(instruction)
            elif ends_block(instruction):
                return False
        return False  # told when it is reached

    def extend(self, start: int) -> None:
        """Compile what is known so far and what a place leads to."""
        todo = [start]
        while todo:
            offset = todo.pop()
            if offset in self._leaders:
                continue
            self._leaders.add(offset)
            while instruction := self._at(offset):
                offset += instruction.size
                if ends_block(instruction):
                    name = instruction.name
                    if name.startswith("S_CBRANCH_") or name == "S_BRANCH":
                        todo.append(target(instruction))
                    if not name.startswith(("S_ENDPGM", "S_SETPC", "S_TRAP", "S_BRANCH")):
                        todo.append(offset)
                    break
        writer = Writer(self.mode)
        for leader in sorted(self._leaders):
            self._block(writer, leader)
        self.vectors = max(self.vectors, writer.vectors)
        self.unmodelled.update(writer.unmodelled)
        cases = "".join(f"case {leader}: goto b_{leader};\n" for leader in self._leaders)
        defined = {
            "LANES": self.mode.lanes, "VECTORS": self.vectors, "IEEE": int(self.mode.ieee),
            "FNUZ": int(self.kernel.target == "gfx942"), "CLAMP_NAN": int(self.mode.clamp_nan),
            "SATURATES": int(self.mode.saturates), "FIRST_BUFFER": FIRST_BUFFER,
            "RDNA": {"cdna": 0, "rdna3": 3, "rdna4": 4}[self.mode.family],
        }  # fmt: skip
        self._compile(
            "".join(f"#define {name} {value}\n" for name, value in defined.items()) + MACHINE
            + "static bool step(Machine *m, Wave *w) {\n"
            "u32 *const s = w->s; u32 (*const v)[LANES] = w->v;\nnext:\n"
            f"switch (s[PC_]) {{\n{cases}default: m->at = s[PC_]; STOP(UNKNOWN)\n}}\n"
            + "\n".join(writer.lines) + "\n}\n"
        )  # fmt: skip

    def _at(self, offset: int) -> Instruction | None:
        """Return the instruction at a place; None: there is none that is known."""
        image = self.kernel.image
        if offset >= len(image):
            self.unmodelled[offset] = "the code goes on past its end"
        elif offset not in self._instructions and offset not in self.unmodelled:
            try:
                self._instructions[offset] = decode(image, offset, self.kernel.target)
            except (ValueError, AssertionError, IndexError, KeyError):
                word = int.from_bytes(image[offset : offset + 4], "little")
                self.unmodelled[offset] = (
                    f"this is no instruction that the tables know ({word:#010x})"
                )
        return self._instructions.get(offset)

    def _block(self, writer: Writer, start: int) -> None:
        block = self.blocks[start] = []
        writer.lines.append(f"b_{start}: ENTER({start})")
        offset, last = start, None
        while last is None and (offset == start or offset not in self._leaders):
            instruction = self._at(offset)
            if instruction is None:
                writer.lines.append(f"m->at = {offset}; STOP(UNMODELLED)")
                return
            offset += instruction.size
            block.append(instruction)
            if ends_block(instruction):
                last = instruction
            else:
                self._write(writer, instruction, functools.partial(writer.write, instruction))
        self._write(writer, block[-1], functools.partial(writer.end, last, offset))

    def _write(self, writer: Writer, instruction: Instruction, write: Callable[[], None]) -> None:
        lines, at = len(writer.lines), instruction.offset
        try:
            write()
        except NotModelledError as error:
            # Told when it is reached: other waves, or none, may come by.
            self.unmodelled[at] = f"not modelled: {error}"
            del writer.lines[lines:]
            writer.lines.append(f"m->at = {at}; STOP(UNMODELLED)")
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise UnmodelledError(
                f"a fault of contribbot; please report it ({said})", self.place(at)
            ) from error

    def _compile(self, source: str) -> None:
        using = hip_toolchain(self.kernel.target)
        if isinstance(using, Lacking):
            raise MachineError(using.reason)
        linker = find_linker(using)
        with tempfile.TemporaryDirectory(prefix="contribbot-") as name:
            path, built = Path(name) / "kernel.cpp", Path(name) / "kernel.so"
            path.write_text(source, encoding="utf-8")
            compiler = Compiler(using, self.kernel.target, Path(name), _SECONDS, str, "")
            try:
                content = compiler.run([*using.argv, *_FLAGS, "-c", "-o", compiler.output, path])
                path.write_bytes(content)
                built.write_bytes(
                    compiler.run([*(linker or ()), "-shared", "-o", compiler.output, path])
                )
            except CompileError as error:
                said = error.result.error or str(error)
                raise UnmodelledError(
                    f"a fault of contribbot; please report it ({self.kernel.name}: {said})"
                ) from error
            ctypes.CDLL(ctypes.util.find_library("m"), mode=ctypes.RTLD_GLOBAL)
            self.run = ctypes.CDLL(str(built)).run
