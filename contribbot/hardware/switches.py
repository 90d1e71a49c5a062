"""Environment variables that are set and that nothing reads: switches that silently do nothing."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import mmap
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.files import stores_folder
from contribbot.git.repository import Store, git_environment
from contribbot.git.sources import find
from contribbot.model.base import Lines, Model
from contribbot.queue.load import Queue
from contribbot.queue.stack import own_pin

_ROCM: Final = "ROCm's runtime"
#: By the first letters of a variable: whose code has to be looked at to say that nothing reads it.
_OWNERS: Final = {
    "SGLANG_": "sglang", "VLLM_": "vllm", "AITER_": "aiter", "TRITON_": "triton",
    "PYTORCH_": "torch", "TORCH_": "torch", "TORCHINDUCTOR_": "torch", "TORCHDYNAMO_": "torch",
    "HIP_": _ROCM, "HSA_": _ROCM, "ROCR_": _ROCM, "MIOPEN_": _ROCM,
}  # fmt: skip
#: Upstreams whose package has another name.
_PACKAGES: Final = {"pytorch": "torch"}
_NAME: Final = rf"\b({'|'.join(_OWNERS)})[A-Z0-9_]+"
#: Code, and what configures it; documents and shell scripts set variables and read none.
_SOURCES: Final = (
    "*.py", "*.pyx", "*.c", "*.cc", "*.cpp", "*.cu", "*.cuh", "*.h", "*.hip", "*.hpp", "*.rs",
    "*.cmake", "*CMakeLists.txt",
)  # fmt: skip
#: What reads ROCm's variables: its runtimes, of torch's wheel or of the system, and its compiler.
_RUNTIMES: Final = ("lib/libamdhip64.so*", "lib/libhsa-runtime64.so*", "lib/libMIOpen.so*",
                    "bin/hip*")  # fmt: skip
_GREP: Final = ("-h", "-o", "-I", "-E", _NAME)
_ALIKE: Final = 0.75
_SECONDS: Final = 120.0


class SilentSwitch(Model):
    """A variable that is set and that nothing reads."""

    name: str
    looked_at: Lines  # whose code does not name it
    nearest: str  # the most similar name that is read; or empty


@dataclass
class _Code:
    """What was looked at, by owner, and the names of variables in all of it."""

    labels: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    #: What belongs to an owner, and is not here.
    absent: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    #: What is compiled: read only for a name that is nowhere else.
    binaries: defaultdict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))
    names: set[str] = field(default_factory=set)

    def reads(self, name: str, owner: str) -> bool:
        """Say whether any code names a variable, or how it begins, to which it may add the rest."""
        begun = any(part.endswith("_") and name.startswith(part) for part in self.names)
        return begun or name in self.names or _holds(self.binaries[owner], name)

    def nearest(self, name: str, owner: str) -> str:
        """Return the most similar variable of an owner: what a name adds to, else the like."""
        starts = tuple(start for start, whose in _OWNERS.items() if whose == owner)
        known = sorted(
            each for each in self.names if each.startswith(starts) and not each.endswith("_")
        )
        stems = [each for each in known if name.startswith(f"{each}_")]
        alike = difflib.get_close_matches(name, known, 1, _ALIKE)
        return max(stems, key=len) if stems else "".join(alike)


def silent_switches(
    environment: Mapping[str, str], queue: Queue | None, root: Path = Path("/")
) -> tuple[list[SilentSwitch], list[str]]:
    """Return the variables that are set and not read; and in a line each what nobody knows."""
    owner_of = {
        name: _OWNERS[found[1]] for name in sorted(environment) if (found := re.match(_NAME, name))
    }
    if not owner_of:
        return [], []
    code = _Code()
    if queue is not None:
        _add_pins(code, queue)
    for owner in sorted({*owner_of.values()} - {_ROCM}):
        _add_installed(code, owner)
    _add_runtimes(code, root)
    # Any code may read any variable: SGLang reads vLLM's and torch's, too.
    unread = [(name, owner) for name, owner in owner_of.items() if not code.reads(name, owner)]
    unknown = [
        f"{name}: whether {absent} reads it, which is not here to look at"
        for name, owner in unread
        for absent in code.absent[owner] or ([] if code.labels[owner] else [owner])
    ]
    return [
        SilentSwitch(
            name=name, looked_at=tuple(code.labels[owner]), nearest=code.nearest(name, owner)
        )
        for name, owner in unread
        if code.labels[owner]
    ], unknown


def _add_pins(code: _Code, queue: Queue) -> None:
    """Look at the pinned trees that are in a store, and at what patches add; fetch nothing."""
    for pin in dict.fromkeys(own_pin(queue, name) for name in queue.specs):
        owner = _PACKAGES.get(pin.upstream, pin.upstream)
        store = Store(stores_folder() / f"{pin.upstream}.git")
        held = find(pin, queue.upstreams[pin.upstream], store) if store.path.is_dir() else None
        if held is not None:
            found = store.git("grep", *_GREP, held.tree, "--", *_SOURCES, accept=(0, 1)).stdout
            code.names.update(found.decode(errors="replace").split())
        (code.labels if held else code.absent)[owner].append(pin.title)
    for name in queue.specs:
        for file in queue.patch(name).files:
            text = file.content.decode(errors="replace")
            code.names.update(found[0] for found in re.finditer(_NAME, text))


def _add_installed(code: _Code, package: str) -> None:
    """Look at an installed package: its sources, and the names of what is compiled."""
    for folder in _folders(package):
        argv = ("git", "grep", "--no-index", *_GREP, "--", *_SOURCES)
        done = process.run(argv, cwd=folder, env=git_environment(), timeout=_SECONDS, accept=(0, 1))
        code.names.update(done.stdout.decode(errors="replace").split())
        code.binaries[package] += sorted(folder.rglob("*.so*"))
        code.labels[package].append(f"the installed {package}")


def _add_runtimes(code: _Code, root: Path) -> None:
    """Look for ROCm's libraries and compilers: of the system, and of torch's wheel."""
    tops = [root / "opt/rocm", *_folders("torch")]
    found = [file for top in tops for pattern in _RUNTIMES for file in sorted(top.glob(pattern))]
    code.binaries[_ROCM] += found
    if any("libamdhip64" in file.name for file in found):
        code.labels[_ROCM].append(_ROCM)


def _folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []


def _holds(binaries: Iterable[Path], name: str) -> bool:
    """Say whether a compiled file holds a name as text."""
    for file in binaries:
        # One that is empty cannot be mapped.
        with (
            contextlib.suppress(OSError, ValueError),
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if content.find(b"%s\0" % name.encode()) >= 0:
                return True
    return False
