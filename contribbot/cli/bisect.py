"""`contribbot bisect`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json

if TYPE_CHECKING:
    from contribbot.model.bisect import Question, Step


@command
def bisect(
    context: typer.Context,
    patch: PatchArgument,
    start: Annotated[
        str, typer.Option("--from", metavar="TAG", help="A release at which all is still well.")
    ],
    end: Annotated[
        str, typer.Option("--to", metavar="TAG", help="A later one at which it is not.")
    ],
    unneeded: Annotated[
        bool,
        typer.Option(
            "--unneeded",
            help="Find where its checks begin to pass without it, not where its text breaks.",
        ),
    ] = False,
    commits: Annotated[
        bool,
        typer.Option("--commits", help="Look at commits, not releases; needs a git source."),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Find the first release that breaks a patch, or that makes it unnecessary."""
    from contribbot.life.bisect import Range  # noqa: PLC0415  start-up time
    from contribbot.life.bisect import bisect as search  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.report.moves import bisection_lines, step_line  # noqa: PLC0415  start-up time
    from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    out = console(stderr=True)
    lines = Lines(out)
    question: Question = "unneeded" if unneeded else "breaks"

    def told(step: Step) -> None:
        out.print(step_line(step, question=question))

    with lines.shown():
        found = search(
            queue,
            name,
            Range(start, end, commits),
            question=question,
            options=Options(jobs=len(os.sched_getaffinity(0))),
            watcher=lines,
            told=told,
        )
    if as_json:
        print_json(found)
    else:
        for line in bisection_lines(found):
            typer.echo(line)
    return 0 if found.first else 1
