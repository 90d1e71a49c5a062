"""Compiling HIP C++ to a listing, on a machine that need not have an AMD GPU."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.hardware.build_cache import Compiled, CompileError, alone, key_of, recall, remember
from contribbot.hardware.compiler import Compiler
from contribbot.hardware.toolchain import Lacking, Toolchain, find_toolchain

#: Headers that stand in for what a plain clang does not find; see README.md there.
HEADERS: Final = Path(__file__).parent / "headers"


@dataclass(frozen=True)
class Source:
    """What is compiled, and how."""

    path: Path
    include: tuple[Path, ...]
    defines: tuple[str, ...]  # macros, as `NAME` or `NAME=VALUE`
    standard: str
    torch: bool  # whether torch's headers are needed
    folders: tuple[Path, ...]  # that stand for the tree: their names must not matter


def toolchain(target: str) -> Toolchain | Lacking:
    """Return what compiles HIP for a target on this machine."""
    return find_toolchain(target, HEADERS)


def torch_include() -> Path | None:
    """Return torch's include folder, without importing torch; None: there is none."""
    spec = importlib.util.find_spec("torch")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        include = Path(place) / "include"
        if (include / "torch").is_dir():
            return include
    return None


def headers_digest() -> str:
    """Return the SHA-256 over the stand-in headers, in hexadecimal."""
    total = hashlib.sha256()
    for path in sorted(HEADERS.rglob("*.h")):
        total.update(path.relative_to(HEADERS).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def compile_hip(
    source: Source,
    target: str,
    *,
    using: Toolchain,
    folder: Path,
    timeout: float,
    scrub: Callable[[str], str],
) -> Compiled:
    """Compile a source for a target and read the listing."""
    torch = torch_include()
    named = [(str(HEADERS), "<stand-ins>"), *using.folders]
    named += [(str(torch), "<torch>/include")] if torch is not None else []

    def scrub_headers(text: str) -> str:
        # Folders of headers are named by what they are, wherever they lie.
        for place, placeholder in named:
            text = text.replace(place, placeholder)
        return scrub(text)

    arguments = _arguments(source, target, using, torch if source.torch else None)
    words = (*using.command, *arguments, "-S", str(source.path))
    command = [scrub_headers(word) for word in words]
    compiler = Compiler(using, target, folder, timeout, scrub_headers, process.describe(command))

    def make(*how: str) -> bytes:
        return compiler.run([*using.argv, *arguments, *how, "-o", compiler.output, source.path])

    try:
        key = key_of(make("-E"), command, using.identity)
        with alone(key):
            known = recall(key)
            if known is not None:
                return known.model_copy(update={"command": compiler.command})
            result = _read(compiler, make)
            # An error tells its line, which another comment moves; it is also soon found again.
            remember(key, result)
            return result
    except CompileError as failure:
        return failure.result


def _read(compiler: Compiler, make: Callable[..., bytes]) -> Compiled:
    listing = make("-S")
    try:
        return compiler.read(listing)
    except CompileError:
        # Where the source's own assembly is wrong, the compiler names the source's line.
        make("-S", "-Xclang", "-emit-obj")
        raise


def _arguments(source: Source, target: str, using: Toolchain, torch: Path | None) -> list[str]:
    """Return what the compiler is told, beside what it shall make of which file."""
    system: Sequence[Path] = ()
    if torch is not None:
        system = (HEADERS / "torch_cpu", torch, torch / "torch/csrc/api/include")
    return [
        "-x", "hip", "--cuda-device-only", f"--offload-arch={target}", f"-std={source.standard}",
        "-O3", "-D__HIP_PLATFORM_AMD__",
        *(f"-D{macro}" for macro in source.defines),
        *(f"-I{root}" for root in source.include), *using.flags,
        *(word for root in system for word in ("-isystem", str(root))),
        # The folder's name must not get into what is compiled (__FILE__).
        *(f"-ffile-prefix-map={folder}=." for folder in source.folders),
        "-w", "-ferror-limit=1", "-fno-color-diagnostics", "-fno-caret-diagnostics",
    ]  # fmt: skip
