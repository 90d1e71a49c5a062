"""`contribbot numerics`: the arithmetic by which two results differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from contribbot.cli.command import JsonOption, argument, command, print_report
from contribbot.numerics import explanation, recordings


@command
def explain(
    a: Annotated[Path, argument("A", "A record of a computation, by contribbot.numerics.record.")],
    b: Annotated[Path, argument("B", "Another one of the same computation and inputs.")],
    as_json: JsonOption = False,
) -> int:
    """Say how two results differ, and which arithmetic would make it; exit 1 if none would."""
    found = explanation.explain(recordings.read(a), recordings.read(b))
    print_report(found, found.lines((a.name, b.name)), as_json=as_json)
    return 0 if found.complete else 1
