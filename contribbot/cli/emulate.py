"""`contribbot emulate`: a program on an emulated AMD GPU, and what came of its tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Annotated, Final

import typer

from contribbot.cli.command import JsonOption, argument, command, echo, print_json, print_lines
from contribbot.cli.text import clean, count, table
from contribbot.emulate.decode import TABLES
from contribbot.emulate.outcomes import OUTCOMES, EmulationReport, exit_code
from contribbot.emulate.run_program import emulate as run_emulated
from contribbot.emulate.run_program import places
from contribbot.errors import UsageError

#: Faults, and what is not modelled, that are listed for each target.
_MOST: Final = 10


@command
def emulate(
    context: typer.Context,
    words: Annotated[
        list[str],
        argument("TARGET… -- PROGRAM ARGS", "GPUs, then a Python program: pytest tests, x.py, …."),
    ],
    as_json: JsonOption = False,
) -> int:
    """Run a Python program that uses Triton, such as its tests, on emulated AMD GPUs.

    Each kernel that it launches is compiled for the target by Triton's AMD back end, and its
    machine code executed on the processor, as are torch's operators. The program has its own
    streams and signals; with --json, its output goes to standard error.
    """
    del context
    targets = [*takewhile(lambda word: word.startswith("gfx"), words)]
    if not targets:
        raise UsageError(
            f"{words[0]} is no target: {', '.join(TABLES)} are",
            hint="contribbot emulate gfx942 -- pytest tests/test_x.py",
        )
    report = run_emulated(
        words[len(targets) :], targets, quiet=as_json,
        started=lambda target: echo(f"emulate: {target}", stderr=True),
    )  # fmt: skip
    if as_json:
        print_json(report)
    else:
        print_lines(report_lines(report), stderr=True)
    return exit_code(report.targets)


def report_lines(report: EmulationReport) -> Iterator[str]:
    """Yield a row for each target, and what stopped tests there."""
    yield ""
    yield from table([
        ("target", *OUTCOMES, "seconds"),
        *((run.target, *(str(run.count()[name]) for name in OUTCOMES), f"{run.seconds:.0f}")
          for run in report.targets),
    ])  # fmt: skip
    for run in report.targets:
        if run.error:
            yield f"{run.target}: {clean(run.error)}"
        found = [*places(run)]
        for outcome, said, number in found[:_MOST]:
            yield f"{run.target}: {outcome} in {count(number, 'test')}: {clean(said)}"
        if len(found) > _MOST:
            yield f"{run.target}: and {len(found) - _MOST} other places (--json has them all)"
    yield "emulated from AMD's instruction reference; not run on a GPU"
