"""The functions that `emulate/` needs of its host: compilers, starts of programs, import hooks.

This module is the only import of the emulator from the rest of the package. A project that takes
the folder `emulate/` writes another module with the same names.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from contribbot.compile.cache import CompileError, open_kernels
from contribbot.compile.hip import Compiler, HipSource, code_object
from contribbot.compile.toolchain import INSTALL, Lack, Toolchain, hip_toolchain
from contribbot.compile.triton import TritonSource, triton_code_object
from contribbot.errors import ContribbotError
from contribbot.fallback import AfterImport, run_hidden
from contribbot.files import write_atomically
from contribbot.process import KERNELS, attached, shell_status

__all__ = [
    "INSTALL",
    "AfterImport",
    "ToolError",
    "compile_native",
    "hip_code",
    "native_cache",
    "run_attached",
    "run_hidden",
    "triton_code",
    "write_atomically",
]

_SECONDS: Final = 300.0
#: Seconds for an interrupted program to end: in a compiler, a program may never end.
_GRACE: Final = 3.0


class ToolError(Exception):
    """A compiler or program failed; `of_source`: the source is to blame, not this machine."""

    def __init__(self, message: str, *, of_source: bool = False, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.of_source, self.hint = message, of_source, hint


@contextlib.contextmanager
def _workplace(target: str, parent: Path | None = None) -> Iterator[tuple[Toolchain, Path]]:
    """Yield a target's compiler and a temporary folder; contribbot's errors become ToolError."""
    with tempfile.TemporaryDirectory(prefix="contribbot-", dir=parent) as name:
        try:
            toolchain = hip_toolchain(target)
            if isinstance(toolchain, Lack):
                raise ToolError(toolchain.what, hint=toolchain.line)
            yield toolchain, Path(name)
        except CompileError as error:
            result = error.result
            text = (result.error or str(error)).replace(f"{name}/", "")
            if result.error and not result.missing:
                raise ToolError(text, of_source=True) from error
            raise ToolError(text, hint="see `contribbot doctor`") from error
        except ContribbotError as error:
            raise ToolError(error.message, hint=error.hint) from error


def hip_code(
    source: str | Path,
    target: str,
    *,
    include: Sequence[Path],
    defines: Sequence[str],
    standard: str,
    torch: bool,
) -> bytes:
    """Return the code object, with its line table, of HIP C++ in a text or a file."""
    with _workplace(target) as (toolchain, folder):
        path = source.absolute() if isinstance(source, Path) else folder / "kernel.hip"
        if isinstance(source, str):
            path.write_text(source, encoding="utf-8")
        hip = HipSource(path, tuple(include), tuple(defines), standard, torch, (folder,))
        return code_object(hip, target, using=toolchain, folder=folder, timeout=_SECONDS)[0]


def triton_code(
    path: Path,
    function: str,
    target: str,
    signature: Mapping[str, str],
    *,
    constants: Mapping[str, int | float | str | bool | None],
    num_warps: int,
    num_stages: int | None,
) -> tuple[bytes, int]:
    """Return a Triton kernel's code object, and the bytes of LDS that a launch adds."""
    source = TritonSource(path, function, signature, dict(constants), num_warps, (), num_stages)
    with _workplace(target) as (toolchain, folder):
        return triton_code_object(source, target, using=toolchain, folder=folder, timeout=_SECONDS)


def compile_native(
    source: str, flags: Sequence[str], target: str, folder: Path | None, output: Path
) -> None:
    """Compile C++ for this processor into a shared library, with the compiler for a target."""
    with _workplace(target, folder) as (toolchain, place):
        path = place / "kernel.cpp"
        path.write_text(source, encoding="utf-8")
        compiler = Compiler(toolchain, target, place, _SECONDS, str, "")
        written = "-o", compiler.output, path
        path.write_bytes(compiler.run([*toolchain.argv, *flags, "-c", *written]))
        output.write_bytes(compiler.run([*toolchain.linker, "-shared", *written]))


def native_cache(key: str) -> Path:
    """Return the folder of a library for this processor, by the key of the library's inputs.

    A sandbox has a separate folder, from which no program outside the sandbox loads a library.
    """
    return Path(os.environ.get(KERNELS) or open_kernels()) / key


def run_attached(argv: Sequence[str], env: Mapping[str, str], *, quiet: bool) -> int:
    """Run a program in this terminal, and return the exit status as a shell does.

    `quiet`: the program's standard output goes to standard error.
    """
    try:
        stdout = 2 if quiet else None
        return shell_status(attached(argv, env=env, stdout=stdout, grace=_GRACE))
    except ContribbotError as error:
        raise ToolError(error.message, hint=error.hint) from error
