"""Return the state of each patch, on its own pin or at another release."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from contribbot.files import run_folder, stores_folder, tool_digest, write_atomically
from contribbot.git.merge import RebaseResult
from contribbot.git.pins.sources import stored_tree
from contribbot.git.repository import open_store
from contribbot.model.base import Model
from contribbot.model.evidence import pin_digest
from contribbot.model.lifecycle import (
    Behaviour,
    PatchStatus,
    Says,
    StatusReport,
    TargetState,
    TargetStates,
    Text,
    TextState,
)
from contribbot.model.pin import Pin
from contribbot.queue import history
from contribbot.queue.history import (
    VersionEvent,
    due,
    merged_in,
    remember_superseded,
    superseded_by_release,
    superseded_words,
)
from contribbot.queue.load import Queue
from contribbot.queue.stack import (
    AppliedPatch,
    FetchedPin,
    PatchStack,
    carried_over,
    fetch_pin,
    own_pin,
    pin_at,
    with_dependencies,
)
from contribbot.verify.evidence import target_states

if TYPE_CHECKING:
    from contribbot.verify.pipeline import Options, Watcher


class _Answers(Model):
    """The file of remembered answers; a key is the digest of all that decides an answer."""

    texts: dict[str, TextState] = Field(default_factory=dict)
    evidence: dict[str, TargetStates] = Field(default_factory=dict)


class _Memory:
    """The answers of earlier runs of `status`, so that unchanged patches are not applied again."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._path = queue.local / "status.json"
        self._tool = tool_digest()
        self._before, self._now = _Answers(), _Answers()
        with contextlib.suppress(OSError, ValidationError):
            self._before = _Answers.model_validate_json(self._path.read_bytes())

    def _key(self, name: str, *facts: str) -> str:
        stack = [self._queue.patch(low).digest for low in (*self._queue.below(name), name)]
        text = json.dumps([self._tool, name, *stack, *facts])
        return hashlib.sha256(text.encode()).hexdigest()

    def text(self, name: str, commit: str) -> TextState | None:
        """Return the remembered TextState of a patch on a pin's commit; None: not remembered."""
        key = self._key(name, commit)
        if key in self._before.texts:
            self._now.texts[key] = self._before.texts[key]
        return self._now.texts.get(key)

    def put_text(self, name: str, state: TextState, commit: str) -> TextState:
        """Remember and return the TextState of a patch on a pin's commit."""
        return self._now.texts.setdefault(self._key(name, commit), state)

    def evidence(self, name: str) -> tuple[TargetState, ...]:
        """Return the states of a patch's targets, remembered until patch or records change."""
        patch = self._queue.patch(name)
        records = [
            f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            for path in sorted((self._queue.evidence / name).glob("*.json"))
            if path.is_file()
        ]
        pinned = pin_digest(patch.pin, patch.upstream)
        key = self._key(name, patch.checks_digest, patch.spec.model_dump_json(), pinned, *records)
        states = self._before.evidence.get(key)
        if states is None:
            states = target_states(self._queue, name)
        self._now.evidence[key] = states
        return states

    def save(self) -> None:
        """Write the answers if there are new ones; a failure to write is ignored."""
        if any(
            not now.keys() <= before.keys()
            for now, before in (
                (self._now.texts, self._before.texts),
                (self._now.evidence, self._before.evidence),
            )
        ):
            with contextlib.suppress(OSError):
                write_atomically(self._path, self._now.model_dump_json().encode())


def status(queue: Queue, names: Sequence[str]) -> StatusReport:
    """Return the state of patches on their own pins, without downloading or running anything."""
    memory = _Memory(queue)
    texts = _own_texts(queue, names, memory)
    rows = tuple(_row(queue, name, texts[name], memory) for name in names)
    memory.save()
    return StatusReport(patches=rows)


