"""`contribbot body`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json


@command
def body(
    context: typer.Context,
    patch: PatchArgument,
    template: Annotated[
        str,
        typer.Option(
            "--template", metavar="VERSION", help="Another version of the upstream's template."
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file.", show_default="standard output"
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask GitHub for the template as it is now.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Write the text of the pull request, in the upstream's sections, from fresh evidence."""
    from contribbot.contribute.attested import searched  # noqa: PLC0415  start-up time
    from contribbot.contribute.text.body import make_body  # noqa: PLC0415  start-up time
    from contribbot.contribute.text.live import live_reader  # noqa: PLC0415  start-up time
    from contribbot.files import write_atomically  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.body import note_lines  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    read_live = None if offline else live_reader(queue.local / "github")
    name = select(queue, [patch])[0]
    made = make_body(
        queue, name, version=template, read_live=read_live, searched=searched(queue, name)
    )
    if output is not None:
        write_atomically(output, made.text.encode())
    if as_json:
        print_json(made)
    elif output is None:
        typer.echo(made.text, nl=False)
    for line in note_lines(made):
        typer.echo(line, err=True)
    return 0
