"""The compiler for HIP, target by target: ROCm's, else a clang of the PATH, else pip's."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import runpy
import shutil
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from contribbot import process
from contribbot.errors import CommandError, MachineError, install
from contribbot.files import cache_folder, write_atomically
from contribbot.model.base import Model
from contribbot.model.evidence import Machine

#: The oldest plain clang whose AMDGPU back end and HIP front end know what is needed.
OLDEST_CLANG: Final = 19
_NEWEST_CLANG: Final = 60
#: The oldest HIP whose headers have FP8 types and warp synchronisation.
_OLDEST_HIP: Final = 6
#: Names one compiler to use, instead of looking for one.
VARIABLE: Final = "CONTRIBBOT_HIP_CLANG"
_ROCM_CLANGS: Final = ("bin/amdclang++", "lib/llvm/bin/clang++", "llvm/bin/clang++")
#: Where ROCm has its device library: its own packages, and its wheels
#: (ROCm/llvm-project#739 names both).
_BITCODE: Final = ("amdgcn/bitcode", "lib/llvm/amdgcn/bitcode")
INSTALL: Final = install("emulate")
_REINSTALL: Final = f": python -m pip uninstall ziglang clang-tidy; {INSTALL}"
#: Distributions that have the module `triton`, by who built them.
_TRITONS: Final = ("triton", "triton-rocm", "pytorch-triton-rocm", "amd-triton")
#: What is compiled to see whether a compiler and its headers work at all.
_SAMPLE: Final = """\
#include <hip/hip_runtime.h>
#include <cmath>
#include <type_traits>
extern "C" __global__ void sample(float* values) {
  values[blockIdx.x * blockDim.x + threadIdx.x] += sqrtf(values[threadIdx.x]);
}
"""
_SECONDS: Final = 120.0
#: Names the folder of another process that has looked at the compilers; it is only read.
_KNOWN: Final = "CONTRIBBOT_TOOLCHAINS"
#: How libc++ is configured; zig has it without the header that says so.
_LIBCXX: Final = (
    "ABI_VERSION=1", "ABI_NAMESPACE=__1", "HAS_THREADS=1", "HAS_MUSL_LIBC=1",
    "HAS_MONOTONIC_CLOCK=1", "HAS_FILESYSTEM=1", "HAS_LOCALIZATION=1", "HAS_UNICODE=1",
    "HAS_WIDE_CHARACTERS=1", "HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0", "PSTL_BACKEND_SERIAL",
    "HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
    "ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE",
)  # fmt: skip
_looking: Final = threading.Lock()


@dataclass(frozen=True)
class Toolchain:
    """A compiler for HIP and its headers; the last four are known once it was examined."""

    kind: Literal["rocm", "clang", "pip"]
    argv: tuple[str, ...]  # the program, and what it is told in every call
    flags: tuple[str, ...]  # how it finds HIP's headers, and the device library
    headers: str  # where they come from, in words
    #: Folders that `argv` and `flags` name, and what a record calls them.
    folders: tuple[tuple[str, str], ...]
    package: str = ""  # what brings it, such as `ziglang 0.17.1`
    #: The releases of clang that its headers fit; ROCm's fit its clang, whatever their age.
    releases: range = range(OLDEST_CLANG, 1000)
    version: str = ""
    targets: frozenset[str] = frozenset()
    identity: str = ""  # SHA-256 over what it says of itself, its size and its time
    links: bool = False  # the device library, where there is one

    @property
    def name(self) -> str:
        """What people call it."""
        clang = f"{'ROCm clang' if self.kind == 'rocm' else 'clang'} {self.version}"
        return f"{clang} of {self.package}" if self.package else clang

    @property
    def program(self) -> str:
        """What it is called before its version is known."""
        return self.package or Path(self.argv[0]).name

    @property
    def command(self) -> tuple[str, ...]:
        """How a person calls it."""
        program = ("python", "-m", "ziglang") if self.kind == "pip" else (self.program,)
        return (*program, *self.argv[1:])

    def lacking(self, trouble: str) -> Lacking:
        """Return why it does not serve, and what helps."""
        return Lacking(f"{self.program} {trouble}{_REINSTALL if self.kind == 'pip' else ''}")


@dataclass(frozen=True)
class Lacking:
    """No toolchain for a target: why, and what helps, in one line."""

    reason: str


def known_toolchains() -> dict[str, str]:
    """Return the variable that spares a child, whose cache is its own, a look at each compiler."""
    return {_KNOWN: str(cache_folder() / "toolchains")}


def find_toolchain(target: str, stand_ins: Path) -> Toolchain | Lacking:
    """Return the first compiler that works and knows a target; rather one that links."""
    # The environment is asked each time: tests and users change it.
    asked = tuple(os.environ.get(name, "") for name in (VARIABLE, "ROCM_PATH", "PATH"))
    known = os.environ.get(_KNOWN)
    caches = (cache_folder() / "toolchains", *([Path(known)] if known else ()))
    with _looking:
        return _find(target, stand_ins, caches, asked)


@functools.cache
def _find(
    target: str, stand_ins: Path, caches: tuple[Path, ...], asked: tuple[str, ...]
) -> Toolchain | Lacking:
    named, rocm, path = asked
    second: Toolchain | None = None
    #: By program: what is said of one holds for it with the last headers that it was given.
    reasons: dict[str, str] = {}
    for candidate in _candidates(_plain(stand_ins), named, rocm, path):
        examined = candidate if isinstance(candidate, Lacking) else _examine(candidate, caches)
        if isinstance(examined, Toolchain) and target in examined.targets:
            if examined.links:
                return examined
            second = second or examined
            continue
        program = candidate.argv[0] if isinstance(candidate, Toolchain) else ""
        if isinstance(examined, Lacking):
            reasons[program] = examined.reason
        else:
            reasons[program] = f"{examined.name} does not know {target}"
            if examined.kind == "pip":
                break  # with other headers it knows no other targets
    if second:
        return second
    cure = (
        f": {VARIABLE} must name a clang {OLDEST_CLANG} or newer that knows {target}, or be unset"
    )
    return Lacking("; ".join(reasons.values()) + (cure if named and "" not in reasons else ""))


def _candidates(
    plain: Toolchain | Lacking, named: str, rocm: str, path: str
) -> Iterator[Toolchain | Lacking]:
    """Yield the compiler that a person names, or all, the preferred first."""
    if not named:
        yield from _rocms(rocm, path)
    if isinstance(plain, Lacking):
        yield plain
    elif named:
        yield replace(plain, argv=(str(Path(shutil.which(named) or named).absolute()),))
    else:
        yield from (replace(plain, argv=(clang,)) for clang in _clangs(path))
        yield from _of_pip(plain)


def _rocms(rocm: str, path: str) -> Iterator[Toolchain]:
    """Yield ROCm's compilers: of the variable, of the usual folder, of programs on the path."""
    roots = [*([Path(rocm)] if rocm else []), Path("/opt/rocm")]
    for program in ("amdclang++", "hipcc"):
        if place := shutil.which(program, path=path):
            # As it is called, and as it is: one of them may be a link from elsewhere.
            roots += [Path(place).parent.parent, Path(place).resolve().parent.parent]
    for root in dict.fromkeys(roots):
        version = _hip_version(root)
        clangs = (root / folder for folder in _ROCM_CLANGS if (root / folder).is_file())
        clang = next(clangs, None)
        if clang and version and int(version.partition(".")[0]) >= _OLDEST_HIP:
            yield Toolchain(
                "rocm", (str(clang),), (f"--rocm-path={root}",), f"ROCm, HIP {version}",
                ((str(root), "<hip>"),), releases=range(1000),
            )  # fmt: skip


