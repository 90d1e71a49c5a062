"""One check as a unit of work: run on the base and on the patched tree, then judged."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pydantic import JsonValue

from contribbot import process
from contribbot.hardware.machine import is_full
from contribbot.model.checks import Check, Needy
from contribbot.model.evidence import HOST_TARGETS, Outcome, StageResult
from contribbot.verify import builds
from contribbot.verify.job import Finding, Job, Unit
from contribbot.verify.overlay import OverlayError, owners, releases
from contribbot.verify.placement import Runnable, overlay_details, overlay_note, place, unplaceable
from contribbot.verify.pytest_run import CheckRun, Trouble, blamed, run_check
from contribbot.verify.runner_fault import RunnerFaultError
from contribbot.verify.verdict import (
    Cause,
    Judgement,
    confirmed,
    judge_check,
    sentence,
    side_to_repeat,
)

#: Names that a record holds for each side: those that were asked for, then the most frequent.
_MOST: Final = 40
#: Folders of a source tree that Python does not look into.
_NOT_IMPORTED: Final = frozenset({"__pycache__", "node_modules"})
#: Characters of a name in a reason.
_SHORT: Final = 120


def kernel_details(check: Check, base: CheckRun, patched: CheckRun) -> dict[str, JsonValue]:
    """Return what the record keeps of the kernels of a check; nothing where none are stated."""
    if not check.kernels:
        return {}
    ran = patched.kernels
    never: list[JsonValue] = [
        one for one in check.kernels if not any(re.search(one, name) for name in ran.seen)
    ]
    return {
        "kernels": {
            "stated": [*check.kernels],
            "never_ran": never,
            "base": {**_kept(check, base.kernels.seen)},
            "patched": {**_kept(check, ran.seen)},
            "names": len(ran.seen),
            "blind": ran.blind,
        }
    }


def _kept(check: Check, seen: Mapping[str, int]) -> dict[str, int]:
    def rank(item: tuple[str, int]) -> tuple[bool, int, str]:
        name, count = item
        return not any(re.search(one, name) for one in check.kernels), -count, name

    return dict(sorted(seen.items(), key=rank)[:_MOST])


def kernel_units(job: Job) -> list[Unit]:
    """Return a unit for each check that passed and states kernels."""
    return [
        _unit(result, seen)
        for stage in ("reproduce", "numerics")
        for result in job.results.get(stage, ())
        if result.outcome is Outcome.PASSED
        and isinstance(seen := result.details.get("kernels"), dict)
    ]


def _unit(result: StageResult, seen: dict[str, JsonValue]) -> Unit:
    return Unit(
        result.target,
        {"kernels": seen},
        lambda: judge_kernels(seen),
        label=f"kernels of {result.stage}/{result.details['check']}",
    )


def judge_kernels(seen: Mapping[str, JsonValue]) -> Finding:
    """Say what it means that these kernels ran."""
    details: dict[str, JsonValue] = {"kernels": {**seen}}
    ran = seen["patched"]
    names = list(ran) if isinstance(ran, dict) else []
    never = seen["never_ran"]
    if isinstance(never, list) and never:
        if seen["blind"]:
            what = f"no kernel {never[0]!r}" if names else "no kernel"
            said = f"torch's profiler sees {what} here: {seen['blind']}"
            return Finding(Outcome.UNAVAILABLE, said, details, lasting=False)
        others = f"{seen['names']} others did, such as {names[0][:_SHORT]}" if names else "none did"
        reason = f"the patched kernel never ran: no name holds {never[0]!r}; {others}"
        return Finding(Outcome.FAILED, reason, details)
    return Finding(Outcome.PASSED, f"ran as stated: {names[0][:_SHORT]}", details)


_ACCELERATOR: Final = threading.Lock()
_WITH_TESTS: Final = "with the patch's own tests laid over it"

Judge = Callable[[Check, CheckRun, CheckRun], Judgement]
More = Callable[[CheckRun, CheckRun], dict[str, JsonValue]]


@dataclass(frozen=True)
class Way:
    """How a stage runs its checks."""

    judge: Judge = judge_check  # says what two runs, on the base and on the patched tree, come to
    env: Mapping[str, str] = field(default_factory=dict)  # variables for the check, beside its own
    #: What the record keeps beside what it keeps of every check.
    details: More = lambda _base, _patched: {}


def check_unit(job: Job, check: Check, way: Way) -> Unit:
    """Return the unit of work for a check."""
    missing = missing_here(job, check) or unplaceable(job, check)
    inputs: dict[str, JsonValue] = {
        "check": check.model_dump_json(),
        "checks": job.patch.checks_digest,
        "env": {**way.env},
        "sandbox": process.no_sandbox(),
        **place_inputs(job, check),
    }
    return Unit(
        target=check.target,
        inputs=inputs,
        work=lambda: _run(job, check, way),
        label=check.name,
        missing=missing,
    )


def place_inputs(job: Job, what: Runnable) -> dict[str, JsonValue]:
    """Return what everything that runs on the two trees depends on."""
    return {
        "build": [*builds.identity(job, what.build, what.target)] if what.build else [],
        "base": job.trees.base,
        "tested": job.trees.tested,
        "patched": job.trees.patched,
        "python_roots": list(job.patch.upstream.python_roots),
        "overlay": {**releases(job.patch.upstream.overlay)},
        "threads": job.threads,
        "environment": {**process.clean_environment()},
        "installed": installed_digest(),
    }


@functools.cache
def installed_digest() -> str:
    """Return the SHA-256 over all that can be imported beside the trees.

    Of a distribution its name and version count, read from its folder's name, as pip writes it
    (PEP 627). What lies outside site-packages can change under the same version: of an editable
    install and of a folder on PYTHONPATH each Python file counts, by path, size and time.
    """
    total = hashlib.sha256()
    for folder in dict.fromkeys(map(Path, filter(None, sys.path))):
        if not os.path.isdir(folder):  # noqa: PTH112  what is no path is passed over
            continue
        for entry in sorted(folder.iterdir()):
            if entry.suffix in {".dist-info", ".egg-info", ".egg-link"}:
                total.update(f"{entry.name}\n".encode())
            if entry.suffix == ".dist-info" and (root := _editable_root(entry)):
                _add_sources(total, root)
    for named in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        _add_sources(total, Path(named))
    return total.hexdigest()


def _editable_root(info: Path) -> Path | None:
    """Return the folder that a distribution was installed from as it lies there (PEP 610)."""
    try:
        told = json.loads((info / "direct_url.json").read_bytes())
        editable = told["dir_info"]["editable"] is True
        return Path(unquote(urlsplit(told["url"]).path)) if editable else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _add_sources(total: hashlib._Hash, root: Path) -> None:
    """Add paths, sizes and times of the Python files below a folder, in no hidden folder."""
    if root in Path(__file__).parents:
        return  # contribbot's own source is in the key of every outcome
    for folder, names, files in os.walk(root):
        names[:] = sorted(one for one in names if one[0] != "." and one not in _NOT_IMPORTED)
        for name in sorted(files):
            if name.endswith((".py", ".so", ".pth")):
                path = os.path.join(folder, name)  # noqa: PTH118  twice as fast on thousands
                with contextlib.suppress(OSError):
                    found = os.stat(path)  # noqa: PTH116  as above
                    total.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())


def missing_here(job: Job, what: Needy) -> str:
    """Say what this machine lacks for something, or nothing."""
    if what.target not in job.machine.targets:
        return f"no {what.target} on this machine"
    absent = absent_modules(what)
    if not absent:
        return ""
    return f"Python modules that are not installed: {', '.join(absent)}"


def absent_modules(what: Needy) -> list[str]:
    """Return the modules that something needs and that are not installed."""
    return [one for one in what.modules if importlib.util.find_spec(one.partition(".")[0]) is None]


def _run(job: Job, check: Check, way: Way) -> Finding:
    try:
        judgement, runs, preflight = _judged(job, check, way)
    except OverlayError as error:
        return Finding(Outcome.UNAVAILABLE, str(error), lasting=False)
    except RunnerFaultError as error:
        return Finding(Outcome.UNAVAILABLE, str(error), error.details, lasting=False)
    base, patched, *again = runs
    outcome, laid = judgement.outcome, job.laid_over_base()
    fault = blamed(base, patched) if outcome is Outcome.UNAVAILABLE else None
    over = overlay_details(job)
    note = overlay_note(str(over.get("over", "")), job.patch.pin)
    reason = reason_of(judgement, runs, laid=bool(laid), over=note)
    details: dict[str, JsonValue] = {
        "file": check.file,
        "expect": check.expect,
        "cause": judgement.cause,
        "stated_reason": check.reason,
        "threads": job.threads,
        "sandbox": process.no_sandbox() or "bubblewrap",
        "accelerator": {**process.accelerator_environment()},
        "modules": {**versions(check.modules)},
        **over,
        "laid_over_base": [*laid],
        "base": base.summary(check.reason),
        "patched": patched.summary(check.reason),
        **({"again": again[0].summary(check.reason)} if again else {}),
        **_witness(job, base, patched),
        **({"built": builds.differ(job, check.build, check.target)} if check.build else {}),
        **kernel_details(check, base, patched),
        **({"preflight": preflight} if preflight else {}),
        **({"runner_fault": fault.model_dump()} if fault else {}),
        **way.details(base, patched),
    }
    return Finding(
        outcome,
        reason,
        details,
        lasting=outcome is not Outcome.UNAVAILABLE and not any(run.transient for run in runs),
        seconds=sum(run.seconds for run in runs),
    )


def reason_of(judgement: Judgement, runs: Sequence[CheckRun], *, laid: bool, over: str) -> str:
    """Return the line that says what the runs of a check came to."""
    reason = sentence(judgement)
    missing = max((run.missing[1:] for run in runs), key=len)
    if judgement.cause is Cause.BROKEN and missing:
        reason += f"; missing, too: {', '.join(missing)}"
    told = _WITH_TESTS if laid and judgement.cause is Cause.PASSES_BASE else ""
    note = "; ".join(filter(None, (over, told)))
    return f"{reason} ({note})" if note else reason


def _witness(job: Job, base: CheckRun, patched: CheckRun) -> dict[str, JsonValue]:
    """Return the lines that ran, and of them the patch's own statements that are not of tests."""
    side, own = job.witnesses()
    run = patched if side == job.trees.patched else base
    ran = {path: set(lines) for path, lines in run.executed.items()}
    starts = {
        path: [one.lines.start for one in own[path] if not lines.isdisjoint(one.lines)]
        for path, lines in ran.items()
        if path in own
    }
    return {
        "executed": {path: list(lines) for path, lines in run.executed.items()},
        "witness": {path: [*lines] for path, lines in starts.items() if lines},
    }


