"""What a release does without a patch: its fail-to-pass entries, run on the unpatched tree.

These are the stages with one side: the same programs run on the base, nothing on a patched tree.
An answer is remembered by the commits of both pins, the patch, what it states, what is
below it, tool and machine: asking again runs nothing and makes no tree.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import QueueError
from contribbot.git.repository import Store
from contribbot.hardware.build_cache import find_launcher
from contribbot.hardware.compare import unmet
from contribbot.hardware.hip import hip_toolchain
from contribbot.hardware.needs import absent_modules, missing_here
from contribbot.model.checks import EMULATED, Check, EmulatedCheck, Numerics, Stated
from contribbot.model.evidence import Outcome, StageResult
from contribbot.model.lifecycle import Behaviour, Entry, Says
from contribbot.model.patch import Patch, PatchFile, PatchSpec
from contribbot.model.pin import Pin
from contribbot.queue.load import Queue
from contribbot.verify.check import run_one, versions
from contribbot.verify.emulated import NoCodeError, code_of, emulated_way
from contribbot.verify.emulated import missing_here as missing_to_emulate
from contribbot.verify.job import Job, Memo
from contribbot.verify.pipeline import Options, Run, Watcher, open_run, results_of
from contribbot.verify.placement import OverlayError, overlay_note, release_of, unplaceable
from contribbot.verify.pytest_run import CheckRun
from contribbot.verify.runner_fault import RunnerFaultError
from contribbot.verify.stages.apply import series_on, with_tests
from contribbot.verify.stages.base import Facts, Finding, Unit, as_table
from contribbot.verify.stages.build import BuildPlan, build_side
from contribbot.verify.stages.build import missing_for as missing_for_build
from contribbot.verify.stages.compile import compile_side, missing_for, toolchain_details
from contribbot.verify.stages.hipify import built_for_rocm, free_outputs, hipify_all, sources_of
from contribbot.verify.stages.hipify import obstacle as hipify_obstacle
from contribbot.verify.stages.numerics import not_shown, way_of
from contribbot.verify.stages.source import NoSourceError, provided
from contribbot.verify.verdict import sentence, unlike_stated

_STAGE: Final = "behaviour"
#: What decides, beside the tree, what an emulated GPU computes.
_EMULATED_BY: Final = ("torch", "triton", "tinygrad")
_OUTCOMES: Final = {
    Says.PASSES: Outcome.PASSED,
    Says.FAILS: Outcome.FAILED,
    Says.OTHER: Outcome.FAILED,
    Says.CANNOT: Outcome.UNAVAILABLE,
}


@dataclass(frozen=True)
class Ask:
    """What is to be told."""

    name: str
    pin: Pin  # the release; of the patch's own upstream
    below: Sequence[str] = ()  # the dependencies of it that are still wanted there, lowest first
    #: The files of those whose text was carried over to the release.
    carried: Mapping[str, tuple[PatchFile, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class BareTree:
    """A release without the patch."""

    #: A verification whose base and patched tree are this one; its patch states its entries with
    #: the paths of this tree, and what runs finds its tests there.
    job: Job
    moved: Mapping[str, str]  # files that the patch names and the release has elsewhere, old to new
    gone: frozenset[str]  # files that entries name, and that this tree has nowhere

    @property
    def tree(self) -> str:
        """The tree's id."""
        return self.job.trees.base


class BelowError(Exception):
    """What is below the patch does not apply; says why."""


