"""The compiler for HIP, target by target: ROCm's, else a clang of the PATH, else pip's.

ROCm's own compiler comes with everything. A plain clang takes HIP's headers out of the
triton wheel, and stand-ins for what those lack (see `contribbot/hardware/headers/README.md`).
So does zig's clang, which pip installs as `ziglang`; clang's own headers for HIP, which
zig leaves out, lie in the wheel of clang-tidy.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import sysconfig
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from contribbot import process
from contribbot.errors import CommandError, MachineError
from contribbot.files import cache_folder, write_atomically
from contribbot.hardware.targets import TARGETS
from contribbot.model.evidence import Machine

#: The oldest plain clang whose AMDGPU back end and HIP front end know what is needed.
OLDEST_CLANG: Final = 19
#: The oldest HIP whose headers have FP8 types and warp synchronisation.
_OLDEST_HIP: Final = 6
#: Names one compiler to use, instead of looking for one.
VARIABLE: Final = "CONTRIBBOT_HIP_CLANG"
INSTALL: Final = "python -m pip install 'contribbot[compile]'"
_REINSTALL: Final = f"python -m pip uninstall ziglang clang-tidy; {INSTALL}"
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
#: A target that every compiler in question has known for long.
_SAMPLE_TARGET: Final = "gfx90a"
_SECONDS: Final = 120.0
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
    """A compiler for HIP and its headers; the last three are known once it was examined."""

    kind: Literal["rocm", "clang", "pip"]
    #: The program, and what it is told in every call.
    argv: tuple[str, ...]
    #: How it finds HIP's headers, and the device library.
    flags: tuple[str, ...]
    #: Where the headers come from, in words.
    headers: str
    #: Folders that `argv` and `flags` name, and what a record calls them.
    folders: tuple[tuple[str, str], ...]
    #: What brings it, such as `ziglang 0.17.1`.
    package: str = ""
    #: The releases of clang that its headers fit; ROCm's fit its clang, whatever their age.
    releases: range = range(OLDEST_CLANG, 1000)
    #: What helps where it is of another release, and where it does not work.
    cures: tuple[str, str] = ("", "")
    version: str = ""
    targets: frozenset[str] = frozenset()
    #: SHA-256 over what it says of itself, its size and its time.
    identity: str = ""

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
        called = ("python", "-m", "ziglang") if self.kind == "pip" else (self.program,)
        return (*called, *self.argv[1:])


@dataclass(frozen=True)
class Lacking:
    """No toolchain for a target: why, and what helps, in one line."""

    reason: str


def find_toolchain(target: str, stand_ins: Path) -> Toolchain | Lacking:
    """Return the first compiler that works and knows a target."""
    # The environment is asked each time: tests and users change it.
    asked = tuple(os.environ.get(name, "") for name in (VARIABLE, "ROCM_PATH", "PATH"))
    with _looking:
        return _find(target, stand_ins, cache_folder() / "toolchains", asked)


@functools.cache
def _find(target: str, stand_ins: Path, cache: Path, asked: tuple[str, ...]) -> Toolchain | Lacking:
    named, rocm, path = asked
    plain = _plain(stand_ins)
    only = [_named(plain, named, target)] if named else []
    troubles: dict[str, str] = {}
    for candidate in only or _candidates(plain, rocm, path):
        found = candidate if isinstance(candidate, Lacking) else _examine(candidate, cache)
        # What is said of a program holds for it with the last headers that it was given.
        program = candidate.argv[0] if isinstance(candidate, Toolchain) else ""
        if isinstance(found, Lacking):
            troubles[program] = found.reason
        elif target in found.targets:
            return found
        else:
            troubles[program] = f"{found.name} does not know {target}"
            if found.kind == "pip":
                break  # with other headers it knows no other targets
            troubles[program] = _with(troubles[program], found.cures[0])
    return Lacking("; ".join(troubles.values()))


def _with(trouble: str, cure: str) -> str:
    return f"{trouble}: {cure}" if cure else trouble


def _named(plain: Toolchain | Lacking, named: str, target: str) -> Toolchain | Lacking:
    """Return the compiler that a person names."""
    if isinstance(plain, Lacking):
        return plain
    known = TARGETS.get(target)
    which = f"{max(OLDEST_CLANG, known.llvm)} or newer" if known else f"that knows {target}"
    cure = f"{VARIABLE} must name a clang {which}, or be unset"
    program = Path(shutil.which(named) or named).absolute()
    return replace(plain, argv=(str(program),), cures=(cure, cure))


def _candidates(plain: Toolchain | Lacking, rocm: str, path: str) -> Iterator[Toolchain | Lacking]:
    """Yield compilers, the preferred first; pip's, or why it is not here, is the last."""
    on_path = [shutil.which(program, path=path) for program in ("amdclang++", "hipcc")]
    roots = [Path(rocm)] if rocm else []
    roots.append(Path("/opt/rocm"))
    for found in filter(None, on_path):
        # As it is called, and as it is: one of them may be a link from elsewhere.
        roots += [Path(found).parent.parent, Path(found).resolve().parent.parent]
    for root in dict.fromkeys(roots):
        version = _hip_version(root)
        if not version or int(version.partition(".")[0]) < _OLDEST_HIP:
            continue
        for place in ("bin/amdclang++", "lib/llvm/bin/clang++", "llvm/bin/clang++"):
            if (root / place).is_file():
                yield Toolchain(
                    "rocm", (str(root / place),), (f"--rocm-path={root}",), f"ROCm, HIP {version}",
                    ((str(root), "<hip>"),), releases=range(1000),
                )  # fmt: skip
                break
    if isinstance(plain, Lacking):
        yield plain
        return
    yield from (replace(plain, argv=(str(clang),)) for clang in _clangs(path))
    yield from _of_pip(plain)


