"""What a release does without a patch: its fail-to-pass entries, run on the unpatched tree.

An answer is remembered by the commits of both pins, the patch, what it states, what is
below it, tool and machine: asking again runs nothing and makes no tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.errors import IntegrityError, QueueError, SourceError
from contribbot.files import run_folder, stores_folder
from contribbot.git.apply import apply_series
from contribbot.git.repository import Store, open_store
from contribbot.git.sources import find, provide
from contribbot.hardware import build_cache
from contribbot.hardware.build_cache import find_launcher
from contribbot.hardware.compare import unmet
from contribbot.hardware.hip import toolchain
from contribbot.hardware.machine import this_machine
from contribbot.model.checks import Build, Check, Compile, Hipify, Numerics, Stated
from contribbot.model.evidence import Machine, Outcome, StageResult
from contribbot.model.lifecycle import Behaviour, Entry, Says
from contribbot.model.patch import Patch, PatchFile, PatchSpec
from contribbot.model.pin import Pin
from contribbot.queue.load import Queue
from contribbot.verify.builds import Plan, build_side
from contribbot.verify.check import Way, absent_modules, missing_here, run_one, versions
from contribbot.verify.job import Job, Memo, Slots, is_source, obstacle, sources_of
from contribbot.verify.overlay import OverlayError, release_of
from contribbot.verify.pipeline import Options, OutcomeCache, Watcher
from contribbot.verify.placement import overlay_note, unplaceable
from contribbot.verify.pytest_run import CheckRun
from contribbot.verify.runner_fault import RunnerFaultError
from contribbot.verify.stages.apply import with_tests
from contribbot.verify.stages.build import missing_for as unbuildable
from contribbot.verify.stages.compile import compile_side, missing_for, toolchain_details
from contribbot.verify.stages.hipify import Side, look_at
from contribbot.verify.stages.numerics import not_shown, way_of
from contribbot.verify.verdict import sentence, unlike_stated


@dataclass(frozen=True)
class Seen:
    """What an entry said."""

    says: Says
    reason: str  # one line that says why
    transient: bool = False  # whether it may be this machine's doing, and different the next time
    log: str = ""  # the digest of the whole output, or empty


@dataclass(frozen=True)
class Bare:
    """A tree without the patch."""

    #: A verification whose base and patched tree are this one; its patch states its entries with
    #: the paths of this tree, and what runs finds its tests there.
    job: Job
    tree: str
    #: Files that entries name, and that this tree neither has nor has elsewhere.
    gone: frozenset[str]
    #: What was built for checks to load: why it is not there, or empty.
    built: Memo[Seen] = field(default_factory=Memo)


def is_red(entry: Stated) -> bool:
    """Say whether an entry must fail without the patch."""
    return entry.expect == "fail-to-pass"


def lost(bare: Bare, paths: Sequence[str]) -> Seen | None:
    """Say which of some files a tree has lost, or None."""
    path = next((path for path in paths if path in bare.gone), None)
    if path is None:
        return None
    return Seen(Says.OTHER, f"{path} is not there, and git knows of no file that it became")


def stated(entry: Stated, problem: str) -> Seen:
    """Judge the one thing that is wrong with a tree."""
    if re.search(entry.reason, problem):
        return Seen(Says.FAILS, problem)
    return Seen(Says.OTHER, f"fails for another reason than stated: {problem}")


#: What git calls a rename by itself, in per cent of a file that stayed.
_ALIKE: Final = 50
#: What is one as well where the file's name stayed and no other file is as much alike.
_SAME_NAME: Final = 25
_renames: Final[Memo[dict[str, str]]] = Memo()


def renames(store: Store, old: str, new: str) -> Mapping[str, str]:
    """Return where the files of a tree went that another tree lacks; asked once a process."""
    return _renames.get(f"{store.path} {old} {new}", lambda: _find(store, old, new))


def _find(store: Store, old: str, new: str) -> dict[str, str]:
    # -l0: without it git gives up where thousands of files changed, which releases do.
    raw = store.git(
        "diff-tree", "-r", "-z", f"-M{_SAME_NAME}%", "-l0", "--diff-filter=R", old, new
    ).stdout
    fields = raw.decode("utf-8", "surrogateescape").split("\0")
    found = {}
    for head, before, after in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        alike = int(head.rpartition("R")[2])
        if alike >= _ALIKE or Path(before).name == Path(after).name:
            found[before] = after
    return found


def named_paths(patch: Patch, there: frozenset[str]) -> list[str]:
    """Return the files of the tree that a patch touches or its entries name."""
    spec = patch.spec
    named = [
        *spec.files,
        *(spec.hipify.sources if spec.hipify else ()),
        *(entry.source for entry in spec.compile),
        *(source for build in spec.build for source in build.sources),
        *(value for check in (*spec.checks, *spec.numerics) for value in check.env.values()),
    ]
    return [path for path in dict.fromkeys(named) if path in there]


def files_of(store: Store, tree: str) -> frozenset[str]:
    """Return the paths of a tree's files."""
    listed = store.git("ls-tree", "-r", "-z", "--name-only", tree).stdout
    return frozenset(listed.decode("utf-8", "surrogateescape").split("\0")) - {""}