def behaviours(
    queue: Queue, asks: Sequence[Ask], *, options: Options, watcher: Watcher
) -> list[Behaviour]:
    """Run the fail-to-pass entries of patches on releases without them."""
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
    """Ask all entries of a patch; the job is that of the release, the stack that of its own pin."""
    answer = partial(
        Behaviour,
        patch=patch.name, pin=job.patch.pin.tag, below=tuple(lower.name for lower in job.below),
    )  # fmt: skip
    try:
        commit, own = (provided(job, pin).commit for pin in (job.patch.pin, patch.pin))
    except NoSourceError as error:
        return answer(trouble=str(error))
    depends: Facts = {
        "pin": commit,
        "own": own,
        "below": [[lower.name, lower.digest] for lower in job.below],
        # The tests that it brings, and what they stand on.
        "patch": patch.digest,
        "checks": patch.checks_digest,
        "upstream": patch.upstream.model_dump_json(),
    }
    bare: Memo[BareTree] = Memo()

    def ask(probe: Probe) -> Finding:
        try:
            tree = bare.get("", lambda: _make_bare(job, commit, (*stack, patch), own, patch.pin))
        except BelowError as error:
            return _answer(Says.CANNOT, str(error), again=True, trouble=str(error))
        finding = probe.ask(tree)
        if not finding.lasting:
            # It could be this machine's doing: believed when it is seen twice.
            finding = probe.ask(tree)
        return replace(finding, details={**finding.details, "moved": {**tree.moved}})

    units = [
        Unit(
            probe.target,
            {"entry": probe.label, **depends, **probe.inputs},
            partial(ask, probe),
            probe.label,
        )
        for probe in _probes(patch.spec)
    ]
    outcome = partial(run.outcome, job, _STAGE, show_cached=False)
    results = results_of([run.units.submit(outcome, unit) for unit in units])
    for result in results:
        if trouble := result.details.get("trouble"):
            return answer(commit=commit, trouble=str(trouble))
    moved = {
        old: str(new)
        for result in results
        for old, new in as_table(result.details["moved"]).items()
    }
    return answer(commit=commit, entries=tuple(map(_entry, results)), moved=moved)


def _answer(says: Says, reason: str, *, again: bool = False, **seen: str) -> Finding:
    """Say what an entry says of a tree, why, and whether it may say otherwise when asked again."""
    details: Facts = {"says": str(says), "why": reason, **seen}
    return Finding(_OUTCOMES[says], reason, details, lasting=not again)


def _entry(result: StageResult) -> Entry:
    return Entry(
        label=result.label,
        target=result.target,
        says=Says(str(result.details["says"])),
        reason=str(result.details["why"]),
        cached=result.cached,
    )


# The tree, and what the patch states with its paths.


def _make_bare(job: Job, commit: str, stack: Sequence[Patch], own: str, pin: Pin) -> BareTree:
    """Make the release's tree, and give the job's patch the paths of the release.

    The stack is the patch on what is below it on its own pin, where its tests are taken from.
    """
    patch, store, trees = job.patch, job.store, job.trees
    with store.exclusive():
        base = _stacked(job, commit, job.below, patch.pin)
        below = _stacked(job, own, stack[:-1], pin)
        commits = (base, below, _stacked(job, below, stack[-1:], pin))
        tree, before, after = map(store.tree_of, commits)
        scratch = job.fresh_folder()
        tested = with_tests(store, patch, tree, before=before, after=after, scratch=scratch)
    # Paths stand in what is stated as whole texts.
    stated = patch.spec.model_dump_json(exclude_none=True)
    gone = _files_of(store, before) - _files_of(store, tree)
    left = {path: quoted for path in gone if (quoted := _quoted(path)) in stated}
    went = renames(store, before, tree) if left else {}
    moved = {path: went[path] for path in sorted(left) if path in went}
    for path, place in moved.items():
        stated = stated.replace(left[path], _quoted(place))
    spec = PatchSpec.model_validate_json(stated) if moved else patch.spec
    job.patch = replace(patch, spec=_with_sources(patch, spec))
    trees.pin_commit, trees.base_commit, trees.patched_commit = commit, base, base
    trees.base, trees.tested, trees.patched = tree, tested, tree
    return BareTree(job, moved, frozenset(left.keys() - moved.keys()))


