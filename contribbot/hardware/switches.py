"""Environment variables that are set and that nothing reads: switches that silently do nothing."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from contribbot.files import stores_folder
from contribbot.git.repository import Store
from contribbot.git.sources import find
from contribbot.model.base import Lines, Model
from contribbot.model.patch import Patch

_ROCM: Final = "ROCm's runtime"
#: By the first letters of a variable: whose code has to be looked at to say that nothing reads it.
_OWNERS: Final = {
    "SGLANG_": "sglang", "VLLM_": "vllm", "AITER_": "aiter", "TRITON_": "triton",
    "PYTORCH_": "torch", "TORCH_": "torch", "TORCHINDUCTOR_": "torch", "TORCHDYNAMO_": "torch",
    "HIP_": _ROCM, "HSA_": _ROCM, "ROCR_": _ROCM,
}  # fmt: skip
#: The package of an upstream, where it has another name.
_PACKAGES: Final = {"pytorch": "torch"}
_NAME: Final = rf"\b({'|'.join(_OWNERS)})[A-Z0-9_]+"
#: Code, and what configures it: documents and shell scripts set variables, and read none.
_SOURCES: Final = (
    "*.py", "*.pyx", "*.c", "*.cc", "*.cpp", "*.cu", "*.cuh", "*.h", "*.hip", "*.hpp", "*.rs",
    "*.cmake", "*CMakeLists.txt",
)  # fmt: skip
#: What reads ROCm's variables: its runtimes and libraries, and its compiler; the first is there.
_RUNTIMES: Final = ("lib/libamdhip64.so*", "lib/*.so*", "bin/hip*")
#: How alike (difflib) a slip of the pen is to what was meant, and what is worth a word.
_SLIP: Final = 0.9
_ALIKE: Final = 0.75


class SilentSwitch(Model):
    """A variable that is set and that nothing reads."""

    name: str
    looked_at: Lines  # whose code does not name it
    nearest: str  # the most similar name that is read; or empty


def silent_switches(
    environment: Mapping[str, str], patches: Sequence[Patch], root: Path = Path("/")
) -> tuple[list[SilentSwitch], list[str]]:
    """Return the variables that are set and not read; and in a line each what nobody knows."""
    silent: list[SilentSwitch] = []
    unknown: list[str] = []
    owners = {name: _OWNERS[found[1]] for name in sorted(environment)
              if (found := re.match(_NAME, name))}  # fmt: skip
    pins, read = _pinned(patches) if owners else ({}, set())
    for name, owner in owners.items():
        # Any code may read any variable, or make its name of a beginning: SGLang reads vLLM's.
        begun = any(part.endswith("_") and name.startswith(part) for part in read)
        files = list(_installed(owner, root))
        if begun or name in read or any(_holds(file, name) for file in files):
            continue
        looked = [pin for pin, held in pins.get(owner, ()) if held]
        looked += [owner if owner == _ROCM else f"the installed {owner}"] if files else []
        absent = [pin for pin, held in pins.get(owner, ()) if not held]
        unknown += [f"{name}: whether {each} reads it, which is not here to look at"
                    for each in absent or ([] if looked else [owner])]  # fmt: skip
        if looked:
            near = _nearest(name, owner, read)
            silent.append(SilentSwitch(name=name, looked_at=tuple(looked), nearest=near))
    return silent, unknown


def _pinned(patches: Sequence[Patch]) -> tuple[dict[str, list[tuple[str, bool]]], set[str]]:
    """Return the pins, whether each is here, and the variables that trees and patches name."""
    pins: dict[str, list[tuple[str, bool]]] = {}
    text = [file.content for patch in patches for file in patch.files]
    for pin, upstream in {patch.pin: patch.upstream for patch in patches}.items():
        store = Store(stores_folder() / f"{pin.upstream}.git")
        held = find(pin, upstream, store) if store.path.is_dir() else None
        if held is not None:
            grep = ("grep", "-h", "-o", "-I", "-E", _NAME, held.tree, "--", *_SOURCES)
            text.append(store.git(*grep, accept=(0, 1)).stdout)
        owner = _PACKAGES.get(pin.upstream, pin.upstream)
        pins.setdefault(owner, []).append((pin.title, held is not None))
    return pins, {found[0].decode() for part in text for found in re.finditer(_NAME.encode(), part)}


def _installed(owner: str, root: Path) -> Iterator[Path]:
    """Yield the code that is installed of an owner: ROCm's, of the system and of torch's wheel."""
    spec = importlib.util.find_spec("torch" if owner == _ROCM else owner)
    folders = list(map(Path, (spec.submodule_search_locations or ()) if spec else ()))
    if owner != _ROCM:
        for folder in folders:
            yield from (file for end in ("*.py", "*.so*") for file in folder.rglob(end))
        return
    for folder in (root / "opt/rocm", *folders):
        if any(folder.glob(_RUNTIMES[0])):
            yield from (file for pattern in _RUNTIMES for file in folder.glob(pattern))


def _holds(file: Path, name: str) -> bool:
    """Say whether a file holds a name as a whole word."""
    # One that is empty cannot be mapped.
    with (
        contextlib.suppress(OSError, ValueError),
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        word = rb"(?<!\w)%s(?!\w)" % name.encode()
        # A plain search is several times as fast.
        return content.find(name.encode()) >= 0 and re.search(word, content) is not None
    return False


def _nearest(name: str, owner: str, read: set[str]) -> str:
    """Return the most similar variable of an owner: what a name adds to, else the like."""
    starts = tuple(start for start, whose in _OWNERS.items() if whose == owner)
    known = sorted(each for each in read if each.startswith(starts) and not each.endswith("_"))
    stems = [each for each in known if name.startswith(f"{each}_")]
    # All begin alike: what comes after tells.
    rest = {each.partition("_")[2]: each for each in known}
    slips, alike = (
        difflib.get_close_matches(name.partition("_")[2], rest, 1, ratio)
        for ratio in (_SLIP, _ALIKE)
    )
    near = [rest[each] for each in slips] or sorted(stems, key=len)[-1:]
    return "".join(near or [rest[each] for each in alike])
