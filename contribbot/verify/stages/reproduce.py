"""Stage `reproduce`: run each check on the base and on the patched tree, and judge the runs.

The order for one check:

1. `CheckWork.unit` makes the unit of work for the pipeline, whose work is `CheckWork.finding`.
2. In `_accelerator`, which locks the GPU, `CheckWork.judgement` runs both trees. In the mapping
   of runs by side, an empty list under `WITHOUT_CHANGE` means that a statement differs and that no
   run without the change has been made yet.
3. `decide` of `verdict.py` names the side to run next, or gives the judgement.
4. `CheckWork.finding` turns the judgement and the runs into a finding for the record, and
   `reason_of` writes the judgement as a line for people.

A patch that only reproduces a bug has no patched tree: the base runs twice, and the second run is
stored under `PATCHED`.

`check_probe` asks a fail-to-pass check about a release, and `CheckWork.run_ahead` runs one side for
the command `check`, whose run `verify` uses once instead of its own first run. `place` and the
functions below it put a tree's files where a run finds them: in the tree, a build or an overlay.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError

from contribbot import process
from contribbot.compile.cache import json_digest
from contribbot.files import tool_digest, write_atomically
from contribbot.git.patch_format import Change, changes, renames
from contribbot.git.repository import Store
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
from contribbot.model.patch import Patch, Pin, digest_of
from contribbot.model.record import CheckDetails, PreflightRecord, RepeatRecord
from contribbot.verify.job import Job, Overlay, RunLayout
from contribbot.verify.pytest_run import DISPLAY, CheckProcess, CheckRun, blamed, run_check
from contribbot.verify.runner_fault import UnavailableError
from contribbot.verify.stages import Finding, Inputs, Probe, Stage, TreeAnswer, Unit, is_red
from contribbot.verify.stages import build as builds
from contribbot.verify.verdict import (
    Cause,
    Judgement,
    RunSide,
    decide,
    judge_base,
    judge_side,
    judge_sides,
    sentence,
)
from contribbot.verify.without_change import without_change

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


# Where a run finds a tree's files.


def place(job: Job, what: Check | Bench, tree: str, *, copy: bool = False) -> RunLayout:
    """Put a tree in place for a check or bench, and return the layout; `copy`: at another path."""
    folder = job.exported(tree, copy=copy)
    roots = tuple(folder / root for root in job.patch.upstream.python_roots)
    env = builds.product(job, what.build, what.target, tree) if what.build else {}
    # An overlay replaces the tree, which lacks the compiled modules.
    laid = job.patch.upstream.overlay
    over = functools.partial(_lay_over, job, tree)
    python = (job.overlays.get(f"{tree}{copy or ''}", over).folder,) if laid else roots
    # Code may read the version of the tree's package, which is not installed.
    version = {"CONTRIBBOT_VERSION": job.patch.pin.tag.removeprefix("v")}
    return RunLayout(tree=folder, python=python, env={**env, **version})


def place_without_change(
    job: Job, what: Check | Bench, base: RunLayout, patched: RunLayout
) -> RunLayout | None:
    """Return the patched layout with the base's statements; None: no code or build differs."""
    builds_differ = bool(what.build) and builds.differ(job, what.build, what.target)
    env = builds.product(job, what.build, what.target, job.trees.base) if what.build else {}
    former = {new: old for old, new in renames(job.store, *job.trees.sides).items()}
    modules = {}
    for change in job.changes():
        path, plain = change.path, change.mode.startswith("100") or change.status == "D"
        if not (plain and path.endswith(".py")) or job.patch.upstream.is_test(path):
            continue
        before, after = _imported(job, base, former.get(path, path)), _imported(job, patched, path)
        make = functools.partial(_module, job, path, before, after)
        if (module := job.modules.get(str(after), make)) is not None:
            modules[after] = module
    if not modules and not builds_differ:
        return None
    return replace(patched, env={**patched.env, **env}, modules=modules)


def _module(job: Job, path: str, base: Path, patched: Path) -> ast.Module | None:
    """Return the module of a file without the change; None: no statement differs."""

    def is_read(name: str) -> bool:
        at = ("-e", name, job.trees.patched, "--", "*.py")
        found = job.store.git("grep", "-lwF", *at, accept=(0, 1)).stdout.decode().splitlines()
        files = {row.partition(":")[2] for row in found} - {path}
        return not all(map(job.patch.upstream.is_test, files))

    before = base.read_bytes() if base.is_file() else b""
    return without_change(before, patched.read_bytes() if patched.is_file() else None, is_read)


