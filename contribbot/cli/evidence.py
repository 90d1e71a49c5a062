"""`contribbot evidence`."""

from __future__ import annotations

import typer

from contribbot.cli.command import (
    JsonOption,
    PatchArgument,
    command,
    open_patch,
    open_queue,
    print_report,
)
from contribbot.cli.show_verify import RecordList, check_lines, show_lines
from contribbot.cli.text import clean
from contribbot.queue.transaction import transaction
from contribbot.verify.evidence import State, compare_with_remote, read_records
from contribbot.verify.signature import signature_path


@command
def show(context: typer.Context, patch: PatchArgument, as_json: JsonOption = False) -> int:
    """Show the records of a patch: what was seen, where and when, and what is open."""
    queue, name = open_patch(context, patch)
    listed = RecordList.of(queue, read_records(queue, queue.evidence, name))
    print_report(listed, show_lines(name, listed), as_json=as_json)
    return 0


@command
def check(context: typer.Context, as_json: JsonOption = False) -> int:
    """Show which records are fresh, stale, tampered or foreign; exit 1 unless all are fresh."""
    queue = open_queue(context)
    kept = read_records(queue, queue.evidence)
    records = [compare_with_remote(queue, record) for record in kept]
    listed = RecordList.of(queue, records)
    print_report(listed, check_lines(listed), as_json=as_json)
    good = {record.state for record in records} <= {State.FRESH, State.RETIRED}
    return 0 if good and not listed.missing else 1


@command
def prune(context: typer.Context, as_json: JsonOption = False) -> int:
    """Remove stale records: those of an earlier state of a patch, its checks or its base.

    `evidence check` lists them.
    """
    queue = open_queue(context)
    with transaction(queue.folder) as change:
        kept = read_records(queue, queue.evidence)
        stale = [record for record in kept if record.state is State.STALE]
        for record in stale:
            for path in (record.path, signature_path(record.path)):
                if path.exists():
                    change.delete(path.relative_to(queue.folder).as_posix())
    listed = RecordList.of(queue, stale)
    lines = [*(f"removed: {record.file}" for record in listed.records)] or ["no stale records"]
    print_report(listed, map(clean, lines), as_json=as_json)
    return 0