def _judged(
    job: Job, check: Check, way: Way
) -> tuple[Judgement, list[CheckRun], dict[str, JsonValue]]:
    """Run a check on the base and on the patched tree, and again on the one that decides.

    All are witnessed, so that tracing cannot make the difference. On an
    accelerator they run one after the other and alone: a fault on one side must
    not reach the other, nor another check. Return the pre-flight's details too.
    """
    trees, preflight = job.trees, {}
    on_host = check.target in HOST_TARGETS
    with contextlib.nullcontext() if on_host else _ACCELERATOR:
        if on_host:
            runs = _side_by_side(job, check, way)
        else:
            preflight = job.preflights.before(check.target, job.machine, job.fresh_folder)
            runs = [_accelerated(job, check, way, tree) for tree in (trees.base, trees.patched)]
        judgement = way.judge(check, *runs)
        if side := side_to_repeat(judgement):
            one = _alone if on_host else _accelerated
            number = 0 if side == "base" else 1
            runs.append(one(job, check, way, (trees.base, trees.patched)[number]))
            judgement = confirmed(check, judgement, runs[number], runs[-1])
    return judgement, runs, preflight


def _side_by_side(job: Job, check: Check, way: Way) -> list[CheckRun]:
    trees = job.trees
    both = [_start(job, check, way, tree) for tree in (trees.base, trees.patched)]
    base, patched = (one.result() for one in both)
    if patched.starved and not base.starved:
        # They ran side by side: what the base had taken is free now.
        patched = _alone(job, check, way, trees.patched)
    return [base, patched]