def _clangs(path: str) -> Iterator[str]:
    """Yield the clangs on a search path, the newest first, the one without a number last."""
    newest = (f"clang++-{release}" for release in reversed(range(OLDEST_CLANG, _NEWEST_CLANG)))
    for name in (*newest, "clang++"):
        if program := shutil.which(name, path=path):
            yield program


def _plain(stand_ins: Path) -> Toolchain | Lacking:
    """Return how a plain clang is called, whichever it is; or that HIP's headers are not here."""
    root = _module("triton") / "backends/amd"
    version = _hip_version(root)
    if not (version and (root / "include/hip/hip_runtime.h").is_file()):
        return Lacking(f"HIP's headers, which triton brings, are not here: {INSTALL}")
    return Toolchain(
        "clang", (),
        (
            "-nogpulib", f"--hip-version={version}", f"--hip-path={root}", f"--rocm-path={root}",
            "-isystem", str(stand_ins / "rocm"), "-isystem", str(root / "include"),
        ),
        f"stand-ins of contribbot over HIP {version} of triton {triton_version()}",
        ((str(root), "<hip>"),),
    )  # fmt: skip


def _of_pip(plain: Toolchain) -> Iterator[Toolchain | Lacking]:
    """Yield zig's clang with this machine's C++ library, then with zig's own."""
    zig, tidy = _module("ziglang"), _module("clang_tidy")
    resources = sorted((tidy / "data/lib/clang").glob("[0-9]*"))
    if not (zig / "zig").is_file():
        yield Lacking(f"ziglang, which brings a clang, is not installed: {INSTALL}")
        return
    if not resources:
        why = "clang-tidy, which brings the headers for ziglang's clang, is not installed"
        yield Lacking(f"{why}: {INSTALL}")
        return
    release = int(resources[-1].name)
    package, headers = (f"{name} {_version(name)}" for name in ("ziglang", "clang-tidy"))
    pips = replace(
        plain,
        kind="pip",
        argv=(str(zig / "zig"), "clang", "-resource-dir", str(resources[-1])),
        headers=f"{plain.headers}, clang's own of {headers}",
        folders=(*plain.folders, (str(zig), "<ziglang>"), (str(tidy), "<clang_tidy>")),
        package=package,
        releases=range(release, release + 1),
    )
    yield pips
    own = f"{pips.headers}, libc++ of {package}"
    yield replace(pips, argv=(*pips.argv, *_libcxx(zig / "lib")), headers=own)


