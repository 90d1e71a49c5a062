"""Stage `reproduce`: run each check on the base and on the patched tree, and judge the runs.

The order for one check:

1. `check_unit` makes the unit of work for the pipeline, whose work is `judged`.
2. `judged` calls `run_both`, and turns the judgement and the runs into a finding.
3. `run_both` takes the accelerator (`_place_for`) and runs both trees (`_Places`). In the mapping
   of runs by side, an empty list under `WITHOUT_CHANGE` means that a statement differs and that no
   run without the change has been made yet.
4. `decide` of `verdict.py` names the side to run next, or gives the judgement.
5. `reason_of` writes the judgement as a line for people.

A patch that only reproduces a bug has no patched tree: `run_both` runs the base twice, and stores
the second run under `PATCHED`.

`check_probe` asks a fail-to-pass check about a release, and `run_ahead` runs one side for the
command `check`, whose run `verify` uses once instead of its own first run.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError

from contribbot import process
from contribbot.compile.cache import json_digest
from contribbot.files import tool_digest, write_atomically
from contribbot.machine import (
    Packages,
    imported_packages,
    installed_digest,
    is_full,
    release_of,
    releases,
    versions,
)
from contribbot.machine.doctor import INSTALLS, absent_modules, missing_here
from contribbot.model.checks import EMULATED, Bench, Check, EmulatedCheck
from contribbot.model.evidence import HOST_TARGETS, Outcome, PatchFault, ReproduceStageResult
from contribbot.model.failure import RunFailure
from contribbot.model.lifecycle import Says
from contribbot.model.patch import Patch, digest_of
from contribbot.model.record import CheckDetails, PreflightRecord, RepeatRecord
from contribbot.verify.job import Job, RunLayout
from contribbot.verify.placement import overlay_note, place, place_without_change, unplaceable
from contribbot.verify.pytest_run import DISPLAY, CheckRun, blamed, run_check
from contribbot.verify.stages import build as builds
from contribbot.verify.stages.base import Finding, Inputs, Probe, Stage, TreeAnswer, Unit, is_red
from contribbot.verify.verdict import (
    Cause,
    Judgement,
    Runs,
    RunSide,
    decide,
    judge_base,
    judge_side,
    judge_sides,
    sentence,
)

_UNPROVED: Final = "nothing is stated that could prove it: write a check and state it in patch.toml"
_WITH_TESTS: Final = "with the patch's own tests laid over it"
#: The keys of `place_inputs` that describe the trees.
TREES: Final = frozenset({"base", "tested", "patched", "python_roots", "overlay"})
#: The form of a stored run of the command `check`: the run, and the packages that it imported.
_RUN_AHEAD: Final = TypeAdapter(tuple[CheckRun, Packages], config=ConfigDict(defer_build=True))
#: The lock that lets only one check of this process use an accelerator at a time.
_ACCELERATOR: Final = threading.Lock()


class Placement(Protocol):
    """Puts a tree in place for a check to run on it; `copy`: at another path."""

    def __call__(self, job: Job, what: Check, tree: str, /, *, copy: bool = False) -> RunLayout:
        """Put a tree in place, and return the layout in which a check runs."""


@dataclass(frozen=True)
class CheckRunner:
    """The functions and settings with which a stage runs and judges its checks."""

    #: Judges a check by its runs on the base and on the patched tree.
    judge: Callable[[Check, CheckRun, CheckRun], Judgement] = judge_sides
    #: Judges a run in which all tests passed but show nothing; None: the tests show something.
    vacuous: Callable[[CheckRun], Judgement | None] = lambda _run: None
    #: Changes the judgement of the runs where the stage knows more.
    settle: Callable[[Judgement], Judgement] = lambda judgement: judgement
    env: Mapping[str, str] = field(default_factory=dict)  # further variables of the check
    layout: Placement = place
    #: Returns the details with the stage's facts, given the base's and the patched tree's run.
    details: Callable[[CheckDetails, CheckRun, CheckRun], CheckDetails] = (
        lambda details, _base, _patched: details
    )
    note: str = ""  # a remark in a reason on where the runs took place
    inputs: Inputs = field(default_factory=dict)  # further inputs of each run
    display: Sequence[str] = DISPLAY  # pytest's options for the output
    launches: str = ""  # when to show launches of kernels: `always`, on `failure`, or never


class ReproduceStage(Stage):
    """Runs each check with pytest in a separate process, once for each tree."""

    result = ReproduceStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for each check; for a patch without proof, one skipped unit."""
        if job.patch.spec.unproved:
            missing = functools.partial(
                Finding,
                Outcome.SKIPPED,
                _UNPROVED,
                lasting=False,
                patch_fault=PatchFault.UNFINISHED,
            )
            return [Unit("any", None, missing)]
        return [check_unit(job, check, CheckRunner()) for check in job.patch.spec.checks]

    def probes(self, patch: Patch) -> Iterable[Probe]:
        """Return one probe for each fail-to-pass check."""
        return [
            check_probe("check", check, CheckRunner())
            for check in filter(is_red, patch.spec.checks)
        ]


