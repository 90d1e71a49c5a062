"""Move a pin and all its patches to another release, or change nothing."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from contribbot.errors import QueueError, UsageError
from contribbot.files import lock, write_atomically
from contribbot.git.merge import RebaseResult
from contribbot.lifecycle.status import needs_of
from contribbot.model.base import Loose, Many, Model, Name, Tag
from contribbot.model.lifecycle import Behaviour, ConflictSide, Need, Text
from contribbot.model.patch import PatchFile, Pin
from contribbot.process import remove_tree
from contribbot.queue import toml_edit, worktree
from contribbot.queue.arrange import take_out
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.refresh import declared_paths, write_patch
from contribbot.queue.stack import FetchedPin, PatchStack, carry, fetch_pin, pin_at, series_of
from contribbot.queue.transaction import transaction
from contribbot.queue.worktree import WorkTree
from contribbot.verify.pipeline import Options, Watcher

#: What a rebase does with superseded patches: stop, take them out, or move them all the same.
Superseded = Literal["stop", "retire", "keep"]


class Decision(enum.StrEnum):
    """The decision on a patch when its pin moves."""

    #: The patch moves with the pin.
    MOVE = "move"
    #: The new release makes the patch unnecessary, by its text or by its checks.
    SUPERSEDED = "superseded"
    #: A person must resolve the patch's conflict.
    WORK = "needs work"
    #: The patch waits for a dependency.
    BLOCKED = "blocked"


class PatchPlan(Model):
    """The part of a rebase's plan for one patch."""

    patch: str
    decision: Loose[Decision]
    text: Loose[Text]
    why: str
    conflicts: Many[ConflictSide] = ()
    behaviour: Behaviour | None = None


class RebasePlan(Model):
    """The JSON document of `rebase`: the plan, and whether it was carried out."""

    upstream: str
    old: str
    new: str
    patches: Many[PatchPlan]
    done: bool = False
    resolve: str = ""
    conflicted: Many[str] = ()
    superseded: Superseded = "stop"


_DECISIONS: Final = {
    Text.CLEAN: Decision.MOVE,
    Text.MERGED: Decision.MOVE,
    Text.UPSTREAM: Decision.SUPERSEDED,
    Text.CONFLICT: Decision.WORK,
    Text.BLOCKED: Decision.BLOCKED,
}


@dataclass(frozen=True)
class Wanted:
    """The options of a user for the move of a pin."""

    to: str
    #: The pin to move, named by its upstream, tag, or both; empty: the only pin in use.
    pin: str = ""
    dry_run: bool = False
    run: bool = True
    superseded: Superseded = "stop"
    resolve: bool = False
    proceed: bool = False


class Underway(Model):
    """A pin's move that waits for a person to resolve a conflict of the patch `open`."""

    upstream: Name
    old: Tag
    new: Pin
    open: Name
    run: bool = True
    superseded: Superseded = "stop"


@dataclass(frozen=True)
class PreparedMove:
    """The plan of a pin's move, both pins, and the merged patches to write."""

    plan: RebasePlan
    old: FetchedPin
    new: FetchedPin
    moved: dict[str, RebaseResult]


def rebase(queue: Queue, wanted: Wanted, *, options: Options, watcher: Watcher) -> RebasePlan:
    """Move a pin with all its patches, unless a patch is in the way; return the plan."""
    if wanted.dry_run and not wanted.proceed:
        return _rebase(queue, wanted, options, watcher)
    with _lock(queue):
        # Another process may have changed the queue before this process got the lock.
        return _rebase(load_queue(queue.folder), wanted, options, watcher)


def abort(queue: Queue) -> RebasePlan:
    """Give up the move that waits for a person, and remove the move's work trees."""
    with _lock(queue):
        state = _required(queue)
        _end(queue)
        return RebasePlan(upstream=state.upstream, old=state.old, new=state.new.tag, patches=())


