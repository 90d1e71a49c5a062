"""`contribbot init`, `pin add` and `check`: what a new queue and a new patch begin with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.command import (
    JsonOption,
    command,
    live_lines,
    open_queue,
    print_report,
    settings_of,
)
from contribbot.cli.text import clean
from contribbot.queue.init import AddedPin, add_pin, init_queue


@command
def init(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="An empty folder, or a repository.",
            show_default="the current folder",
        ),
    ] = None,
) -> int:  # fmt: skip
    """Begin a queue: patches/queue.toml, runners.toml, .gitignore."""
    place = folder or settings_of(context).queue or Path()
    written = init_queue(place)
    typer.echo(f"{clean(str(place.absolute()))}: an empty queue, with {', '.join(written)}")
    if folder is not None:
        typer.echo(f"  cd {shlex.quote(clean(str(folder)))}")
    typer.echo("  pin a release: contribbot pin add sglang VERSION (or newest; or vllm, torch)")
    return 0


pin_app = typer.Typer(help="The releases that patches stand on.", no_args_is_help=True)


@pin_app.callback()
def pin() -> None:
    """Pin releases of upstreams in queue.toml."""


@pin_app.command("add")
@command
def pin_add(
    context: typer.Context,
    upstream: Annotated[str, typer.Argument(help="Its name: sglang, vllm, torch, ….")],
    release: Annotated[str, typer.Argument(help="The version, its tag, or newest.")],
    as_json: JsonOption = False,
) -> int:
    """Pin a release: look it up at pip's package index, check it, write it into queue.toml."""
    queue = open_queue(context)
    with live_lines(stderr=True) as lines:
        added = add_pin(queue, upstream, release, progress=lines.download())
    print_report(added, pin_lines(added), as_json=as_json)
    return 0


def pin_lines(added: AddedPin) -> list[str]:
    """Return what a pin trusts, as lines."""
    lines = [f"{added.upstream} {added.tag}: pinned in patches/queue.toml"]
    if added.file:
        how = {
            "sdist": "computed from the file", "wheel": "computed from the file",
            "installed": f"as announced there; the tree is that of the installed {added.upstream}",
        }.get(added.kind, "as announced there")  # fmt: skip
        lines += [
            f"  file    {clean(added.file)}",
            f"  from    {clean(added.place)}",
            f"  sha256  {added.sha256} ({how})",
            "  Another file is an error from now on; that this one is the project's own, it says.",
        ]
    return [*lines, f"  begin a patch: contribbot new NAME --title T --pin {added.tag}"]
