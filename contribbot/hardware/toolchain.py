"""Finding a compiler for HIP on this machine: ROCm's, or a plain clang with HIP's headers.

ROCm's compiler comes with everything. A plain clang needs headers: those of HIP
lie in the triton wheel, and what they lack is stood in for (see
`contribbot/compiling/headers/README.md`).
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from contribbot.hardware.compilers import examine
from contribbot.hardware.targets import TARGETS
from contribbot.workspace import cache_folder

#: The oldest plain clang whose AMDGPU back end and HIP front end know what is needed.
OLDEST_CLANG: Final = 19
#: The oldest HIP whose headers have FP8 types and warp synchronisation.
_OLDEST_HIP: Final = 6
#: Names one compiler to use, instead of looking for one.
VARIABLE: Final = "CONTRIBBOT_HIP_CLANG"
_INSTALL: Final = "install clang-19 (Debian, Ubuntu) or ROCm"
_HIP_RUNTIME: Final = Path("hip/hip_runtime.h")
#: Distributions that have the module `triton`, by who built them.
_TRITONS: Final = ("triton", "triton-rocm", "pytorch-triton-rocm", "amd-triton")
_looking: Final = threading.Lock()


@dataclass(frozen=True)
class Toolchain:
    """A compiler that was seen to compile HIP, and its headers.

    Attributes:
        kind: `rocm`, or `clang`: a plain clang with headers of ours.
        compiler: The compiler.
        version: Its version, such as `19.1.7`.
        headers: Where HIP's headers come from, in words.
        root: The folder that holds HIP's headers.
        flags: How the compiler finds them, and the device library.
        targets: The AMD targets that it compiles for.
        identity: Changes when the compiler does.
    """

    kind: Literal["rocm", "clang"]
    compiler: Path
    version: str
    headers: str
    root: Path
    flags: tuple[str, ...]
    targets: frozenset[str]
    identity: str

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{'ROCm clang' if self.kind == 'rocm' else 'clang'} {self.version}"

    def unknown(self, target: str) -> str:
        """Say that it does not know a target, and what does; or nothing.

        Args:
            target: The target.
        """
        if target in self.targets:
            return ""
        known = TARGETS.get(target)
        newer = f"; clang {known.llvm} and newer do" if known is not None else ""
        return f"{self.name} does not know {target}{newer}"


@dataclass(frozen=True)
class Lacking:
    """No toolchain.

    Attributes:
        reason: Why, and what to install; one line.
    """

    reason: str


def find_toolchain(stand_ins: Path) -> Toolchain | Lacking:
    """Return the toolchain for HIP; looked for once, and remembered between runs.

    Args:
        stand_ins: The folder of headers for a plain clang.
    """
    # The environment is asked each time: tests and users change it.
    asked = tuple(os.environ.get(name, "") for name in (VARIABLE, "ROCM_PATH", "PATH"))
    with _looking:
        return _find(stand_ins, cache_folder() / "toolchains", *asked)


@functools.cache
def _find(stand_ins: Path, cache: Path, named: str, rocm: str, path: str) -> Toolchain | Lacking:
    troubles = []
    headers = _hip_of_triton(stand_ins)
    for kind, compiler, root in _candidates(named, rocm, path):
        if kind == "rocm":
            text = f"ROCm, HIP {_hip_version(root)}"
            source = _Headers(root, (f"--rocm-path={root}",), text)
        elif isinstance(headers, str):
            troubles.append(headers)
            break
        else:
            source = headers
        if not compiler.is_file():
            troubles.append(f"{compiler.name}: no such program")
            continue
        # ROCm's own compiler and headers fit each other, whatever their age.
        oldest = OLDEST_CLANG if kind == "clang" else 0
        seen = examine(compiler, source.flags, cache, oldest=oldest)
        if not seen.trouble:
            return Toolchain(
                kind=kind, compiler=compiler, version=seen.version, headers=source.text,
                root=source.root, flags=source.flags, targets=frozenset(seen.targets),
                identity=seen.identity,
            )  # fmt: skip
        troubles.append(seen.trouble)
    told = "; ".join(dict.fromkeys(troubles)) or "no compiler for HIP on this machine"
    if named and not isinstance(headers, str):
        return Lacking(f"{VARIABLE}: {told}: name a clang {OLDEST_CLANG} or newer, or unset it")
    return Lacking(f"{told}: {_INSTALL}")


def _candidates(
    named: str, rocm: str, path: str
) -> Iterator[tuple[Literal["rocm", "clang"], Path, Path]]:
    """Yield compilers in the order in which they are wanted; the third is ROCm's root."""
    if named:
        yield "clang", Path(shutil.which(named) or named).absolute(), Path()
        return
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
                yield "rocm", root / place, root
                break
    for compiler in _clangs(path):
        yield "clang", compiler, Path()


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


@dataclass(frozen=True)
class _Headers:
    """Where HIP's headers come from.

    Attributes:
        root: The folder.
        flags: For the compiler.
        text: For people.
    """

    root: Path
    flags: tuple[str, ...]
    text: str


def _hip_of_triton(stand_ins: Path) -> _Headers | str:
    """Return the headers for a plain clang, or why there are none."""
    spec = importlib.util.find_spec("triton")
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    for place in places:
        root = Path(place) / "backends" / "amd"
        version = _hip_version(root)
        if version and (root / "include" / _HIP_RUNTIME).is_file():
            return _Headers(
                root,
                (
                    "-nogpulib",
                    f"--hip-version={version}",
                    f"--hip-path={root}",
                    f"--rocm-path={root}",
                    "-isystem", str(stand_ins / "rocm"),
                    "-isystem", str(root / "include"),
                ),
                f"stand-ins of contribbot over HIP {version} of triton {triton_version()}",
            )  # fmt: skip
    return "HIP's headers are not there: pip install triton"


def triton_version() -> str:
    """Return the version of the installed triton, by whoever built it."""
    for name in _TRITONS:
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