def _clangs(path: str) -> list[Path]:
    """Return the clangs on a search path, the newest first, the one without a number last."""
    numbered: dict[int, Path] = {}
    for folder in map(Path, filter(None, path.split(os.pathsep))):
        try:
            entries = sorted(folder.glob("clang++-*"))
        except OSError:
            continue
        for entry in entries:
            number = re.fullmatch(r"clang\+\+-(\d+)", entry.name)
            if number and os.access(entry, os.X_OK):
                numbered.setdefault(int(number[1]), entry)
    plain = shutil.which("clang++", path=path)
    newest = [
        numbered[number] for number in sorted(numbered, reverse=True) if number >= OLDEST_CLANG
    ]
    return [*newest, *([Path(plain)] if plain else [])]


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
        cures=(f"{headers} has the headers of clang {release}: {INSTALL}", _REINSTALL),
    )
    yield pips
    own = f"{pips.headers}, libc++ of {package}"
    yield replace(pips, argv=(*pips.argv, *_libcxx(zig / "lib")), headers=own)


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
    numbers = [
        re.search(rf"^#define HIP_VERSION_{part}\s+(\d+)", text, re.MULTILINE)
        for part in ("MAJOR", "MINOR")
    ]
    return ".".join(number[1] for number in numbers if number)