def run_one(job: Job, check: Check, way: Way, tree: str) -> CheckRun:
    """Run a check on one tree, on an accelerator alone."""
    if check.target in HOST_TARGETS:
        return _alone(job, check, way, tree)
    with _ACCELERATOR:
        job.preflights.before(check.target, job.machine, job.fresh_folder)
        return _accelerated(job, check, way, tree)


def _accelerated(job: Job, check: Check, way: Way, tree: str) -> CheckRun:
    """Run a check on one tree; after what could be the runner's fault, see whose it is."""
    run = _alone(job, check, way, tree)
    if run.suspicion is not None and not run.lacked:
        side = {job.trees.base: "base", job.trees.patched: "patched tree"}.get(tree, "release")
        seen = run.suspicion.model_copy(update={"said": f"on the {side}: {run.suspicion.said}"})
        job.preflights.after(seen, check.target, job.machine, job.fresh_folder)
        run.cleared = True
    return run


def _alone(job: Job, check: Check, way: Way, tree: str) -> CheckRun:
    return _start(job, check, way, tree).result()


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
    if run.lacked and tree == job.trees.patched and (run.starved or not is_full(job.scratch)):
        # What lacks on the patched tree alone is the patch's doing.
        run.suspicion = None
    meddled = job.altered(tree)
    if meddled and run.trouble is None:
        # What other checks saw from then on is not the tree: this run decides nothing.
        run.trouble, run.told = Trouble.MEDDLED, f"wrote into the tree: {meddled}"
    return run


def versions(modules: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of the distributions that provide some modules."""
    return {
        owner: importlib.metadata.version(owner)
        for module in modules
        for owner in owners().get(module.partition(".")[0], ())
    }