def carried_over(patch: Patch, moved: Mapping[str, str]) -> PatchSpec:
    """Return what a patch states, with the paths of another release.

    The sources that the patch touches are declared with the others: without the patch
    nothing touches them, and they are hipified all the same.
    """

    def now(path: str) -> str:
        return moved.get(path, path)

    spec, recipe = patch.spec, patch.upstream.hipify
    hipify = spec.hipify
    if hipify is not None and recipe is not None:
        touched = [
            path
            for path in spec.files
            if is_source(recipe, path)
            and not any(re.search(pattern, path) for pattern in recipe.cuda_sources)
        ]
        sources = dict.fromkeys(now(path) for path in (*hipify.sources, *touched))
        hipify = hipify.model_copy(update={"sources": tuple(sources)})
    update = {
        "hipify": hipify,
        "compile": tuple(
            one.model_copy(update={"source": now(one.source)}) for one in spec.compile
        ),
        "build": tuple(
            one.model_copy(update={"sources": tuple(map(now, one.sources))}) for one in spec.build
        ),
        "checks": tuple(
            one.model_copy(update={"env": {name: now(value) for name, value in one.env.items()}})
            for one in spec.checks
        ),
        "numerics": tuple(
            one.model_copy(update={"env": {name: now(value) for name, value in one.env.items()}})
            for one in spec.numerics
        ),
    }
    return spec.model_copy(update=update)


def ask_hipify(bare: Bare) -> Seen:
    """Ask what the upstream's own hipify step makes of the tree."""
    job = bare.job
    spec, recipe = job.patch.spec.hipify, job.patch.upstream.hipify
    if spec is None or recipe is None:
        return Seen(Says.CANNOT, f"upstreams/{job.patch.upstream.name}.toml has no [hipify] recipe")
    if not sources_of(job, bare.tree):
        return lost(bare, spec.sources) or Seen(Says.OTHER, "there is nothing to hipify")
    if missing := obstacle(job):
        return Seen(Says.CANNOT, missing)
    side = job.children.submit(look_at, job, recipe, bare.tree).result()
    if side.made.broken or side.made.transient:
        # Whoever asks again shall not be told what was seen this time.
        job.hipified = Memo()
        says = Says.CANNOT if side.made.broken else Says.OTHER
        return Seen(says, side.made.trouble, transient=True, log=side.made.log)
    return replace(_hipified(bare, spec, side), log=side.made.log)


def _hipified(bare: Bare, spec: Hipify, side: Side) -> Seen:
    seen = [stated(spec, problem) for problem in side.problems]
    if seen:
        return next((one for one in seen if one.says is not Says.FAILS), seen[0])
    count = len(side.made.outputs)
    plural = "s" if count > 1 else ""
    good = f"{count} output{plural} where the build looks, no CUDA-only include left"
    # A source that is gone can show the fault no more.
    gone = [path for path in spec.sources if path in bare.gone]
    return Seen(Says.PASSES, good + (f"; not there: {', '.join(gone)}" if gone else ""))


