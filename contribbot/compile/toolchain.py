"""Find a HIP compiler for a target: ROCm's clang, or else the clang in pip's wheels."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from contribbot import process
from contribbot.errors import MachineError, install
from contribbot.model.base import Model

#: The oldest major version of HIP whose headers have FP8 types and warp synchronisation.
_OLDEST_HIP: Final = 6
_ROCM_CLANGS: Final = ("bin/amdclang++", "lib/llvm/bin/clang++", "llvm/bin/clang++")
INSTALL: Final = install("emulate")
#: The distributions that provide the module `triton`.
_TRITONS: Final = ("triton", "triton-rocm", "pytorch-triton-rocm", "amd-triton")
#: The folder of stand-ins for headers that pip's clang lacks (see README.md in the folder).
HEADERS: Final = Path(__file__).parent / "headers"


@dataclass(frozen=True)
class Toolchain:
    """A HIP compiler with headers, linker and known targets."""

    kind: Literal["rocm", "pip"]
    argv: tuple[str, ...]  # the program, and options for each call
    flags: tuple[str, ...]  # options that name the folders of HIP, C and C++ headers
    headers: str  # the packages that the headers come from, for a record
    #: Folders in `argv` and `flags`, each with the name that stands for the path in a record.
    folders: tuple[tuple[str, str], ...]
    linker: tuple[str, ...]
    version: str
    targets: frozenset[str]
    identity: str  # SHA-256 of version, targets, options, and the program's size and time
    package: str = ""  # the distribution that contains the compiler, such as `ziglang 0.17.1`

    @property
    def name(self) -> str:
        """The compiler's name and release."""
        if self.kind == "rocm":
            return f"ROCm clang {self.version}"
        return f"clang {self.version} of {self.package}"

    @property
    def command(self) -> tuple[str, ...]:
        """The compiler's command without paths of this machine."""
        rocm = self.kind == "rocm"
        program = (Path(self.argv[0]).name,) if rocm else ("python", "-m", "ziglang")
        return (*program, *self.argv[1:])


class Lack(Model):
    """A lack of this machine in words (`what`), and a command or step against the lack (`line`)."""

    what: str
    line: str = ""

    def __str__(self) -> str:
        """Return the lack and the step in one line."""
        return f"{self.what}: {self.line}" if self.line else self.what


def hip_toolchain(target: str) -> Toolchain | Lack:
    """Return ROCm's compiler for a target, or else the compiler in pip's wheels, or else a Lack."""
    # Read the environment at each call, as it may change.
    return search(target, os.environ.get("ROCM_PATH", ""), os.environ.get("PATH", ""))


@functools.cache
def search(target: str, rocm: str, path: str) -> Toolchain | Lack:
    """Return the compiler for a target, or a Lack; cached by target, ROCM_PATH and PATH."""
    unfit: list[str] = []
    for compiler in (*_rocms(rocm, path), _pips(path)):
        if isinstance(compiler, str):
            lack = f"no compiler for HIP here without {compiler}"
            return Lack(what="; ".join([*unfit, lack]), line=INSTALL)
        if target in compiler.targets:
            return compiler
        unfit.append(f"{compiler.name} does not know {target}")
    return Lack(what=unfit[-1], line="install the ROCm release that does")


def _rocms(rocm: str, path: str) -> Iterator[Toolchain]:
    """Yield the HIP compiler of each ROCm: ROCM_PATH, that of hipcc on PATH, and /opt/rocm."""
    programs = (shutil.which(name, path=path) for name in ("amdclang++", "hipcc"))
    # A program on PATH may be a link into the toolkit's folder.
    places = [place for name in programs if name for place in (Path(name), Path(name).resolve())]
    roots = [*([Path(rocm)] if rocm else []), *(place.parent.parent for place in places)]
    for root in dict.fromkeys((*roots, Path("/opt/rocm"))):
        version = _hip_version(root)
        clang = next((root / name for name in _ROCM_CLANGS if (root / name).is_file()), None)
        if clang is None or int(version.partition(".")[0] or 0) < _OLDEST_HIP:
            continue
        argv, flags = (str(clang),), (f"--rocm-path={root}",)
        if answer := _ask(argv, flags):
            linker = str(clang.resolve().with_name("ld.lld"))
            headers, folders = f"ROCm, HIP {version}", ((str(root), "<hip>"),)
            yield Toolchain("rocm", argv, flags, headers, folders, (linker,), *answer)


