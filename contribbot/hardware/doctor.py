"""An honest account of this machine: what its driver says beside what torch says of its GPUs."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from contribbot.hardware.gpus import KFD, GpuFacts, Survey, kfd_gpus, nvidia_gpus, rocminfo_gpus
from contribbot.hardware.hip import hip_toolchain
from contribbot.hardware.machine import this_machine
from contribbot.hardware.needs import (
    INSTALLS,
    absent_modules,
    missing_compile,
    missing_hipify,
    missing_tools,
    present,
)
from contribbot.hardware.switches import SilentSwitch, silent_switches
from contribbot.hardware.toolchain import Toolchain
from contribbot.hardware.torch_account import TorchAccount, ask_torch
from contribbot.model.base import Lines, Loose, Many, Model
from contribbot.model.checks import DEFAULT_TARGETS
from contribbot.model.evidence import Machine
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue

#: GPUs whose workgroup processors HIP counts (ROCm clr, rocsettings.cpp: gfx10 and later, and not
#: from gfx12.5 on), each of two compute units, unless this variable is 0.
_WGP_TARGETS: Final = ("gfx10", "gfx11", "gfx120")
_WGP_MODE: Final = "GPU_ENABLE_WGP_MODE"
#: Variables that take compute units away from what HIP counts.
_MASKS: Final = ("HSA_CU_MASK", "ROC_GLOBAL_CU_MASK", "HSA_COOP_CU_COUNT")
_OVERRIDE: Final = "HSA_OVERRIDE_GFX_VERSION"
_VISIBLE: Final = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES",
                   "GPU_DEVICE_ORDINAL")  # fmt: skip


class About(enum.StrEnum):
    """What a contradiction is about."""

    FUNCTION = "function"
    COUNT = "number of GPUs"
    TARGET = "target"
    UNITS = "units"
    WAVEFRONT = "wavefront"
    LDS = "LDS"
    KERNELS = "kernels"


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
    """One GPU: what the driver, ROCm's runtime and torch say of it."""

    driver: GpuFacts | None = None
    runtime: GpuFacts | None = None
    torch: GpuFacts | None = None
    counted: Loose[Counted] | None = None

    @property
    def label(self) -> str:
        """What it is called in a line."""
        return next(facts.source for facts in (self.driver, self.runtime, self.torch) if facts)


class Compiler(Model):
    """A HIP compiler, and the targets that it compiles for here."""

    name: str  # empty: none does
    targets: Lines
    why: str = ""


class Lack(Model):
    """Something that is missing here, and the line that helps; empty: `what` says it."""

    what: str
    line: str = ""


class Unit(Model):
    """A part of a patch's verification, and what it lacks here; nothing: it can run."""

    stage: str
    target: str
    label: str
    lacks: Many[Lack] = ()


class PatchMeans(Model):
    """What of a patch can be proved here."""

    patch: str
    pin: str
    units: Many[Unit]


class DoctorReport(Model):
    """All that `contribbot doctor` found."""

    contradictions: Many[Contradiction]
    machine: Machine
    gpus: Many[GpuReport]
    torch: TorchAccount
    compilers: Many[Compiler]
    silent_switches: Many[SilentSwitch]
    patches: Many[PatchMeans] | None
    unknown: Lines


def examine(
    environment: Mapping[str, str],
    queue: Queue | None = None,
    *,
    root: Path = Path("/"),
    first: str = "",
    torch: TorchAccount | None = None,
) -> DoctorReport:
    """Look at a machine: its files under `root`, its tools on the environment's PATH.

    `first` is `MODULE[:FUNCTION]` that a program begins with; `torch` what torch said elsewhere.
    """
    torch = torch or ask_torch(environment, first=first)
    path = environment.get("PATH", "")
    kernel, runtime = kfd_gpus(root / KFD, root), rocminfo_gpus(path, root)
    nvidia = nvidia_gpus(path)
    gpus, unmatched = match(kernel, runtime, nvidia, torch)
    silent, unread = silent_switches(environment, queue, root)
    machine = this_machine()
    hidden = any(environment.get(name) is not None for name in _VISIBLE)
    closed = bool(kernel.gpus) and not os.access(root / "dev/kfd", os.R_OK | os.W_OK)
    # A GPU whose file cannot be read may be one that torch sees.
    amd = (kernel.listed or runtime.listed) and not kernel.unknown
    listed = amd if torch.hip else nvidia.listed
    found = [
        *_foreign(torch),
        *(each for gpu in gpus for each in _values(gpu, environment)),
        *_counts(gpus, torch, listed=listed, fewer=hidden or closed),
        *_kernels(torch),
    ]
    return DoctorReport(
        contradictions=tuple(found),
        machine=machine,
        gpus=tuple(gpus),
        torch=torch,
        compilers=tuple(compilers(gpus)),
        silent_switches=tuple(silent),
        patches=None if queue is None else tuple(
            means(queue.patch(name), machine) for name in queue.specs
        ),
        unknown=(
            *kernel.unknown, *runtime.unknown, *nvidia.unknown,
            *(["/dev/kfd: it cannot be opened here, so no program can use an AMD GPU"]
              if closed else []),
            *([f"torch: {torch.error}"] if torch.error else []), *unmatched, *unread,
        ),
    )  # fmt: skip


