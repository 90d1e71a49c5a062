"""`contribbot doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contribbot import process
from contribbot.cli.command import Reply, command, open_queue
from contribbot.cli.refusal import current_settings
from contribbot.cli.render import Block, Code, StateText, Table, pairs, summary_of
from contribbot.errors import UsageError
from contribbot.machine.doctor import DoctorReport, PatchStages, examine
from contribbot.model.evidence import RAN


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
    if report.patches:
        blocks += ["", Table([*map(_row, report.patches)], ("patch", "runs here", "lacks"))]
        blocks += _steps(report.patches)
    return blocks


def _machine(report: DoctorReport) -> Iterator[tuple[str, list[str]]]:
    machine = report.machine
    yield "machine", [f"{machine.system}, {machine.cpu}, {machine.python}"]
    names = {"amd": "amdgpu", "nvidia": "NVIDIA"}
    gpus = [
        f"{gpu.name}, {gpu.target}, driver {names[gpu.vendor]} {gpu.driver}".rstrip()
        for gpu in machine.gpus
    ]
    yield "GPUs", gpus or ["none"]
    compiled = [target for each in report.compilers if not each.reason for target in each.targets]
    for title, targets in (
        ("runs on", sorted(machine.targets - {"any"})),
        ("compiles for", compiled),
        ("emulates", report.emulates),
    ):
        yield title, [", ".join(targets) or "none"]
    yield "ROCm", [machine.rocm or "not in ROCM_PATH or /opt/rocm"]
    built = f", built for {report.torch}" if report.torch else ""
    for title, more in (("torch", built), ("triton", ""), ("aiter", "")):
        versions = [
            f"{key} {value}{more}" for key, value in machine.packages.items() if title in key
        ]
        yield title, versions or ["not installed"]


def _row(patch: PatchStages) -> tuple[str, ...]:
    """Return a patch's row: name, targets where all checks run, what other targets lack."""
    lacks: dict[str, dict[str, None]] = {}
    for unit in patch.units:
        target = unit.target if unit.stage in RAN else f"{unit.stage}:{unit.target}"
        missing = (lack.what.partition(";")[0] for lack in unit.lacks)
        lacks.setdefault(target.removesuffix(":any"), {}).update(dict.fromkeys(missing))
    here = summary_of(target for target, missing in lacks.items() if not missing)
    others = {", ".join(missing): None for missing in lacks.values() if missing}
    return patch.patch, here or "-", StateText("; ".join(others))


def _steps(patches: Sequence[PatchStages]) -> list[Block]:
    """Return each missing thing that commands can install, with the commands."""
    steps: dict[str, dict[str, None]] = {}
    for lack in (lack for each in patches for unit in each.units for lack in unit.lacks):
        if lack.line:
            steps.setdefault(lack.what, {})[lack.line] = None
    blocks: list[Block] = ["", "what helps"] if steps else []
    for lacking, lines in steps.items():
        blocks += [f"  {lacking}:", *(Code(f"    {line}") for line in lines)]
    return blocks
