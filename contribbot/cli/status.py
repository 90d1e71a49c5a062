"""`contribbot status`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json


@command
def status(
    context: typer.Context,
    patches: Annotated[
        list[str] | None,
        typer.Argument(help="Names of patches, or their folders.", show_default="all"),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="TAG", help="Ask what this release (or newest) makes of them."),
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="Whose release it is, where the patches are for several.")
    ] = None,
    text_only: Annotated[
        bool, typer.Option("--text-only", help="With --against: run no checks.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Show every patch at a glance: does it apply, is it needed, what is proved where."""
    from contribbot.errors import UsageError  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.moves import status_lines  # noqa: PLC0415  start-up time

    queue = open_queue(context, *(patches or ()))
    names = select(queue, patches or (), everything=not patches)
    if against is None:
        if upstream or text_only:
            raise UsageError("--upstream and --text-only go with --against TAG")
        from contribbot.life.glance import status as at_a_glance  # noqa: PLC0415  start-up time

        report = at_a_glance(queue, names)
    else:
        from contribbot.life.carry import upstream_meant  # noqa: PLC0415  start-up time
        from contribbot.life.status import status_against  # noqa: PLC0415  start-up time
        from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time
        from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

        lines = Lines(console(stderr=True))
        with lines.shown():
            report = status_against(
                queue,
                names,
                upstream=upstream_meant(queue, names, upstream or ""),
                tag=against,
                run=not text_only,
                options=Options(jobs=len(os.sched_getaffinity(0))),
                watcher=lines,
            )
    if as_json:
        print_json(report)
    else:
        for line in status_lines(report):
            typer.echo(line)
    return 0