def _examine(candidate: Toolchain, cache: Path) -> Toolchain | Lacking:
    """Look at a compiler; what is good is remembered until the program changes."""
    program = Path(candidate.argv[0])
    if not program.is_file():
        return Lacking(_with(f"{candidate.program}: no such program", candidate.cures[1]))
    stat = program.stat()
    told = json.dumps([candidate.argv, candidate.flags, stat.st_mtime_ns, stat.st_size])
    remembered = cache / f"{hashlib.sha256(told.encode()).hexdigest()}.json"
    try:
        known = json.loads(remembered.read_bytes())
        version, targets, identity = known["version"], known["targets"], known["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        seen = _look(candidate, told)
        if isinstance(seen, Toolchain):
            kept = {
                "version": seen.version,
                "targets": sorted(seen.targets),
                "identity": seen.identity,
            }
            write_atomically(remembered, json.dumps(kept).encode())
        return seen
    return replace(candidate, version=version, targets=frozenset(targets), identity=identity)


@functools.cache
def _look(candidate: Toolchain, told: str) -> Toolchain | Lacking:
    program, (upgrade, repair) = candidate.program, candidate.cures
    try:
        banner = process.run([*candidate.argv, "--version"], timeout=_SECONDS).stdout.decode()
        version = re.search(r"clang version (\d+(?:\.\d+)*)", banner)
        if not version:
            return Lacking(_with(f"{program} is no clang that says its version", repair))
        if int(version[1].partition(".")[0]) not in candidate.releases:
            needed = candidate.releases.start
            trouble = f"{program} is clang {version[1]}: {needed} is needed"
            return Lacking(_with(trouble, upgrade))
        identity = hashlib.sha256(f"{banner}{told}".encode()).hexdigest()
        targets = _targets(candidate)
        if not targets:
            trouble = f"{program} was built without the AMDGPU back end"
            return Lacking(_with(trouble, repair))
        if trouble := _try(candidate):
            return Lacking(_with(trouble, repair))
    except MachineError as error:
        # Records name no folder of this machine.
        why = _short(error).replace(candidate.argv[0], "it")
        return Lacking(_with(f"{program} does not work: {why}", repair))
    return replace(candidate, version=version[1], targets=targets, identity=identity)


def _targets(candidate: Toolchain) -> frozenset[str]:
    how = ("--target=amdgcn-amd-amdhsa", "-nogpulib", "--print-supported-cpus")
    done = process.run([*candidate.argv, *how], timeout=_SECONDS, accept=range(128))
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    return frozenset(re.findall(r"^\s+(gfx[0-9a-f]+)$", said, re.MULTILINE))


def _try(candidate: Toolchain) -> str:
    """Compile the sample and say what is wrong, or nothing."""
    with tempfile.TemporaryDirectory(prefix="contribbot-") as folder:
        source = Path(folder) / "sample.hip"
        source.write_text(_SAMPLE, encoding="utf-8")
        argv: list[str | Path] = [
            *candidate.argv, "-x", "hip", "--cuda-device-only", f"--offload-arch={_SAMPLE_TARGET}",
            *candidate.flags, "-D__HIP_PLATFORM_AMD__", "-std=c++20", "-S",
            "-o", Path(folder) / "sample.s", source,
        ]  # fmt: skip
        try:
            process.run(argv, cwd=Path(folder), timeout=_SECONDS)
        except CommandError as error:
            first = re.search(r"\berror: (.+)", error.stderr)
            why = first[1] if first else _short(error)
            return f"{candidate.program} does not compile a small HIP kernel: {why}"
    return ""


def _short(error: MachineError) -> str:
    """Say how a program failed, without the command with this machine's folders."""
    if isinstance(error, CommandError):
        if error.returncode < 0:
            return f"killed by signal {-error.returncode}"
        last = error.stderr.splitlines()[-1] if error.stderr else "it said nothing"
        return f"exit status {error.returncode}: {last}"
    return error.message


_VERSION: Final = re.compile(r"\d+\.\d+")
Kind = Literal["cpp", "cuda", "hip"]
#: Where the runfile and Debian put CUDA, and the installer ROCm.
_CUDA: Final = (Path("/usr/local/cuda"), Path("/usr/lib/cuda"))
_ROCM: Final = Path("/opt/rocm")


@dataclass(frozen=True)
class BuildTools:
    """What compiles an extension."""

    kind: Kind
    env: dict[str, str] = field(default_factory=dict)
    identity: tuple[str, ...] = ()
    programs: tuple[Path, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class Torch:
    """The torch that is installed; read without importing it, which takes a second."""

    version: str
    cuda: str
    hip: str


@functools.cache
def installed_torch() -> Torch | None:
    """Return the torch that is installed, or None."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    told: dict[str, str] = {}
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.AnnAssign):
            target = node.target
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            told[target.id] = value.value if isinstance(value.value, str) else ""
    return Torch(told.get("__version__", ""), told.get("cuda", ""), told.get("hip", ""))


def toolchain(target: str, machine: Machine) -> BuildTools:
    """Return the compilers for some hardware of this machine."""
    kind: Kind = "hip" if target.startswith("gfx") else "cuda" if target == "cuda" else "cpp"
    torch = installed_torch()
    host, host_env = _host_compilers()
    missing = ""
    if torch is None:
        missing = "torch is not installed"
    elif importlib.util.find_spec("setuptools") is None:
        missing = "the Python package setuptools is not installed, which cpp_extension needs"
    elif not host:
        missing = "no C++ compiler on this machine (Debian: install g++)"
    if torch is None or missing:
        return BuildTools(kind, missing=missing)
    env = {**host_env, **target_environment(target, machine)}
    found = {"cpp": _no_more, "cuda": _cuda, "hip": _hip}[kind](torch)
    if isinstance(found, str):
        return BuildTools(kind, missing=found)
    more_env, more = found
    return BuildTools(
        kind,
        env={**env, **more_env},
        identity=(
            f"torch {torch.version}",
            *map(_identity, (*host, *more)),
            *_pairs(env),
            # A binding may include Python's headers.
            str(sysconfig.get_config_var("SOABI")),
        ),
        programs=(host[-1], *more),
    )


def described(tools: BuildTools) -> list[str]:
    """Return what compilers say that they are, and what they are told, for a record."""
    said = []
    for program in tools.programs:
        try:
            text = process.run([program, "--version"], timeout=20).stdout.decode(errors="replace")
        except CommandError:
            text = ""
        # g++ and hipcc say it first, nvcc after its copyright.
        row = next((row for row in text.splitlines() if _VERSION.search(row)), "")
        said.append(f"{program.name}: {row.strip() or 'it does not say'}")
    # Where things lie on this machine is nobody's business.
    told = {name: value for name, value in tools.env.items() if not name.endswith("_HOME")}
    return [*tools.identity[:1], *said, *_pairs(told)]


def target_environment(target: str, machine: Machine) -> dict[str, str]:
    """Return the variables that say for which hardware torch's build tools compile."""
    if target.startswith("gfx"):
        return {"PYTORCH_ROCM_ARCH": target}
    if target != "cuda":
        return {}
    capabilities = dict.fromkeys(
        gpu.target.removeprefix("sm_") for gpu in machine.gpus if gpu.vendor == "nvidia"
    )
    # The last digit is the minor version: sm_90 is 9.0, sm_120 is 12.0.
    return {"TORCH_CUDA_ARCH_LIST": ";".join(f"{one[:-1]}.{one[-1]}" for one in capabilities)}


def _host_compilers() -> tuple[tuple[Path, ...], dict[str, str]]:
    """Return the C and C++ compilers, and the variables that choose them.

    setuptools uses those that this Python was built with. Where these are not
    here (a Python that was built elsewhere), GCC's are named.
    """
    own = _all_found(_first_word("CC"), _first_word("CXX"))
    if own:
        return own, {}
    gcc = _all_found("gcc", "g++")
    return (gcc, {"CC": "gcc", "CXX": "g++"}) if gcc else ((), {})


def _first_word(variable: str) -> str:
    value = sysconfig.get_config_var(variable)
    words = value.split() if isinstance(value, str) else []
    return words[0] if words else variable.lower()


def _all_found(*names: str) -> tuple[Path, ...]:
    found = [shutil.which(name) for name in names]
    paths = tuple(Path(one) for one in found if one is not None)
    return paths if len(paths) == len(names) else ()


_Found = tuple[dict[str, str], Sequence[Path]]


def _no_more(_torch: Torch) -> _Found | str:
    return {}, ()


def _cuda(torch: Torch) -> _Found | str:
    if not torch.cuda:
        return f"torch {torch.version} is no CUDA build"
    nvcc = shutil.which("nvcc")
    roots = [
        *_build_tool_named("CUDA_HOME", "CUDA_PATH"),
        *((Path(nvcc).resolve().parents[1],) if nvcc else ()),
        *_CUDA,
    ]
    # A lone nvcc somewhere on PATH is no toolkit: cpp_extension wants its headers beside it.
    for root in roots:
        if (root / "bin/nvcc").is_file() and (root / "include/cuda_runtime.h").is_file():
            return {"CUDA_HOME": str(root)}, (root / "bin/nvcc",)
    return f"no CUDA toolkit on this machine (install CUDA {torch.cuda} with nvcc)"


def _hip(torch: Torch) -> _Found | str:
    if not torch.hip:
        return f"torch {torch.version} is no ROCm build"
    hipcc = shutil.which("hipcc")
    roots = [
        *_build_tool_named("ROCM_HOME", "ROCM_PATH"),
        *((Path(hipcc).resolve().parents[1],) if hipcc else ()),
        _ROCM,
    ]
    for root in roots:
        if (root / "bin/hipcc").is_file():
            return {"ROCM_HOME": str(root)}, (root / "bin/hipcc",)
    return "no hipcc on this machine (install ROCm's hip-dev)"


def _build_tool_named(*variables: str) -> Iterable[Path]:
    return (Path(os.environ[name]) for name in variables if os.environ.get(name))


def _identity(program: Path) -> str:
    """Return what tells a program from another release of it, without running it."""
    real = program.resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}"


def _pairs(env: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(env.items())]
