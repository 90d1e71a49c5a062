"""The program `contribbot`."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli import contribute, queue, runners, verify
from contribbot.cli.options import Settings

app = typer.Typer(
    name="contribbot",
    help="A patch queue with proof: it claims nothing that it did not see.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: it starts twice as fast, and reads the same in a log.
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  typer passes it by position
    if wanted:
        from contribbot import __version__  # noqa: PLC0415  beside its only use

        typer.echo(f"contribbot {__version__}")
        raise typer.Exit


@app.callback()
def settings(
    context: typer.Context,
    queue: Annotated[
        Path | None,
        typer.Option("--queue", metavar="DIR", help="The folder that holds patches/queue.toml."),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show each command that is run, and tracebacks.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and end."
        ),
    ] = False,
) -> None:
    """Keep what all commands share."""
    del version  # the callback has answered
    context.obj = Settings(queue=queue, debug=debug)
    if debug:
        import logging  # noqa: PLC0415  costs start-up time, and only --debug needs it

        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")


# In the order of a patch's life, as --help shows them.
app.command("list")(queue.list_patches)
app.command("show")(queue.show)
app.command("status")(verify.status)
app.command("new")(queue.new)
app.command("import")(queue.import_)
app.command("edit")(queue.edit)
app.command("refresh")(queue.refresh)
app.command("verify", no_args_is_help=False)(verify.verify)
app.command("rebase")(verify.rebase)
app.command("bisect")(verify.bisect)
app.command("log")(queue.log)
app.command("diff")(queue.diff)
app.command("export")(queue.export)
app.command("reproducer")(contribute.reproducer)
app.command("body")(contribute.body)
app.command("gate")(contribute.gate)
app.command("attest")(contribute.attest)
app.command("open-pr")(contribute.open_pr)
app.command("follow")(contribute.follow)
app.command("reviews")(contribute.reviews)
app.command("reply")(contribute.reply)
app.command("retire")(contribute.retire)
app.command("matrix")(runners.matrix)
app.command("dispatch", no_args_is_help=False)(runners.dispatch)
app.command("collect")(runners.collect)
app.add_typer(verify.app, name="evidence")
app.add_typer(runners.app, name="workflows")


def main() -> None:
    """Run the program."""
    # With a standard stream closed, the next file that is opened would take its place.
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # Python has no such stream then; a command may write bytes to it.
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  open to the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What others wrote may hold what this terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    app()