def check_unit(job: Job, check: Check, runner: CheckRunner) -> Unit:
    """Return the unit of work for a check."""
    return Unit(
        target=check.target,
        inputs=check_inputs(job, check, runner.env),
        work=lambda: judged(job, check, runner),
        label=check.name,
        missing=missing_for(job, check),
        limit=check.timeout,
    )


def missing_for(job: Job, check: Check) -> str:
    """Return what this machine lacks for a check, in words; empty: the machine lacks nothing."""
    return str(missing_here(job.machine, check) or unplaceable(job, check))


def check_inputs(job: Job, check: Check, env: Mapping[str, str]) -> Inputs:
    """Return the inputs on which the outcome of a check depends."""
    return {
        "check": check.model_dump_json(),
        "checks": digest_of(job.patch.files_for(check)),
        "env": {**env},
        "sandbox": process.no_sandbox(),
        **place_inputs(job, check),
    }


def check_probe(what: str, check: Check, runner: CheckRunner) -> Probe:
    """Return the probe that asks a fail-to-pass check about one tree."""
    tools: Inputs = {
        "modules": {} if absent_modules(check) else {**versions(check.modules)},
        "accelerator": {**process.accelerator_environment()},
    }
    ask = functools.partial(_ask, check, runner)
    return Probe(f"{what} {check.name}", check.target, ask, tools, tuple(check.env.values()))


def _ask(check: Check, runner: CheckRunner, job: Job, tree: str) -> TreeAnswer:
    """Build what a check loads, if anything, from one tree; run the check; return the answer."""
    upstream = job.patch.upstream
    if missing := missing_here(job.machine, check):
        return TreeAnswer(Says.CANNOT, str(missing))
    if upstream.overlay and (note := overlay_note(release_of(upstream.overlay), job.patch.pin)):
        # The overlay runs the installed package, which is another release.
        return TreeAnswer(Says.CANNOT, f"it would run {note}: install that release")
    for build in job.patch.spec.build:
        if build.name == check.build:
            built = builds.ask_build(build, check.target, job, tree)
            if built.says is not Says.PASSES:
                says = Says.CANNOT if built.says is Says.CANNOT else Says.OTHER
                why = f"its build {check.build} is not there: {built.why}"
                return TreeAnswer(says, why, lasting=built.lasting)
    if unplaced := unplaceable(job, check):
        return TreeAnswer(Says.CANNOT, unplaced)
    return ask_run(check, runner, job)


def ask_run(check: Check, runner: CheckRunner, job: Job) -> TreeAnswer:
    """Run a fail-to-pass check on a release, and return the release's answer."""
    run = run_one(job, check, runner, RunSide.RELEASE)
    judgement = judge_side(check, RunSide.RELEASE, run)
    number = len(run.ran)
    tests = f"{number} test{'s' if number > 1 else ''}"
    says, why = Says.OTHER, sentence(judgement)
    if judgement.cause is Cause.RED_TO_GREEN:
        first = run.failed[0]
        says = Says.FAILS
        why = f"{len(run.failed)} of {tests} fail as stated: {first.test}: {first.first}"
    elif judgement.cause is Cause.PASSES_BASE:
        vacuous = runner.vacuous(run)
        says = Says.OTHER if vacuous else Says.PASSES
        why = sentence(vacuous) if vacuous else f"{tests} pass"
    elif judgement.cause is Cause.MACHINE:
        says = Says.CANNOT
    return TreeAnswer(says, why, lasting=not run.transient, log=run.log)


def place_inputs(job: Job, what: Check | Bench) -> Inputs:
    """Return the inputs on which the runs of a check or bench on the two trees depend."""
    return {
        "build": [*builds.identity(job, what.build, what.target)] if what.build else [],
        "base": job.trees.base,
        "tested": job.trees.tested,
        "patched": job.trees.patched,
        "python_roots": list(job.patch.upstream.python_roots),
        "overlay": {**releases(job.patch.upstream.overlay)},
        "threads": job.threads,
        "environment": {**process.clean_environment()},
        # Imported packages are not listed here: the finding of the check lists those packages.
        "sources": installed_digest(sources=True),
    }