def _rebase(queue: Queue, wanted: Wanted, options: Options, watcher: Watcher) -> RebasePlan:
    resolved: dict[str, tuple[PatchFile, ...]] = {}
    if wanted.proceed:
        wanted, resolved = _proceeding(queue, wanted)
    if not wanted.to:
        raise UsageError("rebase needs a release", hint="contribbot rebase TAG")
    old, new = _pins(queue, wanted)
    waiting = _underway(queue)
    asked = (new.upstream, old.tag, new.tag)
    if waiting is not None and (waiting.upstream, waiting.old, waiting.new.tag) != asked:
        raise UsageError(
            f"a move of {waiting.upstream} to {waiting.new.tag} waits for {waiting.open}",
            hint="end it: contribbot rebase --continue, or --abort",
        )
    prepared = _prepare(
        queue, old, new, wanted, resolved=resolved, options=options, watcher=watcher
    )
    blocking = obstacles(prepared.plan)
    if blocking and wanted.resolve and not wanted.dry_run:
        return _open_conflict(queue, prepared, wanted)
    return prepared.plan if blocking or wanted.dry_run else _carry_out(queue, prepared)


def _proceeding(queue: Queue, wanted: Wanted) -> tuple[Wanted, dict[str, tuple[PatchFile, ...]]]:
    """Return the options of the move that waits, and the patch files of its work trees."""
    if wanted.to or wanted.pin or wanted.dry_run:
        raise UsageError(
            "--continue goes on with the move that waits, and takes no release and no --dry-run",
            hint="contribbot rebase --continue",
        )
    state = _required(queue)
    trees = _trees(queue)
    if state.open not in trees:
        raise UsageError(
            f"the work tree with the conflict of {state.open} is gone",
            hint=f"open it again: contribbot rebase {state.new.tag} --pin "
            f"'{state.upstream} {state.old}' --resolve; or end it with --abort",
        )
    resolved = {name: worktree.resolved_files(queue, name) for name in trees}
    for name, tree in trees.items():
        if tree.state.known != (queue.patch(name).digest,):
            raise UsageError(
                f"{name} was changed since its conflict was opened",
                hint="contribbot rebase --abort, and begin again; "
                "how it was resolved is remembered",
            )
    superseded = state.superseded if wanted.superseded == "stop" else wanted.superseded
    pin, run = f"{state.upstream} {state.old}", state.run and wanted.run
    options = replace(wanted, to=state.new.tag, pin=pin, run=run, superseded=superseded)
    return options, resolved


def _pins(queue: Queue, wanted: Wanted) -> tuple[Pin, Pin]:
    """Return the pin to move, and the pin that replaces it; UsageError unless one pin fits."""
    used = dict.fromkeys(queue.pin_of(name) for name in queue.specs)
    if not used:
        raise UsageError(
            f"{queue.folder}: the queue has no patches, and nothing to move",
            hint="change the pins in queue.toml by hand, or add a patch",
        )
    named = [pin for pin in used if wanted.pin in {"", pin.upstream, pin.tag, pin.title}]
    if not named:
        titles = ", ".join(pin.title for pin in used)
        raise UsageError(
            f"--pin {wanted.pin}: no patch is for it", hint=f"the patches are for {titles}"
        )
    upstream = named[0].upstream
    several = {pin.upstream for pin in named} != {upstream}
    new = named[0] if several else pin_at(queue, upstream, wanted.to)
    moving = named if several else [pin for pin in named if pin.tag != new.tag]
    if len(moving) > 1:
        raise UsageError(
            f"which pin moves? The patches are for {', '.join(pin.title for pin in moving)}",
            hint=f"name it, such as --pin '{moving[-1].title}'",
        )
    if not moving:
        raise UsageError(
            f"all patches for {upstream} are on {new.tag} already", hint="name another release"
        )
    return moving[0], new


