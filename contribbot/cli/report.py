"""`contribbot evidence report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from contribbot.cli.command import JsonOption, argument, command, open_queue, print_report
from contribbot.cli.text import clean, count
from contribbot.report.site import make_report

#: Where the pages go if nobody names a folder.
_SITE: Final = Path("site")


@command
def report(
    context: typer.Context,
    folder: Annotated[Path, argument("DIR", "The folder for the pages: a new one, an empty one,"
                                     " or one that holds a report.", default="site")] = _SITE,
    as_json: JsonOption = False,
) -> int:  # fmt: skip
    """Write the queue as static pages: what each patch is for, what ran where, what did not."""
    queue = open_queue(context)
    made = make_report(queue, folder)
    states = [f"{number} {state}" for state, number in made.records.items() if number]
    where = f"{clean(made.folder)}/index.html: {count(len(made.pages), 'page')}"
    lines = [f"{where}; records: {', '.join(states) or 'none'}"]
    lines += [f"  no fresh record: {name}" for name in made.missing]
    print_report(made, lines, as_json=as_json)
    return 0
