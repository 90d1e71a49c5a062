"""The report of `doctor`: GPUs, torch, compilers, and what the machine lacks for each patch."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from contribbot.compile.build import torch_build
from contribbot.compile.toolchain import Lack, Toolchain, hip_toolchain
from contribbot.files import stores_folder
from contribbot.git.pins.sources import stored_tree
from contribbot.git.repository import Store
from contribbot.machine.machine import HIDING, KFD_DEVICE, amd_gpus, nvidia_gpus, this_machine
from contribbot.machine.needs import (
    INSTALLS,
    absent_modules,
    missing_compile,
    missing_device,
    missing_emulator,
    missing_hipify,
    missing_tools,
    present,
)
from contribbot.model.base import Lines, Many, Model
from contribbot.model.checks import DEFAULT_TARGETS, EMULATED, EMULATED_TARGETS
from contribbot.model.evidence import Machine
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue


class HipCompiler(Model):
    """A HIP compiler and its targets, or the reason why some targets have no compiler."""

    name: str
    targets: Lines
    reason: str = ""


class PatchStage(Model):
    """A part of a patch's verification, and what this machine lacks to run the part."""

    stage: str
    target: str
    label: str
    lacks: Many[Lack] = ()


class PatchStages(Model):
    """A patch, its pin, and the parts of its verification."""

    patch: str
    pin: str
    units: Many[PatchStage]


class SilentSwitch(Model):
    """An environment variable that is set, though no pinned or installed code reads it."""

    name: str
    #: The most similar name that some code reads; empty: no name is similar.
    nearest: str


class DoctorReport(Model):
    """The JSON document of `doctor`."""

    machine: Machine
    #: The platform that torch was built for: `HIP 7.1`, `CUDA 13.0` or `CPU alone`.
    torch: str
    compilers: Many[HipCompiler]
    emulates: Lines
    problems: Many[str]
    silent_switches: Many[SilentSwitch]
    patches: Many[PatchStages] | None


def examine(environment: Mapping[str, str], queue: Queue | None = None) -> DoctorReport:
    """Return the report on this machine, and on the patches of a queue if there is a queue."""
    patches = [queue.patch(name) for name in queue.own] if queue else []
    machine = this_machine()
    emulates = () if missing_emulator() else EMULATED_TARGETS
    return DoctorReport(
        machine=machine,
        torch=_torch_platform(),
        compilers=tuple(_compilers(machine)),
        emulates=tuple(each for each in emulates if isinstance(hip_toolchain(each), Toolchain)),
        problems=tuple(_problems(machine)),
        silent_switches=tuple(silent_switches(environment, patches)),
        patches=None if queue is None else tuple(_stages(patch, machine) for patch in patches),
    )


def _torch_platform() -> str:
    build = torch_build()
    platforms = [
        f"{name} {build[key]}" for key, name in (("hip", "HIP"), ("cuda", "CUDA")) if build.get(key)
    ]
    return "".join(platforms[:1]) or ("CPU alone" if build else "")


def _problems(machine: Machine) -> Iterator[str]:
    """Yield the reasons why programs cannot use a GPU of this machine."""
    if KFD_DEVICE.exists() and not os.access(KFD_DEVICE, os.R_OK | os.W_OK):
        yield f"{KFD_DEVICE} cannot be opened here, so no program can use an AMD GPU"
    for name in HIDING:
        if (listed := os.environ.get(name)) and not machine.gpus and (amd_gpus() or nvidia_gpus()):
            yield f"{name}={listed} hides every GPU of this machine"
    keys = {"amd": "hip", "nvidia": "cuda"}
    for gpu in machine.gpus:
        if torch_build() and not torch_build().get(keys[gpu.vendor]):
            yield f"torch is built for {_torch_platform()} and does not use the {gpu.name}"


def _compilers(machine: Machine) -> Iterator[HipCompiler]:
    """Yield each HIP compiler with its targets, and reasons for targets without a compiler."""
    own = (gpu.target for gpu in machine.gpus if gpu.vendor == "amd")
    targets: dict[tuple[str, str], list[str]] = {}
    for target in dict.fromkeys((*DEFAULT_TARGETS, *own)):
        using = hip_toolchain(target)
        key = (using.name, "") if isinstance(using, Toolchain) else ("none", str(using))
        targets.setdefault(key, []).append(target)
    for (name, reason), each in targets.items():
        yield HipCompiler(name=name, targets=tuple(each), reason=reason)