def _prepare(
    queue: Queue,
    pin: Pin,
    wanted_pin: Pin,
    wanted: Wanted,
    *,
    resolved: Mapping[str, tuple[PatchFile, ...]],
    options: Options,
    watcher: Watcher,
) -> PreparedMove:
    """Merge the patches onto the new release, in the store only, and return the plan."""
    old, new = (fetch_pin(queue, each, progress=watcher.download()) for each in (pin, wanted_pin))
    names = [name for name in queue.specs if queue.pin_of(name) == pin]
    gone: dict[str, tuple[RebaseResult, Behaviour]] = {}
    while True:
        moved = carry(queue, names, old, new, resolved=resolved, gone=gone)
        needs: dict[str, Behaviour] = {}
        if wanted.run:
            asked = [name for name in names if name not in gone]
            needs = needs_of(queue, asked, new.pin, moved, options=options, watcher=watcher)
        # Merge again without the patches that are taken out.
        more = {
            name: (moved[name], need)
            for name, need in needs.items()
            if need.verdict is Need.SUPERSEDED and wanted.superseded == "retire"
        }
        if not more:
            break
        gone |= more
    moved |= {name: patch for name, (patch, _) in gone.items()}
    needs |= {name: need for name, (_, need) in gone.items()}
    plan = RebasePlan(
        upstream=new.pin.upstream,
        old=old.pin.tag,
        new=new.pin.tag,
        patches=tuple(_plan(moved[name], needs.get(name)) for name in names),
        superseded=wanted.superseded,
    )
    return PreparedMove(plan, old, new, moved)


def _plan(moved: RebaseResult, behaviour: Behaviour | None) -> PatchPlan:
    superseded = behaviour is not None and behaviour.verdict is Need.SUPERSEDED
    return PatchPlan(
        patch=moved.name,
        decision=Decision.SUPERSEDED if superseded else _DECISIONS[moved.status],
        text=moved.status,
        why=behaviour.why if superseded and behaviour is not None else moved.why,
        conflicts=moved.conflicts,
        behaviour=behaviour,
    )


def _moves(patch: PatchPlan) -> bool:
    """Return whether a patch applies to the new release, unchanged or merged."""
    return patch.text in {Text.CLEAN, Text.MERGED}


def obstacles(plan: RebasePlan) -> list[PatchPlan]:
    """Return the patches that prevent a plan from being carried out."""

    def stops(patch: PatchPlan) -> bool:
        if patch.decision is Decision.SUPERSEDED and plan.superseded != "stop":
            return plan.superseded == "keep" and not _moves(patch)
        return patch.decision is not Decision.MOVE

    return [patch for patch in plan.patches if stops(patch)]


def _conflicted(plan: RebasePlan) -> list[str]:
    """Return the names of patches with a conflict that a person must resolve first."""
    kept = plan.superseded == "keep"
    return [
        patch.patch
        for patch in obstacles(plan)
        if patch.decision is Decision.WORK or (kept and patch.text is Text.CONFLICT)
    ]


def _carry_out(queue: Queue, prepared: PreparedMove) -> RebasePlan:
    """Write a plan to the queue in one transaction."""
    plan, old, new = prepared.plan, prepared.old.pin, prepared.new.pin
    gone = {
        patch.patch: patch.why
        for patch in plan.patches
        if patch.decision is Decision.SUPERSEDED and plan.superseded == "retire"
    }

    def left(name: str) -> list[str]:
        """Return a patch's dependencies; a removed patch is replaced by its dependencies."""
        direct = queue.specs[name].depends_on
        return [rest for low in direct for rest in (left(low) if low in gone else [low])]

    before = {patch.patch: queue.patch(patch.patch) for patch in plan.patches}
    why = f"rebase from {old.tag} to {new.tag}"
    files = {name: moved.files for name, moved in prepared.moved.items()}
    after = PatchStack(queue, prepared.new, files)
    with transaction(queue.folder, why) as change:
        now = load_queue(queue.folder)
        if now.spec != queue.spec or any(
            now.specs[name] != patch.spec or now.patch(name).digest != patch.digest
            for name, patch in before.items()
        ):
            raise QueueError("the queue was changed meanwhile", hint="run the same again")
        for name, patch in before.items():
            if name in gone:
                reason = f"superseded by {new.title}: {gone[name]}"
                take_out(change, queue, patch, reason)
                continue
            if patch.files:
                moved, declared = prepared.moved[name], patch.spec.files
                ends = (moved.base, moved.commits[-1])
                paths = declared_paths(name, prepared.new.store, *ends, declared)
                write_patch(change, after, patch, paths, why=why, gone=gone)
            depends_on = list(dict.fromkeys(left(name)))
            stated = functools.partial(toml_edit.set_patch, pin=new.tag, depends_on=depends_on)
            change.edit(f"patches/{name}/patch.toml", stated)
        fresh = new if queue.pin(new.upstream, new.tag) is None else None
        change.edit("patches/queue.toml", lambda text: toml_edit.set_pin(text, old, fresh))
    _end(queue)
    return plan.model_copy(update={"done": True})