def match(
    kernel: Survey, runtime: Survey, nvidia: Survey, torch: TorchAccount
) -> tuple[list[GpuReport], list[str]]:
    """Put together what is said of the same GPU; and in a line each what may be of several."""
    # Where the kernel shows nothing (WSL, some containers), the runtime is nearest to the GPU.
    drivers = list(kernel.gpus or runtime.gpus)
    direct = {gpu.address: gpu for gpu in torch.cuda_driver}
    drivers += [_filled(gpu, direct.get(gpu.address)) for gpu in nvidia.gpus] or torch.cuda_driver
    reports, unknown = [GpuReport(driver=gpu) for gpu in drivers], []
    for field, claims in (
        ("runtime", runtime.gpus if kernel.gpus else []),
        ("torch", torch.devices),
    ):
        for claim in claims:
            free = [n for n, report in enumerate(reports)
                    if report.driver and report.driver.vendor == claim.vendor
                    and getattr(report, field) is None]  # fmt: skip
            same = _same(claim, [(n, drivers[n]) for n in free])
            if same is None:
                unknown += [f"{claim.source}: which of the driver's GPUs it is"] if free else []
                reports.append(GpuReport.model_validate({field: claim}))
            else:
                reports[same] = reports[same].model_copy(update={field: claim})
    return [_counting(report) for report in reports], unknown


def _filled(gpu: GpuFacts, more: GpuFacts | None) -> GpuFacts:
    """Return facts with those added that another source has and this one has not."""
    known = more.model_dump() if more else {}
    lacking = {name for name, value in gpu.model_dump().items() if value in {None, ""}}
    return gpu.model_copy(update={name: known[name] for name in lacking & known.keys()})


def _same(claim: GpuFacts, drivers: Sequence[tuple[int, GpuFacts]]) -> int | None:
    """Return which of the driver's GPUs a claim is of; None: it may be of several, or of none."""
    for name in ("node", "address"):
        wanted = getattr(claim, name)
        if wanted not in {None, ""} and all(getattr(gpu, name) for _, gpu in drivers):
            # Partitions of a GPU share an address; they are alike, and taken in turn.
            return next((n for n, gpu in drivers if getattr(gpu, name) == wanted), None)
    for group in ([each for each in drivers if each[1].target == claim.target], drivers):
        if len({(gpu.target, gpu.units, gpu.wavefront, gpu.lds) for _, gpu in group}) == 1:
            return group[0][0]
    return None