def _stages(patch: Patch, machine: Machine) -> PatchStages:
    """Return each part of a patch's verification, and what this machine lacks for the part."""
    spec, upstream = patch.spec, patch.upstream
    units: list[PatchStage] = []
    built: dict[tuple[str, str], tuple[Lack, ...]] = {}

    def add(stage: str, target: str, label: str, *lacks: Lack | None) -> tuple[Lack, ...]:
        if stage not in {"compile", "emulate"} and target not in {*machine.targets, "any"}:
            line = f"contribbot verify {patch.name} --require {target}"
            lacks = Lack(what=f"no {target} on this machine; on one that has it", line=line), *lacks
        unique = tuple(lack for lack in dict.fromkeys(lacks) if lack)
        units.append(PatchStage(stage=stage, target=target, label=label, lacks=unique))
        return unique

    if upstream.hipify is not None or spec.hipify is not None:
        add("hipify", "any", "", missing_hipify(upstream))
    for entry, target in ((each, target) for each in spec.compile for target in each.targets):
        missing = missing_compile(patch, entry, hip_toolchain(target))
        add("compile", target, entry.name, missing)
    code = {entry.name: entry for entry in spec.compile}
    for user, target in ((entry, target) for entry in spec.emulated for target in entry.targets):
        using = hip_toolchain(target)
        missing = (
            missing_compile(patch, code[user.compile], using, listing=False)
            if user.compile
            else missing_device(upstream, using)
        )
        add("emulate", f"{EMULATED}{target}", user.name, missing_emulator(), missing)
    for build, target in ((each, target) for each in spec.build for target in each.targets):
        tools = missing_tools(machine, upstream, build, target)
        built[build.name, target] = add("build", target, build.name, tools)
    runs = ("reproduce", spec.checks), ("numerics", spec.numerics), ("bench", spec.bench)
    for stage, check in ((stage, entry) for stage, entries in runs for entry in entries):
        absent = [*absent_modules(check), *(name for name in upstream.overlay if not present(name))]
        modules = [
            Lack(what=f"the Python module {name} is not installed", line=INSTALLS.get(name, ""))
            for name in absent
        ]
        add(stage, check.target, check.name, *modules, *built.get((check.build, check.target), ()))
    return PatchStages(patch=patch.name, pin=patch.pin.title, units=tuple(units))


#: The package that reads variables with a prefix; ROCm's libraries count as torch.
_OWNERS: Final = {
    "SGLANG_": "sglang",
    "VLLM_": "vllm",
    "AITER_": "aiter",
    "TRITON_": "triton",
    "PYTORCH_": "torch",
    "TORCH_": "torch",
    "TORCHINDUCTOR_": "torch",
    "TORCHDYNAMO_": "torch",
    "HIP_": "torch",
    "HSA_": "torch",
    "ROCR_": "torch",
}
#: Package names of upstreams whose package has another name.
_PACKAGES: Final = {"pytorch": "torch"}
_NAME: Final = rf"\b({'|'.join(_OWNERS)})[A-Z0-9_]+"
#: Suffixes of files that read variables; documents and shell scripts only set them.
_ENDINGS: Final = ("py", "pyx", "c", "cc", "cpp", "cu", "cuh", "h", "hip", "hpp", "rs", "cmake")
_SOURCES: Final = (*(f"*.{ending}" for ending in _ENDINGS), "*CMakeLists.txt")
_ROCM: Final = Path("/opt/rocm/lib")
#: The least similarity (difflib) at which a name is proposed for a misspelled name.
_ALIKE: Final = 0.75


def silent_switches(
    environment: Mapping[str, str], patches: Sequence[Patch]
) -> Iterator[SilentSwitch]:
    """Yield the environment variables that neither pinned nor installed code reads."""
    names = [name for name in sorted(environment) if re.match(_NAME, name)]
    here, read = _pinned(patches) if names else (set(), set())
    for name in names:
        owner = _OWNERS[name.partition("_")[0] + "_"]
        files = list(_installed(owner))
        # Some code, such as SGLang's, joins a prefix and a suffix to a variable's name.
        begun = any(part.endswith("_") and name.startswith(part) for part in read)
        known = begun or name in read or any(_contains(file, name) for file in files)
        if not known and (files or owner in here):
            near = difflib.get_close_matches(name, read, 1, _ALIKE)
            yield SilentSwitch(name=name, nearest="".join(near))


def _pinned(patches: Sequence[Patch]) -> tuple[set[str], set[str]]:
    """Return the packages whose pins are in the cache, and the variables that their code names."""
    packages: set[str] = set()
    texts = [file.content for patch in patches for file in patch.files]
    for pin, upstream in {patch.pin: patch.upstream for patch in patches}.items():
        store = Store(stores_folder() / f"{pin.upstream}.git")
        tree = stored_tree(pin, upstream, store) if store.path.is_dir() else None
        if tree is not None:
            grep = ("grep", "-h", "-o", "-I", "-E", _NAME, tree.tree, "--", *_SOURCES)
            texts.append(store.git(*grep, accept=(0, 1)).stdout)
            packages.add(_PACKAGES.get(pin.upstream, pin.upstream))
    found = (name[0].decode() for text in texts for name in re.finditer(_NAME.encode(), text))
    return packages, set(found)


def _installed(owner: str) -> Iterator[Path]:
    """Yield the code files of an installed package; for torch, also ROCm's libraries."""
    spec = importlib.util.find_spec(owner)
    for folder in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        yield from (file for end in ("*.py", "*.so*") for file in folder.rglob(end))
    if owner == "torch":
        yield from _ROCM.glob("*.so*")


def _contains(file: Path, name: str) -> bool:
    """Return whether a file contains a name as a whole word."""
    # An empty file cannot be mapped.
    with (
        contextlib.suppress(OSError, ValueError),
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        word = rb"(?<!\w)%s(?!\w)" % name.encode()
        # `find` first, as it is several times as fast as the regular expression.
        return content.find(name.encode()) >= 0 and re.search(word, content) is not None
    return False