def ask_compile(number: int, target: str, bare: Bare) -> Seen:
    """Ask whether a kernel compiles as the entry expects."""
    job = bare.job
    entry: Compile = job.patch.spec.compile[number]
    if absent := lost(bare, (entry.source,)):
        return absent
    using = toolchain(target)
    if missing := missing_for(job, entry, using):
        return Seen(Says.CANNOT, missing)
    done = job.children.submit(compile_side, job, entry, target, using, bare.tree).result()
    if done.crashed or done.missing:
        says = Says.OTHER if done.crashed else Says.CANNOT
        return Seen(says, done.crashed or done.missing, transient=True)
    if problem := done.error or unmet(entry, target, done.listing):
        return stated(entry, problem)
    held = ", ".join(entry.instructions.get(target, ()))
    return Seen(Says.PASSES, "it compiles" + (f", with {held} in the kernels" if held else ""))


def ask_build(number: int, target: str, bare: Bare) -> Seen:
    """Ask whether something builds."""
    build = bare.job.patch.spec.build[number]
    return lost(bare, build.sources) or built(bare, build, target)


def built(bare: Bare, build: Build, target: str) -> Seen:
    """Build something from the tree, once, and leave it where checks look for it."""
    return bare.built.get(f"{build.name} {target}", lambda: _make(bare.job, build, target, bare))


def _make(job: Job, build: Build, target: str, bare: Bare) -> Seen:
    if target not in job.machine.targets:
        return Seen(Says.CANNOT, f"no {target} on this machine")
    if missing := unbuildable(job, build, target):
        return Seen(Says.CANNOT, missing, transient=True)
    plan = Plan.of(job, build, target, bare.tree)
    side = job.children.submit(build_side, job, plan, find_launcher()).result()
    if side.lacking:
        return Seen(Says.CANNOT, side.lacking, transient=True, log=side.log)
    if side.crash or side.absent:
        return Seen(Says.OTHER, side.crash or side.wrong, transient=bool(side.crash), log=side.log)
    if side.error:
        return replace(stated(build, side.error), log=side.log) if is_red(build) else Seen(
            Says.OTHER, side.error, log=side.log
        )  # fmt: skip
    summary = side.summary(build.name)
    result = StageResult(
        stage="build", target=target, outcome=Outcome.PASSED, reason="", seconds=0,
        details={"check": build.name, "base": summary, "patched": summary},
    )  # fmt: skip
    job.results.setdefault("build", []).append(result)
    return Seen(Says.PASSES, "it builds", log=side.log)


class CannotTellError(Exception):
    """A pin cannot be had, or what is below the patch does not apply; says why."""


@dataclass(frozen=True)
class Made:
    """The trees, and where they come from."""

    bare: Bare  # the release without the patch
    commit: str  # the release's commit
    own: str  # the commit of the pin that the patch stands on
    #: Files that the patch names and the release has elsewhere, old path and new.
    moved: dict[str, str]


def make_bare(job: Job, own: Pin, stack: Sequence[Patch]) -> Made:
    """Make the trees, and give the job's patch the paths of the release."""
    commit, own_commit = (_provided(job, pin) for pin in (job.patch.pin, own))
    patch, store = job.patch, job.store
    with store.exclusive():
        base = _stacked(job, commit, job.below, job.patch.pin)
        before, after = _with_and_without(job, own_commit, stack, own)
        tree = tested = store.tree_of(base)
        if after:
            folder = job.fresh_folder()
            tested = with_tests(store, patch, tree, before=before, after=after, scratch=folder)
    there, now = files_of(store, before), files_of(store, tree)
    left = [path for path in named_paths(patch, there) if path not in now]
    went = renames(store, before, tree) if left else {}
    moved = {path: went[path] for path in left if path in went}
    job.patch = replace(patch, spec=carried_over(patch, moved))
    trees = job.trees
    trees.pin_commit, trees.base_commit, trees.patched_commit = commit, base, base
    trees.base, trees.tested, trees.patched = tree, tested, tree
    bare = Bare(job, tree, frozenset(left) - moved.keys())
    return Made(bare, commit, own_commit, moved)


def _provided(job: Job, pin: Pin) -> str:
    try:
        return provide(pin, job.patch.upstream, job.store, progress=job.progress).commit
    except IntegrityError:
        raise  # it gave something else than the pin names: for a person to look at
    except SourceError as error:
        next_step = f"; next: {error.hint}" if error.hint else ""
        raise CannotTellError(error.message + next_step) from error


