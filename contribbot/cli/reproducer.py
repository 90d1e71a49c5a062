"""`contribbot reproducer`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.shell import PatchArgument, command, open_queue


@command
def reproducer(
    context: typer.Context,
    patch: PatchArgument,
    check: Annotated[
        str,
        typer.Option(
            "--check", metavar="NAME", help="The check.", show_default="the first that fits"
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="A new folder.", show_default="NAME-reproducer"
        ),
    ] = None,
) -> int:
    """Write a script and a report that show the fault to an upstream, without contribbot."""
    from contribbot.contribute.text.reproducer import (  # noqa: PLC0415  start-up time
        make_reproducer,
        write_reproducer,
    )
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.body import reproducer_lines  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    made = make_reproducer(queue, name, check=check)
    for line in reproducer_lines(
        made, write_reproducer(made, output or Path(f"{name}-reproducer"))
    ):
        typer.echo(line)
    return 0
