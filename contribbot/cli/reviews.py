"""`contribbot reviews`."""

from __future__ import annotations

from typing import Annotated

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json


@command
def reviews(
    context: typer.Context,
    patch: PatchArgument,
    everything: Annotated[
        bool, typer.Option("--all", help="Resolved threads and earlier comments too.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Show the open review threads of a pull request, with the code, and what else was said."""
    from contribbot.contribute.following.reply import contribution_of  # noqa: PLC0415  start-up time
    from contribbot.contribute.following.threads import reviews as read  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.queue.journal import past_name  # noqa: PLC0415  start-up time
    from contribbot.report.reviews import reviews_lines  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = past_name(queue, patch)
    known = contribution_of(queue, name)
    with connect(queue.local / "github") as github:
        report = read(
            github, name, known.reference.partition("#")[0], known.number, everything=everything
        )
    if as_json:
        print_json(report)
    else:
        for line in reviews_lines(report):
            typer.echo(line)
    return 0
