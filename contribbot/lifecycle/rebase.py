"""Moving a pin, and every patch that stands on it, to another release: all or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot.errors import QueueError, UsageError
from contribbot.files import lock, run_folder, write_atomically
from contribbot.git.merge import Fate, Moved
from contribbot.git.patch_format import changes
from contribbot.git.source import Progress, Silent
from contribbot.lifecycle.stack import pin_at, upstream_meant
from contribbot.lifecycle.status import needs_of
from contribbot.model.base import Model, Name, Tag
from contribbot.model.history import RetiredEvent
from contribbot.model.lifecycle import (
    Behaviour,
    Decision,
    Need,
    PatchPlan,
    RebasePlan,
    Superseded,
    Text,
)
from contribbot.model.patch import Patch, PatchFile, digest_of
from contribbot.model.pin import Pin
from contribbot.queue import history, toml_edit, worktree
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.stack import Landed, carry, land, series_of
from contribbot.queue.transaction import Transaction, transaction
from contribbot.queue.worktree import find_tree
from contribbot.verify.pipeline import Options, Watcher

#: In the folder of moves: no patch has such a name.
_STATE: Final = ".state.json"
#: Beside a patch's resolution: the digest of the patch that it is of.
_OF: Final = "of"


class Underway(Model):
    """A move that waits for a person."""

    upstream: Name
    old: Tag
    new: Pin
    open: Name
    run: bool = True
    superseded: Superseded = "stop"


def _folder(queue: Queue) -> Path:
    return queue.local / "rebase"


@contextlib.contextmanager
def alone(queue: Queue) -> Iterator[None]:
    """Let nobody else move a pin of the queue, or resolve, or give a move up, meanwhile."""
    with lock(queue.local / "rebase.lock", "a move of a pin"):
        yield


def underway(queue: Queue) -> Underway | None:
    """Return the move that waits for a person, if any."""
    try:
        return Underway.model_validate_json((_folder(queue) / _STATE).read_bytes())
    except (OSError, ValidationError):
        return None


def required(queue: Queue) -> Underway:
    """Return the move that waits for a person."""
    found = underway(queue)
    if found is None:
        raise UsageError("no move is underway", hint="start one: contribbot rebase --to TAG")
    return found


def resolved(queue: Queue) -> dict[str, tuple[PatchFile, ...]]:
    """Return the files of the patches that are resolved already."""
    if underway(queue) is None:
        return {}
    found = {}
    for name in queue.specs:
        folder = _folder(queue) / name
        if not folder.is_dir() or (folder / _OF).read_text() != queue.patch(name).digest:
            continue  # the patch was changed since: its conflict comes up again
        found[name] = tuple(
            PatchFile(path.name, path.read_bytes()) for path in sorted(folder.glob("*.patch"))
        )
    return found


def open_conflict(
    queue: Queue, state: Underway, *, base: str, commits: Sequence[str], at: Path | None
) -> worktree.Replay:
    """Open a work tree with a patch's conflict in it."""
    # First who waits: killed before the tree is there, the move can still be ended.
    place, before = _folder(queue) / _STATE, underway(queue)
    write_atomically(place, state.model_dump_json(indent=2).encode())
    try:
        return worktree.open_replay(queue, state.open, base=base, commits=commits, at=at)
    except UsageError:
        if before is None:
            place.unlink()
        else:
            write_atomically(place, before.model_dump_json(indent=2).encode())
        raise


def take_resolution(queue: Queue) -> str:
    """Take the commits of the open work tree over as a patch's resolution."""
    state = required(queue)
    folder = _folder(queue) / state.open
    tree = find_tree(queue, state.open)
    if tree is None and folder.is_dir():
        return state.open  # taken before; what came after it failed
    if tree is None or tree.state.kind != "replay":
        raise UsageError(
            f"the work tree with the conflict of {state.open} is gone",
            hint=f"open it again: contribbot rebase --to {state.new.tag} --upstream "
            f"{state.upstream} --from {state.old} --resolve; or end it with --abort",
        )
    files = worktree.taken(queue, state.open)
    digest = queue.patch(state.open).digest
    if tree.state.opened != digest:
        raise UsageError(
            f"{state.open} was changed since its conflict was opened",
            hint="contribbot rebase --abort, and begin again; how it was resolved is remembered",
        )
    # In one step: half of a resolution must never be taken for a whole one.
    with transaction(queue.folder) as change:
        for path in folder.glob("*"):
            change.delete(path.relative_to(queue.folder).as_posix())
        place = folder.relative_to(queue.folder).as_posix()
        change.write(f"{place}/{_OF}", digest.encode())
        for file in files:
            change.write(f"{place}/{file.name}", file.content)
    worktree.close_replay(queue, state.open)
    return state.open


