"""Moving a pin, and every patch that stands on it, to another release: all or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contribbot.errors import UsageError
from contribbot.life import resolving
from contribbot.life.carry import carry, land, pin_at
from contribbot.life.stacks import Landed, series_of
from contribbot.life.status import needs_of
from contribbot.model.behaviour import Behaviour, Entry, Need, Says
from contribbot.model.patch import PatchFile
from contribbot.model.pin import Pin
from contribbot.model.plan import Decision, PatchPlan, RebasePlan, Superseded
from contribbot.model.status import Text
from contribbot.queue.load import Queue
from contribbot.sources import Progress, Silent
from contribbot.store.move import Fate, Moved
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
    """Find out which pin is to move."""
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
    """Move the patches in memory and say what becomes of each. Changes nothing."""
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
            if one.verdict is Need.SUPERSEDED and let_go(_plan(moved[name], one), superseded)
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
        superseded=superseded,
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
        conflicts=tuple(one.side for one in moved.conflicts),
        behaviour=behaviour,
    )


def obstacles(plan: RebasePlan) -> list[PatchPlan]:
    """Return the patches that keep a plan from being carried out."""
    keeps = plan.superseded == "keep"
    return [
        one
        for one in plan.patches
        if one.decision is not Decision.MOVE
        and not let_go(one, plan.superseded)
        and not (keeps and one.decision is Decision.SUPERSEDED and moves(one))
    ]


def moves(one: PatchPlan) -> bool:
    """Say whether a patch's text goes along."""
    return one.text in {Text.CLEAN, Text.MERGED}


def let_go(one: PatchPlan, superseded: Superseded) -> bool:
    """Say whether a patch is taken out of the queue."""
    return superseded == "retire" and one.decision is Decision.SUPERSEDED and not unheard(one)


def unheard(one: PatchPlan) -> tuple[Entry, ...]:
    """Return what could not be run here, where only that may say that a patch is still needed."""
    if one.behaviour is None or one.text is Text.UPSTREAM:
        return ()
    return tuple(entry for entry in one.behaviour.entries if entry.says is Says.CANNOT)


def conflicted(plan: RebasePlan) -> list[str]:
    """Return the patches whose conflicts a person must resolve, for all others to move."""
    return [
        one.patch
        for one in obstacles(plan)
        if one.decision is Decision.WORK
        or (plan.superseded == "keep" and one.text is Text.CONFLICT)
    ]


def resolve_next(queue: Queue, prepared: Prepared, *, run: bool, at: Path | None) -> RebasePlan:
    """Open a work tree that holds the first conflict of a plan, for a person to resolve."""
    move = prepared.move
    names = conflicted(prepared.plan)
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
        superseded=prepared.plan.superseded,
    )
    base = prepared.moved[names[0]].base
    opened = resolving.open_conflict(queue, state, base=base, commits=commits, at=at)
    return prepared.plan.model_copy(
        update={
            "resolve": str(opened.path),
            "conflicted": opened.conflicted,
            "remembered": opened.remembered,
        }
    )
