"""`contribbot retire`."""

from __future__ import annotations

import functools
import os
from typing import Annotated

import typer

from contribbot.cli.shell import PatchArgument, command, open_queue


@command
def retire(
    context: typer.Context,
    patch: PatchArgument,
    why: Annotated[
        str,
        typer.Option("--why", metavar="REASON", help="Your reason, where none can be checked."),
    ] = "",
) -> int:
    """Take a patch out of the queue when its upstream has it; its history is kept."""
    from contribbot.contribute.following.retire import of_newest  # noqa: PLC0415  start-up time
    from contribbot.contribute.following.retire import retire as take_out  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.queue.journal import past_name  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.report.text import clean  # noqa: PLC0415  start-up time
    from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    lines = Lines(console(stderr=True))
    with lines.shown():
        done = take_out(
            queue,
            past_name(queue, patch),
            functools.partial(connect, queue.local / "github"),
            of_newest(Options(jobs=len(os.sched_getaffinity(0))), lines),
            why=why,
        )
    typer.echo(clean(f"{done.patch}: retired: {done.why}"))
    for note in done.notes:
        typer.echo(clean(f"  {note}"))
    return 0