def _stacked(job: Job, commit: str, stack: Sequence[Patch], pin: Pin) -> str:
    """Apply patches on a commit of a pin and return the last commit."""
    for patch in stack:
        try:
            series = series_on(job, commit, patch, pin)
        except QueueError as error:
            raise BelowError(f"patches/{patch.name}/{error.message}") from error
        if series.conflicts:
            which = patch.name + ("" if patch.name == job.patch.name else ", which is below it,")
            raise BelowError(f"{which} does not apply: {series.conflicts[0].headline}")
        commit = series.commit
    return commit


#: What git calls a rename by itself, in per cent of a file that stayed.
_ALIKE: Final = 50
#: What is one as well where the file's name stayed and no other file is as much alike.
_SAME_NAME: Final = 25


@functools.cache
def renames(store: Store, old: str, new: str) -> Mapping[str, str]:
    """Return where the files of a tree went that another tree lacks; asked once a process."""
    # -l0: without it git gives up where thousands of files changed, which releases do.
    raw = store.git(
        "diff-tree", "-r", "-z", f"-M{_SAME_NAME}%", "-l0", "--diff-filter=R", old, new
    ).stdout
    fields = raw.decode("utf-8", "surrogateescape").split("\0")
    paths = {}
    for head, before, after in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        alike = int(head.rpartition("R")[2])
        if alike >= _ALIKE or Path(before).name == Path(after).name:
            paths[before] = after
    return paths


def _files_of(store: Store, tree: str) -> frozenset[str]:
    listed = store.git("ls-tree", "-r", "-z", "--name-only", tree).stdout
    return frozenset(listed.decode("utf-8", "surrogateescape").split("\0")) - {""}


def _quoted(path: str) -> str:
    return json.dumps(path, ensure_ascii=False)


def _with_sources(patch: Patch, spec: PatchSpec) -> PatchSpec:
    """Declare the sources that the patch touches with the others, as nothing touches them here."""
    recipe, hipify = patch.upstream.hipify, spec.hipify
    if hipify is None or recipe is None:
        return spec
    touched = (path for path in spec.files if built_for_rocm(recipe, path))
    sources = tuple(dict.fromkeys((*hipify.sources, *touched)))
    return spec.model_copy(update={"hipify": hipify.model_copy(update={"sources": sources})})


# The entries, and how each is asked.


@dataclass(frozen=True)
class Probe:
    """One fail-to-pass entry, ready to be asked."""

    label: str  # what people call it
    target: str  # the hardware, or `any`
    ask: Callable[[BareTree], Finding]
    inputs: Facts = field(default_factory=dict)  # beside trees, tool and machine


def _probes(spec: PatchSpec) -> Iterator[Probe]:
    """Yield the entries that must fail without the patch; each is found again by its number."""
    if spec.hipify and _is_red(spec.hipify):
        yield Probe("hipify", "any", _ask_hipify)
    for number, entry in enumerate(spec.compile):
        for target in entry.targets if _is_red(entry) else ():
            inputs = toolchain_details(entry, hip_toolchain(target))
            ask = partial(_ask_compile, number, target)
            yield Probe(f"compile {entry.name} {target}", target, ask, inputs)
    for number, build in enumerate(spec.build):
        for target in build.targets if _is_red(build) else ():
            ask = partial(_ask_build, number, target)
            yield Probe(f"build {build.name} {target}", target, ask)
    for what, table in (("check", spec.checks), ("numerics", spec.numerics)):
        for number, check in enumerate(table):
            if _is_red(check):
                needs: Facts = {
                    "modules": {} if absent_modules(check) else {**versions(check.modules)},
                    "accelerator": {**process.accelerator_environment()},
                }
                ask = partial(_ask_check, what, number)
                yield Probe(f"{what} {check.name}", check.target, ask, needs)
    yield from _emulated_probes(spec)


