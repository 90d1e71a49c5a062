"""`contribbot doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from contribbot import process
from contribbot.cli.command import (
    JsonOption,
    chosen_queue,
    command,
    open_queue,
    option,
    print_report,
)
from contribbot.cli.text import Code, Coloured, clean, count, titled
from contribbot.errors import UsageError
from contribbot.hardware.diagnosis import (
    Counted,
    DoctorReport,
    GpuReport,
    Lack,
    PatchMeans,
    examine,
)
from contribbot.hardware.gpus import GpuFacts
from contribbot.model.evidence import SIMULATE


@command
def doctor(
    context: typer.Context,
    first: Annotated[
        str,
        option(
            "MODULE[:FUNCTION]", "Import this first, as your program does, and call it.", "--import"
        ),
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """Say what this machine is and can prove; exit 1 if something contradicts itself."""
    try:
        queue = open_queue(context)
    except UsageError:
        if chosen_queue(context) is not None:
            raise
        queue = None  # it describes the machine all the same
    report = examine(process.user_environment(), queue, first=first)
    if first and report.torch.error:
        raise UsageError(
            f"--import {first}: {report.torch.error}",
            hint="name a module that your program can import from this folder, and its function",
        )
    print_report(report, doctor_lines(report), as_json=as_json)
    return 1 if report.contradictions else 0


def doctor_lines(report: DoctorReport) -> list[str]:
    """Return what the machine is and can prove, then all that was found, contradictions first."""
    number = len(report.contradictions)
    found = f"{count(number, 'contradiction')}:"
    lines = [*titled(_summary(report), indent=""), ""]
    lines += [Coloured.of(found, "contradiction") if number else "no contradiction"]
    for each in report.contradictions:
        why = f" ({each.why})" if each.why else ""
        lines.append(clean(f"  {each.place}: {each.about}: {each.said}; {each.against}{why}"))
    lines += ["", "GPUs"]
    lines += [line for gpu in report.gpus for line in _gpu_lines(gpu)] or ["  none"]
    lines += ["", "software", *titled(_software(report))]
    lines += ["", "HIP compilers"]
    lines += titled((each.name, [", ".join(each.targets), *filter(None, [each.why])])
                    for each in report.compilers)  # fmt: skip
    if report.silent_switches:
        lines += ["", "variables that are set and that no code here reads"]
    for switch in report.silent_switches:
        near = f"; the nearest that is read: {switch.nearest}" if switch.nearest else ""
        lines.append(clean(f"  {switch.name}: not in {', '.join(switch.looked_at)}{near}"))
    if report.patches is not None:
        lines += ["", "patches", *(line for each in report.patches for line in _patch_lines(each))]
    if report.unknown:
        lines += ["", "not known", *(clean(f"  {line}") for line in report.unknown)]
    return lines


def _summary(report: DoctorReport) -> Iterator[tuple[str, list[str]]]:
    machine, units = report.machine, [unit for each in report.patches or () for unit in each.units]
    gpus = [f"{gpu.name} ({gpu.target})" for gpu in machine.gpus]
    yield "machine", [f"{machine.system}, {machine.cpu}, {', '.join(gpus) or 'no GPU'}"]
    compiled = [target for each in report.compilers if not each.why for target in each.targets]
    simulated = [unit.target for unit in units if unit.stage == SIMULATE and not unit.lacks]
    for title, targets in (
        ("runs on", sorted(machine.targets - {"any"})), ("compiles for", compiled),
        ("emulates", report.emulates), ("simulates", simulated),
    ):  # fmt: skip
        if targets or title != "simulates":
            yield title, [", ".join(dict.fromkeys(targets)) or "none"]


def _gpu_lines(gpu: GpuReport) -> list[str]:
    """Return what each source says, a fact a row: values that agree stand once."""
    nvidia = gpu.said[0].vendor == "nvidia"
    # The kernel has no name for newer GPUs, only how it found them.
    names = (facts.name for facts in reversed(gpu.said) if facts.name != "ip discovery")
    name = next(filter(None, names), "no name")
    target = next((facts.target for facts in gpu.said if facts.target), "target not known")
    pairs = gpu.counts is Counted.PROCESSORS
    counts = [f"HIP counts {'pairs of them, ' if pairs else ''}{gpu.counts}"] if gpu.counts else []
    rows = [
        ("multiprocessors" if nvidia else "compute units", [_said(gpu.said, "units"), *counts]),
        ("wavefront", [_said(gpu.said, "wavefront", " lanes")]),
        ("LDS", [_said(gpu.said, "lds", " KiB", 1024)]),
        ("memory", [_said(gpu.said, "memory", " MiB", 2**20)]),
        ("highest clock", [_said(gpu.said, "clock", " MHz")]),
        ("clock now", [_said(gpu.said, "clock_now", " MHz")]),
        ("power cap", [_said(gpu.said, "power_cap", " W")]),
    ]
    return [clean(f"  {gpu.said[0].source}: {name}, {target}"), *titled(rows, indent="    ")]


def _said(sources: Sequence[GpuFacts], name: str, unit: str = "", scale: int = 1) -> str:
    """Return a value with who says it; sources that agree are named together."""
    said: dict[int, list[str]] = {}
    for facts in sources:
        value = getattr(facts, name)
        if value is not None:
            said.setdefault(value // scale, []).append(facts.source)
    return ", ".join(f"{value:,}{unit} ({', '.join(who)})" for value, who in said.items()) or (
        "not known"
    )


def _software(report: DoctorReport) -> Iterator[tuple[str, list[str]]]:
    machine, torch = report.machine, report.torch
    kinds = {"amd": "amdgpu", "nvidia": "NVIDIA"}
    known = (facts for gpu in report.gpus for facts in gpu.said if facts.driver)
    drivers = dict.fromkeys(f"{kinds[facts.vendor]} {facts.driver}" for facts in known)
    yield "system", [f"{machine.system}, {machine.python}"]
    yield "driver", [*drivers] or ["none that says its version"]
    yield "ROCm", [machine.rocm or "not in ROCM_PATH or /opt/rocm"]
    said = [f"{torch.version}, built for {torch.build}"] if torch.version else ["not known"]
    if any(gpu.said[0] is not gpu.torch for gpu in report.gpus) and not torch.vendor:
        said.append("it uses none of these GPUs")
    if torch.kernels:
        said.append(f"its kernels: {', '.join(torch.kernels)}")
    yield "torch", said
    for title in ("triton", "aiter"):
        found = [f"{name} {version}" for name, version in machine.packages.items() if title in name]
        yield title, found or ["not installed"]


def _patch_lines(patch: PatchMeans) -> list[str]:
    """Return what can run here; and of what cannot, what is missing, and what helps."""
    stages: dict[str, dict[str, None]] = {}
    lacks: dict[str, dict[Lack, None]] = {}
    for unit in sorted(patch.units, key=lambda unit: bool(unit.lacks)):
        key = f"{unit.target}{'-' if unit.lacks else ''}"
        stages.setdefault(key, {})[unit.stage] = None
        lacks.setdefault(key, {}).update(dict.fromkeys(unit.lacks))
    alike: dict[tuple[str, tuple[Lack, ...]], list[str]] = {}
    for key, each in stages.items():
        alike.setdefault((", ".join(each), tuple(lacks[key])), []).append(key.removesuffix("-"))
    lines = [f"  {patch.patch} ({patch.pin})"]
    for (text, missing), targets in alike.items():
        what = f"{', '.join(targets)}: {text}".removeprefix("any: ")
        here = "not here" if missing else "here"
        lines.append(Coloured.of(f"    {here:8}  {what}", here))
        for lack in missing:
            lines.append(clean(f"              {lack.what}{':' if lack.line else ''}"))
            lines += [Code(f"                {lack.line}")] if lack.line else []
    return lines