def _with_and_without(job: Job, commit: str, stack: Sequence[Patch], pin: Pin) -> tuple[str, str]:
    """Return the tree that the patch stands on, and the same with it; empty where it conflicts."""
    store = job.store
    try:
        before = _stacked(job, commit, stack, pin)
        after = _stacked(job, before, (job.patch,), pin)
    except CannotTellError:
        return store.tree_of(commit), ""
    return store.tree_of(before), store.tree_of(after)


def _stacked(job: Job, commit: str, stack: Sequence[Patch], pin: Pin) -> str:
    for patch in stack:
        folder = job.fresh_folder()
        try:
            series = apply_series(job.store, commit, patch.files, pin=pin.title, scratch=folder)
        except QueueError as error:
            raise CannotTellError(f"patches/{patch.name}/{error.message}") from error
        if series.conflicts:
            why = f"{patch.name}, which is below it, does not apply"
            raise CannotTellError(f"{why}: {series.conflicts[0].headline}")
        commit = series.commit
    return commit


def ask_check(number: int, bare: Bare) -> Seen:
    """Run a check on the tree."""
    return _ask(bare, bare.job.patch.spec.checks[number], Way())


def ask_numerics(number: int, bare: Bare) -> Seen:
    """Run a numerics entry on the tree."""
    entry: Numerics = bare.job.patch.spec.numerics[number]

    def amiss(run: CheckRun) -> str:
        judgement = not_shown(entry, run.cells)
        return sentence(judgement) if judgement else ""

    return _ask(bare, entry, way_of(entry), amiss)


def _ask(
    bare: Bare, check: Check, way: Way, amiss: Callable[[CheckRun], str] = lambda _run: ""
) -> Seen:
    """Run a check on the tree."""
    job = bare.job
    if missing := _unready(bare, check):
        return missing
    try:
        return _judge(check, run_one(job, check, way, bare.tree), amiss)
    except OverlayError as error:
        return Seen(Says.CANNOT, str(error))
    except RunnerFaultError as error:
        return Seen(Says.CANNOT, str(error), transient=True)


def _unready(bare: Bare, check: Check) -> Seen | None:
    """Say what keeps a check from being run, or build what it loads."""
    job = bare.job
    if missing := missing_here(job, check):
        return Seen(Says.CANNOT, missing)
    if job.patch.upstream.overlay and (
        note := overlay_note(release_of(job.patch.upstream.overlay), job.patch.pin)
    ):
        # What runs is the installed package, which is another release.
        return Seen(Says.CANNOT, f"it would run {note}: install that release")
    if absent := lost(bare, tuple(check.env.values())):
        return absent
    if check.build:
        build = next(one for one in job.patch.spec.build if one.name == check.build)
        made = lost(bare, build.sources) or built(bare, build, check.target)
        if made.says is not Says.PASSES:
            why = f"its build {build.name} is not there: {made.reason}"
            says = Says.CANNOT if made.says is Says.CANNOT else Says.OTHER
            return replace(made, says=says, reason=why)
    unplaced = unplaceable(job, check)
    return Seen(Says.CANNOT, unplaced) if unplaced else None


def _judge(check: Check, run: CheckRun, amiss: Callable[[CheckRun], str]) -> Seen:
    """Judge one run of a fail-to-pass check on a tree without the patch."""
    seen = partial(Seen, log=run.log)
    if run.trouble:
        says = Says.CANNOT if run.lacked else Says.OTHER
        return seen(says, run.told, transient=run.transient)
    fault = next((one for one in run.failed if one.fault), None)
    if fault is not None:
        what = "ran out of memory" if fault.fault == "memory" else "lost its device"
        return seen(Says.CANNOT, f"this machine {what}: {fault.test}", transient=True)
    count = len(run.ran)
    tests = f"{count} test{'s' if count > 1 else ''}"
    if run.failed:
        unlike = unlike_stated(check, run.failed, "release")
        said = f"{run.failed[0].test}: {run.failed[0].first}"
        share = f"{len(run.failed)} of {tests} fail as stated: {said}"
        return seen(Says.OTHER, sentence(unlike)) if unlike else seen(Says.FAILS, share)
    wrong = amiss(run)
    return seen(Says.OTHER, wrong) if wrong else seen(Says.PASSES, f"{tests} pass")