def find_linker(toolchain: Toolchain) -> tuple[str, ...] | None:
    """Return lld: beside a compiler, on the PATH, or zig's; None: there is none."""
    beside = Path(toolchain.argv[0]).resolve().with_name("ld.lld")
    if toolchain.kind != "pip" and beside.is_file():
        return (str(beside),)
    zig = _module("ziglang") / "zig"
    if zig.is_file():
        return str(zig), "ld.lld"
    found = shutil.which("ld.lld")
    return (found,) if found else None


@dataclass(frozen=True)
class DeviceLibrary:
    """ROCm's functions for device code, as bitcode of LLVM."""

    files: tuple[Path, ...]
    name: str  # with where it is from, and a digest: for a record


def linking(files: Sequence[Path]) -> list[str]:
    """Return how a compiler is told to link bitcode: its driver has no such option."""
    option = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang")
    return [word for file in files for word in (*option, str(file))]


def device_libraries(toolchain: Toolchain) -> Iterator[DeviceLibrary]:
    """Yield the libraries that a compiler may link, the preferred first; ROCm's links its own."""
    if toolchain.kind == "rocm":
        return
    named = os.environ.get("ROCM_PATH")
    places = {
        # The headers are of the same release.
        _module("triton") / "backends/amd/lib": f"triton {triton_version()}",
        _module("_rocm_sdk_core") / _BITCODE[-1]: f"rocm-sdk-core {_version('rocm-sdk-core')}",
    }
    for root in (*([Path(named)] if named else []), Path("/opt/rocm")):
        places |= {root / folder: f"ROCm, HIP {_hip_version(root)}" for folder in _BITCODE}
    for folder, package in places.items():
        files = tuple(folder / name for name in ("ocml.bc", "ockl.bc"))
        if all(file.is_file() for file in files):
            total = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
            yield DeviceLibrary(files, f"ocml.bc and ockl.bc of {package} (SHA-256 {total[:12]})")


def _libcxx(root: Path) -> list[str]:
    """Return how clang finds the C and C++ library that zig brings, and no other."""
    machine = platform.machine()
    kernel = "x86" if machine == "x86_64" else machine
    c = (f"{machine}-linux-musl", "generic-musl", f"{kernel}-linux-any", "any-linux-any")
    return [
        "-nostdlibinc", "-stdlib++-isystem", str(root / "libcxx/include"),
        *(word for name in c for word in ("-idirafter", str(root / "libc/include" / name))),
        *(f"-D_LIBCPP_{macro}" for macro in _LIBCXX),
    ]  # fmt: skip


def _module(name: str) -> Path:
    """Return the folder of a module, without importing it; it need not be there."""
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


