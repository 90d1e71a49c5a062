"""`contribbot show`."""

from __future__ import annotations

import shutil

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json


@command
def show(
    context: typer.Context,
    patch: PatchArgument,
    as_json: JsonOption = False,
) -> int:
    """Show what a patch is for, what it touches and what proves it."""
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.queue import PatchView, show_lines  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    view = PatchView.of(queue.patch(select(queue, [patch])[0]))
    if as_json:
        print_json(view)
    else:
        for line in show_lines(view, width=max(20, min(100, shutil.get_terminal_size().columns))):
            typer.echo(line)
    return 0