def _emulated_probes(spec: PatchSpec) -> Iterator[Probe]:
    code = {entry.name: entry for entry in spec.compile}
    for entry in filter(_is_red, spec.emulated):
        for check in entry.checks:
            using: Facts = {"modules": {**versions(_EMULATED_BY)}}
            if check.compile:
                using = toolchain_details(code[check.compile], hip_toolchain(check.emulated))
            target = f"{EMULATED}{check.emulated}"
            ask = partial(_ask_emulated, check)
            yield Probe(f"emulated {check.name} {check.emulated}", target, ask, using)


def _is_red(entry: Stated) -> bool:
    return entry.expect == "fail-to-pass"


def _lost(bare: BareTree, paths: Sequence[str]) -> Finding | None:
    """Say which of some files a tree has lost, or None."""
    for path in paths:
        if path in bare.gone:
            reason = f"{path} is not there, and git knows of no file that it became"
            return _answer(Says.OTHER, reason)
    return None


def _judge(
    entry: Stated, problems: Sequence[str], *, good: str, lacking: str, crash: str, log: str = ""
) -> Finding:
    """Judge a tree by what this machine lacked, how a program crashed, and what is wrong."""
    if lacking or crash:
        says = Says.CANNOT if lacking else Says.OTHER
        return _answer(says, lacking or crash, again=True, log=log)
    for problem in problems:
        if not re.search(entry.reason, problem):
            reason = f"fails for another reason than stated: {problem}"
            return _answer(Says.OTHER, reason, log=log)
    return _answer(*((Says.FAILS, problems[0]) if problems else (Says.PASSES, good)), log=log)


def _ask_hipify(bare: BareTree) -> Finding:
    """Ask what the upstream's own hipify step makes of the tree."""
    job = bare.job
    spec, recipe = job.patch.spec.hipify, job.patch.upstream.hipify
    if spec is None or recipe is None:
        name = job.patch.upstream.name
        return _answer(Says.CANNOT, f"upstreams/{name}.toml has no [hipify] recipe")
    if not sources_of(job, bare.tree):
        return _lost(bare, spec.sources) or _answer(Says.OTHER, "there is nothing to hipify")
    if missing := hipify_obstacle(job):
        return _answer(Says.CANNOT, missing)
    made = job.children.submit(hipify_all, job, bare.tree).result()
    trouble = made.trouble if made.transient else ""
    # A source that is gone can show the fault no more.
    gone = ", ".join(path for path in spec.sources if path in bare.gone)
    good = free_outputs(len(made.outputs)) + (f"; not there: {gone}" if gone else "")
    lacking, crash = (trouble, "") if made.broken else ("", trouble)
    return _judge(spec, made.problems, good=good, lacking=lacking, crash=crash, log=made.log)


def _ask_compile(number: int, target: str, bare: BareTree) -> Finding:
    """Ask whether a kernel compiles as the entry expects."""
    job = bare.job
    entry = job.patch.spec.compile[number]
    if lost := _lost(bare, (entry.source,)):
        return lost
    using = hip_toolchain(target)
    if missing := missing_for(job, entry, using):
        return _answer(Says.CANNOT, missing)
    side = job.children.submit(compile_side, job, entry, target, using, bare.tree)
    done = side.result().result
    problem = done.error or unmet(entry, target, done.listing)
    held = ", ".join(entry.instructions.get(target, ()))
    good = "it compiles" + (f", with {held} in the kernels" if held else "")
    lacking = "" if done.crashed else done.missing
    problems = [problem] if problem else []
    return _judge(entry, problems, good=good, lacking=lacking, crash=done.crashed)


def _ask_build(number: int, target: str, bare: BareTree) -> Finding:
    """Build something from the tree, and leave it where checks look for it."""
    job = bare.job
    build = job.patch.spec.build[number]
    if lost := _lost(bare, build.sources):
        return lost
    if missing := missing_for_build(job, build, target):
        return _answer(Says.CANNOT, missing, again=target in job.machine.targets)
    plan = BuildPlan.of(job, build, target, bare.tree)
    side = job.children.submit(build_side, job, plan, find_launcher()).result()
    if side.absent or (side.error and not _is_red(build)):
        return _answer(Says.OTHER, side.wrong, log=side.log)
    if side.product is not None:
        record = side.record(build.name).model_dump()
        details: Facts = {"check": build.name, "base": record, "patched": record}
        result = StageResult(
            stage="build", target=target, outcome=Outcome.PASSED, reason="", seconds=0,
            details=details,
        )  # fmt: skip
        job.results.setdefault("build", []).append(result)
    problems = [side.error] if side.error else []
    return _judge(
        build, problems, good="it builds", lacking=side.lacking, crash=side.crash, log=side.log
    )


