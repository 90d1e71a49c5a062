"""The program `contribbot`: one registry of commands, each imported when it is called."""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from typer._click import exceptions
from typer.core import TyperArgument, TyperCommand, TyperGroup

from contribbot import __version__
from contribbot.cli.refusal import Settings, explain, explain_usage
from contribbot.former import COMMANDS as FORMER

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter


class Verb(NamedTuple):
    """A command: where its function is under `contribbot.cli`, its help, and an example."""

    place: str  # module:function; nothing for a group
    panel: str
    text: str
    example: str = ""


_START, _PATCHES, _PROOF = "Begin", "Write patches", "Prove them"
_SEND, _KEEP = "Send them upstream", "Follow new releases"

#: The commands in the order of a patch's life; --help shows them by what one wants to do.
COMMANDS: Final[Mapping[str, Verb]] = {
    "demo": Verb("demo:demo", _START, "See all of it on a toy patch, on this machine alone.",
                  "demo look-around"),
    "init": Verb("start:init", _START, "Make a queue of patches.", "init my-queue"),
    "pin": Verb("", _START, "Choose the releases that patches are made for."),
    "pin add": Verb("start:pin_add", "", "Pin a release of an upstream.",
                     "pin add sglang newest"),
    "doctor": Verb("doctor:doctor", _START, "Show what this machine can prove, and what it lacks.",
                    "doctor --json"),
    "status": Verb("status:status", _PATCHES, "Show which patches apply and are proved.",
                    "status --against newest"),
    "show": Verb("show:show", _PATCHES, "Show what a patch is for and what proves it.",
                  "show rmsnorm"),
    "new": Verb("queue:new", _PATCHES, "Add a patch: an empty one, or commits, mails or files.",
                 "new fast-path ../vllm my-branch"),
    "edit": Verb("edit:edit", _PATCHES, "Open a patch as commits in a git work tree.",
                  "edit rmsnorm --at ../rmsnorm"),
    "refresh": Verb("edit:refresh", _PATCHES, "Save the commits of that work tree in the patch.",
                     "refresh rmsnorm"),
    "undo": Verb("edit:undo", _PATCHES, "Take back the last operation on the queue.",
                  "undo rmsnorm v1"),
    "queue": Verb("", _PATCHES, "List, arrange, compare and export patches; take one out."),
    "queue list": Verb("queue_list:list_patches", "", "List the patches in order.",
                        "queue list --json"),
    "queue log": Verb("queue:log", "", "Show the operations on the queue.",
                       "queue log rmsnorm"),
    "queue diff": Verb("queue:diff", "", "Compare versions of a patch commit by commit.",
                        "queue diff rmsnorm v1..v2"),
    "queue reorder": Verb("queue:reorder", "", "Move a patch to another place in the order.",
                           "queue reorder rmsnorm --before hipify-path"),
    "queue mv": Verb("queue:mv", "", "Rename a patch.", "queue mv rmsnorm aiter-layout"),
    "queue fold": Verb("queue:fold", "", "Add the commits of a patch to another one.",
                        "queue fold fixup rmsnorm"),
    "queue split": Verb("queue:split", "", "Move a part of a patch into a new one.",
                         "queue split rmsnorm rmsnorm-tests test/registered"),
    "queue export": Verb("queue:export", "",
                          "Write patches as an mbox, for git am.",
                          "queue export rmsnorm --output rmsnorm.mbox"),
    "queue retire": Verb("contribute:retire", "", "Take out a patch that its upstream has.",
                          "queue retire rmsnorm"),
    "check": Verb("start:check", _PROOF, "Run the tests of a patch while you write them.",
                   "check rmsnorm -- -k layout -x"),
    "verify": Verb("verify:verify", _PROOF,
                    "Prove patches: tests fail without them and pass with them.",
                    "verify rmsnorm --require cpu"),
    "evidence": Verb("", _PROOF, "Show and check the records of what was proved."),
    "evidence show": Verb("evidence:show", "", "Show the records of a patch.",
                           "evidence show rmsnorm"),
    "evidence check": Verb("evidence:check", "", "Show which records still hold.",
                            "evidence check --json"),
    "evidence prune": Verb("evidence:prune", "", "Remove stale records.", "evidence prune"),
    "evidence report": Verb("evidence:report", "",
                             "Write the queue and its records as web pages.",
                             "evidence report"),
    "numerics": Verb("", _PROOF, "Find out why results of a computation differ."),
    "numerics explain": Verb("numerics:explain", "",
                              "Find the arithmetic that makes two results differ.",
                              "numerics explain cpu.safetensors gpu.safetensors"),
    "emulate": Verb("emulate:emulate", _PROOF, "Run any Triton tests on emulated AMD GPUs.",
                     "emulate gfx942 gfx1201 -- pytest tests/test_kernels.py"),
    "fallback": Verb("fallback:fallback", _PROOF,
                      "Find the lines of a program that run on the CPU by accident.",
                      "fallback -- python train.py --steps 10"),
    "runners": Verb("", _PROOF, "Prove patches on GitHub's and your own machines."),
    "runners matrix": Verb("runners:matrix", "", "Plan which runner tests what.",
                            "runners matrix --on gfx942"),
    "runners dispatch": Verb("runners:dispatch", "", "Start a run on GitHub, and wait for it.",
                              "runners dispatch rmsnorm --target gfx942"),
    "runners collect": Verb("runners:collect", "", "Keep the good records of a run.",
                             "runners collect 1234567890"),
    "runners workflows": Verb("", "", "Install this queue's GitHub workflows."),
    "runners workflows install": Verb("runners:install", "", "Write .github/workflows/.",
                                       "runners workflows install --check"),
    "reproducer": Verb("contribute:reproducer", _SEND,
                        "Write a script and an issue that show the fault.",
                        "reproducer rmsnorm rmsnorm-fault"),
    "gate": Verb("contribute:gate", _SEND,
                  "Check a patch against its upstream's rules, and for duplicates.",
                  "gate rmsnorm --offline"),
    "body": Verb("contribute:body", _SEND, "Write the text of the pull request.",
                  "body rmsnorm > body.md"),
    "attest": Verb("contribute:attest", _SEND, "Read the diff and its text, and sign for them.",
                    "attest rmsnorm --show"),
    "open-pr": Verb("pull_request:open_pr", _SEND, "Open or update the pull request of a patch.",
                     "open-pr rmsnorm --dry-run"),
    "follow": Verb("pull_request:follow", _SEND, "Show pull requests: CI, reviews, what is next.",
                    "follow rmsnorm"),
    "rebase": Verb("lifecycle:rebase", _KEEP, "Move a pin and its patches to another release.",
                    "rebase newest --pin vllm --dry-run"),
    "bisect": Verb("lifecycle:bisect", _KEEP, "Find the first release that breaks a patch.",
                    "bisect rmsnorm v0.5.10 v0.5.12"),
}  # fmt: skip


