"""Run checks on one tree: a release without the patch, or a tree of the command `check`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from contribbot.errors import ExitCode, MachineError, NotProvedError, QueueError, UsageError
from contribbot.git.apply import apply_series
from contribbot.git.patch_format import files_of, renames
from contribbot.git.pins import Progress
from contribbot.model.checks import Check, EmulatedCheck
from contribbot.model.evidence import BehaviourStageResult, Outcome
from contribbot.model.failure import RunFailure
from contribbot.model.lifecycle import Behaviour, Entry, Says
from contribbot.model.patch import Patch, PatchFile, PatchSpec, Pin
from contribbot.model.record import BehaviourDetails
from contribbot.queue.load import Queue
from contribbot.verify.job import Job, Memo
from contribbot.verify.pipeline import STAGES, Options, Run, Watcher, open_run, results_of
from contribbot.verify.pytest_run import CheckRun, run_attached
from contribbot.verify.runner_fault import UnavailableError
from contribbot.verify.stages import Finding, Inputs, Probe, Stage, TreeAnswer, Unit, absent
from contribbot.verify.stages.build import BuildStage
from contribbot.verify.stages.emulate import emulated_runner, missing_emulated
from contribbot.verify.stages.hipify import built_for_rocm
from contribbot.verify.stages.numerics import runner_of
from contribbot.verify.stages.reproduce import CheckWork, missing_for
from contribbot.verify.stages.trees import (
    ApplyStage,
    SourceStage,
    provided,
    with_tests,
)
from contribbot.verify.verdict import RunSide, judge_side

_OUTCOMES: Final = {
    Says.PASSES: Outcome.PASSED,
    Says.FAILS: Outcome.FAILED,
    Says.OTHER: Outcome.FAILED,
    Says.CANNOT: Outcome.UNAVAILABLE,
}


@dataclass(frozen=True)
class Ask:
    """A patch and a release, to find out whether the release still needs the patch."""

    name: str
    pin: Pin  # the release, a pin of the patch's upstream
    below: Sequence[str] = ()  # dependencies that the release still needs, lowest first
    #: The files of dependencies whose patches were carried over to the release, by patch.
    carried: Mapping[str, tuple[PatchFile, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class ReleaseTree:
    """The paths of a patch in a release; the release's tree is both trees of the job."""

    moved: Mapping[str, str]  # new paths in the release, by the patch's paths
    gone: frozenset[str]  # files that entries name and the release lacks


def behaviours(
    queue: Queue, asks: Sequence[Ask], *, options: Options, watcher: Watcher
) -> list[Behaviour]:
    """Return how the fail-to-pass entries of patches behave on releases without the patches."""
    with open_run(queue, patches=len(asks), options=options, watcher=watcher) as run:
        futures = []
        for number, ask in enumerate(asks):
            patch = queue.patch(ask.name)
            below = tuple(
                replace(lower, files=ask.carried.get(lower.name, lower.files))
                for lower in map(queue.patch, ask.below)
            )
            job = run.job(replace(patch, pin=ask.pin), below, str(number))
            stack = tuple(map(queue.patch, queue.below(ask.name)))
            futures.append(run.patches.submit(_behaviour, run, job, patch, stack))
        return results_of(futures)


def _behaviour(run: Run, job: Job, patch: Patch, stack: Sequence[Patch]) -> Behaviour:
    """Run the entries of a patch on a release; `stack`: the dependencies on the patch's own pin."""
    behaviour = partial(
        Behaviour,
        patch=patch.name, pin=job.patch.pin.tag, below=tuple(lower.name for lower in job.below),
    )  # fmt: skip
    try:
        commit, own = (provided(job, pin).commit for pin in (job.patch.pin, patch.pin))
    except UnavailableError as error:
        return behaviour(trouble=str(error))
    depends: Inputs = {
        "pin": commit,
        "own": own,
        "below": [[lower.name, lower.digest] for lower in job.below],
        # The patch brings tests, which need the patches below the patch.
        "patch": patch.digest,
        "checks": patch.checks_digest,
        "upstream": patch.upstream.model_dump_json(),
    }
    made: Memo[ReleaseTree] = Memo()

    def ask(number: int) -> Finding:
        moved, trouble = dict[str, str](), ""
        try:
            tree = made.get("", lambda: _release_tree(job, commit, (*stack, patch), own, patch.pin))
        except UnavailableError as error:
            answer, trouble = TreeAnswer(Says.CANNOT, str(error), lasting=False), str(error)
        else:
            moved, probe = {**tree.moved}, _probes(job.patch)[number]
            lost = next((path for path in probe.paths if path in tree.gone), None)
            answer = _ask(probe, job) if lost is None else absent(lost)
            if not answer.lasting:
                # This machine may be to blame, so the second answer counts.
                answer = _ask(probe, job)
        details = BehaviourDetails(
            says=answer.says, why=answer.why, log=answer.log, trouble=trouble, moved=moved
        )
        return Finding(_OUTCOMES[answer.says], answer.why, details, lasting=answer.lasting)

    units = []
    for number, probe in enumerate(_probes(patch)):
        inputs = {"entry": probe.label, **depends, **probe.tools}
        units.append(Unit(probe.target, inputs, partial(ask, number), probe.label))
    outcome = partial(run.outcome, job, BehaviourStageResult, show_cached=False)
    results = results_of([run.units.submit(outcome, unit) for unit in units])
    moved: dict[str, str] = {}
    entries = []
    for row in results:
        told = row.details
        assert isinstance(told, BehaviourDetails)  # noqa: S101  `ask` returns only such details
        if told.trouble:
            return behaviour(commit=commit, trouble=told.trouble)
        moved |= told.moved
        entry = Entry(label=row.label, target=row.target, says=told.says, reason=told.why)
        entries.append(entry.model_copy(update={"cached": row.cached}))
    return behaviour(commit=commit, entries=tuple(entries), moved=moved)