@dataclass(frozen=True)
class Probe:
    """One entry, ready to be asked."""

    label: str  # what people call it
    target: str  # the hardware, or `any`
    inputs: dict[str, JsonValue]  # what its answer depends on beside trees, tool and machine
    look: Callable[[Bare], Seen]  # asks a tree


def probes(patch: Patch) -> list[Probe]:
    """Return the fail-to-pass entries of a patch."""
    spec = patch.spec
    hipify = [Probe("hipify", "any", {}, ask_hipify)] if spec.hipify and is_red(spec.hipify) else []
    return [*hipify, *_compiled(spec), *_run(spec)]


def _compiled(spec: PatchSpec) -> Iterator[Probe]:
    for number, entry in enumerate(spec.compile):
        if is_red(entry):
            for target in entry.targets:
                told = toolchain_details(entry, toolchain(target))
                label = f"compile {entry.name} {target}"
                yield Probe(label, target, told, partial(ask_compile, number, target))
    for number, build in enumerate(spec.build):
        if is_red(build):
            for target in build.targets:
                look = partial(ask_build, number, target)
                yield Probe(f"build {build.name} {target}", target, {}, look)


def _run(spec: PatchSpec) -> Iterator[Probe]:
    for number, check in enumerate(spec.checks):
        if is_red(check):
            look = partial(ask_check, number)
            yield Probe(f"check {check.name}", check.target, _needs(check), look)
    for number, numerics in enumerate(spec.numerics):
        if is_red(numerics):
            look = partial(ask_numerics, number)
            yield Probe(f"numerics {numerics.name}", numerics.target, _needs(numerics), look)


def _needs(check: Check) -> dict[str, JsonValue]:
    return {
        "modules": {} if absent_modules(check) else {**versions(check.modules)},
        "accelerator": {**process.accelerator_environment()},
    }


#: Entries at the same time. They wait for git and for children more than they compute.
_ENTRIES: Final = 16
_STAGE: Final = "behaviour"
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


@dataclass
class _Case:
    """One patch at one release, on the way to its answer."""

    ask: Ask
    patch: Patch
    below: tuple[Patch, ...]
    stack: tuple[Patch, ...]
    store: Store
    probes: list[Probe]
    commit: str = ""
    own: str = ""
    entries: dict[str, Entry] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    trouble: str = ""

    @property
    def open(self) -> list[Probe]:
        """The entries that have no answer yet."""
        return [one for one in self.probes if one.label not in self.entries]

    def answer(self) -> Behaviour:
        return Behaviour(
            patch=self.ask.name,
            pin=self.ask.pin.tag,
            commit=self.commit,
            below=tuple(self.ask.below),
            entries=tuple(
                self.entries[one.label] for one in self.probes if one.label in self.entries
            ),
            moved=self.moved,
            trouble=self.trouble,
        )


def behaviours(
    queue: Queue, asks: Sequence[Ask], *, options: Options, watcher: Watcher
) -> list[Behaviour]:
    """Run the fail-to-pass entries of patches on releases without them."""
    machine = this_machine()
    cases = [_case(queue, ask) for ask in asks]
    cache = OutcomeCache(queue.local / "outcomes", machine, logs=queue.local / "logs")
    for case in cases:
        _recall(case, cache, force=options.force)
    waiting = [case for case in cases if case.open]
    if waiting:
        _run_probes(waiting, queue, machine, cache, options=options, watcher=watcher)
    return [case.answer() for case in cases]


def _case(queue: Queue, ask: Ask) -> _Case:
    patch = queue.patch(ask.name)
    below = tuple(
        replace(lower, files=ask.carried.get(lower.name, lower.files))
        for lower in map(queue.patch, ask.below)
    )
    store = open_store(stores_folder(), patch.upstream.name)
    stack = tuple(queue.patch(name) for name in queue.below(ask.name))
    return _Case(ask, patch, below, stack, store, probes(patch))


