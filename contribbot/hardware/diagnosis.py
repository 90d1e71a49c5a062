"""An honest account of this machine: what its driver says beside what torch says of its GPUs."""

from __future__ import annotations

import contextlib
import difflib
import enum
import importlib.util
import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from contribbot.files import stores_folder
from contribbot.git.repository import Store
from contribbot.git.sources import find
from contribbot.hardware.gpus import (
    KFD,
    GpuFacts,
    TorchAccount,
    ask_torch,
    kfd_gpus,
    nvidia_gpus,
    rocminfo_gpus,
)
from contribbot.hardware.hip import hip_toolchain
from contribbot.hardware.machine import this_machine
from contribbot.hardware.needs import (
    INSTALLS,
    absent_modules,
    missing_compile,
    missing_device,
    missing_emulator,
    missing_hipify,
    missing_program,
    missing_tools,
    present,
)
from contribbot.hardware.toolchain import INSTALL, Toolchain
from contribbot.model.base import Lines, Loose, Many, Model, Some
from contribbot.model.checks import DEFAULT_TARGETS, EMULATED, EMULATED_TARGETS, Simulator
from contribbot.model.evidence import SIMULATE, Machine
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue

#: GPUs whose workgroup processors HIP counts, each of two compute units, unless a variable is 0
#: (ROCm clr, rocsettings.cpp and rocdevice.cpp: gfx10 and later, and not from gfx12.5 on).
_WGP_TARGETS: Final = ("gfx10", "gfx11", "gfx120")
_WGP_MODE: Final = "GPU_ENABLE_WGP_MODE"
#: Variables that take compute units away from what HIP counts, and GPUs from what torch sees.
_MASKS: Final = ("HSA_CU_MASK", "ROC_GLOBAL_CU_MASK", "HSA_COOP_CU_COUNT")
_VISIBLE: Final = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_OVERRIDE: Final = "HSA_OVERRIDE_GFX_VERSION"  # names another target to all of ROCm


class About(enum.StrEnum):
    """What a contradiction is about."""

    FUNCTION = "function"
    COUNT = "number of GPUs"
    TARGET = "target"
    UNITS = "multiprocessors"
    WAVEFRONT = "wavefront"
    LDS = "LDS"
    KERNELS = "kernels"


_COMPARED: Final = {
    About.TARGET: "target", About.WAVEFRONT: "wavefront", About.LDS: "lds", About.UNITS: "units",
}  # fmt: skip


class Contradiction(Model):
    """Two statements about this machine that cannot both hold."""

    about: Loose[About]
    place: str
    said: str
    against: str
    why: str = ""


class Counted(enum.StrEnum):
    """What HIP counts as a multiprocessor."""

    UNITS = "compute units"
    PROCESSORS = "workgroup processors"


class GpuReport(Model):
    """What the driver, ROCm's runtime and torch say of one GPU; the first is nearest to it."""

    said: Some[GpuFacts]
    counts: Loose[Counted] | None = None  # what HIP is to count here

    @property
    def torch(self) -> GpuFacts | None:
        """What torch says of it."""
        return next((facts for facts in self.said if facts.source.startswith("torch")), None)


class HipCompiler(Model):
    """A HIP compiler and the targets that it compiles for here, or why none does."""

    name: str
    targets: Lines
    why: str = ""


class Lack(Model):
    """Something that is missing here, and the line that helps; empty: `what` says it."""

    what: str
    line: str = ""


class PatchStage(Model):
    """A part of a patch's verification, and what it lacks here; nothing: it can run."""

    stage: str
    target: str
    label: str
    lacks: Many[Lack] = ()


class PatchMeans(Model):
    """What of a patch can be proved here."""

    patch: str
    pin: str
    units: Many[PatchStage]


class DoctorReport(Model):
    """All that `contribbot doctor` found."""

    contradictions: Many[Contradiction]
    machine: Machine
    gpus: Many[GpuReport]
    torch: TorchAccount
    compilers: Many[HipCompiler]
    emulates: Lines  # the targets whose code is compiled and emulated here
    silent_switches: Many[SilentSwitch]
    patches: Many[PatchMeans] | None
    unknown: Many[str]  # what tools said may hold anything