def _pips(path: str) -> Toolchain | str:
    """Return the toolchain of ziglang's clang, or else the distribution that is missing."""
    triton = _module("triton") / "backends/amd"
    zig, tidy = _module("ziglang"), _module("clang_tidy")
    hip = _hip_version(triton)
    if not hip:
        return "triton, which brings HIP's headers"
    if not (answer := _ask((str(zig / "zig"), "clang"))):
        return "ziglang, which brings the compiler"
    release = answer[0].partition(".")[0]
    resources = tidy / "data/lib/clang" / release
    if not resources.is_dir():
        return f"clang-tidy of clang {release}, which brings the compiler's own headers"
    argv = (str(zig / "zig"), "clang", "-resource-dir", str(resources))
    flags = ["-nogpulib", f"--hip-version={hip}", f"--hip-path={triton}", f"--rocm-path={triton}"]
    flags += ["-isystem", str(HEADERS / "rocm"), "-isystem", str(triton / "include")]
    package, clang_tidy = (f"{name} {_version(name)}" for name in ("ziglang", "clang-tidy"))
    headers = f"stand-ins of contribbot over HIP {hip} of triton {triton_version()}"
    headers += f", clang's own of {clang_tidy}"
    if shutil.which("g++", path=path) is None:  # else GCC's C++ library is here
        flags += _libraries(zig / "lib")
        headers += f", libc++ of {package}"
    folders = ((str(triton), "<hip>"), (str(zig), "<ziglang>"), (str(tidy), "<clang_tidy>"))
    linker = (str(zig / "zig"), "ld.lld")
    return Toolchain("pip", argv, tuple(flags), headers, folders, linker, *answer, package)


def _libraries(root: Path) -> list[str]:
    """Return the compiler options that name the headers of zig's C and C++ libraries."""
    machine = platform.machine()
    kernel = "x86" if machine == "x86_64" else machine
    c = (f"{machine}-linux-musl", "generic-musl", f"{kernel}-linux-any", "any-linux-any")
    cxx = (HEADERS / "libcxx", root / "libcxx/include")
    return [
        "-nostdlibinc",
        *(word for folder in cxx for word in ("-stdlib++-isystem", str(folder))),
        *(word for name in c for word in ("-idirafter", str(root / "libc/include" / name))),
    ]


def _ask(argv: Sequence[str], flags: Sequence[str] = ()) -> tuple[str, frozenset[str], str] | None:
    """Return a compiler's version, targets and identity; None: the program does not work."""
    try:
        how = ("--target=amdgcn-amd-amdhsa", "-nogpulib", "--print-supported-cpus")
        done = process.run([*argv, *how])
        stat = Path(argv[0]).stat()
    except (MachineError, OSError):
        return None
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    version = re.search(r"clang version (\d+(?:\.\d+)*)", text)
    targets = frozenset(re.findall(r"^\s+(gfx[0-9a-f]+)$", text, re.MULTILINE))
    if not (version and targets):
        return None
    facts = repr((text, *argv, *flags, stat.st_size, stat.st_mtime_ns))
    return version[1], targets, hashlib.sha256(facts.encode()).hexdigest()


@dataclass(frozen=True)
class DeviceLibrary:
    """ROCm's library of functions for device code, as files of LLVM bitcode."""

    files: tuple[Path, ...]
    name: str  # with package and digest, for a record

    @property
    def options(self) -> list[str]:
        """The compiler options that link the bitcode files."""
        option = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang")
        return [word for file in self.files for word in (*option, str(file))]


def device_library(toolchain: Toolchain) -> DeviceLibrary | None:
    """Return triton's device library for pip's compiler; None: not found, or not needed (ROCm)."""
    files = tuple(_module("triton") / "backends/amd/lib" / name for name in ("ocml.bc", "ockl.bc"))
    if toolchain.kind == "rocm" or not all(file.is_file() for file in files):
        return None
    total = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    package = f"triton {triton_version()}"
    return DeviceLibrary(files, f"ocml.bc and ockl.bc of {package} (SHA-256 {total[:12]})")


def _module(name: str) -> Path:
    """Return a module's folder without importing the module, or a path that does not exist."""
    spec = importlib.util.find_spec(name)
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    return Path(next(iter(places), "/nonexistent"))


def triton_version() -> str:
    """Return the version of the installed triton, from the first distribution in `_TRITONS`."""
    return _version(*_TRITONS)


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "of unknown version"


def _hip_version(root: Path) -> str:
    """Return the version in HIP's header, such as `7.1`; empty: the folder has no header."""
    try:
        text = (root / "include" / "hip" / "hip_version.h").read_text(encoding="utf-8")
    except OSError:
        return ""
    return ".".join(re.findall(r"^#define HIP_VERSION_M(?:AJ|IN)OR\s+(\d+)", text, re.MULTILINE))


def wave_size(target: str) -> int:
    """Return the number of lanes in a wave that torch and Triton use on an AMD target."""
    # Before minor version and stepping (the last two characters), gfx9 targets have one digit.
    return 64 if len(target) <= len("gfx90a") else 32