def _imported(job: Job, layout: RunLayout, path: str) -> Path:
    """Return the path at which Python finds a tree's file: in a build, an overlay or the tree.

    For a missing file: the last path at which Python would look.
    """
    file = layout.tree / path
    roots = (layout.tree / root for root in job.patch.upstream.python_roots)
    below = [file.relative_to(root) for root in roots if file.is_relative_to(root)]
    searched = [Path(folder) for folder in layout.python_path.split(os.pathsep)]
    places = [folder / part for part in below for folder in searched]
    return next(filter(Path.is_file, places), (file, *places)[-1])


def overlay_note(over: str, pin: Pin) -> str:
    """Return a remark on installed releases that differ from the pin's; empty: no such release."""
    return ", ".join(
        f"over {release}, not the pin's"
        for release in filter(None, over.split(", "))
        # A local label, such as `+cpu` or `+rocm6.4`, names a build of the release.
        if release.rpartition(" ")[2].partition("+")[0] != pin.tag.removeprefix("v")
    )


def _lay_over(job: Job, tree: str) -> Overlay:
    """Make the overlay of one tree over the installed packages, and return the overlay."""
    packages, trees, folder = job.patch.upstream.overlay, job.trees, job.fresh_folder()
    of_each = {
        side: {change.path: change for change in changes(job.store, trees.pin_commit, side)}
        for side in (trees.base, trees.patched, tree)
    }
    touched = {path for side in of_each.values() for path in side}
    merged = []
    for package in packages:
        root = _installed(package)
        assert root is not None  # noqa: S101  the callers have asked `missing_for`
        inside = {path for path in touched if path.startswith(f"{package}/")}
        _link(root, folder / package, package, inside)
        for path in sorted(inside):
            change, installed = of_each[tree].get(path), root.parent / path
            if _write(job.store, installed, folder / path, f"{trees.pin_commit}:{path}", change):
                merged.append(path)
    return Overlay(folder, release_of(packages), tuple(merged))