def _own_texts(queue: Queue, names: Sequence[str], memory: _Memory) -> dict[str, TextState]:
    """Return how patches and their dependencies apply to their own pins."""
    pins: dict[Pin, list[str]] = {}
    for name in with_dependencies(queue, names):
        pins.setdefault(own_pin(queue, name), []).append(name)
    texts: dict[str, TextState] = {}
    for pin, theirs in pins.items():
        store = open_store(stores_folder(), pin.upstream)
        provided = stored_tree(pin, queue.upstreams[pin.upstream], store)
        if provided is None:
            why = f"{pin.title} is not on this machine yet; contribbot verify brings it"
            texts |= dict.fromkeys(theirs, TextState(text=Text.UNKNOWN, why=why))
            continue
        known = {name: memory.text(name, provided.commit) for name in theirs}
        texts |= {name: text for name, text in known.items() if text is not None}
        if unknown := [name for name, text in known.items() if text is None]:
            fetched = FetchedPin(pin, provided.commit, store)
            with run_folder() as scratch, store.exclusive():
                stack = PatchStack(queue, fetched, scratch)
                for name in unknown:
                    text = _of_applied(stack.apply(name), empty=not queue.patch(name).files)
                    texts[name] = memory.put_text(name, text, provided.commit)
    return texts


def _of_applied(applied: AppliedPatch, *, empty: bool) -> TextState:
    if applied.series.conflicts:
        return TextState(text=Text.CONFLICT, why=applied.why)
    if applied.why:
        return TextState(text=Text.BLOCKED, why=applied.why)
    if empty:
        return TextState(text=Text.CLEAN, why="it has no commits yet")
    allowed = [item.phrase for each in applied.series.applied for item in each.adjustments]
    if allowed:
        return TextState(text=Text.OFFSET, why="; ".join(allowed))
    return TextState(text=Text.CLEAN, why="applies exactly")


def _row(
    queue: Queue,
    name: str,
    text: TextState,
    memory: _Memory,
    *,
    against: Pin | None = None,
    behaviour: Behaviour | None = None,
) -> PatchStatus:
    """Return a patch's status on its own pin, or at the release `against`."""
    spec, pin = queue.specs[name], against or own_pin(queue, name)
    events = history.read(queue.folder, name)
    merged = merged_in(queue, name)
    releases = queue.upstreams[spec.upstream].release
    now = PatchStatus(
        patch=name,
        upstream=spec.upstream,
        pin=spec.pin,
        against=pin.tag,
        text=text.text,
        text_why=text.why,
        behaviour=behaviour,
        evidence=memory.evidence(name),
        contribution=history.pull_request_words(events) or "none",
        due=tuple(due(expiry, pin.tag, merged, releases=releases) for expiry in spec.expires_when),
        versions=sum(isinstance(event, VersionEvent) for event in events),
    )
    there = superseded_by_release(now)
    words = superseded_words(queue, name) or (there.words if there else "")
    return now.model_copy(update={"superseded": words})


def status_against(
    queue: Queue,
    names: Sequence[str],
    *,
    upstreams: Sequence[str],
    tag: str,
    run: bool,
    options: Options,
    watcher: Watcher,
) -> StatusReport:
    """Return the state of patches at a release; `newest` means each upstream's newest release."""
    memory = _Memory(queue)
    rows: dict[str, PatchStatus] = {}
    for upstream in upstreams:
        theirs = [name for name in names if queue.specs[name].upstream == upstream]
        new = fetch_pin(queue, pin_at(queue, upstream, tag), progress=watcher.download())
        moved, texts = _moves(queue, theirs, new, memory, watcher=watcher)
        sure = [name for name in theirs if name in moved]
        needs: dict[str, Behaviour] = {}
        if run:
            needs = needs_of(queue, sure, new.pin, moved, options=options, watcher=watcher)
        for name in theirs:
            text, need = texts[name], needs.get(name)
            rows[name] = _row(queue, name, text, memory, against=new.pin, behaviour=need)
    if tag == "newest":
        # Without a run, only UPSTREAM is certain; other texts do not show that a patch is needed.
        told = [row for row in rows.values() if row.behaviour or row.text is Text.UPSTREAM]
        remember_superseded(queue, {row.patch: superseded_by_release(row) for row in told})
    others = [name for name in names if name not in rows]
    own = _own_texts(queue, others, memory)
    rows |= {name: _row(queue, name, own[name], memory) for name in others}
    memory.save()
    return StatusReport(patches=tuple(rows[name] for name in names))


