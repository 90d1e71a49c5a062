"""Stage `reproduce`: the checks of the patch, on the base and on the patched tree."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import threading
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.model.outcome import HOST_TARGETS, StageResult
from contribbot.model.patch import Check
from contribbot.store.trees import changes
from contribbot.verify.checkrun import run_check
from contribbot.verify.childreport import CheckRun
from contribbot.verify.job import Finding, Job, Unit
from contribbot.verify.redgreen import judge_check

_ACCELERATOR: Final = threading.Lock()


class ReproduceStage:
    """Runs each check in a child pytest, once per tree."""

    name = "reproduce"
    after = ("apply",)

    def units(self, job: Job) -> list[Unit]:
        """One unit a check."""
        return [self._unit(job, check) for check in job.patch.spec.checks]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """The results themselves are what `witness` reads."""

    def _unit(self, job: Job, check: Check) -> Unit:
        inputs: dict[str, JsonValue] = {
            "check": check.model_dump_json(),
            "checks": job.patch.checks_digest,
            "base": job.trees.base,
            "patched": job.trees.patched,
            "python_roots": list(job.patch.upstream.python_roots),
            "threads": job.threads,
            "accelerator": {**process.accelerator_environment()},
        }
        missing = _missing(job, check)
        if check.modules and not missing:
            inputs["modules"] = {**_versions(check.modules)}
        return Unit(
            target=check.target,
            inputs=inputs,
            work=lambda: self._run(job, check),
            label=check.name,
            missing=missing,
        )

    def _run(self, job: Job, check: Check) -> Finding:
        base, patched = _both(job, check)
        outcome, reason = judge_check(check, base, patched)
        details: dict[str, JsonValue] = {
            "file": check.file,
            "expect": check.expect,
            "stated_reason": check.reason,
            "threads": job.threads,
            "accelerator": {**process.accelerator_environment()},
            "modules": {**_versions(check.modules)},
            "base": base.summary(),
            "patched": patched.summary(),
            "statements": {path: list(lines) for path, lines in patched.statements.items()},
            "executed": {path: list(lines) for path, lines in patched.executed.items()},
        }
        return Finding(
            outcome,
            reason,
            details,
            lasting=not (base.transient or patched.transient),
            seconds=base.seconds + patched.seconds,
        )


def _both(job: Job, check: Check) -> tuple[CheckRun, CheckRun]:
    """Run a check on the base and on the patched tree.

    Both are witnessed, so that tracing cannot make the difference. On an
    accelerator they run one after the other and alone: a fault on one side must
    not reach the other, nor another check.
    """
    witness = _witnessed(job)
    sides = [(job, check, tree, witness) for tree in (job.trees.base, job.trees.patched)]
    if check.target in HOST_TARGETS:
        on_base, on_patched = (job.children.submit(_on, *side) for side in sides)
        return on_base.result(), on_patched.result()
    with _ACCELERATOR:
        return _on(*sides[0]), _on(*sides[1])


def _versions(modules: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of the distributions that provide some modules."""
    if not modules:
        return {}
    owners = importlib.metadata.packages_distributions()
    return {
        owner: importlib.metadata.version(owner)
        for module in modules
        for owner in owners.get(module.partition(".")[0], ())
    }


def _missing(job: Job, check: Check) -> str:
    """Say what this machine lacks for a check, or nothing."""
    if check.target not in job.machine.targets:
        return f"no {check.target} on this machine"
    for module in check.modules:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            return f"the Python module {module} is not installed"
    return ""


def _witnessed(job: Job) -> tuple[str, ...]:
    """Return the Python files that the patch changes, as paths in the patched tree."""
    found = changes(job.store, job.trees.base, job.trees.patched)
    return tuple(
        one.path for one in found if one.path.endswith(".py") and one.mode.startswith("100")
    )


def _on(job: Job, check: Check, tree: str, witness: tuple[str, ...]) -> CheckRun:
    run = run_check(
        check,
        job.patch.support,
        tree=job.exported(tree),
        python_roots=job.patch.upstream.python_roots,
        witness=witness,
        threads=job.threads,
        folder=job.fresh_folder(),
        logs=job.logs,
    )
    meddled = job.altered(tree)
    if meddled and not run.trouble:
        # What other checks saw from then on is not the tree: this run decides nothing.
        run.trouble, run.transient = f"wrote into the tree: {meddled}", True
    return run