def _lock(queue: Queue) -> AbstractContextManager[None]:
    """Return the lock for moving pins, and for giving up a move."""
    return lock(queue.local / "rebase.lock", "a move of a pin")


def _state_file(queue: Queue) -> Path:
    return queue.local / "rebase" / "state.json"


def _underway(queue: Queue) -> Underway | None:
    """Return the move that waits for a person; None: no move waits."""
    try:
        return Underway.model_validate_json(_state_file(queue).read_bytes())
    except (OSError, ValidationError):
        return None


def _required(queue: Queue) -> Underway:
    state = _underway(queue)
    if state is None:
        raise UsageError("no move is underway", hint="start one: contribbot rebase TAG")
    return state


def _trees(queue: Queue) -> dict[str, WorkTree]:
    """Return the open work trees with conflicts of a move, by patch."""
    trees = {name: worktree.find_replay(queue, name) for name in queue.specs}
    return {name: tree for name, tree in trees.items() if tree and not tree.state.lower}


def _end(queue: Queue) -> None:
    """Forget the move that waits for a person, and remove its work trees."""
    if _underway(queue) is not None:
        for name in _trees(queue):
            worktree.close_replay(queue, name)
        remove_tree(_state_file(queue).parent)


def _open_conflict(queue: Queue, prepared: PreparedMove, wanted: Wanted) -> RebasePlan:
    """Open a work tree with the first conflict of a plan, for a person to resolve."""
    plan, old, new = prepared.plan, prepared.old, prepared.new
    name = next(iter(_conflicted(plan)), "")
    if not name:
        return plan
    commits = series_of(queue, [name], old)[name].commits
    place, conflicted = worktree.open_replay(
        queue, name, base=prepared.moved[name].base, commits=commits
    )
    state = Underway(
        upstream=new.pin.upstream,
        old=old.pin.tag,
        new=new.pin,
        open=name,
        run=wanted.run,
        superseded=plan.superseded,
    )
    write_atomically(_state_file(queue), state.model_dump_json(indent=2).encode())
    return plan.model_copy(update={"conflicted": conflicted, "resolve": str(place)})


def closing(plan: RebasePlan) -> Sequence[str]:
    """Return the last lines for a person: the result of a plan, or the next step."""
    if plan.done:
        return [f"moved to {plan.new}; prove it: contribbot verify --all"]
    if plan.resolve:
        what = f"nothing is left to resolve in {plan.resolve}; look at what is there (git log -p)"
        if plan.conflicted:
            how = "git add, git cherry-pick --continue"
            what = f"resolve the conflict in {plan.resolve} ({how})"
        return [f"{what}, then: contribbot rebase --continue"]
    blocking = obstacles(plan)
    if not blocking:
        return ["nothing was changed (--dry-run); every patch can go along"]
    lines = ["nothing was changed"]
    if _conflicted(plan):
        lines.append("to resolve conflicts: run it again with --resolve")
    superseded = [patch for patch in blocking if patch.decision is Decision.SUPERSEDED]
    if superseded and plan.superseded != "retire":
        keep = " (or keep: move them all the same)" if all(map(_moves, superseded)) else ""
        lines.append(f"take out what is superseded: --superseded retire{keep}")
    return lines