def _probes(patch: Patch) -> list[Probe]:
    """Return the probes of the entries that must fail without the patch, in the stages' order."""
    return [probe for stages in STAGES for stage in stages for probe in stage.probes(patch)]


def _ask(probe: Probe, job: Job) -> TreeAnswer:
    try:
        return probe.ask(job, job.trees.base)
    except UnavailableError as error:
        return TreeAnswer(Says.CANNOT, str(error), lasting=False)


def _release_tree(job: Job, commit: str, stack: Sequence[Patch], own: str, pin: Pin) -> ReleaseTree:
    """Make the release's tree, and rename paths in the job's patch as the release renamed files."""
    # The patch's tests come from the stack: the patch and its dependencies on the patch's pin.
    patch, store, trees = job.patch, job.store, job.trees
    with store.exclusive():
        base = _stacked(job, commit, job.below, patch.pin)
        below = _stacked(job, own, stack[:-1], pin)
        commits = (base, below, _stacked(job, below, stack[-1:], pin))
        tree, before, after = map(store.tree_of, commits)
        scratch = job.fresh_folder()
        tested = with_tests(store, patch, tree, before=before, after=after, scratch=scratch)
    # In the JSON of the entries, a path is a whole string.
    quoted = partial(json.dumps, ensure_ascii=False)
    stated = patch.spec.model_dump_json(exclude_none=True)
    gone = files_of(store, before) - files_of(store, tree)
    left = {path for path in gone if quoted(path) in stated}
    went = renames(store, before, tree) if left else {}
    moved = {path: went[path] for path in sorted(left) if path in went}
    for path, place in moved.items():
        stated = stated.replace(quoted(path), quoted(place))
    spec = PatchSpec.model_validate_json(stated) if moved else patch.spec
    recipe, hipify = patch.upstream.hipify, spec.hipify
    if hipify is not None and recipe is not None:
        # The job of a release has no patch: the patch's changed sources count as declared.
        touched = (path for path in patch.paths if built_for_rocm(recipe, path))
        sources = tuple(dict.fromkeys((*hipify.sources, *touched)))
        hipify = hipify.model_copy(update={"sources": sources})
        spec = spec.model_copy(update={"hipify": hipify})
    job.patch = replace(patch, spec=spec)
    trees.pin_commit, trees.base_commit, trees.patched_commit = commit, base, base
    trees.base, trees.tested, trees.patched = tree, tested, tree
    return ReleaseTree(moved, frozenset(left - moved.keys()))


def _stacked(job: Job, commit: str, stack: Sequence[Patch], pin: Pin) -> str:
    """Apply patches to a commit of a pin; return the last commit; a conflict: UnavailableError."""
    for patch in stack:
        try:
            series = apply_series(job.store, commit, patch.files, pin=pin.title)
        except QueueError as error:
            raise UnavailableError(f"patches/{patch.name}/{error.message}") from error
        if series.conflicts:
            which = patch.name + ("" if patch.name == job.patch.name else ", which is below it,")
            raise UnavailableError(f"{which} does not apply: {series.conflicts[0].headline}")
        commit = series.commit
    return commit


UNSELECTED: Final = "no test of it was asked for"


@dataclass(frozen=True)
class _DownloadsAlone:
    """A watcher of a run that shows downloads, and nothing of the stages."""

    progress: Progress

    def started(self, *_event: object, **_named: object) -> None:
        """Ignore an event of a stage."""

    step = ended = finished = started

    def download(self) -> Progress:
        """Return the progress display of downloads."""
        return self.progress


@dataclass(frozen=True)
class TreeRun:
    """The outcome of a check on one tree; `outcome` takes the check's `expect` into account."""

    check: Check
    side: RunSide
    outcome: Outcome
    run: CheckRun = field(default_factory=CheckRun)
    not_run: str = ""  # why the check did not run here; empty: the check ran


def exit_code(seen: Sequence[TreeRun]) -> ExitCode:
    """Return 0: all runs were as stated, 1: a run was not as stated, 3: a check could not run."""
    outcomes = {side.outcome for side in seen} - {Outcome.SKIPPED}
    if Outcome.FAILED in outcomes:
        return ExitCode.NO
    return ExitCode.OK if outcomes == {Outcome.PASSED} else ExitCode.MACHINE


