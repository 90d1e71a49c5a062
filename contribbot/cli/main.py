"""The program `contribbot`: one registry of commands, each imported when it is called."""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from contribbot.cli.command import Settings, explain, explain_usage

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter


class Verb(NamedTuple):
    """A command: where its function is under `contribbot.cli`, its help, and an example."""

    place: str  # module:function; nothing for a group
    panel: str
    text: str
    example: str = ""


_QUEUE, _PROOF = "Queue", "Proof"
_PULL, _RUNNERS = "Pull request", "Runners"

#: The commands in the order of a patch's life; --help shows them by panel.
COMMANDS: Final[Mapping[str, Verb]] = {
    "demo": Verb("demo:demo", _QUEUE, "Take a toy patch all the way, on this machine alone.",
                  "demo --keep look-around"),
    "init": Verb("start:init", _QUEUE, "Begin a queue.", "init my-queue"),
    "pin": Verb("", _QUEUE, "Pin the releases that patches stand on."),
    "pin add": Verb("start:pin_add", _QUEUE, "Pin a release of an upstream.",
                     "pin add sglang newest"),
    "list": Verb("queue:list_patches", _QUEUE, "List the patches in the queue's order.",
                  "list --json"),
    "show": Verb("queue:show", _QUEUE, "Show what a patch is for and what proves it.",
                  "show rmsnorm"),
    "status": Verb("status:status", _QUEUE, "Show which patches apply and are proved.",
                    "status --against newest"),
    "new": Verb("queue:new", _QUEUE, "Begin a patch.",
                 "new fast-path --title 'Take the fast path'"),
    "import": Verb("queue:import_", _QUEUE, "Take a patch from a branch, mails or files.",
                    "import fast-path ../vllm my-branch"),
    "edit": Verb("queue:edit", _QUEUE, "Open a patch as commits in a git work tree.",
                  "edit rmsnorm --at ../rmsnorm"),
    "refresh": Verb("queue:refresh", _QUEUE, "Take the commits of a work tree back.",
                     "refresh rmsnorm"),
    "undo": Verb("queue:undo", _QUEUE, "Give a patch the files that it had before.",
                  "undo rmsnorm"),
    "restore": Verb("queue:restore", _QUEUE, "Give a patch the files of a version.",
                     "restore rmsnorm v1"),
    "reorder": Verb("queue:reorder", _QUEUE, "Put a patch elsewhere in the order.",
                     "reorder rmsnorm --before fp8-quant"),
    "mv": Verb("queue:mv", _QUEUE, "Give a patch another name.", "mv rmsnorm aiter-layout"),
    "fold": Verb("queue:fold", _QUEUE, "Put the commits of a patch into another one.",
                  "fold fixup rmsnorm"),
    "split": Verb("queue:split", _QUEUE, "Take a part of a patch into a new one.",
                   "split rmsnorm rmsnorm-tests test/registered"),
    "rebase": Verb("lifecycle:rebase", _QUEUE, "Move a pin and its patches to another release.",
                    "rebase --upstream vllm --to newest --dry-run"),
    "log": Verb("queue:log", _QUEUE, "Show what happened to a patch.", "log rmsnorm"),
    "diff": Verb("queue:diff", _QUEUE, "Compare versions of a patch commit by commit.",
                  "diff rmsnorm v1..v2"),
    "export": Verb("queue:export", _QUEUE, "Write patches for git am, stg, quilt or git apply.",
                    "export rmsnorm --format mbox --output rmsnorm.mbox"),
    "retire": Verb("contribute:retire", _QUEUE, "Take out a patch that its upstream has.",
                    "retire rmsnorm"),
    "check": Verb("start:check", _PROOF, "Run the checks of a patch in this terminal.",
                   "check rmsnorm -- -k layout -x"),
    "verify": Verb("verify:verify", _PROOF, "Test patches: fail without them, pass with them.",
                    "verify rmsnorm --require cpu"),
    "bisect": Verb("lifecycle:bisect", _PROOF, "Find the first release that breaks a patch.",
                    "bisect rmsnorm --from v0.5.10 --to v0.5.12"),
    "reproducer": Verb("contribute:reproducer", _PROOF,
                        "Write a script that shows the fault by itself.",
                        "reproducer rmsnorm --output rmsnorm-fault"),
    "numerics": Verb("", _PROOF, "Tell why results of a computation differ."),
    "numerics explain": Verb("numerics:explain", _PROOF,
                              "Find the arithmetic that makes two results differ.",
                              "numerics explain cpu.safetensors gpu.safetensors"),
    "numerics floor": Verb("numerics:floor", _PROOF,
                            "Measure how far arithmetic alone moves a result.",
                            "numerics floor cpu.safetensors --output floor.json"),
    "evidence": Verb("", _PROOF, "Look at the records of verifications."),
    "evidence show": Verb("evidence:show", _PROOF, "Show the records of a patch.",
                           "evidence show rmsnorm"),
    "evidence check": Verb("evidence:check", _PROOF, "Tell which records still hold.",
                            "evidence check --json"),
    "evidence prune": Verb("evidence:prune", _PROOF, "Remove stale records.",
                            "evidence prune --dry-run"),
    "doctor": Verb("doctor:doctor", _PROOF, "Show what this machine is and can prove.",
                    "doctor --json"),
    "emulate": Verb("emulate:emulate", _PROOF,
                     "Run other people's Triton tests on emulated AMD GPUs.",
                     "emulate gfx942 gfx1201 -- pytest tests/test_kernels.py"),
    "fallback": Verb("fallback:fallback", _PROOF,
                      "Name what a program leaves to the CPU, line by line.",
                      "fallback -- python train.py --steps 10"),
    "report": Verb("report:report", _PROOF, "Write the queue and its records as static pages.",
                    "report --html site"),
    "body": Verb("contribute:body", _PULL, "Write the text of the pull request.",
                  "body rmsnorm --output body.md"),
    "gate": Verb("contribute:gate", _PULL, "Check a patch against its upstream's rules.",
                  "gate rmsnorm --offline"),
    "attest": Verb("contribute:attest", _PULL, "Read the diff and its text, and sign for them.",
                    "attest rmsnorm --show"),
    "open-pr": Verb("contribute:open_pr", _PULL, "Open or update the pull request of a patch.",
                     "open-pr rmsnorm --dry-run"),
    "follow": Verb("contribute:follow", _PULL, "Show the state of every pull request.",
                    "follow --json"),
    "reviews": Verb("contribute:reviews", _PULL, "Show the open review threads.",
                     "reviews rmsnorm --all"),
    "reply": Verb("contribute:reply", _PULL, "Answer in a review thread with your own text.",
                   "reply rmsnorm 2187 --text-file answer.md"),
    "matrix": Verb("runners:matrix", _RUNNERS, "Plan which runner tests what.",
                    "matrix --on gfx942"),
    "dispatch": Verb("runners:dispatch", _RUNNERS, "Start a run on GitHub, and watch it.",
                      "dispatch rmsnorm --target gfx942"),
    "collect": Verb("runners:collect", _RUNNERS, "Keep the good records of a run.",
                     "collect 1234567890"),
    "workflows": Verb("", _RUNNERS, "Install and run this queue's GitHub workflows."),
    "workflows install": Verb("runners:install", _RUNNERS, "Write .github/workflows/.",
                               "workflows install --check"),
    "workflows run": Verb("runners:run", _RUNNERS, "Do the work of one job, on its runner.",
                           "workflows run --output answer"),
    "workflows pin": Verb("runners:pin", _RUNNERS, "Write which versions runners install.",
                           "workflows pin"),
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
        records = [param.get_help_record(ctx) for param in self.get_params(ctx)
                   if param not in arguments]  # fmt: skip
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
        return (name.removeprefix(self._prefix) for name in names
                if " " not in name.removeprefix(self._prefix))  # fmt: skip

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

    def list_commands(self, _ctx: Context) -> list[str]:
        """Return the names of all commands."""
        return [*self.commands]

    def format_commands(self, _ctx: Context, formatter: HelpFormatter) -> None:
        """Write each command's name and short help, by what one is doing."""
        names = [*self.commands]
        entries = {name: COMMANDS[self._prefix + name] for name in names}
        for panel in dict.fromkeys(entry.panel for entry in entries.values()):
            with formatter.section(panel):
                formatter.write_dl([
                    (name, entry.text) for name, entry in entries.items() if entry.panel == panel
                ])  # fmt: skip

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the program; what is wrong with how it was called is one line, as all that is."""
        from typer._click import exceptions  # noqa: PLC0415  start-up time

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
    pairs = (" ".join(pair) for pair in pairwise(names))
    return next((name for name in (*pairs, *names) if name in COMMANDS), "")


def _refuse_empty(words: Sequence[str]) -> None:
    """Refuse an empty value: most likely a variable of the shell that is not set."""
    from typer._click.exceptions import UsageError  # noqa: PLC0415  start-up time

    before = ""
    for word in takewhile(lambda word: word != "--", words):
        if not word or re.fullmatch(r"--[a-z-]+=", word):
            named = word.rstrip("=") or before if before.startswith("-") or word else "an argument"
            raise UsageError(f"{named}: an empty value")
        before = word


app = typer.Typer(
    name="contribbot",
    cls=LazyGroup,
    help="A queue of patches with proof: it reports only what it ran.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: contribbot verify rmsnorm; `contribbot verify -h` says more of it.",
    pretty_exceptions_enable=False,
    # Plain help: it starts twice as fast, and reads the same in a log.
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  typer passes it by position
    if wanted:
        from contribbot import __version__  # noqa: PLC0415  beside its only use

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
    queue: Annotated[Path | None, typer.Option(
        "--queue", metavar="DIR", help="The folder that holds patches/queue.toml.",
        callback=_keep_queue, expose_value=False,
    )] = None,
    debug: Annotated[bool, typer.Option(
        "--debug", help="Show each command that is run, and tracebacks.",
        callback=_keep_debug, expose_value=False,
    )] = False,
    version: Annotated[bool, typer.Option(
        "--version", callback=_print_version, is_eager=True, help="Show the version and end."
    )] = False,
) -> None:  # fmt: skip
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
        # What others wrote may hold what this terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    app()