class _Examined(Model):
    """What a compiler says of itself; remembered until the program changes."""

    version: str
    targets: Annotated[frozenset[str], Field(strict=False)]
    identity: str
    links: bool


def _examine(candidate: Toolchain, caches: tuple[Path, ...]) -> Toolchain | Lacking:
    """Look at a compiler; what is good is remembered in the first cache."""
    program = Path(candidate.argv[0])
    if not program.is_file():
        return Lacking(f"{candidate.program}: no such program")
    stat = program.stat()
    libraries = tuple(device_libraries(candidate))
    names = [library.name for library in libraries]
    facts = json.dumps([candidate.argv, candidate.flags, stat.st_mtime_ns, stat.st_size, names])
    name = f"{hashlib.sha256(facts.encode()).hexdigest()}.json"
    for cache in caches:
        with contextlib.suppress(OSError, ValidationError):
            examined = _Examined.model_validate_json((cache / name).read_bytes())
            return replace(candidate, **vars(examined))
    looked = _look(candidate, libraries, facts)
    if isinstance(looked, Lacking):
        return looked
    write_atomically(caches[0] / name, looked.model_dump_json().encode())
    return replace(candidate, **vars(looked))


@functools.cache
def _look(
    candidate: Toolchain, libraries: tuple[DeviceLibrary, ...], facts: str
) -> _Examined | Lacking:
    """Ask a compiler for its version and its targets, and compile a small kernel."""
    try:
        banner = process.run([*candidate.argv, "--version"], timeout=_SECONDS).stdout.decode()
        version = re.search(r"clang version (\d+(?:\.\d+)*)", banner)
        if not version:
            return candidate.lacking("is no clang that says its version")
        if int(version[1].partition(".")[0]) not in candidate.releases:
            needed = candidate.releases.start
            return candidate.lacking(f"is clang {version[1]}: {needed} is needed")
        how = ("--target=amdgcn-amd-amdhsa", "-nogpulib", "--print-supported-cpus")
        done = process.run([*candidate.argv, *how], timeout=_SECONDS, accept=range(128))
        listed = (done.stdout + done.stderr).decode("utf-8", "replace")
        targets = frozenset(re.findall(r"^\s+(gfx[0-9a-f]+)$", listed, re.MULTILINE))
        if not targets:
            return candidate.lacking("was built without the AMDGPU back end")
        # What compiles it with the library compiles it without: each compile takes a second.
        errors = (_sample_error(candidate, linking(library.files)) for library in libraries)
        links = None in errors
        if not links and (why := _sample_error(candidate)):
            return candidate.lacking(f"does not compile a small HIP kernel: {why}")
    except MachineError as error:
        # Records name no folder of this machine.
        return candidate.lacking(f"does not work: {_short(error).replace(candidate.argv[0], 'it')}")
    identity = hashlib.sha256(f"{banner}{facts}".encode()).hexdigest()
    links = links or not libraries
    return _Examined(version=version[1], targets=targets, identity=identity, links=links)


def _sample_error(candidate: Toolchain, more: Sequence[str] = ()) -> str | None:
    """Compile the sample, and say why that fails."""
    with tempfile.TemporaryDirectory(prefix="contribbot-") as folder:
        source = Path(folder) / "sample.hip"
        source.write_text(_SAMPLE, encoding="utf-8")
        argv: list[str | Path] = [
            # A target that every compiler in question has known for long.
            *candidate.argv, "-x", "hip", "--cuda-device-only", "--offload-arch=gfx90a",
            *candidate.flags, *more, "-D__HIP_PLATFORM_AMD__", "-std=c++20", "-S",
            "-o", Path(folder) / "sample.s", source,
        ]  # fmt: skip
        try:
            process.run(argv, cwd=Path(folder), timeout=_SECONDS)
        except CommandError as error:
            first = re.search(r"\berror: (.+)", error.stderr)
            return first[1] if first else _short(error)
    return None


def _short(error: MachineError) -> str:
    """Say how a program failed, without the command with this machine's folders."""
    if not isinstance(error, CommandError):
        return error.message
    if error.returncode < 0:
        return f"killed by signal {-error.returncode}"
    last = error.stderr.splitlines()[-1] if error.stderr else "it said nothing"
    return f"exit status {error.returncode}: {last}"


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