def _counting(report: GpuReport) -> GpuReport:
    """Note what HIP counts on a GPU, where the numbers tell."""
    driver, torch = report.driver, report.torch
    if not (driver and torch and driver.vendor == "amd" and driver.units and torch.units):
        return report
    ways = {driver.units: Counted.UNITS}
    if driver.target.startswith(_WGP_TARGETS):
        ways[driver.units // 2] = Counted.PROCESSORS
    return report.model_copy(update={"counted": ways.get(torch.units)})


def _foreign(torch: TorchAccount) -> Iterator[Contradiction]:
    """Yield what stands in torch.cuda's place: whatever it says, the C++ kernels never see it."""
    for name, origin in torch.foreign.items():
        own = "torch's own is its C++ class" if "(" in name else "torch's own is its own code"
        yield Contradiction(
            about=About.FUNCTION, place=f"torch.cuda.{name}", said=f"is {origin}", against=own
        )


def _values(gpu: GpuReport, environment: Mapping[str, str]) -> Iterator[Contradiction]:
    """Yield what the runtime and torch say otherwise than the driver."""
    driver = gpu.driver
    override = f"{_OVERRIDE} is set" if environment.get(_OVERRIDE) else ""
    masked = any(environment.get(name) for name in _MASKS)
    for claim in filter(None, (gpu.runtime, gpu.torch) if driver else ()):
        assert driver is not None  # noqa: S101  there is no claim otherwise
        units, why = driver.units, ""
        if claim is gpu.torch and driver.units and driver.target.startswith(_WGP_TARGETS):
            off = environment.get(_WGP_MODE, "").strip().lower() in {"0", "false"}
            units = driver.units if off else driver.units // 2
            why = f"HIP counts {units}, as {_WGP_MODE} is {'0' if off else 'not 0'}"
        # Less LDS than there is may be a setting.
        lds = driver.lds if driver.lds and (claim.lds or 0) > driver.lds else claim.lds
        for about, said, true, fact, reason in (
            (About.TARGET, claim.target, driver.target, driver.target, override),
            (About.WAVEFRONT, claim.wavefront, driver.wavefront, driver.wavefront, override),
            (About.LDS, claim.lds, lds, driver.lds, ""),
            (About.UNITS, claim.units, claim.units if masked else units, driver.units, why),
        ):
            if said and true and said != true:
                yield Contradiction(
                    about=about, place=gpu.label, said=f"{claim.source} says {said}",
                    against=f"{driver.source} says {fact}", why=reason,
                )  # fmt: skip


def _counts(
    gpus: Sequence[GpuReport], torch: TorchAccount, *, listed: bool, fewer: bool
) -> Iterator[Contradiction]:
    """Yield a number of GPUs that is not the driver's; where some are hidden, `fewer` is right."""
    vendor = "amd" if torch.hip else "nvidia"
    there = sum(gpu.driver is not None and gpu.driver.vendor == vendor for gpu in gpus)
    seen = len(torch.devices)
    gpu_build = bool(torch.hip or torch.cuda)
    if (listed and seen > there) or (gpu_build and not fewer and not torch.error and seen < there):
        yield Contradiction(
            about=About.COUNT, place="torch.cuda.device_count", said=f"torch says {seen}",
            against=f"the driver says {there}",
        )  # fmt: skip


def _kernels(torch: TorchAccount) -> Iterator[Contradiction]:
    """Yield the GPUs that torch offers and has no kernels for."""
    for gpu in torch.devices:
        if torch.kernels and not any(_runs_on(kernel, gpu.target) for kernel in torch.kernels):
            yield Contradiction(
                about=About.KERNELS, place=gpu.source, said=f"torch offers a {gpu.target}",
                against=f"its kernels are for {', '.join(torch.kernels)}",
            )  # fmt: skip


def _runs_on(kernel: str, target: str) -> bool:
    """Say whether code for one target runs on another (LLVM's generic targets; CUDA's rules)."""
    if target.startswith("gfx"):
        family, generic, _ = kernel.partition("-generic")
        plain = kernel.partition(":")[0]
        return plain == target or bool(generic and target.startswith(family.replace("-", "")))
    code, there = re.match(r"(sm|compute)_(\d+)", kernel), re.match(r"sm_(\d+)", target)
    if not code or not there:
        return False
    made, has = int(code[2]), int(there[1])
    # Machine code runs within a major version, PTX on all that is newer.
    return made <= has and (code[1] == "compute" or made // 10 == has // 10)


def compilers(gpus: Sequence[GpuReport]) -> Iterator[Compiler]:
    """Yield the compilers for HIP that would be taken here, with their targets."""
    mine = (gpu.driver.target for gpu in gpus if gpu.driver and gpu.driver.vendor == "amd")
    targets: dict[tuple[str, str], list[str]] = {}
    for target in filter(None, dict.fromkeys((*DEFAULT_TARGETS, *mine))):
        using = hip_toolchain(target)
        known = (using.name, "") if isinstance(using, Toolchain) else ("", using.reason)
        targets.setdefault(known, []).append(target)
    for (name, why), each in targets.items():
        yield Compiler(name=name, targets=tuple(each), why=why)


def means(patch: Patch, machine: Machine) -> PatchMeans:
    """Tell of each unit of a patch's verification what it lacks here."""
    spec, upstream = patch.spec, patch.upstream
    built: dict[tuple[str, str], list[Lack]] = {}

    def unit(stage: str, target: str, label: str, *lacks: Lack) -> Unit:
        found = dict.fromkeys((lack.what, lack.line) for lack in lacks if lack.what)
        return Unit(
            stage=stage, target=target, label=label,
            lacks=tuple(Lack(what=what, line=line) for what, line in found),
        )  # fmt: skip

    units = []
    if upstream.hipify is not None or spec.hipify is not None:
        units.append(unit("hipify", "any", "", Lack(what=missing_hipify(upstream))))
    for entry in spec.compile:
        for target in entry.targets:
            why = missing_compile(upstream, entry, hip_toolchain(target))
            units.append(unit("compile", target, entry.name, Lack(what=why)))
    for build in spec.build:
        for target in build.targets:
            # Without the GPU the tools are asked for as well: who fetches one needs the other.
            tools = missing_tools(machine, upstream, build, target)
            built[build.name, target] = [_hardware(patch, target, machine), Lack(what=tools)]
            units.append(unit("build", target, build.name, *built[build.name, target]))
    for stage, entries in (
        ("reproduce", spec.checks), ("numerics", spec.numerics), ("bench", spec.bench),
    ):  # fmt: skip
        for check in entries:
            absent = [*absent_modules(check), *(name for name in upstream.overlay
                                                if not present(name))]  # fmt: skip
            modules = (Lack(what=f"the Python module {name} is not installed",
                            line=INSTALLS.get(name, "")) for name in absent)  # fmt: skip
            hardware = _hardware(patch, check.target, machine)
            first = built.get((check.build, check.target), [])
            units.append(unit(stage, check.target, check.name, hardware, *modules, *first))
    return PatchMeans(patch=patch.name, pin=patch.pin.title, units=tuple(units))


def _hardware(patch: Patch, target: str, machine: Machine) -> Lack:
    if target in machine.targets:
        return Lack(what="")
    line = f"contribbot verify {patch.name} --require {target}"
    return Lack(what=f"no {target} on this machine; on one that has it", line=line)
