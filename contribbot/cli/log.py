"""`contribbot log`."""

from __future__ import annotations

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json


@command
def log(
    context: typer.Context,
    patch: PatchArgument,
    as_json: JsonOption = False,
) -> int:
    """Show what happened to a patch: versions, verifications, its pull request."""
    from contribbot.queue.journal import past_name, read  # noqa: PLC0415  start-up time
    from contribbot.report.history import HistoryView, log_lines  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = past_name(queue, patch)
    events = read(queue.folder, name)
    if as_json:
        print_json(HistoryView(patch=name, events=tuple(events)))
    else:
        for line in log_lines(name, events):
            typer.echo(line)
    return 0
