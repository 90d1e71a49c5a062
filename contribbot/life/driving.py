"""A move from the first question to the last word, a person's resolutions among it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from contribbot.errors import UsageError
from contribbot.life import resolving
from contribbot.life.carry import upstream_meant
from contribbot.life.rebase import (
    meant,
    moves,
    obstacles,
    prepare,
    resolve_next,
)
from contribbot.life.writing import carry_out
from contribbot.model.plan import Decision, PatchPlan, RebasePlan, Superseded
from contribbot.queue.load import Queue
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
    """Move a pin and all that stands on it, or say what is in the way.

    Args:
        queue: The queue.
        wanted: What is asked.
        options: How to run checks.
        watcher: Who looks on.

    Returns:
        The plan; `done` where the queue was changed, `resolve` where a work tree waits.

    Raises:
        UsageError: It is not clear what is asked, or another move waits.
        SourceError: A release cannot be had.
        QueueError: The queue changed meanwhile.
    """
    wanted = _proceeding(queue, wanted) if wanted.proceed else wanted
    if not wanted.to:
        raise UsageError("rebase needs a release", hint="contribbot rebase --to TAG")
    waiting = resolving.underway(queue)
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
        resolved=resolving.resolved(queue),
        options=options,
        watcher=watcher,
    )
    if in_the_way(prepared.plan, wanted):
        if wanted.resolve and not wanted.dry_run:
            return resolve_next(
                queue, prepared, run=wanted.run, superseded=wanted.superseded, at=wanted.at
            )
        return prepared.plan
    if wanted.dry_run:
        return prepared.plan
    return carry_out(queue, prepared, superseded=wanted.superseded)


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
        run=state.run,
        superseded=state.superseded,
    )


def in_the_way(plan: RebasePlan, wanted: Wanted) -> list[PatchPlan]:
    """Return the patches that keep a move from being carried out.

    Args:
        plan: The plan.
        wanted: What was asked.
    """
    return obstacles(plan, wanted.superseded)


def abort(queue: Queue) -> RebasePlan:
    """Give up a move that waits for a person; return what is.

    Raises:
        UsageError: None does.
    """
    state = resolving.required(queue)
    resolving.forget(queue)
    return RebasePlan(upstream=state.upstream, old=state.old, new=state.new.tag, patches=())


def closing(plan: RebasePlan, wanted: Wanted) -> list[str]:
    """Return what to tell at the end: what was done, or what to do next.

    Args:
        plan: The plan.
        wanted: What was asked.
    """
    if plan.done:
        return [f"moved to {plan.new}; prove it: contribbot verify --all"]
    if plan.resolve:
        how = "git add, git cherry-pick --continue"
        text = f"resolve the conflict in {plan.resolve} ({how})"
        return [f"{text}, then: contribbot rebase --continue"]
    blocking = in_the_way(plan, wanted)
    if not blocking:
        return ["nothing was changed (--dry-run); every patch can go along"]
    lines = ["nothing was changed"]
    if any(one.decision is Decision.WORK for one in blocking):
        lines.append("resolve conflicts: contribbot rebase --to " + plan.new + " --resolve")
    superseded = [one for one in blocking if one.decision is Decision.SUPERSEDED]
    if superseded:
        keep = " (or keep: move them all the same)" if all(map(moves, superseded)) else ""
        lines.append(f"take out what is superseded: --superseded retire{keep}")
    return lines
