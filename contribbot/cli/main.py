"""The program `contribbot`."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from contribbot.cli.command import Settings

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

#: The commands in the order of a patch's life, as --help shows them: where each is under
#: `contribbot.cli` (a function, or the app of a group), and its short help.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "init": ("start:init", "Begin a queue."),
    "pin": ("start:pin_app", "Pin the releases that patches stand on."),
    "list": ("queue:list_patches", "List the patches of the queue, in its order."),
    "show": ("queue:show", "Show what a patch is for and what proves it."),
    "status": ("status:status", "Show which patches apply, are needed, and are proved where."),
    "new": ("queue:new", "Begin a patch."),
    "import": ("queue:import_", "Take a patch from elsewhere."),
    "edit": ("queue:edit", "Open a patch as commits in a git work tree."),
    "refresh": ("queue:refresh", "Take the commits of a patch's work tree back."),
    "undo": ("queue:undo", "Give a patch the files that it had before."),
    "restore": ("queue:restore", "Give a patch the files of a version."),
    "reorder": ("queue:reorder", "Put a patch elsewhere in the order."),
    "mv": ("queue:mv", "Give a patch another name."),
    "fold": ("queue:fold", "Put the commits of a patch into another one."),
    "split": ("queue:split", "Take a part of a patch into a new one."),
    "check": ("start:check", "Run the checks of a patch in this terminal."),
    "verify": ("verify:verify", "Prove patches: red without them, green with them."),
    "rebase": ("verify:rebase", "Move a pin and its patches to another release."),
    "bisect": ("verify:bisect", "Find the first release that breaks a patch."),
    "log": ("queue:log", "Show what happened to a patch."),
    "diff": ("queue:diff", "Compare versions of a patch commit by commit."),
    "export": ("queue:export", "Write patches for git am, stg, quilt or git apply."),
    "reproducer": ("contribute:reproducer", "Write what shows the fault without contribbot."),
    "body": ("contribute:body", "Write the text of the pull request."),
    "gate": ("contribute:gate", "Hold a patch against the upstream's rules."),
    "attest": ("contribute:attest", "Let a person stand for the diff and its text."),
    "open-pr": ("contribute:open_pr", "Open or update the pull request of a patch."),
    "follow": ("contribute:follow", "Show where every pull request stands."),
    "reviews": ("contribute:reviews", "Show the open review threads of a pull request."),
    "reply": ("contribute:reply", "Answer in a review thread with your own text."),
    "retire": ("contribute:retire", "Take out a patch that its upstream has."),
    "matrix": ("runners:matrix", "Plan which runner proves what."),
    "dispatch": ("runners:dispatch", "Start a run of verify.yml on GitHub, and watch it."),
    "collect": ("runners:collect", "Judge what a run left, and keep the good records."),
    "evidence": ("evidence:app", "Look at the records of verifications."),
    "workflows": ("runners:app", "GitHub Actions for this queue."),
}


class _Commands(Mapping[str, "Command"]):
    """The commands; the module of each is imported when it is asked for."""

    def __getitem__(self, name: str) -> Command:
        module, _, attribute = COMMANDS[name][0].partition(":")
        command = getattr(importlib.import_module(f"contribbot.cli.{module}"), attribute)
        app = typer.Typer(rich_markup_mode=None)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
        return typer.main.get_group(app).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyGroup(TyperGroup):
    """The group of all commands, whose help imports none of them."""

    def __init__(self, *, name: str | None = None, **settings: Any) -> None:
        super().__init__(name=name, **settings)
        self.commands = _Commands()  # type: ignore[assignment]  # nobody adds a command to it

    def list_commands(self, _ctx: Context) -> list[str]:
        """Return the names of all commands."""
        return [*COMMANDS]

    def format_commands(self, _ctx: Context, formatter: HelpFormatter) -> None:
        """Write each command's name and short help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


app = typer.Typer(
    name="contribbot",
    cls=LazyGroup,
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
    queue: Annotated[Path | None, typer.Option(
        "--queue", metavar="DIR", help="The folder that holds patches/queue.toml."
    )] = None,
    debug: Annotated[bool, typer.Option(
        "--debug", help="Show each command that is run, and tracebacks."
    )] = False,
    version: Annotated[bool, typer.Option(
        "--version", callback=_print_version, is_eager=True, help="Show the version and end."
    )] = False,
) -> None:  # fmt: skip
    """Keep what all commands share."""
    del version  # the callback has answered
    context.obj = Settings(queue=queue, debug=debug)
    if debug:
        import logging  # noqa: PLC0415  costs start-up time, and only --debug needs it

        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")


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
