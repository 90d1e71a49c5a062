"""What a release does without a patch: its fail-to-pass entries, run on the unpatched tree.

An answer is remembered by the commits of both pins, the patch, what it states, what is
below it, tool and machine: asking again runs nothing and makes no tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.building import shelf
from contribbot.compiling import cache as compiles
from contribbot.hardware.probe import this_machine
from contribbot.model.behaviour import Behaviour, Entry, Says
from contribbot.model.machine import Machine
from contribbot.model.outcome import Outcome, StageResult
from contribbot.model.patch import Patch, PatchFile
from contribbot.model.pin import Pin
from contribbot.queue.load import Queue
from contribbot.sources import find
from contribbot.store.repository import Store, open_store
from contribbot.verify.cache import OutcomeCache
from contribbot.verify.job import Job
from contribbot.verify.pipeline import Options, Watcher
from contribbot.verify.slots import Slots
from contribbot.verify.unpatched.bare import Seen
from contribbot.verify.unpatched.probes import Probe, probes
from contribbot.verify.unpatched.trees import CannotTellError, make_bare
from contribbot.workspace import run_folder, stores_folder

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
    """What is to be told.

    Attributes:
        name: The patch.
        pin: The release; of the patch's own upstream.
        below: The dependencies of it that are still wanted there, lowest first.
        carried: The files of those whose text was carried over to the release.
    """

    name: str
    pin: Pin
    below: Sequence[str] = ()
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
        _run(waiting, queue, machine, cache, options=options, watcher=watcher)
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


def _run(
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
        run_folder(compiles.kept(), shelf.kept(), *cache.kept) as scratch,
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
