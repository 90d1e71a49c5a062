"""`contribbot emulate`: a program on an emulated AMD GPU, and what came of its tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Final

import typer

from contribbot.cli.command import (
    JsonOption,
    argument,
    command,
    echo,
    option,
    print_json,
    print_lines,
    print_report,
)
from contribbot.cli.text import clean, count, table
from contribbot.emulate.decode import TABLES
from contribbot.emulate.outcomes import OUTCOMES, EmulationReport, exit_code
from contribbot.emulate.run_program import emulate as run_emulated
from contribbot.emulate.run_program import places
from contribbot.errors import ExitCode, UsageError

#: Faults, and what is not modelled, that are listed for each target.
_MOST: Final = 10
_EXAMPLE: Final = "contribbot emulate gfx942 -- pytest tests/test_x.py"


@command
def emulate(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        argument("TARGET… -- PROGRAM ARGS", "GPUs, then a Python program: pytest tests, x.py, …."),
    ] = None,
    report: Annotated[
        list[Path] | None,
        option("DIR", "Keep what pytest's tests come to there, and go on where it was cut off; "
               "without a program, show it. Several: the first gets what all hold."),
    ] = None,
    compare: Annotated[
        Path | None, option("DIR", "With --report: an earlier one, to compare it with.")
    ] = None,
    shard: Annotated[
        str, option("K/N", "With --report: the K-th of N shares of the test files.")
    ] = "1/1",
    as_json: JsonOption = False,
) -> int:  # fmt: skip
    """Run a Python program that uses Triton, such as its tests, on emulated AMD GPUs.

    Each kernel that it launches is compiled for the target by Triton's AMD back end, and its
    machine code executed on the processor, as are torch's operators. The program has its own
    streams and signals; with --json, its output goes to standard error.
    """
    del context
    words = words or []
    targets = [*takewhile(lambda word: word.startswith("gfx"), words)]
    if not report and (compare or shard != "1/1"):
        raise UsageError(
            "--compare and --shard are for a sweep", hint="name its folder: --report DIR"
        )
    if report and not words:
        return show_sweep(report, compare, as_json=as_json)
    if not words:
        raise UsageError("no target and no program are given", hint=_EXAMPLE)
    if not targets:
        raise UsageError(
            f"{words[0]} is no target: {', '.join(TABLES)} are",
            hint=_EXAMPLE,
        )

    def started(target: str) -> None:
        echo(f"emulate: {target}", stderr=True)

    program = words[len(targets) :]
    if report:
        from contribbot.sweep.folder import run_sweep  # noqa: PLC0415  start-up time

        cut_off = run_sweep(
            program, targets, report[0], shard=shard, quiet=as_json, started=started
        )
        code = show_sweep(report, compare, as_json=as_json)
        return ExitCode.INTERRUPTED if cut_off else code
    found = run_emulated(program, targets, quiet=as_json, started=started)
    if as_json:
        print_json(found)
    else:
        print_lines(report_lines(found), stderr=True)
    return exit_code(found.targets)


def show_sweep(folders: Sequence[Path], earlier: Path | None, *, as_json: bool) -> int:
    """Sum a sweep up, write its page, and show it."""
    from contribbot.cli.show_sweep import sweep_lines  # noqa: PLC0415  start-up time
    from contribbot.report.sweep_page import sweep_page  # noqa: PLC0415  the same
    from contribbot.sweep.findings import compare  # noqa: PLC0415  the same
    from contribbot.sweep.folder import (  # noqa: PLC0415  the same
        bring_together,
        read_sweep,
        sweep_exit_code,
        write_report,
    )

    sweep = bring_together(folders)
    comparison = compare(read_sweep(earlier), sweep) if earlier else None
    write_report(folders[0], sweep, sweep_page(sweep, comparison))
    print_report(comparison or sweep, sweep_lines(sweep, comparison, folders[0]), as_json=as_json)
    return sweep_exit_code(sweep)


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