def _ask_check(what: str, number: int, bare: BareTree) -> Finding:
    """Run a check or a numerics entry on the tree."""
    spec = bare.job.patch.spec
    check: Check = spec.checks[number] if what == "check" else spec.numerics[number]
    if unready := _unready(bare, check):
        return unready
    try:
        return _judge_run(check, run_one(bare.job, check, way_of(check), bare.tree))
    except OverlayError as error:
        return _answer(Says.CANNOT, str(error))
    except RunnerFaultError as error:
        return _answer(Says.CANNOT, str(error), again=True)


def _ask_emulated(check: EmulatedCheck, bare: BareTree) -> Finding:
    """Run a check with the kernels of the tree."""
    job = bare.job
    code = code_of(job, check)
    if lost := _lost(bare, (code.source,) if code else tuple(check.env.values())):
        return lost
    if missing := missing_to_emulate(job, check):
        return _answer(Says.CANNOT, missing)
    try:
        way = emulated_way(job, check, [bare.tree])
    except NoCodeError as error:
        return _answer(Says.CANNOT, str(error), again=True)
    return _judge_run(check, run_one(job, check, way, bare.tree))


def _unready(bare: BareTree, check: Check) -> Finding | None:
    """Say what keeps a check from being run, or build what it loads."""
    job = bare.job
    upstream = job.patch.upstream
    if missing := missing_here(job.machine, check):
        return _answer(Says.CANNOT, missing)
    if upstream.overlay and (note := overlay_note(release_of(upstream.overlay), job.patch.pin)):
        # What runs is the installed package, which is another release.
        return _answer(Says.CANNOT, f"it would run {note}: install that release")
    if lost := _lost(bare, tuple(check.env.values())):
        return lost
    names = [build.name for build in job.patch.spec.build]
    if check.build:
        built = _ask_build(names.index(check.build), check.target, bare)
        if built.outcome is not Outcome.PASSED:
            says = Says.CANNOT if built.outcome is Outcome.UNAVAILABLE else Says.OTHER
            why = f"its build {check.build} is not there: {built.reason}"
            return _answer(says, why, again=not built.lasting)
    unplaced = unplaceable(job, check)
    return _answer(Says.CANNOT, unplaced) if unplaced else None


def _judge_run(check: Check, run: CheckRun) -> Finding:
    """Judge one run of a fail-to-pass check on a tree without the patch."""
    answer = partial(_answer, log=run.log)
    if run.trouble:
        says = Says.CANNOT if run.lacked else Says.OTHER
        return answer(says, run.told, again=run.transient)
    if fault := next((failure for failure in run.failed if failure.fault), None):
        what = "ran out of memory" if fault.fault == "memory" else "lost its device"
        return answer(Says.CANNOT, f"this machine {what}: {fault.test}", again=True)
    count = len(run.ran)
    tests = f"{count} test{'s' if count > 1 else ''}"
    if not run.failed:
        empty = not_shown(check, run.cells) if isinstance(check, Numerics) else None
        return answer(*((Says.OTHER, sentence(empty)) if empty else (Says.PASSES, f"{tests} pass")))
    if unlike := unlike_stated(check, run.failed, "release"):
        return answer(Says.OTHER, sentence(unlike))
    first = run.failed[0]
    share = f"{len(run.failed)} of {tests} fail as stated: {first.test}: {first.first}"
    return answer(Says.FAILS, share)
