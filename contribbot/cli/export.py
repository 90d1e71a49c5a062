"""`contribbot export`."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.shell import command, open_queue


class Form(enum.StrEnum):
    """What can be written."""

    MBOX = "mbox"
    QUILT = "quilt"
    DIFF = "diff"


@command
def export(
    context: typer.Context,
    patches: Annotated[
        list[str] | None,
        typer.Argument(help="Names of patches of one pin.", show_default="all"),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format", help="mbox: for git am; quilt: a folder with a series; diff: one diff."
        ),
    ] = Form.MBOX,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The file, or quilt's folder.",
            show_default="standard output",
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave out the patches that they depend on.")
    ] = False,
) -> int:
    """Write patches for other programs: git am, stg import, quilt, git apply."""
    from contribbot.queue.exporting import export_bytes  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.queue.outgoing import write_export  # noqa: PLC0415  start-up time
    from contribbot.report.exchange import conflict_text, export_lines  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time

    queue = open_queue(context, *(patches or ()))
    lines = Lines(console(stderr=True))
    with lines.shown():
        done, files = export_bytes(
            queue,
            select(queue, patches or (), everything=not patches),
            form.value,
            alone=alone,
            progress=lines.download(),
        )
    if done.conflicts:
        for line in conflict_text(done.conflicts):
            typer.echo(line, err=True)
        return 1
    write_export(files, output, stdout=sys.stdout.buffer)
    for line in export_lines(done, form.value):
        typer.echo(line, err=True)
    return 0