def judged(job: Job, check: Check, runner: CheckRunner) -> Finding:
    """Run a check on both trees, again where a second run decides, and return the finding."""
    preflight, judgement, runs = run_both(job, check, runner)
    judgement = runner.settle(judgement)
    base, patched = runs[RunSide.BASE][0], runs[RunSide.PATCHED][0]
    every, outcome = [run for side in runs.values() for run in side], judgement.outcome
    fault = blamed(base, patched) if outcome is Outcome.UNAVAILABLE else None
    details = runner.details(_details(job, check, judgement, runs), base, patched)
    note = runner.note or overlay_note(details.over, job.patch.pin)
    return Finding(
        outcome,
        reason_of(judgement, every, laid=bool(details.laid_over_base), over=note),
        details,
        lasting=outcome is not Outcome.UNAVAILABLE and not any(run.transient for run in every),
        proof=judgement.proof,
        seconds=sum(run.seconds for run in every),
        runner_fault=fault,
        preflight=preflight,
        packages=_packages(every),
    )


def _packages(runs: Sequence[CheckRun]) -> Packages:
    """Return the packages that some runs imported or looked for."""
    return imported_packages(
        frozenset().union(*(run.imported for run in runs)),
        frozenset().union(*(run.absent for run in runs)),
        programs=any(run.programs for run in runs),
    )


def _details(job: Job, check: Check, judgement: Judgement, runs: Runs) -> CheckDetails:
    """Return the record of the runs, with the facts on the trees that the check sees."""
    made = {side: [run.record(check.reason) for run in runs.get(side, ())] for side in RunSide}
    again = {side: next(iter(records[1:]), None) for side, records in made.items()}
    details = CheckDetails(
        expect=check.expect,
        stated_reason=check.reason,
        file=check.file,
        cause=judgement.cause,
        threads=job.threads,
        sandbox=process.no_sandbox() or "bubblewrap",
        base=made[RunSide.BASE][0],
        patched=made[RunSide.PATCHED][0],
        without_change=next(iter(made[RunSide.WITHOUT_CHANGE]), None),
        again=RepeatRecord(
            base=again[RunSide.BASE],
            patched=again[RunSide.PATCHED],
            without_change=again[RunSide.WITHOUT_CHANGE],
        ),
    )
    if _is_given_code(check):
        return details
    overlay = job.overlays.known(job.trees.patched)
    trees = {
        "accelerator": {**process.accelerator_environment()},
        "modules": {**versions(check.modules)},
        "over": overlay.release if overlay else "",
        "merged": overlay.merged if overlay else (),
        "laid_over_base": tuple(job.laid_over_base()),
        "built": builds.differ(job, check.build, check.target) if check.build else None,
    }
    return details.model_copy(update=trees)


def _is_given_code(check: Check) -> bool:
    """Return whether a check gets compiled code alone, and no files of a tree."""
    return isinstance(check, EmulatedCheck) and bool(check.compile)


def run_both(
    job: Job, check: Check, runner: CheckRunner
) -> tuple[PreflightRecord | None, Judgement, dict[RunSide, list[CheckRun]]]:
    """Return the pre-flight's record, the judgement, and the runs by side."""
    # On an accelerator, one tree's run follows the other's, and no other check runs meanwhile: a
    # fault in one run must not reach another run.
    places = _Places(job, check, runner)
    with _place_for(job, check) as preflight:
        places.step("base and patched tree")
        if job.patch.spec.reproduces:
            first, second = (places.supervised(RunSide.BASE, copy=copy) for copy in (False, True))
            judgement = judge_base(check, first, second)
            return preflight, judgement, {RunSide.BASE: [first], RunSide.PATCHED: [second]}
        if check.target in HOST_TARGETS:
            sides = (RunSide.BASE, RunSide.PATCHED)
            both = [job.children.submit(places.first, side) for side in sides]
            base, patched = (future.result() for future in both)
            if patched.starved and not base.starved:
                # Both trees ran in parallel: the base's run has freed its memory by now.
                patched = places.supervised(RunSide.PATCHED)
        else:
            base, patched = map(places.supervised, (RunSide.BASE, RunSide.PATCHED))
        runs = {RunSide.BASE: [base], RunSide.PATCHED: [patched]}
        if runner.judge(check, base, patched).cause is Cause.RED_TO_GREEN and places.differ():
            runs[RunSide.WITHOUT_CHANGE] = []
        while isinstance(said := decide(check, runs, runner.judge), RunSide):
            number = sum(map(len, runs.values())) + 1
            places.step(f"run {number}, {said}{' again' if runs[said] else ''}")
            runs[said].append(places.supervised(said, copy=said is RunSide.BASE))
    return preflight, said, runs


def run_one(job: Job, check: Check, runner: CheckRunner, side: RunSide) -> CheckRun:
    """Run a check on one tree; on an accelerator, no other check runs meanwhile."""
    with _place_for(job, check):
        return _Places(job, check, runner).supervised(side)


