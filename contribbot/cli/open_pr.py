"""`contribbot open-pr`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json
from contribbot.errors import UsageError

if TYPE_CHECKING:
    from contribbot.contribute.opening.opened import Wanted
    from contribbot.queue.load import Queue


@command
def open_pr(
    context: typer.Context,
    patches: Annotated[
        list[str], typer.Argument(metavar="PATCH...", help="Names of patches, or their folders.")
    ],
    ready: Annotated[
        bool, typer.Option("--ready", help="For review, and no draft; marks a draft ready.")
    ] = False,
    handoff: Annotated[
        bool,
        typer.Option(
            "--handoff",
            help="Only push the branch, and print the page on which you open the pull request.",
        ),
    ] = False,
    up_to_date: Annotated[
        bool,
        typer.Option(
            "--up-to-date", help="Carry it onto the upstream's newest commit, changed or not."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, and write nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Open the pull request of an attested patch, or bring it up to date."""
    from contribbot.contribute.opening.opened import Wanted  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time

    if ready and handoff:
        raise UsageError(
            "--handoff leaves the pull request to you, and --ready says how to open it",
            hint="give one of them; the page asks whether it is a draft",
        )
    queue = open_queue(context, *patches)
    wanted = Wanted(ready=ready, handoff=handoff, up_to_date=up_to_date, dry_run=dry_run)
    _run(queue, select(queue, patches), wanted, as_json=as_json)
    return 0


def _run(queue: Queue, names: list[str], wanted: Wanted, *, as_json: bool) -> None:
    from contribbot.contribute.opening.opened import Opened  # noqa: PLC0415  start-up time
    from contribbot.contribute.opening.opening import open_all  # noqa: PLC0415  start-up time
    from contribbot.contribute.opening.wiring import tools_for  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.github.dry_run import planned  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.report.opening import (  # noqa: PLC0415  start-up time
        OpenedView,
        OpeningView,
        opened_lines,
        request_lines,
        requests_of,
    )

    done: list[Opened] = []

    def told(opened: Opened) -> None:
        done.append(opened)
        if not as_json:
            typer.echo("\n".join(opened_lines(opened, dry=wanted.dry_run)))

    lines = Lines(console(stderr=True))
    cache = None if wanted.dry_run else queue.local / "github"
    with connect(cache, dry_run=wanted.dry_run) as github, lines.shown():
        tools = tools_for(queue, github, web=github.server.web, progress=lines.download())
        try:
            open_all(queue, names, tools, wanted, told=told)
        finally:
            # What was done before an error is said all the same.
            requests = requests_of(planned(github.requester))
            if as_json:
                views = tuple(map(OpenedView.of, done))
                print_json(OpeningView(dry_run=wanted.dry_run, patches=views, requests=requests))
            elif wanted.dry_run:
                typer.echo("\n".join(request_lines(requests)))
