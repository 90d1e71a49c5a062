"""Find what this machine lacks for a patch; the report of `doctor`: GPUs, torch, compilers."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.compile.build import build_tools, missing_for_recipe, torch_build
from contribbot.compile.hip import torch_include
from contribbot.compile.toolchain import INSTALL, Lack, Toolchain, hip_toolchain
from contribbot.compile.triton import triton_missing, triton_unread
from contribbot.files import stores_folder
from contribbot.git.pins.sources import stored_tree
from contribbot.git.repository import Store
from contribbot.machine import HIDING, KFD_DEVICE, amd_gpus, nvidia_gpus, this_machine
from contribbot.model.base import Lines, Many, Model
from contribbot.model.checks import (
    DEFAULT_TARGETS,
    EMULATED,
    EMULATED_TARGETS,
    Build,
    Compile,
    Needy,
)
from contribbot.model.evidence import Machine
from contribbot.model.patch import Patch, Upstream
from contribbot.queue.load import Queue

_TORCH: Final = Lack(
    what="torch, whose headers are needed, is not installed", line="pip install torch"
)
#: The commands that install modules. For aiter, see "Installation" in its README: `aiter` on PyPI
#: is another project.
INSTALLS: Final = {
    "aiter": "git clone --recursive https://github.com/ROCm/aiter.git && cd aiter && "
    "python3 setup.py develop",
    "expecttest": "python -m pip install expecttest",  # a package that PyTorch's own tests use
    "torch": "python -m pip install torch",
    "triton": INSTALL,
}
#: The modules that the emulator imports.
_EMULATOR: Final = ("tinygrad", "elftools", "msgpack")


def present(module: str) -> bool:
    """Return whether a module is installed, without importing the module."""
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def absent_modules(what: Needy) -> list[str]:
    """Return the modules that a check requires and that are not installed."""
    return [name for name in what.modules if not present(name)]


def missing_here(machine: Machine, what: Needy) -> Lack | None:
    """Return what a machine lacks for a check or bench; None: nothing."""
    if what.target not in machine.targets:
        return Lack(what=f"no {what.target} on this machine")
    absent = ", ".join(absent_modules(what))
    return Lack(what=f"Python modules that are not installed: {absent}") if absent else None


def missing_hipify(upstream: Upstream) -> Lack | None:
    """Return what this machine lacks for an upstream's hipify step; None: nothing."""
    package = upstream.hipify.module.partition(".")[0] if upstream.hipify else ""
    if not package or present(package):
        return None
    what = f"{package}, whose hipify is needed, is not installed"
    return Lack(what=what, line=f"pip install {package}")


def missing_compile(
    patch: Patch, entry: Compile, using: Toolchain | Lack, *, listing: bool = True
) -> Lack | None:
    """Return what this machine lacks to compile an entry and read the code; None: nothing."""
    if isinstance(using, Lack):
        return using
    if not present("elftools"):
        return Lack(what="pyelftools, which reads objects, is not installed", line=INSTALL)
    if entry.kind == "triton":
        unread = triton_unread(using, patch.triton_for(entry)) if listing else None
        return triton_missing() or unread
    return _TORCH if patch.upstream.compile.torch and torch_include() is None else None


def missing_emulator() -> Lack | None:
    """Return what this machine lacks to emulate AMD code; None: nothing."""
    for module in _EMULATOR:
        if not present(module):
            return Lack(what=f"{module}, which emulating needs, is not installed", line=INSTALL)
    return None


def missing_device(upstream: Upstream, using: Toolchain | Lack) -> Lack | None:
    """Return what this machine lacks to emulate a tree's Triton kernels; None: nothing."""
    if upstream.overlay:
        own = ", ".join(upstream.overlay)
        what = f"{own} would be the tree's own, and the emulated GPU stands on what is installed"
        return Lack(what=what)
    if isinstance(using, Lack):
        return using
    torch = None if present("torch") else Lack(what="torch is not here", line=INSTALLS["torch"])
    return triton_missing() or torch


def missing_tools(machine: Machine, upstream: Upstream, build: Build, target: str) -> Lack | None:
    """Return the tools that this machine lacks for a build; None: nothing."""
    if build.way == "full":
        return missing_for_recipe(upstream.build, target, upstream.name)
    missing = build_tools(target, machine).missing
    return Lack(what=missing) if missing else None


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
    """A patch, its pin, and the parts of the patch's verification that need tools or hardware."""

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
        folders = _installed(owner)
        # Some code, such as SGLang's, joins a prefix and a suffix to a variable's name.
        begun = any(part.endswith("_") and name.startswith(part) for part in read)
        known = begun or name in read or _grep(name, folders)
        if not known and (folders or owner in here):
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


def _installed(owner: str) -> list[str]:
    """Return the folders of an installed package; for torch, also ROCm's library folder."""
    spec = importlib.util.find_spec(owner)
    folders = [*(spec.submodule_search_locations or ())] if spec else []
    return [*folders, *([str(_ROCM)] if owner == "torch" and _ROCM.is_dir() else [])]


def _grep(name: str, folders: Sequence[str]) -> bool:
    """Return whether a code file in a folder has a name as a whole word."""
    words = ("grep", "-RqswF", "--include=*.py", "--include=*.so*", "--", name)
    return bool(folders) and process.run([*words, *folders], accept=(0, 1, 2)).returncode == 0
