"""`contribbot evidence`."""

from __future__ import annotations

import typer

from contribbot.cli.shell import JsonOption, PatchArgument, command, open_queue, print_json

app = typer.Typer(help="Look at the records of verifications.", no_args_is_help=True)


@app.command("show")
@command
def show(
    context: typer.Context,
    patch: PatchArgument,
    as_json: JsonOption = False,
) -> int:
    """Show the records of a patch: what was seen, where and when, and what is open."""
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.records import RecordList, show_lines  # noqa: PLC0415  start-up time
    from contribbot.verify.records import read_records  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    records = read_records(queue, queue.evidence, name)
    if as_json:
        print_json(RecordList.of(queue, records))
    else:
        for line in show_lines(queue, name, records):
            typer.echo(line)
    return 0


@app.command("check")
@command
def check(
    context: typer.Context,
    as_json: JsonOption = False,
) -> int:
    """Tell fresh records from stale, tampered and foreign ones; say no unless all are fresh."""
    from contribbot.report.records import RecordList, check_lines  # noqa: PLC0415  start-up time
    from contribbot.verify.records import State, missing, read_records  # noqa: PLC0415  start-up time

    queue = open_queue(context)
    records = read_records(queue, queue.evidence)
    if as_json:
        print_json(RecordList.of(queue, records))
    else:
        for line in check_lines(queue, records):
            typer.echo(line)
    good = all(one.state in {State.FRESH, State.RETIRED} for one in records) and not missing(
        queue, records
    )
    return 0 if good else 1
