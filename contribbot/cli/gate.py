"""`contribbot gate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json
from contribbot.errors import ExitCode

if TYPE_CHECKING:
    from contribbot.model.gate import Gate
    from contribbot.queue.load import Queue


@command
def gate(
    context: typer.Context,
    patch: PatchArgument,
    different: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REF=WHY",
            help="Write down why a pull request (owner/name#123) is another change.",
        ),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask GitHub.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Hold a patch against the upstream's rules, and look for duplicates."""
    from contribbot.contribute.gate.differing import read_option  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.gate import gate_lines  # noqa: PLC0415  start-up time

    reasons = dict(read_option(one) for one in different or ())
    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    if reasons:
        _answer(queue, name, reasons, offline=offline)
        queue = open_queue(context, patch)
    found = judged(queue, name, offline=offline)
    if as_json:
        print_json(found)
    else:
        for line in gate_lines(found):
            typer.echo(line)
    return exit_code(found)


def _answer(queue: Queue, name: str, reasons: dict[str, str], *, offline: bool) -> None:
    """Write reasons down, once GitHub was asked whether anybody asks for them."""
    from contribbot.contribute.gate.differing import set_different  # noqa: PLC0415  start-up time
    from contribbot.errors import GitHubError  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time

    if offline:
        unchecked = set_different(queue, name, reasons, None)
    else:
        try:
            with connect(queue.local / "github") as client:
                unchecked = set_different(queue, name, reasons, client)
        except GitHubError as error:
            unchecked = set_different(queue, name, reasons, None, broken=error)
    if unchecked:
        typer.echo(
            f"{name}: written, but not checked against the candidates: {unchecked}", err=True
        )


def judged(queue: Queue, name: str, *, offline: bool = False) -> Gate:
    """Judge a patch, asking GitHub unless that is not wanted."""
    from contribbot.contribute.gate import judge  # noqa: PLC0415  start-up time

    if offline:
        return judge(queue, name, None)
    from contribbot.errors import GitHubError  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time

    try:
        with connect(queue.local / "github") as client:
            return judge(queue, name, client, server=client.server.api)
    except GitHubError as error:
        # No token, most likely: the local rules are worth showing all the same.
        return judge(queue, name, None, broken=error)


def exit_code(gate: Gate) -> int:
    """Return 1 where a rule is broken, 3 where GitHub had no answer, else 0."""
    from contribbot.model.gate import RowState  # noqa: PLC0415  start-up time

    if gate.of(RowState.FAILED):
        return ExitCode.NO
    return ExitCode.MACHINE if gate.of(RowState.UNKNOWN) else ExitCode.OK
