"""Moving a pin, and every patch that stands on it, to another release: all or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contribbot.errors import QueueError, UsageError
from contribbot.life import resolving, retire
from contribbot.life.carry import carry, land, pin_at
from contribbot.life.stacks import Landed, series_of
from contribbot.life.status import needs_of
from contribbot.model.behaviour import Behaviour, Need
from contribbot.model.patch import Patch, PatchFile
from contribbot.model.pin import Pin
from contribbot.model.plan import Decision, PatchPlan, RebasePlan, Side, Superseded
from contribbot.model.status import Text
from contribbot.queue import edits, versions
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.transaction import Transaction, transaction
from contribbot.sources import Progress, Silent
from contribbot.store.conflict import Conflict
from contribbot.store.move import Fate, Moved
from contribbot.store.trees import changes
from contribbot.verify.pipeline import Options, Watcher
from contribbot.workspace import run_folder


@dataclass(frozen=True)
class Move:
    """What is to be moved.

    Attributes:
        old: The pin that moves.
        new: Where to.
        names: The patches on it, in the queue's order.
    """

    old: Pin
    new: Pin
    names: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """A plan, and what carries it out.

    Attributes:
        plan: What becomes of each patch.
        move: What is moved.
        landed: The new pin in the store.
        moved: The patches, moved in memory, by name.
    """

    plan: RebasePlan
    move: Move
    landed: Landed
    moved: dict[str, Moved]


def meant(queue: Queue, *, upstream: str, old: str, tag: str) -> Move:
    """Find out which pin is to move.

    Args:
        queue: The queue.
        upstream: The upstream.
        old: The tag of the pin that moves; empty: the only one that is not the new one.
        tag: The new tag, or `newest`.

    Raises:
        UsageError: It is not clear which pin, or no patch stands on it.
        SourceError: There is no such release.
    """
    new = pin_at(queue, upstream, tag)
    used = dict.fromkeys(spec.pin for spec in queue.specs.values() if spec.upstream == upstream)
    if old and old not in used:
        raise UsageError(
            f"--from {old}: no patch stands on {upstream} {old}",
            hint=f"name one of {', '.join(used)}",
        )
    candidates = [old] if old else [one for one in used if one != new.tag]
    if len(candidates) != 1 or candidates[0] == new.tag:
        what = f"all patches for {upstream} stand on {new.tag} already"
        if candidates and candidates[0] != new.tag:
            what = f"patches for {upstream} stand on {', '.join(candidates)}"
        raise UsageError(what, hint="name the pin that moves with --from")
    pin = queue.pin(upstream, candidates[0])
    assert pin is not None  # noqa: S101  load_queue has checked it
    names = tuple(
        name
        for name, spec in queue.specs.items()
        if (spec.upstream, spec.pin) == (upstream, pin.tag)
    )
    return Move(pin, new, names)


def prepare(
    queue: Queue,
    wanted: Move,
    *,
    run: bool,
    superseded: Superseded = "stop",
    resolved: Mapping[str, tuple[PatchFile, ...]],
    options: Options,
    watcher: Watcher,
) -> Prepared:
    """Move the patches in memory and say what becomes of each. Changes nothing.

    Args:
        queue: The queue.
        wanted: What is to be moved.
        run: Whether to ask the checks if the new release still needs the patches.
        superseded: What to do with those that it does without; what stands on one that is
            retired moves without it.
        resolved: The files of patches whose conflicts a person has resolved.
        options: How to run the checks.
        watcher: Who looks on.

    Raises:
        SourceError: A pin cannot be had.
        UsageError: A patch does not apply to its own pin.
    """
    progress: Progress = watcher.download()
    old, new = (land(queue, pin, progress=progress) for pin in (wanted.old, wanted.new))
    gone: dict[str, tuple[Moved, Behaviour]] = {}
    while True:
        with run_folder() as scratch:
            carried = carry(
                queue, wanted.names, old, new, scratch=scratch, resolved=resolved, gone=gone
            )
        moved = {one.name: one for one in carried}
        needs: dict[str, Behaviour] = {}
        if run:
            asked = [name for name in wanted.names if name not in gone]
            needs = needs_of(queue, asked, wanted.new, moved, options=options, watcher=watcher)
        more = {
            name: (moved[name], one)
            for name, one in needs.items()
            if superseded == "retire" and one.verdict is Need.SUPERSEDED
        }
        if not more:
            break
        gone |= more
    moved |= {name: one for name, (one, _) in gone.items()}
    needs |= {name: one for name, (_, one) in gone.items()}
    plan = RebasePlan(
        upstream=wanted.new.upstream,
        old=wanted.old.tag,
        new=wanted.new.tag,
        patches=tuple(_plan(moved[name], needs.get(name)) for name in wanted.names),
    )
    return Prepared(plan, wanted, new, moved)


def _plan(moved: Moved, behaviour: Behaviour | None) -> PatchPlan:
    decision = {
        Fate.CLEAN: Decision.MOVE,
        Fate.MERGED: Decision.MOVE,
        Fate.UPSTREAM: Decision.SUPERSEDED,
        Fate.CONFLICT: Decision.WORK,
        Fate.BLOCKED: Decision.BLOCKED,
    }[moved.fate]
    why = moved.why
    if behaviour is not None and behaviour.verdict is Need.SUPERSEDED:
        decision, why = Decision.SUPERSEDED, behaviour.why
    return PatchPlan(
        patch=moved.name,
        decision=decision,
        text=Text(str(moved.fate)),
        why=why,
        conflicts=tuple(_side(one) for one in moved.conflicts),
        behaviour=behaviour,
    )


def _side(conflict: Conflict) -> Side:
    return Side(
        headline=conflict.headline,
        path=conflict.path,
        line=conflict.line,
        expected=conflict.expected,
        found=conflict.found,
        wanted=conflict.wanted,
    )


def obstacles(plan: RebasePlan, superseded: Superseded) -> list[PatchPlan]:
    """Return the patches that keep a plan from being carried out.

    Args:
        plan: The plan.
        superseded: What to do with patches that are no longer needed.
    """
    return [
        one
        for one in plan.patches
        if one.decision is not Decision.MOVE
        and not _let_go(one, superseded)
        and not (superseded == "keep" and one.decision is Decision.SUPERSEDED and moves(one))
    ]


def moves(one: PatchPlan) -> bool:
    """Say whether a patch's text goes along."""
    return one.text in {Text.CLEAN, Text.MERGED}


