"""`contribbot new`."""

from __future__ import annotations

from typing import Annotated

import typer

from contribbot.cli.shell import command, open_queue

NameArgument = Annotated[str, typer.Argument(help="The new patch's name: a-z, 0-9, . _ -")]
UpstreamOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Its upstream.", show_default="that of the only pin"),
]
PinOption = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="The tag of its pin.", show_default="the only pin"),
]
DependsOption = Annotated[
    list[str] | None,
    typer.Option("--depends-on", metavar="NAME", help="A patch below it; may be repeated."),
]
AfterOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The patch that it follows.", show_default="the last"),
]


@command
def new(
    context: typer.Context,
    name: NameArgument,
    title: Annotated[str, typer.Option(help="The title of its pull request.")],
    upstream: UpstreamOption = None,
    pin: PinOption = None,
    depends_on: DependsOption = None,
    after: AfterOption = None,
) -> int:
    """Begin a patch: its folder, a patch.toml to fill in, its place in the order."""
    from contribbot.queue.new import create  # noqa: PLC0415  start-up time
    from contribbot.report.exchange import new_lines  # noqa: PLC0415  start-up time

    draft = create(
        open_queue(context),
        name,
        upstream=upstream,
        pin=pin,
        title=title,
        depends_on=depends_on or (),
        after=after,
    )
    for line in new_lines(draft):
        typer.echo(line)
    return 0
