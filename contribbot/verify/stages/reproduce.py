"""Stage `reproduce`: the checks of the patch, on the base and on the patched tree."""

from __future__ import annotations

import importlib.util

from pydantic import JsonValue

from contribbot.model.outcome import StageResult
from contribbot.model.patch import Check
from contribbot.store.trees import changes
from contribbot.verify.checkrun import CheckRun, run_check
from contribbot.verify.job import Finding, Job, Unit
from contribbot.verify.redgreen import judge_check


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
        }
        return Unit(
            target=check.target,
            inputs=inputs,
            work=lambda: self._run(job, check),
            label=check.name,
            missing=_missing(job, check),
        )

    def _run(self, job: Job, check: Check) -> Finding:
        on_base = job.children.submit(_on, job, check, job.trees.base, ())
        on_patched = job.children.submit(_on, job, check, job.trees.patched, _witnessed(job))
        base, patched = on_base.result(), on_patched.result()
        outcome, reason = judge_check(check, base, patched)
        details: dict[str, JsonValue] = {
            "check": check.name,
            "file": check.file,
            "expect": check.expect,
            "stated_reason": check.reason,
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
    return run_check(
        check,
        job.patch.support,
        tree=job.exported(tree),
        python_roots=job.patch.upstream.python_roots,
        witness=witness,
        threads=job.threads,
        folder=job.fresh_folder(),
        logs=job.logs,
    )
