"""A move from the first question to the last word, a person's resolutions among it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from contribbot.errors import UsageError
from contribbot.life import resolving
from contribbot.life.carry import upstream_meant
from contribbot.life.rebase import (
    conflicted,
    meant,
    moves,
    obstacles,
    prepare,
    resolve_next,
    unheard,
)
from contribbot.life.writing import carry_out
from contribbot.model.plan import Decision, RebasePlan, Superseded
from contribbot.queue.load import Queue, load_queue
from contribbot.verify.pipeline import Options, Watcher


@dataclass(frozen=True)
class Wanted:
    """What a user asks of a move.

    Attributes:
        to: The release; empty with `proceed`.
        upstream: Its upstream, or empty.
        old: The tag of the pin that moves, or empty.
        dry_run: Whether only to say what would be.
        run: Whether to ask the checks if patches are still needed.
        superseded: What to do with those that are not.
        resolve: Whether to open a work tree with the first conflict.
        at: Where that goes; None: in the queue's local folder.
        proceed: Whether to take a resolved conflict and go on.
    """

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
    with resolving.alone(queue):
        # Whoever moved a pin before has changed the queue.
        return _rebase(load_queue(queue.folder), wanted, options, watcher)


def _rebase(queue: Queue, wanted: Wanted, options: Options, watcher: Watcher) -> RebasePlan:
    waiting = resolving.underway(queue)
    if waiting is not None and resolving.over(queue, waiting):
        if wanted.proceed:
            return _over(queue, waiting)
        if not wanted.dry_run:
            resolving.forget(queue)
        waiting = None
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
        resolved=resolving.resolved(queue) if waiting is not None else {},
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
    state = resolving.required(queue)
    resolving.take_resolution(queue)
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
    with resolving.alone(queue):
        queue = load_queue(queue.folder)
        state = resolving.required(queue)
        if resolving.over(queue, state):
            return _over(queue, state)
        resolving.forget(queue)
        return RebasePlan(upstream=state.upstream, old=state.old, new=state.new.tag, patches=())


def _over(queue: Queue, state: resolving.Underway) -> RebasePlan:
    """Clean up after a move that was killed when all was written."""
    resolving.forget(queue)
    return RebasePlan(
        upstream=state.upstream, old=state.old, new=state.new.tag, patches=(), done=True
    )


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
    if any(not unheard(one) for one in superseded) and plan.superseded != "retire":
        lines.append(f"take out what is superseded: --superseded retire{keep}")
    for one in superseded:
        if unheard(one) and plan.superseded != "keep":
            what = ", ".join(f"{entry.label} ({entry.reason})" for entry in unheard(one))
            lines.append(
                f"{one.patch} is not taken out, for it may be needed: not run here: {what}"
            )
            lines.append("take it out where that can run; or move it: --superseded keep")
    return lines


def _resolving(plan: RebasePlan) -> list[str]:
    lines = [f"resolved as it was once before: {path}" for path in plan.remembered]
    if plan.conflicted:
        how = "git add, git cherry-pick --continue"
        text = f"resolve the conflict in {plan.resolve} ({how})"
        return [*lines, f"{text}, then: contribbot rebase --continue"]
    text = f"nothing is left to resolve in {plan.resolve}; look at what is there (git log -p)"
    return [*lines, f"{text}, then: contribbot rebase --continue"]
