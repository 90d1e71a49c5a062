"""`contribbot doctor`, `fallback` and `numerics explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.filesize import decimal

from contribbot import process
from contribbot.cli import render
from contribbot.cli.command import Reply, argument, command, open_queue, option
from contribbot.cli.refusal import current_settings
from contribbot.cli.render import Block, Code, StateText, Table, count, lines_of, near, pairs
from contribbot.errors import MachineError, UsageError
from contribbot.fallback.watch import AuditRow, FallbackReport, exit_code, watch
from contribbot.machine import gpus
from contribbot.machine.doctor import DoctorReport, PatchStages, examine
from contribbot.model.evidence import target_name


@command("doctor --json")
def doctor() -> Reply:
    """Show what this machine is and can prove, and what each patch lacks here."""
    try:
        queue = open_queue()
    except UsageError:
        if current_settings().queue is not None:
            raise
        queue = None  # the machine is described all the same
    report = examine(process.user_environment(), queue)
    return Reply(report, doctor_blocks(report))


def doctor_blocks(report: DoctorReport) -> list[Block]:
    """Return the report of `doctor`: machine, software, compilers, and missing things by patch."""
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
        nearest = f"; the nearest that is read: {switch.nearest}" if switch.nearest else ""
        blocks.append(f"  {switch.name}{nearest}")
    if report.patches:
        blocks += ["", Table([*map(_patch_row, report.patches)], ("patch", "runs here", "lacks"))]
        blocks += _steps(report.patches)
    return blocks


def _machine(report: DoctorReport) -> Iterator[tuple[str, list[str]]]:
    """Yield the facts of a machine, each as a title with lines of text."""
    machine, vendors = report.machine, {"amd": "amdgpu", "nvidia": "NVIDIA"}
    yield "machine", [f"{machine.system}, {machine.cpu}, {machine.python}"]
    found = [
        f"{gpu.name}, {gpu.target}, driver {vendors[gpu.vendor]} {gpu.driver}".rstrip()
        for gpu in machine.gpus
    ]
    yield "GPUs", found or ["none"]
    compiled = [target for each in report.compilers if not each.reason for target in each.targets]
    yield "runs on", [", ".join(sorted(machine.targets - {"any"})) or "none"]
    yield "compiles for", [", ".join(compiled) or "none"]
    yield "emulates", [", ".join(report.emulates) or "none"]
    yield "ROCm", [machine.rocm or "not in ROCM_PATH or /opt/rocm"]
    for title in ("torch", "triton", "aiter"):
        built = f", built for {report.torch}" if report.torch and title == "torch" else ""
        versions = [f"{key} {value}" for key, value in machine.packages.items() if title in key]
        yield title, [f"{version}{built}" for version in versions] or ["not installed"]


def _patch_row(patch: PatchStages) -> tuple[str, ...]:
    """Return a table row: the patch, the targets that can run here, and what others lack."""
    lacks: dict[str, dict[str, None]] = {}
    for unit in patch.units:
        target = target_name(unit.stage, unit.target)
        missing = (lack.what.partition(";")[0] for lack in unit.lacks)
        lacks.setdefault(target, {}).update(dict.fromkeys(missing))
    here = render.summary_of(target for target, missing in lacks.items() if not missing)
    others = {", ".join(missing): None for missing in lacks.values() if missing}
    return patch.patch, here or "-", StateText("; ".join(others))


def _steps(patches: Sequence[PatchStages]) -> list[Block]:
    """Return lines on the missing things that commands can install, with the commands."""
    steps: dict[str, dict[str, None]] = {}
    for lack in (lack for each in patches for unit in each.units for lack in unit.lacks):
        if lack.line:
            steps.setdefault(lack.what, {})[lack.line] = None
    blocks: list[Block] = ["", "what helps"] if steps else []
    for lacking, lines in steps.items():
        blocks += [f"  {lacking}:", *(Code(f"    {line}") for line in lines)]
    return blocks


_TITLES: Final = {
    "fallback": "ran on the CPU, with data from the GPU",
    "download": "copied from the GPU, and waited for it",
    "upload": "copied to the GPU in a loop, and waited",
}


@command("fallback -- python train.py --steps 10")
def fallback(
    program: list[str] = argument("-- PROGRAM ARGS", "A Python program: python x.py, …."),
    device: str = option(
        "", "TYPE", "The device to watch, as torch calls it.", default="any but the CPU"
    ),
) -> Reply:
    """Run a program, and name each line that falls back to the CPU or copies in passing.

    The program has its own streams, signals and exit code. The report goes to standard error; with
    --json, it is standard output, and the program's output goes to standard error.
    """
    as_json = current_settings().as_json
    if not device and not gpus():
        raise MachineError(
            "no GPU on this machine: there is nothing to watch, and the program was not run",
            hint="run it where its GPU is",
        )
    report = watch(program, device=device, quiet=as_json)
    return Reply(report, (), exit_code(report), () if as_json else fallback_lines(report))


def fallback_lines(report: FallbackReport) -> Iterator[str]:
    """Yield the lines of the report, with a heading for each kind of finding."""
    ended = f"exit status {report.exit_code} after {report.seconds:.1f} s"
    program = textwrap.shorten(process.describe(report.program), 60, placeholder=" …")
    yield from ("", f"fallback: {program}: {ended}")
    if report.unwatched:
        yield f"  {report.unwatched}; docs/fallback.md says what is not seen"
        return
    places = count(len({(each.file, each.line) for each in report.findings}), "line")
    operators = count(report.gpu_operators, "operator")
    yield f"  {operators} on the GPU, {places} of the program to look at (torch {report.torch})"
    for kind, title in _TITLES.items():
        found = [each for each in report.findings if each.kind == kind]
        yield from ("", f"  {title}") if found else ()
        for row, each in zip(lines_of([Table([*map(_cells, found)])]), found, strict=True):
            yield f"    {row}"
            yield from [Code(f"        {each.code}")] if each.code else []


def _cells(each: AuditRow) -> tuple[str, ...]:
    """Return a finding's place in the program, count, bytes, milliseconds and operator."""
    place, cost = f"{near(Path(each.file))}:{each.line}", f"{each.seconds * 1e3:,.1f} ms"
    return place, f"{each.count:,} x", decimal(each.bytes), cost, each.operator


@command("numerics explain cpu.safetensors gpu.safetensors")
def explain(
    a: Path = argument("A", "A record of a computation, by contribbot.numerics.record."),
    b: Path = argument("B", "A record of the same computation and inputs."),
) -> Reply:
    """Say how two results differ, and which arithmetic makes them differ; exit 1 if none does."""
    from contribbot.numerics import explanation, recordings  # noqa: PLC0415  imports torch

    found = explanation.explain(recordings.read(a), recordings.read(b))
    return Reply(found, found.lines((a.name, b.name)), int(not found.complete))
