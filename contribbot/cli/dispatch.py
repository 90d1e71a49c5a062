"""`contribbot dispatch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json

if TYPE_CHECKING:
    from contribbot.runners.sending import Order, Sender


@command
def dispatch(
    context: typer.Context,
    patches: Annotated[
        list[str] | None, typer.Argument(help="Names of patches.", show_default="all")
    ] = None,
    ref: Annotated[
        str,
        typer.Option(help="The branch of the queue to prove.", show_default="the default branch"),
    ] = "",
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="TARGET", help="Only this one: gfx942, ….", show_default="all"),
    ] = None,
    resume: Annotated[
        int | None, typer.Option(metavar="RUN", min=1, help="Watch a run that was started.")
    ] = None,
    every: Annotated[
        float, typer.Option(min=1, max=600, help="Seconds between two looks at it.")
    ] = 10.0,
    repo: Annotated[
        str,
        typer.Option(metavar="OWNER/NAME", help="The queue's repository.", show_default="origin"),
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """Start a run of verify.yml on GitHub, and watch it; interrupted, it goes on there."""
    from contribbot.errors import ContribbotError, ExitCode, UsageError  # noqa: PLC0415  start-up time
    from contribbot.report import dispatch as report  # noqa: PLC0415  start-up time
    from contribbot.report.board import telling  # noqa: PLC0415  start-up time
    from contribbot.runners.sending import Order, sending  # noqa: PLC0415  start-up time

    if resume is not None and (patches or target or ref):
        raise UsageError("--resume starts nothing", hint="name either a run or what to prove")
    queue = open_queue(context, *(patches or ()))
    asked = resume or Order.of(queue, patches or (), target or (), ref)

    def say(lines: list[str]) -> None:
        for line in lines:
            typer.echo(line, err=as_json)

    with sending(queue, repo) as sender:
        try:
            run_id = _start(sender, asked, say) if isinstance(asked, Order) else asked
            with telling(say, stderr=as_json) as told:
                ended = sender.watch(run_id, every=every, told=told)
        except KeyboardInterrupt:
            _tell_left(report.left_lines(sender) or ["nothing was started"])
            return ExitCode.INTERRUPTED
        except ContribbotError:
            _tell_left(report.left_lines(sender))
            raise
    say(report.over_lines(ended, sender.named))
    if as_json:
        print_json(report.Dispatched.of(sender.repository, ended))
    return ended.exit_code


def _tell_left(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line, err=True)


def _start(sender: Sender, order: Order, say: Callable[[list[str]], None]) -> int:
    """Start a run, say which, and end those that it makes pointless."""
    from contribbot.report import dispatch as report  # noqa: PLC0415  start-up time

    selection = sender.select(order)
    standing = sender.standing(selection)
    say(report.standing_lines(standing))
    run = sender.start(selection)
    say(report.started_lines(run, standing))
    ended = sender.supersede(selection, run)
    say([f"ended run {one.id}, which this one replaces" for one in ended])
    return run.id
