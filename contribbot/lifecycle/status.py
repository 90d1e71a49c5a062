"""Every patch at a glance, on its own pin. Downloads and runs nothing."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version
from pydantic import TypeAdapter, ValidationError

from contribbot.files import run_folder, stores_folder, write_atomically
from contribbot.git.merge import Fate, Moved
from contribbot.git.repository import open_store
from contribbot.git.sources import find
from contribbot.lifecycle.stack import carried_over, pin_at
from contribbot.model.evidence import ON_HARDWARE, Outcome, StageResult
from contribbot.model.history import Event, PullRequestEvent, VersionEvent
from contribbot.model.lifecycle import (
    Behaviour,
    Due,
    PatchStatus,
    StatusReport,
    TargetState,
    Text,
    TextState,
)
from contribbot.model.lifecycle import Says as Said
from contribbot.model.patch import Expiry, PatchSpec
from contribbot.model.pin import Pin, ReleaseRecipe
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.stack import (
    AppliedPatch,
    Landed,
    PatchStack,
    land,
    own_pin,
    with_dependencies,
)
from contribbot.verify.base_only import Ask, behaviours
from contribbot.verify.evidence import State, read_records
from contribbot.verify.pipeline import Options, Watcher, tool_digest


def asked(spec: PatchSpec) -> list[str]:
    """Return the targets on which a patch states something, as `--require` names them."""
    ran = [one.target for one in (*spec.checks, *spec.numerics, *spec.bench)]
    compiled = [f"compile:{target}" for one in spec.compile for target in one.targets]
    built = [f"build:{target}" for one in spec.build for target in one.targets]
    return list(dict.fromkeys([*ran, *compiled, *built]))


def target_states(queue: Queue, name: str) -> tuple[TargetState, ...]:
    """Return what the records in the queue say of each target of a patch."""
    by_state: dict[State, set[str]] = {State.FRESH: set(), State.STALE: set()}
    targets = asked(queue.specs[name])
    for record in read_records(queue, queue.evidence, name):
        if record.state in by_state and record.statement is not None:
            stages = record.statement.predicate.contribbot.stages
            by_state[record.state] |= {one for one in targets if _passed(stages, one)}
    return tuple(
        TargetState(
            target=one,
            evidence=next(
                (str(state) for state, seen in by_state.items() if one in seen), "missing"
            ),
        )
        for one in targets
    )


def _passed(stages: Sequence[StageResult], need: str) -> bool:
    """Say whether all that a record has of a target passed."""
    stage, _, target = need.rpartition(":")
    outcomes = {
        one.outcome
        for one in stages
        if one.target == target and (one.stage == stage if stage else one.stage in ON_HARDWARE)
    }
    return outcomes == {Outcome.PASSED}


_SAID: TypeAdapter[dict[str, TextState]] = TypeAdapter(dict[str, TextState])


class Remembered:
    """What was said, and what is said now."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._path: Path = queue.local / "texts.json"
        self._before: dict[str, TextState] = {}
        with contextlib.suppress(OSError, ValidationError):
            self._before = _SAID.validate_json(self._path.read_bytes())
        self._now: dict[str, TextState] = {}

    def key(self, name: str, commit: str) -> str:
        """Return what an answer about a patch depends on."""
        stack = [self._queue.patch(one).digest for one in (*self._queue.below(name), name)]
        text = json.dumps([tool_digest(), commit, *stack])
        return hashlib.sha256(text.encode()).hexdigest()

    def get(self, key: str) -> TextState | None:
        """Return what was said, and keep it."""
        known = self._before.get(key)
        if known is not None:
            self._now[key] = known
        return known

    def put(self, key: str, says: TextState) -> None:
        """Remember what is said now."""
        self._now[key] = says

    def save(self) -> None:
        """Write it, where it is news. That it cannot be written is no error: it costs time only."""
        if self._now.keys() <= self._before.keys():
            return
        with contextlib.suppress(OSError):
            write_atomically(self._path, _SAID.dump_json(self._now))


def due(
    expiry: Expiry, against: Pin, merged: frozenset[str], *, releases: ReleaseRecipe | None = None
) -> Due:
    """Tell whether a condition has come."""
    if expiry.release is not None:
        return _release(expiry.release, against.tag, releases)
    if expiry.dependency is not None:
        return _dependency(expiry.dependency)
    reference = str(expiry.pull_request)
    condition = f"{reference} is merged"
    if reference in merged:
        return Due(condition=condition, come=True, why="the patch's history says so")
    return Due(condition=condition, come=None, why="only GitHub can tell; see its page")