def _forget(change: Transaction, queue: Queue) -> None:
    """End a move, as part of a change: what waits, and its resolutions."""
    for path in _folder(queue).rglob("*"):
        if path.is_file():
            change.delete(path.relative_to(queue.folder).as_posix())


def take_out(change: Transaction, queue: Queue, patch: Patch, why: str) -> None:
    """Delete what contribbot knows of a patch's folder, and keep it in the history.

    What else lies in it stays, and the folder then with it; `queue.toml` and the
    patches that depend on it are the caller's matter.
    """
    folder, kept = f"patches/{patch.name}", f"history/{patch.name}/retired"
    history.record(
        change, patch.name, patch.files, patch.pin, why="as it was in the end",
        below=history.digests(history.below_of(queue, patch.name)),
    )  # fmt: skip
    change.write(f"{kept}/patch.toml", (patch.folder / "patch.toml").read_bytes())
    change.delete(f"{folder}/patch.toml")
    for file in patch.files:
        change.delete(f"{folder}/{file.name}")
    for file in patch.support:
        change.write(f"{kept}/checks/{file.name}", file.content)
        change.delete(f"{folder}/checks/{file.name}")
    # `contribbot new` puts it there, so that git keeps the folder.
    change.delete(f"{folder}/checks/.gitkeep")
    event = RetiredEvent(time=history.now(), summary=f"retired: {why}", why=why)
    history.note(change, patch.name, event)


@dataclass(frozen=True)
class Move:
    """What is to be moved."""

    old: Pin
    new: Pin
    names: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """A plan, and what carries it out."""

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
    return superseded == "retire" and one.decision is Decision.SUPERSEDED


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
    state = Underway(
        upstream=move.new.upstream,
        old=move.old.tag,
        new=move.new,
        open=names[0],
        run=run,
        superseded=prepared.plan.superseded,
    )
    base = prepared.moved[names[0]].base
    opened = open_conflict(queue, state, base=base, commits=commits, at=at)
    return prepared.plan.model_copy(
        update={
            "resolve": str(opened.path),
            "conflicted": opened.conflicted,
            "remembered": opened.remembered,
        }
    )


def carry_out(queue: Queue, prepared: Prepared) -> RebasePlan:
    """Write a plan to the queue: all of it or nothing."""
    plan, move = prepared.plan, prepared.move
    gone = [one.patch for one in plan.patches if let_go(one, plan.superseded)]
    going = [one.patch for one in plan.patches if one.patch not in gone]
    before = {name: queue.patch(name) for name in move.names}
    why = f"rebase from {move.old.tag} to {move.new.tag}"
    with transaction(queue.folder) as change:
        _same(queue, before)
        for name in going:
            _write(change, queue, prepared, before[name], gone)
            was = history.digests([queue.patch(low) for low in queue.below(name)])
            now = {low: digest_of(prepared.moved[low].files) for low in was if low in going}
            for files, pin, what, below in (
                (before[name].files, move.old, f"before {why}", was),
                (prepared.moved[name].files, move.new, why, now),
            ):
                if before[name].files:
                    history.record(change, name, files, pin, why=what, below=below)
        for name in gone:
            reason = next(one.why for one in plan.patches if one.patch == name)
            take_out(change, queue, before[name], f"superseded by {move.new.title}: {reason}")
        _write_queue(change, queue, move, gone)
        state = underway(queue)
        _forget(change, queue)
    if state is not None:
        worktree.close_replay(queue, state.open)
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
        toml_edit.set_patch(
            stated,
            pin=prepared.move.new.tag,
            files=files,
            depends_on=_left(queue, patch.name, gone),
        ),
    )


def _write_queue(change: Transaction, queue: Queue, move: Move, gone: Sequence[str]) -> None:
    stated = change.read("patches/queue.toml") or b""
    if queue.pin(move.new.upstream, move.new.tag) is None:
        stated = toml_edit.set_pin(stated, move.old, move.new)
    else:
        stated = toml_edit.remove_pin(stated, move.old)
    for name in gone:
        stated = toml_edit.remove_from_order(stated, name)
    change.write("patches/queue.toml", stated)


@dataclass(frozen=True)
class Wanted:
    """What a user asks of a move."""

    to: str
    upstream: str = ""
    old: str = ""
    dry_run: bool = False
    run: bool = True
    superseded: Superseded = "stop"
    resolve: bool = False
    at: Path | None = None
    proceed: bool = False


