"""`contribbot diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json


@command
def diff(
    context: typer.Context,
    patch: PatchArgument,
    between: Annotated[
        str | None,
        typer.Argument(
            metavar="[v1[..v2]]",
            help="Versions, as `log` lists them. One: against the files as they are now. "
            "None: the last one.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Compare versions of a patch commit by commit, whatever release each stands on."""
    from contribbot.queue.journal import past_name  # noqa: PLC0415  start-up time
    from contribbot.queue.rangediff import range_diff, read_range  # noqa: PLC0415  start-up time
    from contribbot.report.history import CompareView, diff_lines  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = past_name(queue, patch)
    old, new = read_range(between)
    view = CompareView.of(name, range_diff(queue, name, old, new))
    if as_json:
        print_json(view)
    else:
        for line in diff_lines(view):
            typer.echo(line)
    return 0
