"""`contribbot import`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from contribbot.cli.new import AfterOption, DependsOption, NameArgument, PinOption, UpstreamOption
from contribbot.cli.shell import JsonOption, command, open_queue, print_json
from contribbot.errors import UsageError


@command
def import_(
    context: typer.Context,
    name: NameArgument,
    source: Annotated[
        list[str] | None,
        typer.Argument(
            help="REPO A..B, REPO BRANCH (its commits above the pin), mboxes, format-patch files, "
            "folders of them, a quilt or StGit series, or - for standard input.",
        ),
    ] = None,
    upstream: UpstreamOption = None,
    pin: PinOption = None,
    title: Annotated[
        str,
        typer.Option(
            help="The title of its pull request; also the subject of a diff that has none.",
            show_default="the first commit's subject",
        ),
    ] = "",
    author: Annotated[
        str,
        typer.Option(metavar="'NAME <ADDRESS>'", help="Who wrote patches that do not say it."),
    ] = "",
    depends_on: DependsOption = None,
    after: AfterOption = None,
    as_json: JsonOption = False,
) -> int:
    """Take a patch from elsewhere; it must apply to its pin, or nothing is written."""
    from contribbot.queue.importing import import_sources  # noqa: PLC0415  start-up time
    from contribbot.queue.mails import Given  # noqa: PLC0415  start-up time
    from contribbot.queue.new import Wish  # noqa: PLC0415  start-up time
    from contribbot.report.exchange import ImportReport, import_lines  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time

    lines = Lines(console(stderr=True))
    with lines.shown():
        done = import_sources(
            open_queue(context),
            Wish(name, title, upstream, pin, tuple(depends_on or ()), after),
            source or (),
            stdin=_read_stdin,
            given=Given(author, title),
            progress=lines.download(),
        )
    if as_json:
        print_json(ImportReport.of(done))
    else:
        for line in import_lines(done):
            typer.echo(line)
    return 1 if done.conflicts else 0


def _read_stdin() -> bytes:
    if sys.stdin.isatty():
        raise UsageError(
            "nothing to import named, and standard input is a terminal",
            hint="name an mbox, a folder of patches, or a clone and a range",
        )
    return sys.stdin.buffer.read()
