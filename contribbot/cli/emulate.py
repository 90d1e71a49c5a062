"""`contribbot emulate`: a program on an emulated AMD GPU, and what came of its tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Final

import typer

from contribbot.cli.command import (
    JsonOption,
    argument,
    command,
    option,
    print_json,
    print_lines,
    print_report,
)
from contribbot.cli.refusal import echo
from contribbot.cli.render import Block, Table, count
from contribbot.emulate import (
    OUTCOMES,
    TARGETS,
    EmulationReport,
    EmulatorError,
    RequestError,
    exit_code,
    obstacles,
    run,
)
from contribbot.errors import ExitCode, MachineError, UsageError
from contribbot.report.site import sweep_page
from contribbot.sweep import findings
from contribbot.sweep.findings import SWEEP_OUTCOMES, Sweep, SweepComparison, SweepFinding
from contribbot.sweep.folder import (
    bring_together,
    read_sweep,
    run_sweep,
    sweep_exit_code,
    write_report,
)

#: Faults, and what is not modelled, that are listed for each target.
_MOST: Final = 10
_ROWS: Final = 20
_EMULATED: Final = "emulated from AMD's instruction reference; not run on a GPU"
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
        option(
            "DIR",
            "Keep what pytest's tests come to there, and go on where it was cut off; "
            "without a program, show it. Several: the first gets what all hold.",
        ),
    ] = None,
    compare: Annotated[
        Path | None, option("DIR", "With --report: an earlier one, to compare it with.")
    ] = None,
    shard: Annotated[
        str, option("K/N", "With --report: the K-th of N shares of the test files.")
    ] = "1/1",
    as_json: JsonOption = False,
) -> int:
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
            f"{words[0]} is no target: {', '.join(TARGETS)} are",
            hint=_EXAMPLE,
        )

    def started(target: str) -> None:
        echo(f"emulate: {target}", stderr=True)

    program = words[len(targets) :]
    if report:
        with _refusals():
            cut_off = run_sweep(
                program, targets, report[0], shard=shard, quiet=as_json, started=started
            )
        code = show_sweep(report, compare, as_json=as_json)
        return ExitCode.INTERRUPTED if cut_off else code
    with _refusals():
        found = run(program, targets, quiet=as_json, started=started)
    if as_json:
        print_json(found)
    else:
        print_lines(report_lines(found), stderr=True)
    return exit_code(found.targets)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn the emulator's errors into those of this command."""
    try:
        yield
    except EmulatorError as error:
        kind = UsageError if isinstance(error, RequestError) else MachineError
        raise kind(error.message, hint=error.hint) from error


def show_sweep(folders: Sequence[Path], earlier: Path | None, *, as_json: bool) -> int:
    """Sum a sweep up, write its page, and show it."""
    sweep = bring_together(folders)
    comparison = findings.compare(read_sweep(earlier), sweep) if earlier else None
    write_report(folders[0], sweep, sweep_page(sweep, comparison))
    print_report(comparison or sweep, sweep_lines(sweep, comparison, folders[0]), as_json=as_json)
    return sweep_exit_code(sweep)


def report_lines(report: EmulationReport) -> Iterator[Block]:
    """Yield a row for each target, and what stopped tests there."""
    yield ""
    counts = (
        (each.target, *(str(each.count()[name]) for name in OUTCOMES), f"{each.seconds:.0f}")
        for each in report.targets
    )
    yield Table([("target", *OUTCOMES, "seconds"), *counts])
    for each in report.targets:
        if each.error:
            yield f"{each.target}: {each.error}"
        found = [*obstacles(each)]
        for outcome, said, number in found[:_MOST]:
            yield f"{each.target}: {outcome} in {count(number, 'test')}: {said}"
        if len(found) > _MOST:
            yield f"{each.target}: and {len(found) - _MOST} other places (--json has them all)"
    yield _EMULATED


def sweep_lines(sweep: Sweep, comparison: SweepComparison | None, folder: Path) -> Iterator[Block]:
    """Yield a row for each target, each finding, and what has changed."""
    counts = (
        (each.target, *(str(each.outcomes[name]) for name in SWEEP_OUTCOMES), f"{each.seconds:.0f}")
        for each in sweep.targets
    )
    yield Table([("target", *SWEEP_OUTCOMES, "seconds"), *counts])
    for each in sweep.targets:
        if each.unfinished:
            yield f"{each.target}: not all of its tests have run: {each.unfinished}"
    if sweep.findings:
        yield ""
        rows = map(_row, sweep.findings[:_ROWS])
        yield Table([("", "finding", "tests", "targets", "kernel and line"), *rows])
        if len(sweep.findings) > _ROWS:
            yield f"and {len(sweep.findings) - _ROWS} more"
        yield ""
        yield f"what each says is in {folder!s}/index.html; for a patch of the first:"
        yield f"contribbot new NAME --from-finding {folder!s}#{sweep.findings[0].number}"
    if comparison:
        yield from _compared(comparison)
    yield _EMULATED


def _row(finding: SweepFinding) -> tuple[str, ...]:
    tests, targets = str(len(finding.tests)), " ".join(finding.targets)
    where = ": ".join(filter(None, (finding.kernel, finding.line)))
    return f"#{finding.number}", finding.kind, tests, targets, where


def _first(rows: Sequence[str]) -> Iterator[str]:
    yield from rows[:_ROWS]
    if len(rows) > _ROWS:
        yield f"and {len(rows) - _ROWS} more"


def _compared(found: SweepComparison) -> Iterator[str]:
    yield ""
    for name, (before, now) in found.versions.items():
        yield f"{name} {before or 'none'} -> {now or 'none'}"
    for title, rows in (("new", found.new), ("gone", found.gone)):
        yield from _first([f"{title}: {it.kind}: {it.kernel}: {it.line}" for it in rows])
    yield from _first(
        [
            f"grown: {it.needs} of {it.kernel} on {it.target}: {it.before} -> {it.now}"
            for it in found.grown
        ]
    )
    yield from _first([f"{it.target}: {it.test}: {it.before} -> {it.now}" for it in found.outcomes])
    yield from _first(
        [f"{it.target}: other bits of {', '.join(it.kernels)}: {it.test}" for it in found.bits]
    )
    yield (
        f"{count(found.alike, 'test')} left the same bits; {count(found.uncompared, 'test')} "
        "could not be compared"
    )
