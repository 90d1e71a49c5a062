"""The compilers that torch's cpp_extension would use on this machine, and who they are."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import shutil
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from contribbot import process
from contribbot.errors import CommandError
from contribbot.model.machine import Machine

_VERSION: Final = re.compile(r"\d+\.\d+")
Kind = Literal["cpp", "cuda", "hip"]
#: Where the runfile and Debian put CUDA, and the installer ROCm.
_CUDA: Final = (Path("/usr/local/cuda"), Path("/usr/lib/cuda"))
_ROCM: Final = Path("/opt/rocm")


@dataclass(frozen=True)
class Toolchain:
    """What compiles an extension.

    Attributes:
        kind: `cpp`: the host's C++ compiler alone; `cuda`: nvcc too; `hip`: hipcc too.
        env: Variables that make cpp_extension use exactly these.
        identity: What tells these compilers from others.
        programs: Where they are.
        missing: Why they cannot be used, or empty.
    """

    kind: Kind
    env: dict[str, str] = field(default_factory=dict)
    identity: tuple[str, ...] = ()
    programs: tuple[Path, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class Torch:
    """The torch that is installed; read without importing it, which takes a second.

    Attributes:
        version: Its release, with the local label.
        cuda: The CUDA release that it was built with, or empty.
        hip: The HIP release that it was built with, or empty.
    """

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


def toolchain(target: str, machine: Machine) -> Toolchain:
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
        return Toolchain(kind, missing=missing)
    env = {**host_env, **target_environment(target, machine)}
    found = {"cpp": _no_more, "cuda": _cuda, "hip": _hip}[kind](torch)
    if isinstance(found, str):
        return Toolchain(kind, missing=found)
    more_env, more = found
    return Toolchain(
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


def described(tools: Toolchain) -> list[str]:
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
        *_named("CUDA_HOME", "CUDA_PATH"),
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
        *_named("ROCM_HOME", "ROCM_PATH"),
        *((Path(hipcc).resolve().parents[1],) if hipcc else ()),
        _ROCM,
    ]
    for root in roots:
        if (root / "bin/hipcc").is_file():
            return {"ROCM_HOME": str(root)}, (root / "bin/hipcc",)
    return "no hipcc on this machine (install ROCm's hip-dev)"


def _named(*variables: str) -> Iterable[Path]:
    return (Path(os.environ[name]) for name in variables if os.environ.get(name))


def _identity(program: Path) -> str:
    """Return what tells a program from another release of it, without running it."""
    real = program.resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}"


def _pairs(env: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(env.items())]
