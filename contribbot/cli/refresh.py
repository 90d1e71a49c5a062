"""`contribbot refresh`."""

from __future__ import annotations

from typing import Annotated

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json


@command
def refresh(
    context: typer.Context,
    patch: PatchArgument,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also when patches on top no longer apply, the queue has moved on, or "
            "marks of a conflict are in it.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Take the commits of a patch's work tree back into the queue, as a new version."""
    from contribbot.queue.load import patch_name  # noqa: PLC0415  start-up time
    from contribbot.queue.refresh import refresh as take_back  # noqa: PLC0415  start-up time
    from contribbot.report.edit import RefreshView, refresh_lines  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = patch_name(queue, patch)
    lines = Lines(console(stderr=True))
    with lines.shown():
        done = take_back(queue, name, force=force, progress=lines.download())
    if as_json:
        print_json(RefreshView.of(name, done))
    else:
        for line in refresh_lines(name, done):
            typer.echo(line)
    return 1 if done.refused else 0