def _release(release: str, tag: str, releases: ReleaseRecipe | None) -> Due:
    condition = f"release {release}"
    if tag == release:
        return Due(condition=condition, come=True, why="this is it")
    try:
        there, wanted = (
            Version((releases and releases.version_of(one)) or one) for one in (tag, release)
        )
    except InvalidVersion:
        return Due(condition=condition, come=None, why=f"{tag} and {release} are not both versions")
    come = there >= wanted
    return Due(
        condition=condition, come=come, why=f"{tag} is {'at or after' if come else 'before'} it"
    )


def _dependency(text: str) -> Due:
    try:
        wanted = Requirement(text)
    except InvalidRequirement as error:
        return Due(condition=text, come=None, why=f"no requirement that can be read: {error}")
    try:
        version = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        return Due(condition=text, come=None, why=f"{wanted.name} is not installed here")
    come = wanted.specifier.contains(version, prereleases=True)
    return Due(condition=text, come=come, why=f"{wanted.name} {version} is installed here")


def status(queue: Queue, names: Sequence[str]) -> StatusReport:
    """Tell where patches stand on their own pins. Downloads and runs nothing."""
    pins: dict[Pin, list[str]] = {}
    for name in with_dependencies(queue, names):
        pins.setdefault(own_pin(queue, name), []).append(name)
    said: dict[str, TextState] = {}
    remembered = Remembered(queue)
    for pin, theirs in pins.items():
        said |= _on_own_pin(queue, pin, theirs, remembered)
    remembered.save()
    return StatusReport(patches=tuple(row(queue, name, said[name]) for name in names))


def _on_own_pin(
    queue: Queue, pin: Pin, names: list[str], remembered: Remembered
) -> dict[str, TextState]:
    store = open_store(stores_folder(), pin.upstream)
    found = find(pin, queue.upstreams[pin.upstream], store)
    if found is None:
        why = f"{pin.title} is not on this machine yet; contribbot verify brings it"
        return dict.fromkeys(names, TextState(text=Text.UNKNOWN, why=why))
    keys = {name: remembered.key(name, found.commit) for name in names}
    said = {name: remembered.get(key) for name, key in keys.items()}
    unsaid = [name for name in names if said[name] is None]
    if unsaid:
        landed = Landed(pin, found.commit, store)
        with run_folder() as scratch, store.exclusive():
            stack = PatchStack(queue, landed, scratch)
            for name in unsaid:
                says = _of_applied(stack.apply(name), empty=not queue.patch(name).files)
                remembered.put(keys[name], says)
                said[name] = says
    return {name: says for name, says in said.items() if says is not None}


def _of_applied(applied: AppliedPatch, *, empty: bool) -> TextState:
    series = applied.series
    if series.conflicts:
        return TextState(text=Text.CONFLICT, why=applied.why)
    if applied.why:
        return TextState(text=Text.BLOCKED, why=applied.why)
    if empty:
        return TextState(text=Text.CLEAN, why="it has no commits yet")
    allowed = [item.phrase for one in series.applied for item in one.adjustments]
    if allowed:
        return TextState(text=Text.OFFSET, why="; ".join(allowed))
    return TextState(text=Text.CLEAN, why="applies exactly")


def row(
    queue: Queue,
    name: str,
    says: TextState,
    *,
    against: Pin | None = None,
    behaviour: Behaviour | None = None,
) -> PatchStatus:
    """Put together what is known of a patch."""
    spec = queue.specs[name]
    pin = against or own_pin(queue, name)
    events = history.read(queue.folder, name)
    return PatchStatus(
        patch=name,
        upstream=spec.upstream,
        pin=spec.pin,
        against=pin.tag,
        text=says.text,
        text_why=says.why,
        behaviour=behaviour,
        evidence=target_states(queue, name),
        contribution=_contribution(events),
        due=tuple(
            due(one, pin, _merged(events), releases=queue.upstreams[spec.upstream].release)
            for one in spec.expires_when
        ),
        versions=sum(1 for event in events if isinstance(event, VersionEvent)),
    )


def _contribution(events: Sequence[Event]) -> str:
    """Say what the history knows of the pull request."""
    seen = [event for event in events if isinstance(event, PullRequestEvent)]
    return f"{seen[-1].reference} {seen[-1].state}" if seen else "none"


