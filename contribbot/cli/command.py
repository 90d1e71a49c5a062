"""What every command needs around it: the queue, the exit codes, JSON on standard output."""

from __future__ import annotations

import contextlib
import errno
import functools
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from contribbot.errors import ContribbotError, ExitCode, MachineError, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from contribbot.cli.live import Lines
    from contribbot.queue.load import Queue


P = ParamSpec("P")

#: The patch that a command is about, and its `--json`: the same words everywhere.
PatchArgument = Annotated[str, typer.Argument(help="Name of a patch, or its folder.")]
PatchesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Names of patches, or their folders.", show_default="all"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True)
class Settings:
    """What the options before the command say."""

    queue: Path | None
    debug: bool


def command(function: Callable[P, int]) -> Callable[P, None]:
    """Turn a function that returns an exit code, or raises, into a command."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        settings = getattr(kwargs.get("context"), "obj", None)
        debug = isinstance(settings, Settings) and settings.debug
        try:
            code = function(*args, **kwargs)
        except BrokenPipeError:
            raise  # whoever read our output has seen enough; typer ends quietly
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the one handler
            code = explain(error, debug=debug)
        raise typer.Exit(code)

    return run


def explain(error: BaseException, *, debug: bool) -> int:
    """Say on standard error what went wrong, in one line, and return the exit code."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, KeyboardInterrupt):
        typer.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    known = error if isinstance(error, ContribbotError) else _from_other(error)
    from contribbot.cli.text import clean  # noqa: PLC0415  only where something went wrong

    hint = f"; {known.hint}" if known.hint else ""
    typer.echo(f"contribbot: {clean(known.message)}{clean(hint)}", err=True)
    return known.exit_code


def _from_other(error: BaseException) -> ContribbotError:
    """Word an error of the operating system, or one that nobody foresaw."""
    if not isinstance(error, OSError):
        return MachineError(
            f"internal error: {type(error).__name__}: {error}",
            hint="this is a fault of contribbot; run it again with --debug and report what it says",
        )
    place = f"{error.filename}: " if error.filename else ""
    message = f"{place}{error.strerror or error}"
    if error.errno == errno.ENOSPC:
        from contribbot.process import no_space  # noqa: PLC0415  only where a disk is full

        return no_space(message)
    return MachineError(message, hint="check that the folder is yours and can be written")


def settings_of(context: typer.Context) -> Settings:
    """Return what the options before the command say."""
    settings = context.obj
    return settings if isinstance(settings, Settings) else Settings(queue=None, debug=False)


def open_queue(context: typer.Context, *places: str) -> Queue:
    """Load the queue that a command is about.

    It is the one that `--queue` names; else the one that holds a patch folder
    named on the command line; else the one around the current folder.
    """
    from contribbot.queue.load import find_queue, load_queue  # noqa: PLC0415  start-up time

    chosen = settings_of(context).queue
    if chosen is not None:
        if not (chosen / "patches" / "queue.toml").is_file():
            raise UsageError(f"{chosen}: no patches/queue.toml in it")
        return load_queue(chosen)
    for place in places:
        path = Path(place).absolute()
        if any((folder / "patch.toml").is_file() for folder in (path, path.parent)):
            return load_queue(find_queue(path))
    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder is gone", hint="cd to one that is there") from error
    return load_queue(find_queue(here))


@contextlib.contextmanager
def live_lines(*, stderr: bool) -> Iterator[Lines]:
    """Give what prints outcomes as they come, and shows on a terminal what is running."""
    from contribbot.cli.live import Lines, console  # noqa: PLC0415  rich is for what runs

    lines = Lines(console(stderr=stderr))
    with lines.shown():
        yield lines


def print_report(document: BaseModel, lines: Iterable[str], *, as_json: bool) -> None:
    """Write what a command found to standard output: as one JSON document, or as lines."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        typer.echo(line)


def print_notes(lines: Iterable[str]) -> None:
    """Write what is said beside the output to standard error."""
    for line in lines:
        typer.echo(line, err=True)


def print_json(model: BaseModel) -> None:
    """Write one JSON document to standard output, and nothing else."""
    # JSON is UTF-8, whatever the terminal speaks.
    typer.echo(model.model_dump_json(indent=2, by_alias=True).encode())