class HelpfulCommand(TyperCommand):
    """A command whose help names things as people do: PATCH, and neither braces nor types."""

    def collect_usage_pieces(self, _ctx: Context) -> list[str]:
        """Return the options and arguments for the usage line."""
        return ["[OPTIONS]", *(_usage(param) for param in _arguments(self))]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the arguments and the options."""
        arguments = _arguments(self)
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(_usage(param), _help(param)) for param in arguments])
        records = [
            param.get_help_record(ctx) for param in self.get_params(ctx) if param not in arguments
        ]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record])


def _arguments(command: TyperCommand) -> list[TyperArgument]:
    return [param for param in command.params if isinstance(param, TyperArgument)]


def _usage(argument: TyperArgument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    name = name if argument.required or name.startswith("[") else f"[{name}]"
    return name if argument.nargs == 1 else f"{name}..."


def _help(argument: TyperArgument) -> str:
    default = argument.show_default if isinstance(argument.show_default, str) else ""
    return f"{argument.help}{f'  [default: {default}]' if default else ''}"


class _Commands(Mapping[str, "Command"]):
    """The commands of a group; the module of each is imported when it is asked for."""

    def __init__(self, prefix: str, shared: list[Parameter]) -> None:
        self._prefix, self._shared = prefix, shared

    def __getitem__(self, name: str) -> Command:
        entry = COMMANDS[self._prefix + name]
        if not entry.place:
            return LazyGroup(
                name=name,
                prefix=f"{self._prefix}{name} ",
                help=entry.text,
                no_args_is_help=True,
                params=[*self._shared],
            )
        module, _, attribute = entry.place.partition(":")
        function = getattr(importlib.import_module(f"contribbot.cli.{module}"), attribute)
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command(name, cls=HelpfulCommand, epilog=f"Example: contribbot {entry.example}")(
            function
        )
        command = typer.main.get_command(app)
        command.params += self._shared
        return command

    def __iter__(self) -> Iterator[str]:
        names = (name for name in COMMANDS if name.startswith(self._prefix))
        return (
            name.removeprefix(self._prefix)
            for name in names
            if " " not in name.removeprefix(self._prefix)
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)


class LazyGroup(TyperGroup):
    """A group of commands, whose help imports none of them."""

    def __init__(self, *, name: str | None = None, prefix: str = "", **settings: Any) -> None:
        super().__init__(name=name, **settings | {"rich_markup_mode": None})
        self._prefix = prefix
        # --queue and --debug may stand before the command and after it.
        shared = [param for param in self.params if param.name in {"queue", "debug"}]
        self.commands = _Commands(prefix, shared)  # type: ignore[assignment]  # nobody adds a command to it

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Return the command that is meant; of one that is gone, name its replacement."""
        if advice := FORMER.get(self._prefix + args[0]):
            raise exceptions.UsageError(
                f"contribbot {self._prefix}{args[0]} is gone: {advice}", ctx
            )
        return super().resolve_command(ctx, args)

    def list_commands(self, _ctx: Context) -> list[str]:
        """Return the names of all commands."""
        return [*self.commands]

    def format_commands(self, _ctx: Context, formatter: HelpFormatter) -> None:
        """Write each command's name and short help, by what one is doing."""
        names = [*self.commands]
        entries = {name: COMMANDS[self._prefix + name] for name in names}
        for panel in dict.fromkeys(entry.panel for entry in entries.values()):
            with formatter.section(panel or "Commands"):
                formatter.write_dl(
                    [(name, entry.text) for name, entry in entries.items() if entry.panel == panel]
                )

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the program; what is wrong with how it was called is one line, as all that is."""
        try:
            _refuse_empty(sys.argv[1:])
            # Of its own name, also where `python -m` runs it.
            mine = {"standalone_mode": False, "prog_name": "contribbot"}
            sys.exit(super().main(*args, **settings | mine))
        except exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except exceptions.UsageError as error:
            # The context knows how far the words were understood, groups and all.
            path = error.ctx.command_path if error.ctx else f"contribbot {_called(sys.argv[1:])}"
            sys.exit(explain_usage(error.format_message(), path.partition(" ")[2]))
        except typer.Abort:
            sys.exit(explain(KeyboardInterrupt(), debug=False))


def _called(words: Sequence[str]) -> str:
    """Return the command that a command line is meant for; nothing where it names none."""
    names = [word for word in words if not word.startswith("-")]
    spans = (names[at : at + size] for size in (3, 2, 1) for at in range(len(names) - size + 1))
    return next((name for span in spans if (name := " ".join(span)) in COMMANDS), "")


def _refuse_empty(words: Sequence[str]) -> None:
    """Refuse an empty value: most likely a variable of the shell that is not set."""
    before = ""
    for word in takewhile(lambda word: word != "--", words):
        if not word or re.fullmatch(r"--[a-z-]+=", word):
            named = word.rstrip("=") or before if before.startswith("-") or word else "an argument"
            raise exceptions.UsageError(f"{named}: an empty value")
        before = word


app = typer.Typer(
    name="contribbot",
    cls=LazyGroup,
    help="Keep patches for PyTorch, vLLM and SGLang, prove them, and send them upstream. What it"
    " reports, it ran.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with contribbot demo; `contribbot verify -h` explains verify, and so on.",
    pretty_exceptions_enable=False,
    # Plain help: it starts twice as fast, and reads the same in a log.
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  typer passes it by position
    if wanted:
        typer.echo(f"contribbot {__version__}")
        raise typer.Exit


def _settings(context: typer.Context) -> Settings:
    root = context.find_root()
    settings: Settings = root.obj or Settings()
    root.obj = context.obj = settings
    return settings


def _keep_queue(context: typer.Context, value: Path | None) -> None:
    _settings(context).queue = value or _settings(context).queue


def _keep_debug(context: typer.Context, value: bool) -> None:  # noqa: FBT001  as typer wants it
    if value:
        import logging  # noqa: PLC0415  costs start-up time, and only --debug needs it

        _settings(context).debug = True
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")


@app.callback()
def settings(
    queue: Annotated[
        Path | None,
        typer.Option(
            "--queue",
            metavar="DIR",
            help="The folder that holds patches/queue.toml.",
            callback=_keep_queue,
            expose_value=False,
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Show each command that is run, and tracebacks.",
            callback=_keep_debug,
            expose_value=False,
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and end."
        ),
    ] = False,
) -> None:
    """Take what all commands share; the callbacks have kept it."""
    del queue, debug, version


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
        # Foreign text may hold characters that this terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    app()
