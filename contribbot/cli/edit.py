"""`contribbot edit`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json

if TYPE_CHECKING:
    from contribbot.queue.load import Queue


@command
def edit(
    context: typer.Context,
    patch: PatchArgument,
    at: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the work tree goes.",
            show_default=".contribbot/edit/NAME of the queue",
        ),
    ] = None,
    abort: Annotated[bool, typer.Option("--abort", help="Remove the work tree.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="With --abort: also what refresh has not taken."),
    ] = False,
    as_json: JsonOption = False,
) -> int:  # fmt: skip
    """Open a patch as commits in a git work tree of its own; `refresh` takes them back."""
    from contribbot.errors import UsageError  # noqa: PLC0415  start-up time
    from contribbot.queue.load import patch_name  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = patch_name(queue, patch)
    if abort and at is not None:
        raise UsageError("--abort and --at do not go together", hint="leave --at out")
    if force and not abort:
        raise UsageError("--force is for --abort", hint="leave it out")
    if abort:
        return _abort(queue, name, force=force, as_json=as_json)
    return _open(queue, name, at, as_json=as_json)


def _open(queue: Queue, name: str, at: Path | None, *, as_json: bool) -> int:
    from contribbot.queue.worktree import open_tree  # noqa: PLC0415  start-up time
    from contribbot.report.edit import EditView, edit_lines  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time

    lines = Lines(console(stderr=True))
    with lines.shown():
        opened = open_tree(queue, name, at=at, progress=lines.download())
    if as_json:
        print_json(EditView.of(name, opened))
    else:
        for line in edit_lines(name, opened):
            typer.echo(line)
    return 1 if opened.stale else 0


def _abort(queue: Queue, name: str, *, force: bool, as_json: bool) -> int:
    from contribbot.queue.worktree import abort, find_tree  # noqa: PLC0415  start-up time
    from contribbot.report.edit import EditView, lost_lines  # noqa: PLC0415  start-up time

    lost = abort(queue, name, force=force)
    if lost:
        tree = find_tree(queue, name)
        path = tree.path if tree is not None else Path()
        for line in lost_lines(name, path, lost):
            typer.echo(line, err=True)
        if sys.stdin.isatty() and not as_json and _confirmed():
            lost = abort(queue, name, force=True)
        else:
            typer.echo("nothing was removed; --force removes it all the same", err=True)
    if as_json:
        print_json(EditView.aborted(name, lost))
    elif not lost:
        typer.echo(f"{name}: the work tree is removed")
    return 1 if lost else 0


def _confirmed() -> bool:
    """Ask; the end of the input is a no."""
    try:
        return typer.confirm("Remove it all the same?", err=True)
    except typer.Abort:
        typer.echo("", err=True)
        return False
