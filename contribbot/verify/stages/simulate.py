"""Stage `simulate`: checks for a GPU under a program that stands in for one (`runners.toml`)."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from contribbot.hardware.needs import missing_program
from contribbot.model.checks import Check, Simulator
from contribbot.model.evidence import SIMULATE
from contribbot.model.failure import RunFailure
from contribbot.verify.check import (
    CheckRunner,
    Placement,
    check_inputs,
    judged,
    missing_for,
    tree_details,
)
from contribbot.verify.job import Job, RunLayout
from contribbot.verify.pytest_run import CheckRun
from contribbot.verify.stages.base import Stage, Unit
from contribbot.verify.stages.numerics import runner_of
from contribbot.verify.verdict import Cause, Judgement, RunSide

#: A program that works out what a GPU does is slower than one; what a check is given at most.
_SLOWER: Final = 10
_LONGEST: Final = 86_400.0
#: What may be the program's own end.
_OPEN: Final = frozenset({RunFailure.CRASHED, RunFailure.TIMED_OUT})


class SimulateStage(Stage):
    """Runs each check for a GPU that a program stands in for, once per tree."""

    name = SIMULATE

    def units(self, job: Job) -> list[Unit]:
        """One unit a check and program."""
        checks = (*job.patch.spec.checks, *job.patch.spec.numerics)
        return [
            _unit(job, check, simulator)
            for simulator in job.simulators
            for check in checks if check.target == simulator.gpu
        ]  # fmt: skip


def _unit(job: Job, check: Check, simulator: Simulator) -> Unit:
    modules = [need for need in check.requires if need != check.target]
    # The machine needs no GPU for it. torch's profiler would see none of the program's kernels.
    check = check.model_copy(update={
        "requires": ("cpu", *modules), "kernels": (),
        "timeout": min(check.timeout * _SLOWER, _LONGEST),
    })  # fmt: skip
    found = shutil.which(simulator.under[0])
    program = Path(found).absolute() if found else None
    missing = missing_for(job, check)
    missing = missing_program(simulator) or missing
    if program and check.build:
        missing = f"its build {check.build} is made where the GPU is"
    digest = hashlib.sha256(program.read_bytes()).hexdigest() if program else ""
    return Unit(
        target=simulator.target,
        inputs={**check_inputs(job, check, {}), "under": [digest, *simulator.under]},
        work=lambda: judged(job, check, _runner(check, simulator, str(program))),
        label=check.name,
        missing=missing,
    )


def _runner(check: Check, simulator: Simulator, program: str) -> CheckRunner:
    runner, under = runner_of(check), (program, *simulator.under[1:])
    return replace(
        runner,
        judge=partial(_judge, runner, simulator),
        layout=partial(_under, runner.layout, under),
        of_trees=lambda *of: {**tree_details(*of), "under": [*simulator.under]},
        note=f"run under {Path(program).name} as {simulator.target}; not run on a GPU",
    )


def _under(
    layout: Placement, under: tuple[str, ...], job: Job, what: Check, tree: str, *,
    copy: bool = False,
) -> RunLayout:  # fmt: skip
    place = layout(job, what, tree, copy=copy)
    # A sandbox shows what variables name.
    return replace(place, under=under, env={**place.env, "CONTRIBBOT_UNDER": under[0]})


def _judge(
    runner: CheckRunner, simulator: Simulator, check: Check, base: CheckRun, patched: CheckRun
) -> Judgement:
    """Judge as everywhere, but by no run that the program may have ended itself."""
    for side, run in ((RunSide.BASE, base), (RunSide.PATCHED, patched)):
        if run.kind in _OPEN:
            words = f"under {Path(simulator.under[0]).name}, on the {side}: {run.detail}"
            words += "; the command, or what it ran: run it by hand on `true` first"
            return Judgement(Cause.MACHINE, side, words=words)
    return runner.judge(check, base, patched)