def _let_go(one: PatchPlan, superseded: Superseded) -> bool:
    return superseded == "retire" and one.decision is Decision.SUPERSEDED


def carry_out(queue: Queue, prepared: Prepared, *, superseded: Superseded) -> RebasePlan:
    """Write a plan to the queue: all of it or nothing.

    Args:
        queue: The queue that the plan was made for.
        prepared: The plan, without obstacles.
        superseded: What to do with patches that are no longer needed.

    Returns:
        The plan, done.

    Raises:
        QueueError: The queue has changed since.
    """
    plan, move = prepared.plan, prepared.move
    gone = [one.patch for one in plan.patches if _let_go(one, superseded)]
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
    """See that the queue is still what the plan was made for.

    Raises:
        QueueError: It is not.
    """
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


def resolve_next(
    queue: Queue, prepared: Prepared, *, run: bool, superseded: Superseded, at: Path | None
) -> RebasePlan:
    """Open a work tree that holds the first conflict of a plan, for a person to resolve.

    Args:
        queue: The queue.
        prepared: The plan.
        run: Whether the checks are asked, for when it goes on.
        superseded: What to do with patches that are no longer needed, then.
        at: Where; None: in the queue's local folder.

    Returns:
        The plan, with the folder; as it is where nothing conflicts.
    """
    move = prepared.move
    names = [one.patch for one in prepared.plan.patches if one.decision is Decision.WORK]
    if not names:
        return prepared.plan
    old = land(queue, move.old, progress=Silent())
    with run_folder() as scratch:
        series = series_of(queue, names[:1], old, scratch=scratch)[names[0]]
    commits = [one.commit for one in series.applied]
    state = resolving.Underway(
        upstream=move.new.upstream,
        old=move.old.tag,
        new=move.new,
        open=names[0],
        run=run,
        superseded=superseded,
    )
    base = prepared.moved[names[0]].base
    opened = resolving.open_conflict(queue, state, base=base, commits=commits, at=at)
    return prepared.plan.model_copy(update={"resolve": str(opened.path)})
