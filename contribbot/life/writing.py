"""Carrying a planned move out: all of it onto the disk, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contribbot.errors import QueueError
from contribbot.life import resolving, retire
from contribbot.life.rebase import Move, Prepared, let_go
from contribbot.model.patch import Patch
from contribbot.model.plan import RebasePlan
from contribbot.queue import edits, versions
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.transaction import Transaction, transaction
from contribbot.store.trees import changes


def carry_out(queue: Queue, prepared: Prepared) -> RebasePlan:
    """Write a plan to the queue: all of it or nothing."""
    plan, move = prepared.plan, prepared.move
    gone = [one.patch for one in plan.patches if let_go(one, plan.superseded)]
    going = [one.patch for one in plan.patches if one.patch not in gone]
    before = {name: queue.patch(name) for name in move.names}
    why = f"rebase from {move.old.tag} to {move.new.tag}"
    with transaction(queue.folder) as change:
        _same(queue, before)
        # What goes is kept first: after the change it can be read nowhere any more.
        for name in gone:
            retire.keep(queue, before[name])
        for name in going:
            if before[name].files:
                versions.record(queue, name, before=None, after=before[name], why=f"before {why}")
        for name in going:
            _write(change, queue, prepared, before[name], gone)
        for name in gone:
            retire.take_out(change, before[name])
        _write_queue(change, queue, move, gone)
        change.commit()
        now = load_queue(queue.folder)
        for name in going:
            if before[name].files:
                versions.record(now, name, before=None, after=now.patch(name), why=why)
        for name in gone:
            reason = next(one.why for one in plan.patches if one.patch == name)
            retire.note(queue, before[name], f"superseded by {move.new.title}: {reason}")
    resolving.forget(queue)
    return plan.model_copy(update={"done": True})


def _same(queue: Queue, before: Mapping[str, Patch]) -> None:
    """See that the queue is still what the plan was made for."""
    now = load_queue(queue.folder)
    for name, patch in before.items():
        if (
            name not in now.specs
            or now.specs[name] != patch.spec
            or now.patch(name).digest != patch.digest
        ):
            raise QueueError(f"{name} was changed meanwhile", hint="run the same again")
    if now.spec != queue.spec:
        raise QueueError("queue.toml was changed meanwhile", hint="run the same again")


def _left(queue: Queue, name: str, gone: Sequence[str]) -> list[str]:
    """Return what a patch depends on, what is below it in the place of what is gone."""
    left: list[str] = []
    for lower in queue.specs[name].depends_on:
        left += _left(queue, lower, gone) if lower in gone else [lower]
    return list(dict.fromkeys(left))


def _write(
    change: Transaction, queue: Queue, prepared: Prepared, patch: Patch, gone: Sequence[str]
) -> None:
    """Write one moved patch."""
    moved = prepared.moved[patch.name]
    folder = f"patches/{patch.name}"
    for file in patch.files:
        change.delete(f"{folder}/{file.name}")
    for file in moved.files:
        change.write(f"{folder}/{file.name}", file.content)
    tip = moved.commits[-1] if moved.commits else moved.base
    touched = {one.path for one in changes(prepared.landed.store, moved.base, tip)}
    stated = change.read(f"{folder}/patch.toml") or b""
    files = [path for path in patch.spec.files if path in touched]
    files += sorted(touched.difference(files))
    change.write(
        f"{folder}/patch.toml",
        edits.set_patch(
            stated,
            pin=prepared.move.new.tag,
            files=files,
            depends_on=_left(queue, patch.name, gone),
        ),
    )


def _write_queue(change: Transaction, queue: Queue, move: Move, gone: Sequence[str]) -> None:
    stated = change.read("patches/queue.toml") or b""
    if queue.pin(move.new.upstream, move.new.tag) is None:
        stated = edits.set_pin(stated, move.old, move.new)
    else:
        stated = edits.remove_pin(stated, move.old)
    for name in gone:
        stated = edits.remove_from_order(stated, name)
    change.write("patches/queue.toml", stated)
