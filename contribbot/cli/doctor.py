"""`contribbot doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from contribbot import process
from contribbot.cli.command import (
    JsonOption,
    chosen_queue,
    command,
    open_queue,
    option,
    print_report,
)
from contribbot.cli.show_doctor import doctor_lines
from contribbot.errors import UsageError
from contribbot.hardware.diagnosis import examine


@command
def doctor(
    context: typer.Context,
    first: Annotated[
        str,
        option(
            "MODULE[:FUNCTION]", "Import this first, as your program does, and call it.", "--import"
        ),
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """Say what this machine is and can prove; exit 1 if something contradicts itself."""
    try:
        queue = open_queue(context)
    except UsageError:
        if chosen_queue(context) is not None:
            raise
        queue = None  # it describes the machine all the same
    report = examine(process.user_environment(), queue, first=first)
    if first and report.torch.error:
        raise UsageError(
            f"--import {first}: {report.torch.error}",
            hint="name a module that your program can import from this folder, and its function",
        )
    print_report(report, doctor_lines(report), as_json=as_json)
    return 1 if report.contradictions else 0
