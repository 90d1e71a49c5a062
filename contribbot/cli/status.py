"""`contribbot status`."""

from __future__ import annotations

from typing import Annotated

import typer

from contribbot.cli.command import (
    JsonOption,
    PatchesArgument,
    TextOnlyOption,
    command,
    live_lines,
    open_queue,
    option,
    print_report,
)
from contribbot.cli.show_lifecycle import status_lines
from contribbot.errors import UsageError
from contribbot.lifecycle.status import status as local_status
from contribbot.lifecycle.status import status_against
from contribbot.queue.load import select
from contribbot.queue.stack import upstream_meant


@command
def status(
    context: typer.Context,
    patches: PatchesArgument = None,
    against: Annotated[
        str | None, option("TAG", "Look at the patches on this release, or on the newest.")
    ] = None,
    upstream: Annotated[
        str | None, option("NAME", "Whose release it is, where the patches are for several.")
    ] = None,
    text_only: TextOnlyOption = False,
    as_json: JsonOption = False,
) -> int:
    """Show every patch: does it apply, is it needed, where is it proved."""
    queue = open_queue(context, *(patches or ()))
    names = select(queue, patches or (), everything=not patches)
    if against is None:
        if upstream or text_only:
            hint = "contribbot status --against newest"
            raise UsageError("--upstream and --text-only go with --against TAG", hint=hint)
        report = local_status(queue, names)
    else:
        from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

        theirs = list(dict.fromkeys(queue.specs[name].upstream for name in names))
        if upstream or against != "newest":
            theirs = [upstream_meant(queue, names, upstream or "")]
        with live_lines(order=names) as lines:
            report = status_against(
                queue,
                names,
                upstreams=theirs,
                tag=against,
                run=not text_only,
                options=Options(),
                watcher=lines,
            )
    print_report(report, status_lines(report), as_json=as_json)
    return 0