def _merged(events: Sequence[Event]) -> frozenset[str]:
    """Return the pull requests that are merged, as far as is known, and were not reverted."""
    last = {one.reference: one.state for one in events if isinstance(one, PullRequestEvent)}
    return frozenset(reference for reference, state in last.items() if state == "merged")


def status_against(
    queue: Queue,
    names: Sequence[str],
    *,
    upstream: str,
    tag: str,
    run: bool,
    options: Options,
    watcher: Watcher,
) -> StatusReport:
    """Tell what a release of an upstream makes of the patches for it.

    Of a patch that does not apply to its own pin, nothing can be told there; it keeps
    nobody from hearing of the others.
    """
    theirs = [name for name in names if queue.specs[name].upstream == upstream]
    new = land(queue, pin_at(queue, upstream, tag), progress=watcher.download())
    moved: dict[str, Moved] = {}
    said: dict[str, TextState] = {}
    for pin in {queue.specs[name].pin: own_pin(queue, name) for name in theirs}.values():
        land(queue, pin, progress=watcher.download())
        mine = [name for name in theirs if queue.specs[name].pin == pin.tag]
        said |= _broken(queue, mine)
        whole = [name for name in mine if name not in said]
        if whole:
            moved |= carried_over(queue, whole, new, progress=watcher.download())
    told = [name for name in theirs if name not in said]
    said |= {name: _of_move(moved[name]) for name in told}
    needs = needs_of(queue, told, new.pin, moved, options=options, watcher=watcher) if run else {}
    rows = {
        name: row(queue, name, said[name], against=new.pin, behaviour=needs.get(name))
        for name in theirs
    }
    others = status(queue, [name for name in names if name not in rows])
    rows |= {row.patch: row for row in others.patches}
    return StatusReport(patches=tuple(rows[name] for name in names))


def _broken(queue: Queue, names: Sequence[str]) -> dict[str, TextState]:
    """Return what is said of patches that do not apply to their own pin, which is here."""
    return {
        one.patch: TextState(
            text=Text.UNKNOWN, why=f"it does not apply to its own pin {one.pin}: {one.text_why}"
        )
        for one in status(queue, names).patches
        if one.text in {Text.CONFLICT, Text.BLOCKED}
    }


def needs_of(
    queue: Queue,
    names: Sequence[str],
    pin: Pin,
    moved: dict[str, Moved],
    *,
    options: Options,
    watcher: Watcher,
) -> dict[str, Behaviour]:
    """Run the checks of patches without them at a release.

    A patch stands on those of its dependencies that the release does not make
    unnecessary: what is superseded is left out, lowest first.
    """
    asks = [_ask(queue, name, pin, moved) for name in names]
    found = {one.patch: one for one in behaviours(queue, asks, options=options, watcher=watcher)}
    passing = [name for name, one in found.items() if Said.PASSES in _said(one)]
    owns = behaviours(
        queue, [_own(queue, name) for name in passing], options=options, watcher=watcher
    )
    return found | {own.patch: _corrected(found[own.patch], own) for own in owns}


def _said(behaviour: Behaviour) -> set[Said]:
    return {entry.says for entry in behaviour.entries}


def _own(queue: Queue, name: str) -> Ask:
    return Ask(name, own_pin(queue, name), tuple(queue.below(name)))


def _corrected(there: Behaviour, own: Behaviour) -> Behaviour:
    """Let entries say nothing that pass without the patch on its own pin too."""
    empty = {entry.label for entry in own.entries if entry.says is Said.PASSES}
    why = f"it passes without the patch at {own.pin} too, and proves nothing"
    entries = tuple(
        entry.model_copy(update={"says": Said.OTHER, "reason": why})
        if entry.says is Said.PASSES and entry.label in empty
        else entry
        for entry in there.entries
    )
    return there.model_copy(update={"entries": entries})


def _of_move(moved: Moved) -> TextState:
    if moved.fate is Fate.CLEAN and moved.adjustments:
        whys = [*(item.phrase for item in moved.adjustments), moved.why]
        return TextState(text=Text.OFFSET, why="; ".join(filter(None, whys)))
    return TextState(text=Text(str(moved.fate)), why=moved.why)


def _ask(queue: Queue, name: str, pin: Pin, moved: dict[str, Moved]) -> Ask:
    below = [low for low in queue.below(name) if moved[low].fate in {Fate.CLEAN, Fate.MERGED}]
    return Ask(name, pin, tuple(below), {low: moved[low].files for low in below})
