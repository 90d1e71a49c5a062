"""`contribbot list`."""

from __future__ import annotations

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json


@command
def list_patches(
    context: typer.Context,
    as_json: JsonOption = False,
) -> int:
    """List the patches of the queue, in its order."""
    from contribbot.report.queue import PatchList, list_lines  # noqa: PLC0415  start-up time

    listed = PatchList.of(open_queue(context))
    if as_json:
        print_json(listed)
    else:
        for line in list_lines(listed):
            typer.echo(line)
    return 0
