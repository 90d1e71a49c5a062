"""The compiler for HIP, target by target: ROCm's, else clang out of pip's wheels."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import runpy
import shutil
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from contribbot import process
from contribbot.errors import CommandError, MachineError, install
from contribbot.model.evidence import Machine

#: The oldest HIP whose headers have FP8 types and warp synchronisation.
_OLDEST_HIP: Final = 6
_ROCM_CLANGS: Final = ("bin/amdclang++", "lib/llvm/bin/clang++", "llvm/bin/clang++")
INSTALL: Final = install("emulate")
#: Distributions that have the module `triton`, by who built them.
_TRITONS: Final = ("triton", "triton-rocm", "pytorch-triton-rocm", "amd-triton")
#: Headers of contribbot that stand in for what pip's clang does not find; README.md there.
HEADERS: Final = Path(__file__).parent / "headers"


@dataclass(frozen=True)
class Toolchain:
    """A compiler for HIP, its headers and its linker."""

    kind: Literal["rocm", "pip"]
    argv: tuple[str, ...]  # the program and the options of every call
    flags: tuple[str, ...]  # where the headers of HIP, C and C++ are
    headers: str  # the packages of the headers, for a record
    #: Folders that `argv` and `flags` name, and their names in a record.
    folders: tuple[tuple[str, str], ...]
    linker: tuple[str, ...]
    version: str
    targets: frozenset[str]
    identity: str  # SHA-256 over version, targets and options, and the program's size and time
    package: str = ""  # the distribution that brings the compiler, such as `ziglang 0.17.1`

    @property
    def name(self) -> str:
        """The compiler and its release."""
        if self.kind == "rocm":
            return f"ROCm clang {self.version}"
        return f"clang {self.version} of {self.package}"

    @property
    def command(self) -> tuple[str, ...]:
        """The compiler as a person calls it."""
        rocm = self.kind == "rocm"
        program = (Path(self.argv[0]).name,) if rocm else ("python", "-m", "ziglang")
        return (*program, *self.argv[1:])


@dataclass(frozen=True)
class Lacking:
    """No toolchain for a target: the compilers that do not know it, and what pip's lacks."""

    target: str
    compilers: tuple[str, ...] = ()
    absent: str = ""  # a distribution without which pip's compiler does not work

    @property
    def reason(self) -> str:
        """The problem and the next step, in one line."""
        known = [f"{name} does not know {self.target}" for name in self.compilers]
        if not self.absent:
            return f"{known[-1]}: install the ROCm release that does"
        lack = f"no compiler for HIP here without {self.absent}"
        return f"{'; '.join([*known, lack])}: {INSTALL}"


def hip_toolchain(target: str) -> Toolchain | Lacking:
    """Return ROCm's compiler for a target, or else pip's."""
    # The environment is read each time: tests and users change it.
    return _search(target, os.environ.get("ROCM_PATH", ""), os.environ.get("PATH", ""))


@functools.cache
def _search(target: str, rocm: str, path: str) -> Toolchain | Lacking:
    others: list[str] = []
    for compiler in (*_rocms(rocm, path), _pips(path)):
        if isinstance(compiler, str):
            return Lacking(target, tuple(others), compiler)
        if target in compiler.targets:
            return compiler
        others.append(compiler.name)
    return Lacking(target, tuple(others))


def _rocms(rocm: str, path: str) -> Iterator[Toolchain]:
    """Yield the compilers of ROCM_PATH, of programs on PATH, and of /opt/rocm."""
    programs = (shutil.which(name, path=path) for name in ("amdclang++", "hipcc"))
    # A program is called by its name or by a link to it from elsewhere.
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
    """Return the clang of ziglang, or the distribution that it lacks."""
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
    """Return the options for zig's C and C++ library."""
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
    """Return a compiler's version, targets and identity; None: it gives no such answer."""
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
    """ROCm's functions for device code, as bitcode of LLVM."""

    files: tuple[Path, ...]
    name: str  # with its package and a digest, for a record

    @property
    def options(self) -> list[str]:
        """The options that link the bitcode: the driver has none of its own."""
        option = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang")
        return [word for file in self.files for word in (*option, str(file))]


def device_library(toolchain: Toolchain) -> DeviceLibrary | None:
    """Return the library that pip's compiler links, of its headers' wheel; ROCm's has its own."""
    files = tuple(_module("triton") / "backends/amd/lib" / name for name in ("ocml.bc", "ockl.bc"))
    if toolchain.kind == "rocm" or not all(file.is_file() for file in files):
        return None
    total = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    package = f"triton {triton_version()}"
    return DeviceLibrary(files, f"ocml.bc and ockl.bc of {package} (SHA-256 {total[:12]})")


def _module(name: str) -> Path:
    """Return the folder of a module without importing it, or a path where nothing is."""
    spec = importlib.util.find_spec(name)
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    return Path(next(iter(places), "/nonexistent"))


def triton_version() -> str:
    """Return the version of the installed triton, by whoever built it."""
    return _version(*_TRITONS)


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "of unknown version"


def _hip_version(root: Path) -> str:
    """Return HIP's version by its own header, such as `7.1`; empty: no HIP there."""
    try:
        text = (root / "include" / "hip" / "hip_version.h").read_text(encoding="utf-8")
    except OSError:
        return ""
    return ".".join(re.findall(r"^#define HIP_VERSION_M(?:AJ|IN)OR\s+(\d+)", text, re.MULTILINE))


