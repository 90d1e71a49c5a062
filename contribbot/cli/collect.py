"""`contribbot collect`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json

if TYPE_CHECKING:
    from pydantic import BaseModel


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
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Keep nothing; say what runners failed so far, and plan second tries."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Fetch what a run of verify.yml left, judge it, and keep the records that are good."""
    from contribbot.errors import UsageError  # noqa: PLC0415  start-up time
    from contribbot.report.collect import (  # noqa: PLC0415  start-up time
        again_lines,
        append_collected,
        append_runners_failed,
        collect_lines,
    )
    from contribbot.report.matrix import append_again  # noqa: PLC0415  start-up time
    from contribbot.runners.collecting import exit_code  # noqa: PLC0415  start-up time
    from contribbot.runners.gather import gather, gather_again  # noqa: PLC0415  start-up time

    if run is None and folder is None:
        raise UsageError(
            "neither a run nor --from", hint="name the run's number, which its page has"
        )
    queue = open_queue(context)
    if again:
        tries = gather_again(queue, run, folder=folder, repository=repo)
        if outputs := os.environ.get("GITHUB_OUTPUT"):
            append_again(Path(outputs), tries.jobs)
        _print(tries, again_lines(tries), as_json=as_json)
        return 0
    collected = gather(queue, run, folder=folder, repository=repo)
    _print(collected, collect_lines(collected), as_json=as_json)
    if outputs := os.environ.get("GITHUB_OUTPUT"):
        append_runners_failed(Path(outputs), collected)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_collected(Path(summary), collected)
    return exit_code(collected).value


def _print(document: BaseModel, lines: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    for line in lines:
        typer.echo(line)
