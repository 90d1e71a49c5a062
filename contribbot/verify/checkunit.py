"""One check as a unit of work: run on the base and on the patched tree, then judged."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.hardware.disk import is_full
from contribbot.model.check import Check, Needy
from contribbot.model.outcome import HOST_TARGETS, Outcome
from contribbot.verify import builds
from contribbot.verify.checkrun import run_check
from contribbot.verify.childrun import CheckRun
from contribbot.verify.gpuwitness import kernel_details
from contribbot.verify.job import Finding, Job, Unit
from contribbot.verify.overlay import OverlayError, owners, releases
from contribbot.verify.places import (
    Runnable,
    overlay_details,
    overlay_note,
    place,
    unplaceable,
)
from contribbot.verify.redgreen import judge_check
from contribbot.verify.runnerfault import RunnerFaultError, lacked, told_by

_ACCELERATOR: Final = threading.Lock()

Judge = Callable[[Check, CheckRun, CheckRun], tuple[Outcome, str]]
More = Callable[[CheckRun, CheckRun], dict[str, JsonValue]]


@dataclass(frozen=True)
class Way:
    """How a stage runs its checks.

    Attributes:
        judge: Says what two runs, on the base and on the patched tree, come to.
        env: Variables for the check, beside its own.
        details: What the record keeps beside what it keeps of every check.
    """

    judge: Judge = judge_check
    env: Mapping[str, str] = field(default_factory=dict)
    details: More = lambda _base, _patched: {}


def check_unit(job: Job, check: Check, way: Way) -> Unit:
    """Return the unit of work for a check.

    Args:
        job: The verification.
        check: The check.
        way: How its stage runs it.
    """
    missing = missing_here(job, check) or unplaceable(job, check)
    inputs: dict[str, JsonValue] = {
        "check": check.model_dump_json(),
        "checks": job.patch.checks_digest,
        "env": {**way.env},
        **place_inputs(job, check),
    }
    if check.modules and not missing:
        inputs["modules"] = {**versions(check.modules)}
    return Unit(
        target=check.target,
        inputs=inputs,
        work=lambda: _run(job, check, way),
        label=check.name,
        missing=missing,
    )


def place_inputs(job: Job, what: Runnable) -> dict[str, JsonValue]:
    """Return what everything that runs on the two trees depends on.

    Args:
        job: The verification.
        what: What shall run.
    """
    return {
        "build": [*builds.identity(job, what.build, what.target)] if what.build else [],
        "base": job.trees.base,
        "patched": job.trees.patched,
        "python_roots": list(job.patch.upstream.python_roots),
        "overlay": {**releases(job.patch.upstream.overlay)},
        "threads": job.threads,
        "accelerator": {**process.accelerator_environment()},
    }


def missing_here(job: Job, what: Needy) -> str:
    """Say what this machine lacks for something, or nothing.

    Args:
        job: The verification.
        what: What shall run.
    """
    if what.target not in job.machine.targets:
        return f"no {what.target} on this machine"
    absent = absent_module(what)
    return f"the Python module {absent} is not installed" if absent else ""


def absent_module(what: Needy) -> str:
    """Return a module that something needs and that is not installed, or nothing.

    Args:
        what: What shall run.
    """
    for module in what.modules:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            return module
    return ""


def _run(job: Job, check: Check, way: Way) -> Finding:
    try:
        base, patched, preflight = _both(job, check, way)
    except OverlayError as error:
        return Finding(Outcome.UNAVAILABLE, str(error), lasting=False)
    except RunnerFaultError as error:
        return Finding(Outcome.UNAVAILABLE, str(error), error.details, lasting=False)
    outcome, reason = way.judge(check, base, patched)
    blamed = told_by(base, patched) if outcome is Outcome.UNAVAILABLE else None
    note = overlay_note(job)
    details: dict[str, JsonValue] = {
        "file": check.file,
        "expect": check.expect,
        "stated_reason": check.reason,
        "threads": job.threads,
        "accelerator": {**process.accelerator_environment()},
        "modules": {**versions(check.modules)},
        **overlay_details(job),
        "base": base.summary(),
        "patched": patched.summary(),
        "statements": {path: list(lines) for path, lines in patched.statements.items()},
        "executed": {path: list(lines) for path, lines in patched.executed.items()},
        **kernel_details(check, base, patched),
        **({"preflight": preflight} if preflight else {}),
        **({"runner_fault": blamed.model_dump()} if blamed else {}),
        **way.details(base, patched),
    }
    return Finding(
        outcome,
        f"{reason} ({note})" if note else reason,
        details,
        lasting=not (base.transient or patched.transient),
        seconds=base.seconds + patched.seconds,
    )


def _both(job: Job, check: Check, way: Way) -> tuple[CheckRun, CheckRun, dict[str, JsonValue]]:
    """Run a check on the base and on the patched tree; return the pre-flight's details too.

    Both are witnessed, so that tracing cannot make the difference. On an
    accelerator they run one after the other and alone: a fault on one side must
    not reach the other, nor another check.

    Raises:
        OverlayError: A tree's files cannot be put over what is installed.
        RunnerFaultError: The accelerator does not do what it surely must.
    """
    trees = job.trees
    if check.target in HOST_TARGETS:
        on_base, on_patched = (
            _start(job, check, way, tree) for tree in (trees.base, trees.patched)
        )
        base, patched = on_base.result(), on_patched.result()
        if patched.starved and not base.starved:
            # They ran side by side: what the base had taken is free now.
            patched = _start(job, check, way, trees.patched).result()
        return base, patched, {}
    with _ACCELERATOR:
        preflight = job.preflights.before(check.target, job.machine, job.fresh_folder)
        base, patched = (
            _accelerated(job, check, way, tree) for tree in (trees.base, trees.patched)
        )
    return base, patched, preflight


def run_one(job: Job, check: Check, way: Way, tree: str) -> CheckRun:
    """Run a check on one tree, on an accelerator alone.

    Args:
        job: The verification.
        check: The check, which nothing on this machine stands in the way of.
        way: How its stage runs it.
        tree: A tree's id.

    Raises:
        OverlayError: The tree's files cannot be put over what is installed.
        RunnerFaultError: The accelerator does not do what it surely must.
        MachineError: The child could not be started.
    """
    if check.target in HOST_TARGETS:
        return _start(job, check, way, tree).result()
    with _ACCELERATOR:
        job.preflights.before(check.target, job.machine, job.fresh_folder)
        return _accelerated(job, check, way, tree)


def _accelerated(job: Job, check: Check, way: Way, tree: str) -> CheckRun:
    """Run a check on one tree; after what could be the runner's fault, see whose it is."""
    run = _start(job, check, way, tree).result()
    if run.suspicion is not None and not lacked(run):
        side = {job.trees.base: "base", job.trees.patched: "patched tree"}.get(tree, "release")
        seen = run.suspicion.model_copy(update={"said": f"on the {side}: {run.suspicion.said}"})
        job.preflights.after(seen, check.target, job.machine, job.fresh_folder)
        run.cleared = True
    return run


def _start(job: Job, check: Check, way: Way, tree: str) -> Future[CheckRun]:
    return job.children.submit(_on, job, check, way, tree)


def _on(job: Job, check: Check, way: Way, tree: str) -> CheckRun:
    with job.busy():
        run = run_check(
            check,
            job.patch.support,
            place=place(job, check, tree),
            env=way.env,
            threads=job.threads,
            folder=job.fresh_folder(),
            logs=job.logs,
        )
    if lacked(run) and tree == job.trees.patched and (run.starved or not is_full(job.scratch)):
        # What lacks on the patched tree alone is the patch's doing.
        run.suspicion = None
    meddled = job.altered(tree)
    if meddled and not run.trouble:
        # What other checks saw from then on is not the tree: this run decides nothing.
        run.trouble, run.transient = f"wrote into the tree: {meddled}", True
    return run


def versions(modules: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of the distributions that provide some modules.

    Args:
        modules: The modules' names.
    """
    return {
        owner: importlib.metadata.version(owner)
        for module in modules
        for owner in owners().get(module.partition(".")[0], ())
    }
