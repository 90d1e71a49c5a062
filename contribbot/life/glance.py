"""Every patch at a glance, on its own pin. Downloads and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from contribbot.life.evidence import target_states
from contribbot.life.expiry import due
from contribbot.life.remembered import Remembered
from contribbot.life.stacks import Landed, own_pin, series_of, with_dependencies
from contribbot.model.behaviour import Behaviour
from contribbot.model.history import Event, PullRequestEvent, VersionEvent
from contribbot.model.pin import Pin
from contribbot.model.status import PatchStatus, Says, StatusReport, Text
from contribbot.queue import journal
from contribbot.queue.load import Queue
from contribbot.sources import find
from contribbot.store.repository import open_store
from contribbot.store.series import Series
from contribbot.workspace import run_folder, stores_folder


def status(queue: Queue, names: Sequence[str]) -> StatusReport:
    """Tell where patches stand on their own pins. Downloads and runs nothing."""
    pins: dict[Pin, list[str]] = {}
    for name in with_dependencies(queue, names):
        pins.setdefault(own_pin(queue, name), []).append(name)
    said: dict[str, Says] = {}
    remembered = Remembered(queue)
    for pin, theirs in pins.items():
        said |= _on_own_pin(queue, pin, theirs, remembered)
    remembered.save()
    return StatusReport(patches=tuple(row(queue, name, said[name]) for name in names))


def _on_own_pin(
    queue: Queue, pin: Pin, names: list[str], remembered: Remembered
) -> dict[str, Says]:
    store = open_store(stores_folder(), pin.upstream)
    found = find(pin, queue.upstreams[pin.upstream], store)
    if found is None:
        why = f"{pin.title} is not on this machine yet; contribbot verify brings it"
        return dict.fromkeys(names, Says(text=Text.UNKNOWN, why=why))
    keys = {name: remembered.key(name, found.commit) for name in names}
    said = {name: remembered.get(key) for name, key in keys.items()}
    unsaid = [name for name in names if said[name] is None]
    if unsaid:
        landed = Landed(pin, found.commit, store)
        with run_folder() as scratch:
            for name, series in series_of(queue, unsaid, landed, scratch=scratch).items():
                says = _of_series(series, empty=not queue.patch(name).files)
                remembered.put(keys[name], says)
                said[name] = says
    return {name: says for name, says in said.items() if says is not None}


def _of_series(series: Series, *, empty: bool) -> Says:
    if empty:
        return Says(text=Text.CLEAN, why="it has no commits yet")
    if series.conflicts:
        return Says(text=Text.CONFLICT, why=series.conflicts[0].headline)
    if not series.applied:
        return Says(text=Text.BLOCKED, why="a patch that it depends on does not apply")
    allowed = [item.phrase for one in series.applied for item in one.adjustments]
    if allowed:
        return Says(text=Text.OFFSET, why="; ".join(allowed))
    return Says(text=Text.CLEAN, why="applies exactly")


def row(
    queue: Queue,
    name: str,
    says: Says,
    *,
    against: Pin | None = None,
    behaviour: Behaviour | None = None,
) -> PatchStatus:
    """Put together what is known of a patch."""
    spec = queue.specs[name]
    pin = against or own_pin(queue, name)
    events = journal.read(queue.folder, name)
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
