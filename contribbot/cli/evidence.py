"""`contribbot evidence`."""

from __future__ import annotations

import typer

from contribbot.cli.options import JsonOption, PatchArgument, command, open_queue, print_report
from contribbot.cli.show_verify import RecordList, check_lines, show_lines
from contribbot.queue.load import select
from contribbot.verify.evidence import State, compare_with_remote, missing, read_records

app = typer.Typer(help="Look at the records of verifications.", no_args_is_help=True)


@app.command("show")
@command
def show(context: typer.Context, patch: PatchArgument, as_json: JsonOption = False) -> int:
    """Show the records of a patch: what was seen, where and when, and what is open."""
    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    records = read_records(queue, queue.evidence, name)
    print_report(RecordList.of(queue, records), show_lines(queue, name, records), as_json=as_json)
    return 0


@app.command("check")
@command
def check(context: typer.Context, as_json: JsonOption = False) -> int:
    """Tell fresh records from stale, tampered and foreign ones; exit 1 unless all are fresh."""
    queue = open_queue(context)
    records = [compare_with_remote(queue, one) for one in read_records(queue, queue.evidence)]
    print_report(RecordList.of(queue, records), check_lines(queue, records), as_json=as_json)
    good = all(one.state in {State.FRESH, State.RETIRED} for one in records) and not missing(
        queue, records
    )
    return 0 if good else 1
