"""What a release makes of the patches of a queue."""

from __future__ import annotations

from collections.abc import Sequence

from contribbot.life.carry import carried_over, land, pin_at
from contribbot.life.glance import row, status
from contribbot.life.stacks import own_pin
from contribbot.model.behaviour import Behaviour
from contribbot.model.behaviour import Says as Said
from contribbot.model.pin import Pin
from contribbot.model.status import Says, StatusReport, Text
from contribbot.queue.load import Queue
from contribbot.store.move import Fate, Moved
from contribbot.verify.behaviour import Ask, behaviours
from contribbot.verify.pipeline import Options, Watcher


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
    said: dict[str, Says] = {}
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


def _broken(queue: Queue, names: Sequence[str]) -> dict[str, Says]:
    """Return what is said of patches that do not apply to their own pin, which is here."""
    return {
        one.patch: Says(
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


def _of_move(moved: Moved) -> Says:
    if moved.fate is Fate.CLEAN and moved.adjustments:
        return Says(text=Text.OFFSET, why="; ".join(item.phrase for item in moved.adjustments))
    return Says(text=Text(str(moved.fate)), why=moved.why)


def _ask(queue: Queue, name: str, pin: Pin, moved: dict[str, Moved]) -> Ask:
    below = [low for low in queue.below(name) if moved[low].fate in {Fate.CLEAN, Fate.MERGED}]
    return Ask(name, pin, tuple(below), {low: moved[low].files for low in below})
