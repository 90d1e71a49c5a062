"""`contribbot follow`."""

from __future__ import annotations

import functools

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json


@command
def follow(context: typer.Context, as_json: JsonOption = False) -> int:
    """Show where every pull request stands: CI by target, reviews, what is next for whom."""
    from contribbot.contribute.following.follow import follow as look  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.report.follow import follow_lines  # noqa: PLC0415  start-up time

    queue = open_queue(context)
    found = look(queue, functools.partial(connect, queue.local / "github"))
    if as_json:
        print_json(found.report)
    else:
        for line in follow_lines(found.report):
            typer.echo(line)
    # Only what was shown is not new any more.
    found.remember(queue)
    if found.unwritten is not None:
        raise found.unwritten
    return found.exit_code