Kind = Literal["cpp", "cuda", "hip"]


@dataclass(frozen=True)
class BuildTools:
    """What compiles an extension."""

    kind: Kind
    env: dict[str, str] = field(default_factory=dict)
    identity: tuple[str, ...] = ()
    programs: tuple[Path, ...] = ()
    missing: str = ""


@functools.cache
def torch_build() -> dict[str, str | None]:
    """Return the names of torch's `version.py`; importing torch takes a second."""
    spec = importlib.util.find_spec("torch")
    version = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    return runpy.run_path(str(version)) if version and version.is_file() else {}


def build_tools(target: str, machine: Machine) -> BuildTools:
    """Return the compilers for some hardware of this machine."""
    kind: Kind = "hip" if target.startswith("gfx") else "cuda" if target == "cuda" else "cpp"
    host, env = _host_compilers()
    compiler, missing = None, ""
    if not torch_build():
        missing = "torch is not installed"
    elif importlib.util.find_spec("setuptools") is None:
        missing = "the Python package setuptools is not installed, which cpp_extension needs"
    elif not host:
        missing = "no C++ compiler on this machine (Debian: apt-get install g++)"
    elif shutil.which("ninja") is None:
        missing = "no ninja on this machine, which cpp_extension needs: pip install ninja"
    elif kind != "cpp":
        compiler, missing = _toolkit(kind)
    if missing:
        return BuildTools(kind, missing=missing)
    env |= target_environment(target, machine)
    programs = host if compiler is None else (*host, compiler)
    identity = (
        f"torch {torch_build()['__version__']}", *map(_identity, programs),
        *(f"{name}={value}" for name, value in sorted(env.items())),
        # A binding may include Python's headers.
        str(sysconfig.get_config_var("SOABI")),
    )  # fmt: skip
    if compiler is not None:
        env[f"{_TOOLKITS[kind][0].upper()}_HOME"] = str(compiler.parents[1])
    return BuildTools(kind, env=env, identity=identity, programs=programs[1:])


#: Of each kind of GPU: the name of its toolkit, where that usually lies, what lies in it (a lone
#: compiler somewhere on PATH may be no toolkit), and what is said where it is missing.
_TOOLKITS: Final = {
    "cuda": (
        "CUDA", ("/usr/local/cuda", "/usr/lib/cuda"), ("bin/nvcc", "include/cuda_runtime.h"),
        "no CUDA toolkit on this machine (install CUDA {} with nvcc)",
    ),
    "hip": (
        "ROCm", ("/opt/rocm",), ("bin/hipcc",),
        "no hipcc on this machine (install ROCm's hip-dev)",
    ),
}  # fmt: skip


def _toolkit(kind: Kind) -> tuple[Path | None, str]:
    """Return the compiler in a toolkit for the installed torch, or what is missing."""
    label, usual, files, missing = _TOOLKITS[kind]
    release = torch_build().get(kind)
    if not release:
        return None, f"torch {torch_build()['__version__']} is no {label} build"
    named = (os.environ.get(f"{label.upper()}_{end}") for end in ("HOME", "PATH"))
    roots = [Path(root) for root in named if root]
    if program := shutil.which(Path(files[0]).name):
        roots.append(Path(program).resolve().parents[1])
    for root in (*roots, *map(Path, usual)):
        if all((root / file).is_file() for file in files):
            return root / files[0], ""
    return None, missing.format(release)


def described(tools: BuildTools) -> list[str]:
    """Return what compilers say that they are, and what they are told, for a record."""
    lines = [*tools.identity[:1]]
    for program in tools.programs:
        try:
            text = process.run([program, "--version"], timeout=20).stdout.decode(errors="replace")
        except CommandError:
            text = ""
        # g++ and hipcc say it first, nvcc after its copyright.
        row = next((row for row in text.splitlines() if re.search(r"\d+\.\d+", row)), "")
        lines.append(f"{program.name}: {row.strip() or 'it does not say'}")
    # Where things lie on this machine is nobody's business.
    stated = (pair for pair in sorted(tools.env.items()) if not pair[0].endswith("_HOME"))
    return [*lines, *(f"{name}={value}" for name, value in stated)]


def target_environment(target: str, machine: Machine) -> dict[str, str]:
    """Return the variables that say for which hardware torch's build tools compile."""
    if target.startswith("gfx"):
        return {"PYTORCH_ROCM_ARCH": target}
    if target != "cuda":
        return {}
    nvidia = [gpu.target.removeprefix("sm_") for gpu in machine.gpus if gpu.vendor == "nvidia"]
    # The last digit is the minor version: sm_90 is 9.0, sm_120 is 12.0.
    capabilities = (f"{digits[:-1]}.{digits[-1]}" for digits in dict.fromkeys(nvidia))
    return {"TORCH_CUDA_ARCH_LIST": ";".join(capabilities)}


def _host_compilers() -> tuple[tuple[Path, ...], dict[str, str]]:
    """Return the C and C++ compilers, this Python's or GCC's, and what chooses them."""
    own = [str(sysconfig.get_config_var(name) or name.lower()).split()[0] for name in ("CC", "CXX")]
    for names in (own, ["gcc", "g++"]):
        places = [Path(place) for name in names if (place := shutil.which(name))]
        if len(places) == len(names):
            return tuple(places), dict(zip(("CC", "CXX"), names, strict=True))
    return (), {}


def _identity(program: Path) -> str:
    """Return what tells a program from another release of it, without running it."""
    real = program.resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}"
