"""Shared by all commands: options, the queue, the printed reply, errors and exit codes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import logging
import os
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import typer

from contribbot.cli.refusal import current_settings, echo, explain
from contribbot.cli.render import Block, is_watched, lines_of, width
from contribbot.errors import ExitCode, UsageError
from contribbot.queue.history import past_name
from contribbot.queue.load import Queue, find_queue, is_queue, load_queue, select, tree_around

if TYPE_CHECKING:
    from pydantic import BaseModel

    from contribbot.cli.live import Lines

P = ParamSpec("P")
T = TypeVar("T")
#: The value of an argument that must be given, as typer declares it.
_REQUIRED: Any = ...


def flag(name: str, text: str) -> bool:
    """Declare an option without a value, such as `--all`, as the default of a parameter."""
    declared: bool = typer.Option(False, name, help=text)  # noqa: FBT003  as typer has it
    return declared


def option(
    value: T, metavar: str, text: str, *names: str, default: str = "", least: int | None = None
) -> T:
    """Declare an option with a value; `default`: the default in words, for the help."""
    declared: T = typer.Option(
        value,
        *names,
        metavar=metavar,
        help=text,
        min=least,
        show_default=default or True,
        autocompletion=patch_names if metavar == "PATCH" else None,
    )
    return declared


def argument(
    metavar: str, text: str, value: T = _REQUIRED, *, default: str = "", least: int | None = None
) -> T:
    """Declare an argument; `default`: the default in words, for the help."""
    declared: T = typer.Argument(
        value,
        metavar=metavar,
        help=text,
        min=least,
        show_default=default or False,
        autocompletion=patch_names if metavar == "PATCH" else None,
    )
    return declared


def patch_names(begin: str) -> list[str]:
    """Return the names of the queue's patches that begin with a text, for shell completion."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        with contextlib.suppress(OSError, ValueError, KeyError):
            tables = tomllib.loads((folder / "patches/queue.toml").read_text(encoding="utf-8"))
            return [str(name) for name in tables["order"] if str(name).startswith(begin)]
    return []


#: Arguments and options of several commands, with the same words in each command's help.
_PATCH, _PATCHES = "Name of a patch, or its folder.", "Names of patches, or their folders."
PATCH: Final[str] = argument("PATCH", _PATCH)
MAYBE_PATCH: Final[str | None] = argument("PATCH", _PATCH, None)
PATCHES: Final[list[str] | None] = argument("PATCH", _PATCHES, None, default="all")
SOME_PATCHES: Final[list[str] | None] = argument("PATCH", _PATCHES, None)
NAME: Final[str] = argument("NAME", "The new patch's name: a-z, 0-9, . _ -")
PIN: Final[str | None] = option(
    None, "PIN", "The upstream or the tag of a pin.", default="the only pin"
)
TEXT_ONLY: Final = flag("--text-only", "Run no checks; look at the text alone.")
OFFLINE: Final = flag("--offline", "Do not ask GitHub.")


@dataclass(frozen=True)
class Reply:
    """The result of a command: the document for --json, the lines to print, and the exit code."""

    document: BaseModel
    blocks: Iterable[Block]
    code: int = 0
    #: Further lines, which go to standard error.
    notes: Iterable[Block] = ()

    def print(self, *, as_json: bool) -> int:
        """Print the document as JSON, or the lines; return the exit code."""
        if as_json:
            print_json(self.document)
        else:
            print_lines(self.blocks)
        print_lines(self.notes, stderr=True)
        return self.code


def command(example: str) -> Callable[[Callable[P, Reply | int | None]], Callable[P, None]]:
    """Return a decorator that makes a function a command, which prints the reply or error."""

    def made(function: Callable[P, Reply | int | None]) -> Callable[P, None]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            settings = current_settings()
            if settings.debug:
                logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
            try:
                reply = function(*args, **kwargs)
                if isinstance(reply, Reply):
                    reply = reply.print(as_json=settings.as_json)
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the one handler
                as_json = settings.as_json and not settings.printed
                reply = explain(error, debug=settings.debug, as_json=as_json)
            raise typer.Exit(reply or ExitCode.OK)

        about = inspect.cleandoc(function.__doc__ or "")
        run.__doc__ = f"{about}\n\nExample: contribbot {example}"
        return run

    return made


def open_queue() -> Queue:
    """Load the queue: of `--queue`, of the work tree around the current folder, or of a parent."""
    return load_queue(queue_folder())


def queue_folder() -> Path:
    """Return the folder of the queue that `open_queue` loads."""
    chosen = current_settings().queue
    if chosen is not None:
        if not is_queue(chosen):
            hint = "name the folder that holds patches/, or begin a queue: contribbot init DIR"
            lacks = "no patches/queue.toml in it" if chosen.exists() else "no such folder"
            raise UsageError(f"{chosen}: {lacks}", hint=hint)
        return chosen
    here = Path.cwd()
    if tree := tree_around(here):
        from contribbot.queue.worktree import WorkTree  # noqa: PLC0415  start-up time

        home = Path(WorkTree.read(tree).state.queue)
        # The queue may have been moved since the tree was made.
        if is_queue(home):
            return home
    return find_queue(here)


def open_patch(patch: str) -> tuple[Queue, str]:
    """Return the queue, and the name of the patch that a user gave by name or folder."""
    queue, names = open_patches([patch])
    return queue, names[0]


def open_patches(
    patches: Sequence[str] | None, *, everything: bool | None = None
) -> tuple[Queue, list[str]]:
    """Return the queue and the named patches, or all but those that record another's work."""
    queue, names = open_queue(), [Path(patch).name for patch in patches or ()]
    everything = not patches if everything is None else everything
    return queue, select(queue, names, everything=everything)


def open_past(patch: str) -> tuple[Queue, str]:
    """Return the queue, and the name of a patch that is or was in the queue."""
    queue = open_queue()
    return queue, past_name(queue, Path(patch).name)


def live_lines(*, stderr: bool = True, order: Sequence[str] = ()) -> AbstractContextManager[Lines]:
    """Return a context manager that prints outcomes by patch, with progress bars on a terminal."""
    from contribbot.cli.live import Lines  # noqa: PLC0415  rich is for what runs

    return Lines(order, stderr=stderr).shown()


def print_lines(blocks: Iterable[Block], *, stderr: bool = False) -> None:
    """Print sentences and tables; a terminal gets lines folded to its width, a pipe whole lines."""
    coloured = is_watched(stderr=stderr) and not os.environ.get("NO_COLOR")
    for line in lines_of(blocks, width(stderr=stderr), coloured=coloured):
        echo(line, stderr=stderr)


def print_json(model: BaseModel) -> None:
    """Print a model as JSON, the only document on standard output."""
    current_settings().printed = True
    echo(json.dumps(model.model_dump(mode="json", by_alias=True), indent=2).encode())