def examine(
    environment: Mapping[str, str],
    queue: Queue | None = None,
    *,
    root: Path = Path("/"),
    first: str = "",
    torch: TorchAccount | None = None,
) -> DoctorReport:
    """Look at a machine; `first`: `MODULE[:FUNCTION]` that a program begins with."""
    patches = [queue.patch(name) for name in queue.specs] if queue else []
    torch, path = torch or ask_torch(environment, first=first), environment.get("PATH", "")
    surveys = kfd_gpus(root / KFD, root), rocminfo_gpus(path, root), nvidia_gpus(path)
    (kernel, _), (runtime, _), (nvidia, _) = surveys
    off = environment.get(_WGP_MODE, "").strip().lower() in {"0", "false"}
    gpus, unknown = match(kernel, runtime, nvidia, torch, units_counted=off)
    closed = bool(kernel) and not os.access(root / "dev/kfd", os.R_OK | os.W_OK)
    if closed:
        unknown.append("/dev/kfd: it cannot be opened here, so no program can use an AMD GPU")
    if torch.error:
        unknown.append(f"torch: {torch.error}")
    hidden = closed or bool(torch.error) or any(name in environment for name in _VISIBLE)
    silent, unread = silent_switches(environment, patches, root)
    machine = this_machine()
    return DoctorReport(
        contradictions=tuple(contradictions(gpus, torch, environment, hidden=hidden)),
        machine=machine,
        gpus=tuple(gpus),
        torch=torch,
        compilers=tuple(compilers(gpus)),
        silent_switches=tuple(silent),
        emulates=() if missing_emulator() else tuple(
            target for target in EMULATED_TARGETS if isinstance(hip_toolchain(target), Toolchain)
        ),
        patches=None if queue is None else tuple(
            means(patch, machine, queue.simulators) for patch in patches
        ),
        unknown=(*(line for _, lines in surveys for line in lines), *unknown, *unread),
    )  # fmt: skip


def match(
    kernel: Sequence[GpuFacts],
    runtime: Sequence[GpuFacts],
    nvidia: Sequence[GpuFacts],
    torch: TorchAccount,
    *,
    units_counted: bool,
) -> tuple[list[GpuReport], list[str]]:
    """Put together what is said of the same GPU; and in a line each what may be of several."""
    # Where the kernel shows nothing (WSL, some containers), the runtime is nearest to the GPU.
    groups = [[gpu] for gpu in (*(kernel or runtime), *nvidia)]
    unknown: list[str] = []
    for claims in (runtime if kernel else (), torch.direct, torch.devices):
        free = list(groups)
        for claim in claims:
            free = [group for group in free if group[0].vendor == claim.vendor]
            group = _same(claim, free)
            if group is None:
                unknown += [f"{claim.source}: which of the driver's GPUs it is"] if free else []
                groups.append([claim])
            else:
                group.append(claim)
                free = [other for other in free if other is not group]
    reports = []
    for group in groups:
        amd, target = group[0].vendor == "amd", group[0].target
        pairs = target.startswith(_WGP_TARGETS) and not units_counted
        counts = Counted.PROCESSORS if pairs else Counted.UNITS if amd and target else None
        reports.append(GpuReport(said=tuple(group), counts=counts))
    return reports, unknown


def _same(claim: GpuFacts, groups: Sequence[list[GpuFacts]]) -> list[GpuFacts] | None:
    """Return what else is said of a GPU; None: it may be one of several, or of none."""
    for name in ("node", "address"):
        wanted = getattr(claim, name)
        if wanted not in {None, ""} and all(getattr(gpu, name) for gpu, *_ in groups):
            # Partitions of a GPU share an address; they are alike, and taken in turn.
            return next((group for group in groups if getattr(group[0], name) == wanted), None)
    for some in ([group for group in groups if group[0].target == claim.target], groups):
        if len({(gpu.target, gpu.units, gpu.wavefront, gpu.lds) for gpu, *_ in some}) == 1:
            return some[0]
    return None


def contradictions(
    gpus: Sequence[GpuReport], torch: TorchAccount, environment: Mapping[str, str], *, hidden: bool
) -> Iterator[Contradiction]:
    """Yield what cannot hold together; where some GPUs are `hidden`, torch may see fewer."""
    for name, origin in torch.foreign.items():
        # Whatever it says, kernels and everything else in C++ never see it.
        own = "its C++ class" if "(" in name else "in torch/"
        yield Contradiction(
            about=About.FUNCTION, place=f"torch.cuda.{name}", said=f"is {origin}",
            against=f"torch's own is {own}",
        )  # fmt: skip
    for gpu in gpus:
        yield from _values(gpu, environment)
        kernels = {kernel.partition(":")[0] for kernel in torch.kernels}
        generic = any("generic" in kernel for kernel in kernels)
        if torch.hip and gpu.torch and kernels and not generic and gpu.torch.target not in kernels:
            yield Contradiction(
                about=About.KERNELS, place=gpu.torch.source,
                said=f"torch offers a {gpu.torch.target}",
                against=f"its kernels are for {', '.join(sorted(kernels))}",
            )  # fmt: skip
    there = sum(gpu.torch is not gpu.said[0] and gpu.said[0].vendor == torch.vendor for gpu in gpus)
    seen = len(torch.devices)
    for_none = bool(seen) and not torch.vendor
    if for_none or (there and (seen > there or (seen < there and not hidden))):
        yield Contradiction(
            about=About.COUNT, place="torch.cuda.device_count", said=f"torch says {seen}",
            against=f"it is built for {torch.build}" if for_none else f"the driver says {there}",
        )  # fmt: skip


