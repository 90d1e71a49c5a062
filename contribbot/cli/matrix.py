"""`contribbot matrix`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json


@command
def matrix(
    context: typer.Context,
    patches: Annotated[
        list[str] | None,
        typer.Argument(help="Names of patches, or their folders.", show_default="all"),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also run what a fresh record answers.")
    ] = False,
    on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SET", help="Only these runners, by name of the set, target or label."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan there, too.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Plan which runner proves what: jobs, what has no runner, and what is fresh."""
    from contribbot.files import write_atomically  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.matrix import append_outputs, matrix_lines  # noqa: PLC0415  start-up time
    from contribbot.runners.plan import make_plan  # noqa: PLC0415  start-up time

    queue = open_queue(context, *(patches or ()))
    names = select(queue, patches or (), everything=not patches)
    plan = make_plan(queue, names, everything=everything, on=on or ())
    if output is not None:
        write_atomically(output, (plan.model_dump_json(indent=2) + "\n").encode())
    outputs = os.environ.get("GITHUB_OUTPUT")
    if outputs:
        append_outputs(Path(outputs), plan)
    if as_json:
        print_json(plan)
    else:
        for line in matrix_lines(plan):
            typer.echo(line)
    return 0
