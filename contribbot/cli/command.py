"""Around each command: options, the queue, exit codes, JSON, errors."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, ParamSpec

import typer
from typer.models import ArgumentInfo, OptionInfo

from contribbot.cli.refusal import Document, Settings, echo, explain
from contribbot.cli.render import Block, is_watched, lines_of, width
from contribbot.errors import ExitCode, UsageError
from contribbot.queue.history import past_name
from contribbot.queue.load import Queue, find_queue, is_queue, load_queue, select, tree_around
from contribbot.queue.transaction import rehearsal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from contribbot.cli.live import Lines


P = ParamSpec("P")


def flag(name: str, text: str) -> OptionInfo:
    """Return an option that is given or not."""
    info: OptionInfo = typer.Option(name, help=text)
    return info


def option(
    metavar: str,
    text: str,
    *names: str,
    default: str = "",
    complete: Callable[[str], list[str]] | None = None,
) -> OptionInfo:
    """Return an option with a value; `default` says in words what holds without it."""
    info: OptionInfo = typer.Option(
        *names, metavar=metavar, help=text, show_default=default or True, autocompletion=complete
    )
    return info


def argument(
    metavar: str,
    text: str,
    *,
    default: str = "",
    complete: Callable[[str], list[str]] | None = None,
) -> ArgumentInfo:
    """Return an argument; `default` says in words what holds without it."""
    info: ArgumentInfo = typer.Argument(
        metavar=metavar, help=text, show_default=default or False, autocompletion=complete
    )
    return info


#: The targets that patches are most often held against.
_GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
_TARGETS = ("cpu", "cuda", *_GPUS, *(f"compile:{gpu}" for gpu in _GPUS))


def _queue() -> dict[str, object]:
    """Return the queue.toml around the current folder, for the shell's Tab; nothing if unread."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        try:
            return tomllib.loads((folder / "patches/queue.toml").read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            break
    return {}


def _beginning(words: object, incomplete: str) -> list[str]:
    listed = words if isinstance(words, list | tuple) else ()
    return [str(word) for word in listed if str(word).startswith(incomplete)]


def patch_names(incomplete: str) -> list[str]:
    """Return the patches that begin so, in the queue's order."""
    return _beginning(_queue().get("order"), incomplete)


def pin_tags(incomplete: str) -> list[str]:
    """Return the tags of pins that begin so."""
    pins = _queue().get("pins")
    rows = pins if isinstance(pins, list) else []
    return _beginning([row.get("tag") for row in rows if isinstance(row, dict)], incomplete)


def target_names(incomplete: str) -> list[str]:
    """Return the usual targets that begin so."""
    return _beginning(_TARGETS, incomplete)


#: Arguments and options that many commands take: the same words everywhere.
PatchArgument = Annotated[
    str, argument("PATCH", "Name of a patch, or its folder.", complete=patch_names)
]
PATCHES = "Names of patches, or their folders."
PatchesArgument = Annotated[
    list[str] | None, argument("PATCH", PATCHES, default="all", complete=patch_names)
]
SomePatchesArgument = Annotated[list[str] | None, argument("PATCH", PATCHES, complete=patch_names)]
JsonOption = Annotated[bool, flag("--json", "Print one JSON document.")]
DryRunOption = Annotated[bool, flag("--dry-run", "Say what would be written, and write nothing.")]
TextOnlyOption = Annotated[bool, flag("--text-only", "Run no checks; look at the text alone.")]
JobsOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Checks that run at the same time.", show_default="cores"
    ),
]


def command(function: Callable[P, int | None]) -> Callable[P, None]:
    """Turn a function that returns an exit code (None: 0), or raises, into a command."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        settings = getattr(kwargs.get("context"), "obj", None)
        debug = isinstance(settings, Settings) and settings.debug
        Document.given = False
        try:
            code = function(*args, **kwargs) or ExitCode.OK
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the one handler
            code = explain(error, debug=debug, as_json=kwargs.get("as_json") is True)
        raise typer.Exit(code)

    return run


def open_queue(context: typer.Context, *places: str) -> Queue:
    """Load the queue: `--queue`'s, that of a patch folder, of a work tree, or around here."""
    return load_queue(queue_folder(context, *places))


