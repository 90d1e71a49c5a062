"""The program `contribbot`: the table of its commands; a call imports the command's module."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from typer._click import exceptions
from typer.core import TyperArgument, TyperCommand, TyperGroup

from contribbot import __version__
from contribbot.cli.refusal import current_settings, explain, explain_usage
from contribbot.former import COMMANDS as FORMER

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter

#: The commands by what a person wants to do, in the order of a patch's life.
PANELS: Final[Mapping[str, str]] = {
    "Begin": "demo init pin doctor",
    "Write patches": "status show new edit refresh undo queue",
    "Prove them": "check verify evidence numerics emulate fallback runners",
    "Send them upstream": "gate body attest open-pr follow",
    "Follow new releases": "rebase bisect",
}
#: Each command's full name, with the function in `contribbot.cli` (empty: a group) and the help.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "demo": ("begin:demo", "See all of it on a toy patch, on this machine alone."),
    "init": ("begin:init", "Make a queue of patches."),
    "pin": ("", "Choose the releases that patches are made for."),
    "pin add": ("begin:pin_add", "Pin a release of an upstream."),
    "doctor": ("diagnosis:doctor", "Show what this machine can prove, and what it lacks."),
    "status": ("show:status", "Show which patches apply and are proved."),
    "show": ("show:show", "Show what a patch is for and what proves it."),
    "new": ("begin:new", "Add a patch: an empty one, or commits, mails or files."),
    "edit": ("queue:edit", "Open a patch as commits in a git work tree."),
    "refresh": ("queue:refresh", "Save the commits of that work tree in the patch."),
    "undo": ("queue:undo", "Take back the last operation on the queue."),
    "queue": ("", "List, arrange, compare and export patches; take one out."),
    "queue list": ("show:list_patches", "List the patches in order."),
    "queue log": ("queue:log", "Show the operations on the queue."),
    "queue diff": ("queue:diff", "Compare versions of a patch commit by commit."),
    "queue reorder": ("queue:reorder", "Move a patch to another place in the order."),
    "queue mv": ("queue:mv", "Rename a patch."),
    "queue fold": ("queue:fold", "Add the commits of a patch to another one."),
    "queue split": ("queue:split", "Move a part of a patch into a new one."),
    "queue export": ("queue:export", "Write patches as an mbox, for git am."),
    "queue retire": ("contribute:retire", "Take out a patch that its upstream has."),
    "check": ("verify:check", "Run a patch's tests while you write them; records nothing."),
    "verify": ("verify:verify", "Prove patches: red without them, green with them; records it."),
    "evidence": ("", "Show and check the records of what was proved."),
    "evidence show": ("evidence:show", "Show the records of a patch."),
    "evidence check": ("evidence:check", "Show which records still hold."),
    "evidence report": ("evidence:report", "Write the queue and its records as web pages."),
    "numerics": ("", "Find out why results of a computation differ."),
    "numerics explain": ("diagnosis:explain", "Find the arithmetic that makes two results differ."),
    "emulate": ("emulate:emulate", "Run any Triton tests on emulated AMD GPUs."),
    "fallback": ("diagnosis:fallback", "Find a program's lines that run on the CPU by accident."),
    "runners": ("", "Prove patches on GitHub's and your own machines."),
    "runners matrix": ("runners:matrix", "Plan which runner tests what."),
    "runners dispatch": ("runners:dispatch", "Start a run on GitHub, and wait for it."),
    "runners collect": ("runners:collect", "Keep the good records of a run."),
    "runners workflows": ("", "Install this queue's GitHub workflows."),
    "runners workflows install": ("runners:install", "Write .github/workflows/."),
    "gate": ("contribute:gate", "Check a patch against its upstream's rules; find duplicates."),
    "body": ("contribute:body", "Write the text of the pull request."),
    "attest": ("contribute:attest", "Read the diff and its text, and sign for them."),
    "open-pr": ("contribute:open_pr", "Open or update the pull request of a patch."),
    "follow": ("contribute:follow", "Show pull requests: CI, reviews, what is next."),
    "rebase": ("lifecycle:rebase", "Move a pin and its patches to another release."),
    "bisect": ("lifecycle:bisect", "Find the first release that breaks a patch."),
}


class HelpfulCommand(TyperCommand):
    """A command whose help shows arguments by plain names such as PATCH, without types."""

    def collect_usage_pieces(self, _ctx: Context) -> list[str]:
        """Return the options and arguments for the usage line."""
        return ["[OPTIONS]", *(_usage(param) for param in _arguments(self))]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the arguments and the options."""
        if arguments := _arguments(self):
            with formatter.section("Arguments"):
                formatter.write_dl([(_usage(param), _help(param)) for param in arguments])
        options = (param for param in self.get_params(ctx) if param not in arguments)
        with formatter.section("Options"):
            formatter.write_dl([*filter(None, (each.get_help_record(ctx) for each in options))])


def _arguments(command: TyperCommand) -> list[TyperArgument]:
    return [param for param in command.params if isinstance(param, TyperArgument)]


