"""`contribbot reply`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.shell import PatchArgument, command, open_queue


@command
def reply(
    context: typer.Context,
    patch: PatchArgument,
    thread: Annotated[str, typer.Argument(help="The thread, as contribbot reviews names it.")],
    text_file: Annotated[
        Path,
        typer.Option("--text-file", metavar="FILE", help="Your answer; - is standard input."),
    ],
) -> int:
    """Answer in a review thread, as you, with your own text."""
    from contribbot.contribute.following.reply import contribution_of, read_text  # noqa: PLC0415  start-up time
    from contribbot.contribute.following.reply import reply as answer  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.queue.journal import past_name  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = past_name(queue, patch)
    # Before a token is asked for.
    contribution_of(queue, name)
    text = read_text(text_file)
    with connect(queue.local / "github") as github:
        done = answer(queue, github, name, thread, text)
    typer.echo(f"{name}: {'answered' if done.posted else 'was answered so already'}: {done.url}")
    return 0