def _values(gpu: GpuReport, environment: Mapping[str, str]) -> Iterator[Contradiction]:
    """Yield what one account of a GPU says otherwise than the first that says anything of it."""
    pairs = gpu.counts is Counted.PROCESSORS
    mode = f"{_WGP_MODE} is {'not 0' if pairs else 'set'}"
    masked = any(environment.get(name) for name in _MASKS)
    for about, name in _COMPARED.items():
        said = [(facts, getattr(facts, name)) for facts in gpu.said if getattr(facts, name)]
        for claim, value in said[1:]:
            first, fact = said[0]
            against, why = f"{first.source} says {fact}", ""
            if about is About.UNITS and claim is gpu.torch:
                against += f", of which HIP counts {fact // 2} pairs" if pairs else ""
                why = mode if pairs or environment.get(_WGP_MODE) else ""
                fact = fact // 2 if pairs else fact
            elif about in {About.TARGET, About.WAVEFRONT} and environment.get(_OVERRIDE):
                why = f"{_OVERRIDE} is set"
            # Less LDS than there is may be a setting, and a mask takes units away.
            fewer = about is About.LDS or (about is About.UNITS and masked)
            if value != fact and not (fewer and value < fact):
                yield Contradiction(
                    about=about, place=gpu.said[0].source, said=f"{claim.source} says {value}",
                    against=against, why=why,
                )  # fmt: skip


def compilers(gpus: Sequence[GpuReport]) -> Iterator[HipCompiler]:
    """Yield the compilers for HIP that would be taken here, with their targets."""
    mine = (gpu.said[0].target for gpu in gpus if gpu.said[0].vendor == "amd")
    targets: dict[tuple[str, str], list[str]] = {}
    for target in filter(None, dict.fromkeys((*DEFAULT_TARGETS, *mine))):
        using = hip_toolchain(target)
        known = (using.name, "") if isinstance(using, Toolchain) else ("none", using.reason)
        targets.setdefault(known, []).append(target)
    for (name, why), each in targets.items():
        yield HipCompiler(name=name, targets=tuple(each), why=why)


def means(patch: Patch, machine: Machine, simulators: Sequence[Simulator] = ()) -> PatchMeans:
    """Tell of each unit of a patch's verification what it lacks here."""
    spec, upstream = patch.spec, patch.upstream
    units: list[PatchStage] = []
    built: dict[tuple[str, str], tuple[Lack, ...]] = {}

    def add(stage: str, target: str, label: str, *lacks: Lack) -> tuple[Lack, ...]:
        needs_gpu = stage not in {"compile", "emulate", SIMULATE}
        if needs_gpu and target not in {*machine.targets, "any"}:
            line = f"contribbot verify {patch.name} --require {target}"
            lacks = Lack(what=f"no {target} on this machine; on one that has it", line=line), *lacks
        found = tuple(lack for lack in dict.fromkeys(lacks) if lack.what)
        units.append(PatchStage(stage=stage, target=target, label=label, lacks=found))
        return found

    if upstream.hipify is not None or spec.hipify is not None:
        add("hipify", "any", "", Lack(what=missing_hipify(upstream)))
    for entry, target in ((each, target) for each in spec.compile for target in each.targets):
        why = missing_compile(upstream, entry, hip_toolchain(target))
        add("compile", target, entry.name, Lack(what=why))
    code = {entry.name: entry for entry in spec.compile}
    for user, target in ((entry, target) for entry in spec.emulated for target in entry.targets):
        using = hip_toolchain(target)
        why = (missing_compile(upstream, code[user.compile], using, listing=False)
               if user.compile else missing_device(upstream, using))  # fmt: skip
        lacks = Lack(what=missing_emulator(), line=INSTALL), Lack(what=why)
        add("emulate", f"{EMULATED}{target}", user.name, *lacks)
    for build in spec.build:
        for target in build.targets:
            # Also without the GPU: who fetches one needs the tools.
            tools = missing_tools(machine, upstream, build, target)
            built[build.name, target] = add("build", target, build.name, Lack(what=tools))
    runs = ("reproduce", spec.checks), ("numerics", spec.numerics), ("bench", spec.bench)
    for stage, check in ((stage, entry) for stage, entries in runs for entry in entries):
        absent = [*absent_modules(check), *(name for name in upstream.overlay if not present(name))]
        modules = [Lack(what=f"the Python module {name} is not installed",
                        line=INSTALLS.get(name, "")) for name in absent]  # fmt: skip
        first = built.get((check.build, check.target), ())
        add(stage, check.target, check.name, *modules, *first)
        for simulator in _simulators_of(stage, check.target, simulators):
            lack = Lack(what=missing_program(simulator))
            add(SIMULATE, simulator.target, check.name, lack, *modules)
    return PatchMeans(patch=patch.name, pin=patch.pin.title, units=tuple(units))


def _simulators_of(stage: str, target: str, simulators: Sequence[Simulator]) -> Iterator[Simulator]:
    """Yield the programs under which a check for a GPU runs, too."""
    return (each for each in simulators if each.gpu == target and stage != "bench")


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