def run_ahead(job: Job, check: Check, runner: CheckRunner, side: RunSide) -> CheckRun:
    """Run a check on one tree, and store the run as the first run of the next `verify`."""
    run = run_one(job, check, runner, side)
    if check.target in HOST_TARGETS and not run.transient:
        content = _RUN_AHEAD.dump_json((run, _packages([run])))
        write_atomically(_Places(job, check, runner).ahead(side), content)
    return run


@contextlib.contextmanager
def _place_for(job: Job, check: Check) -> Iterator[PreflightRecord | None]:
    """Take the accelerator while a check runs, and yield the record of the accelerator's test."""
    if check.target in HOST_TARGETS:
        yield None
        return
    with _ACCELERATOR:
        yield job.preflights.before(check.target, job.machine, job.fresh_folder)


@dataclass
class _Places:
    """The runs of a check by side, with the folders in which each run takes place."""

    job: Job
    check: Check
    runner: CheckRunner
    without_change: RunLayout | None = None

    def step(self, runs: str) -> None:
        """Show the user which runs begin."""
        check = self.check
        emulated = f"{EMULATED}{check.emulated}" if isinstance(check, EmulatedCheck) else ""
        self.job.step(emulated or check.target, check.name, runs)

    def differ(self) -> bool:
        """Make the tree without the change; return whether its code or build is not the patched."""
        job = self.job
        if _is_given_code(self.check):
            return False
        layouts = [self.runner.layout(job, self.check, tree) for tree in job.trees.sides]
        self.without_change = place_without_change(job, self.check, *layouts)
        return self.without_change is not None

    def ahead(self, side: RunSide) -> Path:
        """Return the file in which the command `check` stores a run on a side."""
        job, runner = self.job, self.runner
        inputs = {**check_inputs(job, self.check, runner.env), **runner.inputs, "side": side}
        made = {**inputs, "tool": tool_digest(), "machine": job.machine.fingerprint}
        return job.logs.with_name("outcomes") / f"{json_digest(made)}.json"

    def first(self, side: RunSide) -> CheckRun:
        """Return, and remove, the stored run of the command `check`, or else run the check."""
        file = self.ahead(side)
        with contextlib.suppress(OSError, ValidationError):
            run, packages = _RUN_AHEAD.validate_json(file.read_bytes())
            file.unlink()
            if not self.job.force and packages.current:
                return run
        return self.run(side)

    def supervised(self, side: RunSide, *, copy: bool = False) -> CheckRun:
        """Run the check on a side; after a suspected accelerator fault, test the accelerator."""
        job, target = self.job, self.check.target
        run = job.children.submit(self.run, side, copy=copy).result()
        if run.suspicion is not None and not run.lacked and target not in HOST_TARGETS:
            seen = run.suspicion.model_copy(update={"said": f"on the {side}: {run.suspicion.said}"})
            job.preflights.after(seen, target, job.machine, job.fresh_folder)
            run.cleared = True
        return run

    def run(self, side: RunSide, *, copy: bool = False) -> CheckRun:
        """Run the check on a side; called in a thread of the job's `children`."""
        job = self.job
        of_base = side in {RunSide.BASE, RunSide.RELEASE}
        tree = job.trees.base if of_base else job.trees.patched
        with job.slots.busy():
            layout = self.without_change if side is RunSide.WITHOUT_CHANGE else None
            run = run_check(
                self.check,
                job.patch.files_for(self.check),
                place=layout or self.runner.layout(job, self.check, tree, copy=copy),
                env=self.runner.env,
                threads=job.threads,
                folder=job.fresh_folder(),
                logs=job.logs,
                warm=job.warm,
                display=self.runner.display,
                launches=self.runner.launches,
            )
        if run.lacked and not of_base and (run.starved or not is_full(job.scratch)):
            # A module that only the patched tree lacks is missing because of the patch.
            run.suspicion = None
        meddled = job.altered(tree, copy=copy)
        if meddled and run.kind is None:
            # Other checks use the changed tree after this run: the run decides nothing.
            run.kind, run.detail = RunFailure.MEDDLED, f"wrote into the tree: {meddled}"
        return run


def reason_of(judgement: Judgement, runs: Sequence[CheckRun], *, laid: bool, over: str) -> str:
    """Return the reason for a check's outcome in one line."""
    reason = sentence(judgement)
    lacks = {name for run in runs for name in run.missing} & {*INSTALLS}
    if judgement.cause is Cause.BROKEN and lacks:
        reason += "; " + "; ".join(INSTALLS[name] for name in sorted(lacks))
    with_tests = _WITH_TESTS if laid and judgement.cause is Cause.PASSES_BASE else ""
    note = "; ".join(filter(None, (over, with_tests)))
    return f"{reason} ({note})" if note else reason