def rebase(queue: Queue, wanted: Wanted, *, options: Options, watcher: Watcher) -> RebasePlan:
    """Move a pin and all that stands on it, or say what is in the way."""
    if wanted.dry_run and not wanted.proceed:
        return _rebase(queue, wanted, options, watcher)
    with alone(queue):
        # Whoever moved a pin before has changed the queue.
        return _rebase(load_queue(queue.folder), wanted, options, watcher)


def _rebase(queue: Queue, wanted: Wanted, options: Options, watcher: Watcher) -> RebasePlan:
    waiting = underway(queue)
    wanted = _proceeding(queue, wanted) if wanted.proceed else wanted
    if not wanted.to:
        raise UsageError("rebase needs a release", hint="contribbot rebase --to TAG")
    upstream = upstream_meant(queue, list(queue.specs), wanted.upstream)
    move = meant(queue, upstream=upstream, old=wanted.old, tag=wanted.to)
    asked = (upstream, move.old.tag, move.new.tag)
    if waiting is not None and (waiting.upstream, waiting.old, waiting.new.tag) != asked:
        raise UsageError(
            f"a move of {waiting.upstream} to {waiting.new.tag} waits for {waiting.open}",
            hint="end it: contribbot rebase --continue, or --abort",
        )
    prepared = prepare(
        queue,
        move,
        run=wanted.run,
        superseded=wanted.superseded,
        resolved=resolved(queue) if waiting is not None else {},
        options=options,
        watcher=watcher,
    )
    if obstacles(prepared.plan):
        if wanted.resolve and not wanted.dry_run:
            return resolve_next(queue, prepared, run=wanted.run, at=wanted.at)
        return prepared.plan
    if wanted.dry_run:
        return prepared.plan
    return carry_out(queue, prepared)


def _proceeding(queue: Queue, wanted: Wanted) -> Wanted:
    if wanted.to or wanted.old or wanted.upstream or wanted.dry_run:
        raise UsageError(
            "--continue goes on with the move that waits, and takes no release and no --dry-run",
            hint="contribbot rebase --continue",
        )
    state = required(queue)
    take_resolution(queue)
    return replace(
        wanted,
        to=state.new.tag,
        upstream=state.upstream,
        old=state.old,
        run=state.run and wanted.run,
        superseded=state.superseded if wanted.superseded == "stop" else wanted.superseded,
    )


def abort(queue: Queue) -> RebasePlan:
    """Give up a move that waits for a person."""
    with alone(queue):
        queue = load_queue(queue.folder)
        state = required(queue)
        with transaction(queue.folder) as change:
            _forget(change, queue)
        worktree.close_replay(queue, state.open)
        return RebasePlan(upstream=state.upstream, old=state.old, new=state.new.tag, patches=())


def closing(plan: RebasePlan, wanted: Wanted) -> list[str]:
    """Return what to tell at the end: what was done, or what to do next."""
    if plan.done:
        return [f"moved to {plan.new}; prove it: contribbot verify --all"]
    if plan.resolve:
        return _resolving(plan)
    blocking = obstacles(plan)
    if not blocking:
        return ["nothing was changed (--dry-run); every patch can go along"]
    again = f"contribbot rebase --to {plan.new}"
    again += f" --upstream {wanted.upstream}" if wanted.upstream else ""
    again += f" --from {wanted.old}" if wanted.old else ""
    lines = ["nothing was changed"]
    if conflicted(plan):
        keep = " --superseded keep" if plan.superseded == "keep" else ""
        lines.append(f"resolve conflicts: {again}{keep} --resolve")
    superseded = [one for one in blocking if one.decision is Decision.SUPERSEDED]
    keep = " (or keep: move them all the same)" if all(map(moves, superseded)) else ""
    if superseded and plan.superseded != "retire":
        lines.append(f"take out what is superseded: --superseded retire{keep}")
    return lines


def _resolving(plan: RebasePlan) -> list[str]:
    lines = [f"resolved as it was once before: {path}" for path in plan.remembered]
    if plan.conflicted:
        how = "git add, git cherry-pick --continue"
        text = f"resolve the conflict in {plan.resolve} ({how})"
        return [*lines, f"{text}, then: contribbot rebase --continue"]
    text = f"nothing is left to resolve in {plan.resolve}; look at what is there (git log -p)"
    return [*lines, f"{text}, then: contribbot rebase --continue"]
