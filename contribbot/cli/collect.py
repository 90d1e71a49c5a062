"""`contribbot collect`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json


@command
def collect(
    context: typer.Context,
    run: Annotated[
        int | None, typer.Argument(min=1, help="The run's number.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="DIR", help="Take the artifacts from there; with RUN, check them."
        ),
    ] = None,
    repo: Annotated[
        str,
        typer.Option(metavar="OWNER/NAME", help="The queue's repository.", show_default="origin"),
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """Fetch what a run of verify.yml left, judge it, and keep the records that are good."""
    from contribbot.errors import UsageError  # noqa: PLC0415  start-up time
    from contribbot.report.collect import append_collected, collect_lines  # noqa: PLC0415  start-up time
    from contribbot.runners.gather import gather  # noqa: PLC0415  start-up time

    if run is None and folder is None:
        raise UsageError(
            "neither a run nor --from", hint="name the run's number, which its page has"
        )
    queue = open_queue(context)
    collected = gather(queue, run, folder=folder, repository=repo)
    if as_json:
        print_json(collected)
    else:
        for line in collect_lines(collected):
            typer.echo(line)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        append_collected(Path(summary), collected)
    return 0 if collected.complete else 1