def _recall(case: _Case, cache: OutcomeCache, *, force: bool) -> None:
    """Take over what is remembered, where both pins are in the store."""
    upstream = case.patch.upstream
    there, own = (find(pin, upstream, case.store) for pin in (case.ask.pin, case.patch.pin))
    if there is None or own is None:
        return
    case.commit, case.own = there.commit, own.commit
    for probe in () if force else case.probes:
        known = cache.get(_key(case, probe, cache))
        if known is not None:
            case.entries[probe.label] = _entry(probe, known)
            moved = known.details.get("moved")
            if isinstance(moved, dict):
                case.moved |= {old: str(new) for old, new in moved.items()}


def _key(case: _Case, probe: Probe, cache: OutcomeCache) -> str:
    inputs: dict[str, JsonValue] = {
        "entry": probe.label,
        "pin": case.commit,
        "own": case.own,
        "below": [[one.name, one.digest] for one in case.below],
        # The tests that it brings, and what they stand on.
        "patch": case.patch.digest,
        "checks": case.patch.checks_digest,
        "upstream": case.patch.upstream.model_dump_json(),
        **probe.inputs,
    }
    return cache.key(_STAGE, probe.target, inputs)


def _entry(probe: Probe, result: StageResult) -> Entry:
    return Entry(
        label=probe.label,
        target=probe.target,
        says=Says(str(result.details["says"])),
        reason=result.reason,
        cached=result.cached,
    )


def _run_probes(
    cases: list[_Case],
    queue: Queue,
    machine: Machine,
    cache: OutcomeCache,
    *,
    options: Options,
    watcher: Watcher,
) -> None:
    """Ask what is not remembered."""
    slots = Slots()
    with (
        run_folder(build_cache.kept(), build_cache.kept_builds(), *cache.kept) as scratch,
        ThreadPoolExecutor(max_workers=options.jobs, thread_name_prefix="child") as children,
        ThreadPoolExecutor(max_workers=_ENTRIES, thread_name_prefix="entry") as entries,
        ThreadPoolExecutor(max_workers=len(cases), thread_name_prefix="case") as walks,
    ):
        try:
            futures = []
            for number, case in enumerate(cases):
                job = Job(
                    replace(case.patch, pin=case.ask.pin),
                    case.below,
                    store=case.store,
                    machine=machine,
                    children=children,
                    slots=slots,
                    threads=max(1, machine.cores // options.jobs),
                    scratch=scratch / str(number),
                    logs=queue.local / "logs",
                    progress=watcher.download(),
                )
                job.scratch.mkdir()
                futures.append(walks.submit(_walk, case, job, cache, entries, watcher))
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            # As the pipeline does: what was started ends with whoever asked for it.
            process.stop()
            for pool in (walks, entries, children):
                pool.shutdown(wait=True, cancel_futures=True)
            process.resume()
            raise


def _walk(case: _Case, job: Job, cache: OutcomeCache, pool: Executor, watcher: Watcher) -> None:
    try:
        made = make_bare(job, case.patch.pin, case.stack)
    except CannotTellError as error:
        case.trouble, case.entries = str(error), {}
        return
    case.commit, case.own, case.moved = made.commit, made.own, made.moved

    def ask(probe: Probe) -> tuple[Probe, StageResult]:
        watcher.started(case.ask.name, _STAGE, probe.target, probe.label)
        seen = probe.look(made.bare)
        if seen.transient:
            # It could be this machine's doing: believed when it is seen twice.
            seen = probe.look(made.bare)
        result = _result(probe, seen, case.moved)
        if not seen.transient:
            cache.put(_key(case, probe, cache), result)
        watcher.ended(case.ask.name, result)
        return probe, result

    for future in [pool.submit(ask, probe) for probe in case.open]:
        probe, result = future.result()
        case.entries[probe.label] = _entry(probe, result)


def _result(probe: Probe, seen: Seen, moved: dict[str, str]) -> StageResult:
    return StageResult(
        stage=_STAGE,
        target=probe.target,
        outcome=_OUTCOMES[seen.says],
        reason=seen.reason,
        seconds=0,
        details={
            "check": probe.label,
            "says": str(seen.says),
            "moved": {**moved},
            "log": seen.log,
        },
    )