def queue_folder(context: typer.Context, *places: str) -> Path:
    """Return the folder of the queue that `open_queue` loads."""
    chosen = chosen_queue(context)
    if chosen is not None:
        if not is_queue(chosen):
            hint = "name the folder that holds patches/, or begin a queue: contribbot init DIR"
            lacks = "no patches/queue.toml in it" if chosen.exists() else "no such folder"
            raise UsageError(f"{chosen}: {lacks}", hint=hint)
        return chosen
    for place in places:
        path = Path(place).absolute()
        if any((folder / "patch.toml").is_file() for folder in (path, path.parent)):
            return find_queue(path)
    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder is gone", hint="cd to one that is there") from error
    if tree := tree_around(here):
        from contribbot.queue.worktree import WorkTree  # noqa: PLC0415  start-up time

        home = Path(WorkTree.read(tree).state.queue)
        # The queue may have been moved since the tree was made.
        if is_queue(home):
            return home
    return find_queue(here)


def chosen_queue(context: typer.Context) -> Path | None:
    """Return the queue's folder that `--queue` names, before or after the command."""
    settings = context.obj
    return settings.queue if isinstance(settings, Settings) else None


def open_patch(context: typer.Context, patch: str) -> tuple[Queue, str]:
    """Return the queue and the name of the patch that a user means."""
    queue = open_queue(context, patch)
    return queue, select(queue, [patch])[0]


def open_past(context: typer.Context, patch: str) -> tuple[Queue, str]:
    """Return the queue and the name of a patch that is, or was, in it."""
    queue = open_queue(context, patch)
    return queue, past_name(queue, patch)


@contextlib.contextmanager
def live_lines(*, stderr: bool = True, order: Sequence[str] = ()) -> Iterator[Lines]:
    """Give what shows outcomes patch by patch, and on a terminal what is running."""
    from contribbot.cli.live import Lines, console  # noqa: PLC0415  rich is for what runs

    lines = Lines(console(stderr=stderr), order)
    with lines.shown():
        yield lines


def print_report(document: BaseModel | None, lines: Iterable[Block], *, as_json: bool) -> None:
    """Write what a command found to standard output: as one JSON document, or as lines."""
    if as_json and document is not None:
        print_json(document)
    else:
        print_lines(lines)


@contextlib.contextmanager
def rehearsed(dry_run: bool) -> Iterator[list[str] | None]:  # noqa: FBT001  one thing to say
    """Give what the queue's files would become, where that is all that is asked; else nothing."""
    if not dry_run:
        yield None
        return

    with rehearsal() as planned:
        yield planned


def print_change(
    document: BaseModel, lines: Iterable[Block], planned: list[str] | None, *, as_json: bool
) -> None:
    """Write what a command did to the queue; of a rehearsal, what it would have written."""
    if planned is not None:
        document = document.model_copy(update={"planned": tuple(planned)})
        lines = [*(f"would {row}" for row in planned), "nothing was written: --dry-run"]
    print_report(document, lines, as_json=as_json)


def print_lines(blocks: Iterable[Block], *, stderr: bool = False) -> None:
    """Write sentences and tables: as wide as the terminal, or whole into a pipe."""
    coloured = is_watched(stderr=stderr) and not os.environ.get("NO_COLOR")
    for line in lines_of(blocks, width(stderr=stderr), coloured=coloured):
        echo(line, stderr=stderr)


def print_notes(lines: Iterable[Block]) -> None:
    """Write what is said beside the output to standard error."""
    print_lines(lines, stderr=True)


_ODD: Final = re.compile(r"[^\n -~]")


def print_json(model: BaseModel) -> None:
    """Write one JSON document to standard output, and nothing else."""
    Document.given = True
    text = model.model_dump_json(indent=2, by_alias=True)
    # Control characters stand within strings alone, where JSON can escape them.
    text = _ODD.sub(lambda odd: odd[0] if odd[0].isprintable() else json.dumps(odd[0])[1:-1], text)
    echo(text.encode())