def selected(
    queue: Queue, name: str, arguments: Sequence[str], *, only: Sequence[str]
) -> list[Check]:
    """Return the checks that `only` and pytest's arguments name; without names: all checks."""
    spec = queue.specs[name]
    stated = stated_checks(spec)
    if not stated:
        raise UsageError(
            f"{name}: patch.toml states no check",
            hint=f"write patches/{name}/checks/test_red.py, and state it in [[checks]]",
        )
    wanted = [check for check in stated if {*only} <= _choices(check)]
    if not wanted:
        known = dict.fromkeys(word for check in stated for word in sorted(_choices(check)))
        raise UsageError(f"{name}: no check {' '.join(only)}", hint=f"it has {', '.join(known)}")
    return [check for check in wanted if _named(check, arguments)] or wanted


def stated_checks(spec: PatchSpec) -> list[Check]:
    """Return the checks of a patch; an emulated check appears once for each target."""
    emulated = (check for entry in spec.emulated for check in entry.checks)
    return [*spec.checks, *spec.numerics, *emulated]


def _choices(check: Check) -> set[str]:
    return {check.name, check.emulated} if isinstance(check, EmulatedCheck) else {check.name}


def _named(check: Check, arguments: Sequence[str]) -> list[str]:
    return [word for word in arguments if word.partition("::")[0] == check.file]


@contextlib.contextmanager
def prepared(
    queue: Queue, name: str, checks: Sequence[Check], *, progress: Progress
) -> Iterator[tuple[Run, Job]]:
    """Yield the run and the job of a patch, with its two trees and the builds that checks need."""
    with open_run(queue, patches=1, options=Options(), watcher=_DownloadsAlone(progress)) as run:
        patch = queue.patch(name)
        job = run.job(patch, tuple(map(queue.patch, queue.below(name))), name)
        _settle(run, job, SourceStage())
        if patch.files or job.below:
            _settle(run, job, ApplyStage())
        else:
            # The patch has no change yet: both trees are the pin's tree.
            trees = job.trees
            trees.base = trees.tested = trees.patched = job.store.tree_of(trees.pin_commit)
        if any(check.build for check in checks):
            _settle(run, job, BuildStage())
        yield run, job


def _settle(run: Run, job: Job, stage: Stage) -> None:
    results = [run.outcome(job, stage.result, unit) for unit in stage.units(job)]
    job.results[stage.name] = results
    for result in results:
        if result.outcome is not Outcome.PASSED:
            error = NotProvedError if result.outcome is Outcome.FAILED else MachineError
            if stage.name != "build":
                raise error(f"{job.patch.name}: {stage.name}: {result.reason}")
    stage.settle(job, results)


def run_side(
    job: Job,
    check: Check,
    side: RunSide,
    arguments: Sequence[str] = (),
    *,
    to_stderr: bool = False,
    launches: bool = False,
) -> TreeRun:
    """Run a check on a tree as `verify` does, or with pytest's arguments in this terminal."""
    base = side is RunSide.BASE
    if not (base or job.patch.files):
        name = job.patch.name
        why = f"no commits yet; contribbot edit {name}, commit there, and contribbot refresh {name}"
        return TreeRun(check, side, Outcome.SKIPPED, not_run=why)
    tree = job.trees.base if base else job.trees.patched
    emulated = check if isinstance(check, EmulatedCheck) else None
    try:
        if missing := missing_emulated(job, emulated) if emulated else missing_for(job, check):
            return TreeRun(check, side, Outcome.SKIPPED, not_run=str(missing))
        sides = [tree] if arguments else job.trees.sides
        runner = emulated_runner(job, emulated, sides) if emulated else runner_of(check)
        shown = "always" if launches else "" if base else "failure"
        runner = replace(runner, display=("--no-header",), launches=shown)
        if not arguments:
            run = CheckWork(job, runner).run_ahead(side)
            return TreeRun(check, side, judge_side(check, side, run).outcome, run)
        place = runner.layout(job, check, tree)
    except UnavailableError as error:
        return TreeRun(check, side, Outcome.UNAVAILABLE, CheckRun(trouble=str(error)))
    run = run_attached(
        runner.process(place, threads=job.machine.cores, folder=job.fresh_folder()),
        _words(check, job, arguments),
        checks=job.patch.folder.resolve() / "checks",
        stdout=2 if to_stderr else None,
    )
    # The options -x and -k leave tests out on purpose.
    if run.kind is RunFailure.EMPTY and not run.skipped:
        return TreeRun(check, side, Outcome.SKIPPED, not_run=UNSELECTED)
    if run.kind is RunFailure.STOPPED and run.ran:
        run.kind, run.trouble = None, ""
    return TreeRun(check, side, judge_side(check, side, run).outcome, run)


def _words(check: Check, job: Job, arguments: Sequence[str]) -> list[str]:
    """Return pytest's arguments for one check, without the files of other checks."""
    others = [other for other in stated_checks(job.patch.spec) if other.file != check.file]
    left_out = {word for other in others for word in _named(other, arguments)}
    words = [word for word in arguments if word not in left_out]
    return [*words, *([] if _named(check, words) else [check.file])]
