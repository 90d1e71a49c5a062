"""`contribbot doctor`."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from contribbot import process
from contribbot.cli.command import JsonOption, chosen_queue, command, open_queue, print_report
from contribbot.cli.render import Block, Code, StateText, pairs
from contribbot.compile.toolchain import Lack
from contribbot.errors import UsageError
from contribbot.machine.doctor import DoctorReport, PatchStages, examine


@command
def doctor(context: typer.Context, as_json: JsonOption = False) -> int:
    """Show what this machine is and can prove, and what each patch lacks here."""
    try:
        queue = open_queue(context)
    except UsageError:
        if chosen_queue(context) is not None:
            raise
        queue = None  # the machine is described all the same
    report = examine(process.user_environment(), queue)
    print_report(report, doctor_blocks(report), as_json=as_json)
    return 0


def doctor_blocks(report: DoctorReport) -> list[Block]:
    """Return the machine, its software and compilers, and what each patch lacks."""
    compilers = [
        (each.name, [", ".join(each.targets), *filter(None, [each.reason])])
        for each in report.compilers
    ]
    blocks: list[Block] = [pairs(_machine(report), indent=0), "", "HIP compilers", pairs(compilers)]
    if report.problems:
        blocks += ["", "problems", *(f"  {problem}" for problem in report.problems)]
    if report.silent_switches:
        blocks += ["", "variables that are set and that no code here reads"]
    for switch in report.silent_switches:
        near = f"; the nearest that is read: {switch.nearest}" if switch.nearest else ""
        blocks.append(f"  {switch.name}{near}")
    if report.patches is not None:
        blocks += ["", "patches", *(line for each in report.patches for line in _patch(each))]
    return blocks


def _machine(report: DoctorReport) -> Iterator[tuple[str, list[str]]]:
    machine = report.machine
    yield "machine", [f"{machine.system}, {machine.cpu}, {machine.python}"]
    names = {"amd": "amdgpu", "nvidia": "NVIDIA"}
    yield (
        "GPUs",
        [
            f"{gpu.name}, {gpu.target}, driver {names[gpu.vendor]} {gpu.driver}".rstrip()
            for gpu in machine.gpus
        ]
        or ["none"],
    )
    compiled = [target for each in report.compilers if not each.reason for target in each.targets]
    for title, targets in (
        ("runs on", sorted(machine.targets - {"any"})),
        ("compiles for", compiled),
        ("emulates", report.emulates),
    ):
        yield title, [", ".join(targets) or "none"]
    yield "ROCm", [machine.rocm or "not in ROCM_PATH or /opt/rocm"]
    for title in ("torch", "triton", "aiter"):
        versions = [
            f"{name} {version}" for name, version in machine.packages.items() if title in name
        ]
        if title == "torch" and report.torch:
            versions = [f"{version}, built for {report.torch}" for version in versions]
        yield title, versions or ["not installed"]


def _patch(patch: PatchStages) -> Iterator[Block]:
    """Yield the stages that can run here, and those that cannot with their lacks."""
    stages: dict[tuple[bool, str], dict[str, None]] = {}
    lacks: dict[tuple[bool, str], dict[Lack, None]] = {}
    for unit in sorted(patch.units, key=lambda unit: bool(unit.lacks)):
        key = bool(unit.lacks), unit.target
        stages.setdefault(key, {})[unit.stage] = None
        lacks.setdefault(key, {}).update(dict.fromkeys(unit.lacks))
    targets: dict[tuple[str, tuple[Lack, ...]], list[str]] = {}
    for key, each in stages.items():
        targets.setdefault((", ".join(each), tuple(lacks[key])), []).append(key[1])
    yield f"  {patch.patch} ({patch.pin})"
    for (names, missing), alike in targets.items():
        text = f"{', '.join(alike)}: {names}".removeprefix("any: ")
        yield StateText(f"    {'not here' if missing else 'here':8}  {text}")
        for lack in missing:
            yield f"              {lack.what}{':' if lack.line else ''}"
            if lack.line:
                yield Code(f"                {lack.line}")
