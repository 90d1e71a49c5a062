"""`contribbot rebase`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json

if TYPE_CHECKING:
    from contribbot.life.driving import Wanted
    from contribbot.queue.load import Queue


@command
def rebase(
    context: typer.Context,
    to: Annotated[
        str | None, typer.Option(metavar="TAG", help="The release to move to, or newest.")
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="Whose pin moves, where the queue has several upstreams.")
    ] = None,
    old: Annotated[
        str | None,
        typer.Option("--from", metavar="TAG", help="Which pin moves, where there are several."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would become of each patch, and end.")
    ] = False,
    text_only: Annotated[
        bool, typer.Option("--text-only", help="Do not ask the checks if patches are needed.")
    ] = False,
    superseded: Annotated[
        Literal["stop", "retire", "keep"],
        typer.Option(help="What to do with patches that the release does without."),
    ] = "stop",
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Open a work tree with the first conflict in it.")
    ] = False,
    at: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --resolve or --continue: where the tree goes."),
    ] = None,
    proceed: Annotated[
        bool, typer.Option("--continue", help="Take the resolved conflict, and go on.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Give up a move that waits.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Move a pin and every patch on it to another release: all of them, or nothing."""
    from contribbot.errors import UsageError  # noqa: PLC0415  start-up time
    from contribbot.life.driving import Wanted  # noqa: PLC0415  start-up time

    if abort and (to or upstream or old or dry_run or resolve or at or proceed):
        raise UsageError("--abort goes with no other option", hint="contribbot rebase --abort")
    if at and not (resolve or proceed):
        raise UsageError("--at is for --resolve and --continue", hint="leave it out")
    queue = open_queue(context)
    if abort:
        return _abort(queue, as_json=as_json)
    wanted = Wanted(
        to=to or "",
        upstream=upstream or "",
        old=old or "",
        dry_run=dry_run,
        run=not text_only,
        superseded=superseded,
        resolve=resolve or proceed,
        at=at,
        proceed=proceed,
    )
    return _move(queue, wanted, as_json=as_json)


def _abort(queue: Queue, *, as_json: bool) -> int:
    from contribbot.life import driving  # noqa: PLC0415  start-up time

    ended = driving.abort(queue)
    if as_json:
        print_json(ended)
    elif ended.done:
        typer.echo(
            f"the move of {ended.upstream} to {ended.new} was done already, and stays; "
            "what was left of its resolutions is removed"
        )
    else:
        typer.echo(f"the move of {ended.upstream} to {ended.new} is given up")
    return 1 if ended.done else 0


def _move(queue: Queue, wanted: Wanted, *, as_json: bool) -> int:
    from contribbot.life import driving  # noqa: PLC0415  start-up time
    from contribbot.life.rebase import obstacles  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.report.moves import plan_lines  # noqa: PLC0415  start-up time
    from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

    lines = Lines(console(stderr=True))
    with lines.shown():
        plan = driving.rebase(
            queue, wanted, options=Options(jobs=len(os.sched_getaffinity(0))), watcher=lines
        )
    if as_json:
        print_json(plan)
    else:
        for line in (*plan_lines(plan), *driving.closing(plan, wanted)):
            typer.echo(line)
    return 0 if plan.done or (wanted.dry_run and not obstacles(plan)) else 1