def _moves(
    queue: Queue, names: Sequence[str], new: FetchedPin, memory: _Memory, *, watcher: Watcher
) -> tuple[dict[str, RebaseResult], dict[str, TextState]]:
    """Merge patches onto a release, except patches that do not apply to their own pins."""
    moved: dict[str, RebaseResult] = {}
    texts: dict[str, TextState] = {}
    for pin in {queue.specs[name].pin: own_pin(queue, name) for name in names}.values():
        fetch_pin(queue, pin, progress=watcher.download())
        mine = [name for name in names if queue.specs[name].pin == pin.tag]
        own = _own_texts(queue, mine, memory)
        broken = {name for name in mine if own[name].text in {Text.CONFLICT, Text.BLOCKED}}
        for name in broken:
            why = f"it does not apply to its own pin {pin.tag}: {own[name].why}"
            texts[name] = TextState(text=Text.UNKNOWN, why=why)
        if whole := [name for name in mine if name not in broken]:
            moved |= carried_over(queue, whole, new, progress=watcher.download())
    for name in (name for name in names if name not in texts):
        there = moved[name]
        texts[name] = TextState(text=there.status, why=there.why)
    return moved, texts


def needs_of(
    queue: Queue,
    names: Sequence[str],
    pin: Pin,
    moved: Mapping[str, RebaseResult],
    *,
    options: Options,
    watcher: Watcher,
) -> dict[str, Behaviour]:
    """Run checks of patches at a release, each without its patch but with its dependencies."""
    from contribbot.verify.one_tree import Ask, behaviours  # noqa: PLC0415  start-up time

    asks = []
    for name in names:
        statuses = {low: moved[low].status for low in queue.below(name)}
        applied = {Text.CLEAN, Text.MERGED}
        below = [low for low, status in statuses.items() if status in applied]
        asks.append(Ask(name, pin, tuple(below), {low: moved[low].files for low in below}))
    answers = behaviours(queue, asks, options=options, watcher=watcher)
    needs = {need.patch: need for need in answers}
    # A check that passes without the patch on the patch's own pin, too, proves nothing.
    own = [
        Ask(name, own_pin(queue, name), tuple(queue.below(name)))
        for name, need in needs.items()
        if any(entry.says is Says.PASSES for entry in need.entries)
    ]
    for at_own in behaviours(queue, own, options=options, watcher=watcher):
        empty = {entry.label for entry in at_own.entries if entry.says is Says.PASSES}
        why = f"it passes without the patch at {at_own.pin} too, and proves nothing"
        need = needs[at_own.patch]
        entries = tuple(
            entry.model_copy(update={"says": Says.OTHER, "reason": why})
            if entry.says is Says.PASSES and entry.label in empty
            else entry
            for entry in need.entries
        )
        needs[at_own.patch] = need.model_copy(update={"entries": entries})
    return needs


def of_newest(options: Options, watcher: Watcher) -> Callable[[Queue, str], PatchStatus]:
    """Return a function that returns a patch's status at its upstream's newest release."""

    def ask(queue: Queue, name: str) -> PatchStatus:
        upstream = queue.specs[name].upstream
        report = status_against(
            queue,
            [name],
            upstreams=[upstream],
            tag="newest",
            run=True,
            options=options,
            watcher=watcher,
        )
        return report.patches[0]

    return ask