def _installed(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _link(installed: Path, folder: Path, prefix: str, touched: set[str]) -> None:
    """Link a package's entries into a folder; make real folders on the way to touched files."""
    folder.mkdir(parents=True)
    on_the_way = {path.removeprefix(f"{prefix}/").partition("/")[0] for path in touched}
    for entry in installed.iterdir():
        name = f"{prefix}/{entry.name}"
        if entry.name not in on_the_way:
            (folder / entry.name).symlink_to(entry)
        elif entry.is_dir():
            below = {path for path in touched if path.startswith(f"{name}/")}
            _link(entry, folder / entry.name, name, below)


def _write(store: Store, installed: Path, target: Path, pinned: str, change: Change | None) -> bool:
    """Write the tree's version of a touched file; return whether a merge was necessary."""
    original = store.file(pinned)
    there = installed.read_bytes() if installed.is_file() else None
    content = there if change is None else store.file(change.blob)
    foreign = there != original and change is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    if foreign:
        path = pinned.partition(":")[2]
        if there is None or original is None or content is None:
            raise UnavailableError(f"{path}: the installed package and the pin do not both have it")
        content = store.merge_file((there, original, content), scratch=target.parent)
        if content is None:
            why = f"{path}: the installed file is not the pin's, and the change conflicts"
            raise UnavailableError(why)
    if content is not None:
        target.write_bytes(content)
    return foreign and content is not None


@dataclass(frozen=True)
class CheckRunner:
    """A check, with the functions and settings by which its stage runs and judges the check."""

    check: Check
    #: Judges a check by its runs on the base and on the patched tree.
    judge: Callable[[Check, CheckRun, CheckRun], Judgement] = judge_sides
    #: Judges a run in which all tests passed but show nothing; None: the tests show something.
    vacuous: Callable[[CheckRun], Judgement | None] = lambda _run: None
    #: Replaces a judgement where the stage knows more, such as the compiled code of both trees.
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

    def process(self, place: RunLayout, *, threads: int, folder: Path) -> CheckProcess:
        """Return the process that runs the check on a tree."""
        return CheckProcess(self.check, place, self.env, threads, folder, self.launches)


class ReproduceStage(Stage):
    """Runs each check with pytest in a separate process, once for each tree."""

    result = ReproduceStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for each check; for a patch that states no proof, one skipped unit."""
        if not job.patch.spec.unproved:
            return [CheckWork(job, CheckRunner(check)).unit() for check in job.patch.spec.checks]
        fault = PatchFault.UNFINISHED
        finding = Finding(Outcome.SKIPPED, _UNPROVED, lasting=False, patch_fault=fault)
        return [Unit("any", None, lambda: finding)]

    def probes(self, patch: Patch) -> Iterable[Probe]:
        """Return one probe for each fail-to-pass check."""
        red = filter(is_red, patch.spec.checks)
        return [check_probe("check", CheckRunner(check)) for check in red]


def check_probe(what: str, runner: CheckRunner) -> Probe:
    """Return the probe that asks a fail-to-pass check about one tree."""
    check = runner.check
    tools: Inputs = {
        "modules": {} if absent_modules(check) else {**versions(check.modules)},
        "accelerator": {**process.accelerator_environment()},
    }
    ask = functools.partial(_ask, runner)
    return Probe(f"{what} {check.name}", check.target, ask, tools, tuple(check.env.values()))


def _ask(runner: CheckRunner, job: Job, tree: str) -> TreeAnswer:
    """Build the library that a check loads from one tree, run the check, and return the answer."""
    check, upstream = runner.check, job.patch.upstream
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
    if lack := missing_for(job, check):
        return TreeAnswer(Says.CANNOT, lack)
    return CheckWork(job, runner).answer()


def missing_for(job: Job, what: Check | Bench) -> str:
    """Return what this machine lacks for a check or bench; empty: the machine lacks nothing."""
    if missing := missing_here(job.machine, what):
        return str(missing)
    for package in job.patch.upstream.overlay:
        if _installed(package) is None:
            return f"the Python package {package} is not installed"
    return builds.obstacle(job, what.build, what.target) if what.build else ""


def check_inputs(job: Job, check: Check, env: Mapping[str, str]) -> Inputs:
    """Return the inputs on which the outcome of a check depends."""
    return {
        "check": check.model_dump_json(),
        "checks": digest_of(job.patch.files_for(check)),
        "env": {**env},
        "sandbox": process.no_sandbox(),
        **place_inputs(job, check),
    }


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


@contextlib.contextmanager
def _accelerator(job: Job, target: str) -> Iterator[PreflightRecord | None]:
    """Hold the accelerator while a check runs, and yield the record of the accelerator's test."""
    if target in HOST_TARGETS:
        yield None
        return
    with _ACCELERATOR:
        yield job.preflights.before(target, job.machine, job.fresh_folder)


@dataclass
class CheckWork:
    """The work of a job on one check: the runs by side, their judgement and their finding."""

    job: Job
    runner: CheckRunner
    runs: dict[RunSide, list[CheckRun]] = field(default_factory=dict)
    preflight: PreflightRecord | None = None
    without_change: RunLayout | None = None

    @property
    def check(self) -> Check:
        """The check that the runner runs."""
        return self.runner.check

    @property
    def given_code(self) -> bool:
        """Whether the check gets compiled code alone, and no files of a tree."""
        return isinstance(self.check, EmulatedCheck) and bool(self.check.compile)

    def unit(self) -> Unit:
        """Return the unit of work for the pipeline."""
        return Unit(
            target=self.check.target,
            inputs=check_inputs(self.job, self.check, self.runner.env),
            work=self.finding,
            label=self.check.name,
            missing=missing_for(self.job, self.check),
            limit=self.check.timeout,
        )

    def finding(self) -> Finding:
        """Run the check on both trees, again where a second run decides; return the finding."""
        with _accelerator(self.job, self.check.target) as self.preflight:
            judgement = self.judgement()
        judgement = self.runner.settle(judgement)
        base, patched = self.runs[RunSide.BASE][0], self.runs[RunSide.PATCHED][0]
        every = [run for side in self.runs.values() for run in side]
        unavailable = judgement.outcome is Outcome.UNAVAILABLE
        details = self.runner.details(self._details(judgement), base, patched)
        note = self.runner.note or overlay_note(details.over, self.job.patch.pin)
        return Finding(
            judgement.outcome,
            reason_of(judgement, every, laid=bool(details.laid_over_base), over=note),
            details,
            lasting=not (unavailable or any(run.transient for run in every)),
            proof=judgement.proof,
            seconds=sum(run.seconds for run in every),
            runner_fault=blamed(base, patched) if unavailable else None,
            preflight=self.preflight,
            packages=_packages(every),
        )

    def judgement(self) -> Judgement:
        """Run the check on both trees, and on each side that `decide` asks for; judge the runs."""
        # On an accelerator, one tree's run follows the other's, and no other check runs meanwhile:
        # a fault in one run must not reach another run.
        check, runs, sides = self.check, self.runs, (RunSide.BASE, RunSide.PATCHED)
        self._show("base and patched tree")
        if self.job.patch.spec.reproduces:
            first, second = (self._supervised(RunSide.BASE, copy=copy) for copy in (False, True))
            runs.update({RunSide.BASE: [first], RunSide.PATCHED: [second]})
            return judge_base(check, first, second)
        if check.target in HOST_TARGETS:
            base, patched = self.job.parallel(self._first, *sides)
            if patched.starved and not base.starved:
                # Both trees ran in parallel: the base's run has freed its memory by now.
                patched = self._supervised(RunSide.PATCHED)
        else:
            base, patched = map(self._supervised, sides)
        runs.update({RunSide.BASE: [base], RunSide.PATCHED: [patched]})
        if self.runner.judge(check, base, patched).cause is Cause.RED_TO_GREEN and self._differ():
            runs[RunSide.WITHOUT_CHANGE] = []
        while isinstance(said := decide(check, runs, self.runner.judge), RunSide):
            number = sum(map(len, runs.values())) + 1
            self._show(f"run {number}, {said}{' again' if runs[said] else ''}")
            runs[said].append(self._supervised(said, copy=said is RunSide.BASE))
        return said

    def answer(self) -> TreeAnswer:
        """Run a fail-to-pass check on a release, and return the release's answer."""
        run = self._alone(RunSide.RELEASE)
        judgement = judge_side(self.check, RunSide.RELEASE, run)
        number = len(run.ran)
        tests = f"{number} test{'s' if number > 1 else ''}"
        says, why = Says.OTHER, sentence(judgement)
        if judgement.cause is Cause.RED_TO_GREEN:
            first = run.failed[0]
            says = Says.FAILS
            why = f"{len(run.failed)} of {tests} fail as stated: {first.test}: {first.first}"
        elif judgement.cause is Cause.PASSES_BASE:
            vacuous = self.runner.vacuous(run)
            says = Says.OTHER if vacuous else Says.PASSES
            why = sentence(vacuous) if vacuous else f"{tests} pass"
        elif judgement.cause is Cause.MACHINE:
            says = Says.CANNOT
        return TreeAnswer(says, why, lasting=not run.transient, log=run.log_sha256)

    def run_ahead(self, side: RunSide) -> CheckRun:
        """Run the check on one tree, and store the run as the first run of the next `verify`."""
        run = self._alone(side)
        if self.check.target in HOST_TARGETS and not run.transient:
            write_atomically(self._stored(side), _RUN_AHEAD.dump_json((run, _packages([run]))))
        return run

    def _alone(self, side: RunSide) -> CheckRun:
        """Run the check on one tree; on an accelerator, no other check runs meanwhile."""
        with _accelerator(self.job, self.check.target):
            return self._supervised(side)

    def _details(self, judgement: Judgement) -> CheckDetails:
        """Return the record of the runs, with the facts on the trees that the check sees."""
        job, check = self.job, self.check
        # The sides are named as the fields of the record.
        made = {
            side.name.lower(): [run.record(check.reason) for run in runs]
            for side, runs in self.runs.items()
        }
        first = {name: records[0] for name, records in made.items() if records}
        again = {name: records[1] for name, records in made.items() if records[1:]}
        details = CheckDetails(
            expect=check.expect,
            stated_reason=check.reason,
            file=check.file,
            cause=judgement.cause,
            threads=job.threads,
            sandbox=process.no_sandbox() or "bubblewrap",
            base=first["base"],
            patched=first["patched"],
            without_change=first.get("without_change"),
            again=RepeatRecord(**again),
        )
        if self.given_code:
            return details
        trees = {
            "accelerator": {**process.accelerator_environment()},
            "modules": {**versions(check.modules)},
            "over": job.overlay.release,
            "merged": job.overlay.merged,
            "laid_over_base": tuple(job.laid_over_base()),
            "built": builds.differ(job, check.build, check.target) if check.build else None,
        }
        return details.model_copy(update=trees)

    def _show(self, runs: str) -> None:
        """Show the user which runs begin."""
        check = self.check
        emulated = f"{EMULATED}{check.emulated}" if isinstance(check, EmulatedCheck) else ""
        self.job.step(emulated or check.target, check.name, runs)

    def _differ(self) -> bool:
        """Lay out the tree without the change; return whether its code or build differs."""
        if self.given_code:
            return False
        layouts = (self.runner.layout(self.job, self.check, tree) for tree in self.job.trees.sides)
        self.without_change = place_without_change(self.job, self.check, *layouts)
        return self.without_change is not None

    def _stored(self, side: RunSide) -> Path:
        """Return the file in which the command `check` stores a run on a side."""
        job, runner = self.job, self.runner
        inputs = {**check_inputs(job, self.check, runner.env), **runner.inputs, "side": side}
        made = {**inputs, "tool": tool_digest(), "machine": job.machine.fingerprint}
        return job.logs.with_name("outcomes") / f"{json_digest(made)}.json"

    def _first(self, side: RunSide) -> CheckRun:
        """Return, and remove, the stored run of the command `check`, or else run the check."""
        file = self._stored(side)
        with contextlib.suppress(OSError, ValidationError):
            run, packages = _RUN_AHEAD.validate_json(file.read_bytes())
            file.unlink()
            if not self.job.force and packages.current:
                return run
        return self._run(side)

    def _supervised(self, side: RunSide, *, copy: bool = False) -> CheckRun:
        """Run the check on a side; after a suspected accelerator fault, test the accelerator."""
        job, target = self.job, self.check.target
        run = job.children.submit(self._run, side, copy=copy).result()
        if run.suspected is not None and not run.lacked and target not in HOST_TARGETS:
            seen = run.suspected.model_copy(update={"said": f"on the {side}: {run.suspected.said}"})
            job.preflights.after(seen, target, job.machine, job.fresh_folder)
            run.cleared = True
        return run

    def _run(self, side: RunSide, *, copy: bool = False) -> CheckRun:
        """Run the check on a side; called in a thread of the job's `children`."""
        job, runner = self.job, self.runner
        of_base = side in {RunSide.BASE, RunSide.RELEASE}
        tree = job.trees.base if of_base else job.trees.patched
        with job.slots.busy():
            place = self.without_change if side is RunSide.WITHOUT_CHANGE else None
            place = place or runner.layout(job, self.check, tree, copy=copy)
            run = run_check(
                runner.process(place, threads=job.threads, folder=job.fresh_folder()),
                job.patch.files_for(self.check),
                logs=job.logs,
                warm=job.warm,
                display=runner.display,
            )
        if run.lacked and not of_base and (run.starved or not is_full(job.scratch)):
            # A module that only the patched tree lacks is missing because of the patch.
            run.suspected = None
        meddled = job.altered(tree, copy=copy)
        if meddled and run.kind is None:
            # Other checks use the changed tree after this run: the run decides nothing.
            run.kind, run.trouble = RunFailure.MEDDLED, f"wrote into the tree: {meddled}"
        return run


def _packages(runs: Sequence[CheckRun]) -> Packages:
    """Return the packages that some runs imported or looked for."""
    return imported_packages(
        frozenset().union(*(run.imported for run in runs)),
        frozenset().union(*(run.absent for run in runs)),
        programs=any(run.programs for run in runs),
    )


def reason_of(judgement: Judgement, runs: Sequence[CheckRun], *, laid: bool, over: str) -> str:
    """Return the reason for a check's outcome in one line."""
    reason = sentence(judgement)
    lacks = {name for run in runs for name in run.missing} & {*INSTALLS}
    if judgement.cause is Cause.BROKEN and lacks:
        reason += "; " + "; ".join(INSTALLS[name] for name in sorted(lacks))
    with_tests = _WITH_TESTS if laid and judgement.cause is Cause.PASSES_BASE else ""
    note = "; ".join(filter(None, (over, with_tests)))
    return f"{reason} ({note})" if note else reason