def _usage(argument: TyperArgument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    name = name if argument.required or name.startswith("[") else f"[{name}]"
    return name if argument.nargs == 1 else f"{name}..."


def _help(argument: TyperArgument) -> str:
    default = argument.show_default if isinstance(argument.show_default, str) else ""
    return f"{argument.help}{f'  [default: {default}]' if default else ''}"


def command_of(path: str, shared: Sequence[Parameter] = ()) -> Command:
    """Return the command or group with a full name, with the shared options added."""
    place, text = COMMANDS[path]
    name = path.rpartition(" ")[2]
    if not place:
        params = [*shared]
        return LazyGroup(name=name, path=path, help=text, no_args_is_help=True, params=params)
    module, _, attribute = place.partition(":")
    function = getattr(importlib.import_module(f"contribbot.cli.{module}"), attribute)
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name, cls=HelpfulCommand)(function)
    command = typer.main.get_command(app)
    command.params += shared
    return command


class LazyGroup(TyperGroup):
    """A group of commands; a command's module is imported when the command is called."""

    def __init__(self, *, name: str | None = None, path: str = "", **settings: Any) -> None:
        super().__init__(name=name, **settings | {"rich_markup_mode": None})
        self._prefix = f"{path} " if path else ""
        names = (name for name in COMMANDS if name.startswith(self._prefix))
        below = (name.removeprefix(self._prefix) for name in names)
        self.commands = {name: TyperCommand(name) for name in below if " " not in name}

    def get_command(self, _ctx: Context, cmd_name: str) -> Command | None:
        """Return the command of a name, with the shared options added; None: no command."""
        shared = [param for param in self.params if param.name in {"as_json", "queue", "debug"}]
        known = cmd_name in self.commands
        return command_of(self._prefix + cmd_name, shared) if known else None

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Return the command of a name; raise UsageError, with a hint, for a dropped command."""
        path = self._prefix + args[0]
        if advice := FORMER.get(path):
            raise exceptions.UsageError(f"contribbot {path} is gone: {advice}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: Context, formatter: HelpFormatter) -> None:
        """Write each command's name and short help, grouped by the user's task."""
        panels = {"Commands": " ".join(self.commands)} if self._prefix else PANELS
        for panel, names in panels.items():
            with formatter.section(panel):
                rows = [(name, COMMANDS[self._prefix + name][1]) for name in names.split()]
                formatter.write_dl(rows)

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the program; a fault of the command line is reported in one line."""
        try:
            # Call the program contribbot, even if `python -m contribbot` runs it.
            mine = {"standalone_mode": False, "prog_name": "contribbot"}
            sys.exit(super().main(*args, **settings | mine))
        except exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except exceptions.UsageError as error:
            # The context has the command's full name, as far as the words were understood.
            path = error.ctx.command_path if error.ctx else f"contribbot {_called(sys.argv[1:])}"
            name = path.partition(" ")[2]
            sys.exit(explain_usage(error.format_message(), name, _elsewhere(error, name)))
        except typer.Abort:
            sys.exit(explain(KeyboardInterrupt(), debug=False))


def _elsewhere(error: exceptions.UsageError, name: str) -> str:
    """Return a hint if another command, or pytest, has the option or name; empty: no hint."""
    if isinstance(error, exceptions.NoSuchOption):
        option = error.option_name
        if name == "check" and not option.startswith("--"):
            return f"pytest's options follow `--`: contribbot check PATCH -- {option}"
        owners = [
            path
            for path, (place, _) in COMMANDS.items()
            if place and any(option in param.opts for param in command_of(path).params)
        ]
        return f"{option} is an option of `contribbot {owners[0]}`" if owners else ""
    wrong = error.message.partition("'")[2].partition("'")[0]
    owner = next((path for path in COMMANDS if path.endswith(f" {wrong}")), "")
    return f"see `contribbot {owner} -h`" if owner and "such command" in error.message else ""


def _called(words: Sequence[str]) -> str:
    """Return the command that the words of a command line name; empty: no command."""
    names = [word for word in words if not word.startswith("-")]
    spans = (names[at : at + size] for size in (3, 2, 1) for at in range(len(names) - size + 1))
    return next((name for span in spans if (name := " ".join(span)) in COMMANDS), "")


app = typer.Typer(
    name="contribbot",
    cls=LazyGroup,
    help="Keep patches for PyTorch, vLLM and SGLang, prove them, and send them upstream. What it"
    " reports, it ran.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with contribbot demo; `contribbot verify -h` explains verify, and so on.",
    pretty_exceptions_enable=False,
    # Help without rich starts twice as fast, and looks the same in a log.
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"contribbot {__version__}")
        raise typer.Exit


def _store(param: typer.CallbackParam, value: Path | None) -> None:
    """Store the value of a shared option, which is given before or after the command's name."""
    if value:
        setattr(current_settings(), param.name or "", value)


def _shared(name: str, text: str, metavar: str | None = None) -> Any:
    default = None if metavar else False
    return typer.Option(
        default, name, help=text, callback=_store, metavar=metavar, expose_value=False
    )


@app.callback()
def settings(
    as_json: bool = _shared("--json", "Print one JSON document, and nothing else."),
    queue: Path | None = _shared("--queue", "The folder that holds patches/queue.toml.", "DIR"),
    debug: bool = _shared("--debug", "Show each command that is run, and tracebacks."),
    version: bool = typer.Option(
        None, "--version", callback=_print_version, is_eager=True, help="Show the version and end."
    ),
) -> None:
    """Accept the options that all commands share; their callback stores the values."""
    del as_json, queue, debug, version


def main() -> None:
    """Run the program, with os.devnull in place of closed standard streams."""
    # If a standard stream is closed, the next opened file would get its descriptor.
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # Python sets a closed standard stream to None, but commands write to both streams.
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  open to the end
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  the same
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Foreign text may hold characters that this terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    app()
