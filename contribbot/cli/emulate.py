"""`contribbot emulate`: run a program on emulated AMD GPUs, and sum up the program's tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from contribbot import emulate as emulator
from contribbot.cli.command import Reply, argument, command, option
from contribbot.cli.refusal import current_settings, echo
from contribbot.cli.render import Block, Table, count
from contribbot.emulate import EmulationReport
from contribbot.errors import ExitCode, MachineError, UsageError
from contribbot.report import sweep_page
from contribbot.sweep import findings, folder
from contribbot.sweep.findings import SWEEP_OUTCOMES, Sweep, SweepComparison

#: The most causes of stopped tests to list for each target.
_MOST: Final = 10
_ROWS: Final = 20
_EMULATED: Final = "emulated from AMD's instruction reference; not run on a GPU"
_EXAMPLE: Final = "contribbot emulate gfx942 -- pytest tests/test_x.py"


@command("emulate gfx942 gfx1201 -- pytest tests/test_kernels.py")
def emulate(
    words: list[str] | None = argument(
        "TARGET… -- PROGRAM ARGS", "GPUs, then a Python program: pytest tests, x.py, ….", None
    ),
    report: list[Path] | None = option(
        None,
        "DIR",
        "Keep what pytest's tests come to there, and go on where it was cut off; "
        "without a program, show it. Several: the first gets what all hold.",
    ),
    compare: Path | None = option(
        None, "DIR", "With --report: an earlier one, to compare it with."
    ),
    shard: str = option("1/1", "K/N", "With --report: the K-th of N shares of the test files."),
) -> Reply:
    """Run a Python program that uses Triton, such as its tests, on emulated AMD GPUs.

    Each kernel that it launches is compiled for the target by Triton's AMD back end, and its
    machine code executed on the processor, as are torch's operators. The program has its own
    streams and signals; with --json, its output goes to standard error.

    Behind pytest: --emulate-seconds N (120) is the limit of a test, and 0 none;
    --emulate-cases N takes at most N cases of each function.
    """
    words, quiet = words or [], current_settings().as_json
    targets = [*takewhile(lambda word: word.startswith("gfx"), words)]
    program = words[len(targets) :]
    if not report and (compare or shard != "1/1"):
        raise UsageError(
            "--compare and --shard are for a sweep", hint="name its folder: --report DIR"
        )
    if not words and not report:
        raise UsageError("no target and no program are given", hint=_EXAMPLE)
    if words and not targets:
        known = ", ".join(emulator.TARGETS)
        raise UsageError(f"{words[0]} is no target: {known} are", hint=_EXAMPLE)
    earlier = folder.read_sweep(compare) if compare else None

    def started(target: str) -> None:
        echo(f"emulate: {target}", stderr=True)

    try:
        if not report:
            found = emulator.run(program, targets, quiet=quiet, started=started)
            lines = () if quiet else report_lines(found)
            return Reply(found, (), emulator.exit_code(found.targets), lines)
        for other in report[1:]:
            folder.read_header(other)
        cut_off = bool(words) and folder.run_sweep(
            program, targets, report[0], shard=shard, quiet=quiet, started=started
        )
    except emulator.EmulatorError as error:
        kind = UsageError if isinstance(error, emulator.RequestError) else MachineError
        raise kind(error.message, hint=error.hint) from error
    sweep = folder.bring_together(report)
    comparison = findings.compare(earlier, sweep) if earlier else None
    folder.write_report(report[0], sweep, sweep_page(sweep, comparison))
    code = ExitCode.INTERRUPTED if cut_off else folder.sweep_exit_code(sweep)
    return Reply(comparison or sweep, sweep_lines(sweep, comparison, report[0]), code)


def report_lines(report: EmulationReport) -> Iterator[Block]:
    """Yield a table of test counts by target, then the causes that stopped tests."""
    yield ""
    yield _table(
        emulator.OUTCOMES, ((each.target, each.count(), each.seconds) for each in report.targets)
    )
    for each in report.targets:
        if each.error:
            yield f"{each.target}: {each.error}"
        found = [*emulator.obstacles(each)]
        for outcome, said, number in found[:_MOST]:
            yield f"{each.target}: {outcome} in {count(number, 'test')}: {said}"
        if len(found) > _MOST:
            yield f"{each.target}: and {len(found) - _MOST} other places (--json has them all)"
    yield _EMULATED


def _table(
    outcomes: Sequence[str], targets: Iterable[tuple[str, Mapping[str, int], float]]
) -> Table:
    """Return a table with the numbers of tests by outcome, and the seconds, of each target."""
    rows = (
        (target, *(str(counts[name]) for name in outcomes), f"{seconds:.0f}")
        for target, counts, seconds in targets
    )
    return Table([("target", *outcomes, "seconds"), *rows])


def sweep_lines(sweep: Sweep, comparison: SweepComparison | None, place: Path) -> Iterator[Block]:
    """Yield a sweep's tables of targets and of findings, then the changes since another sweep."""
    sums = ((each.target, each.outcomes, each.seconds) for each in sweep.targets)
    yield _table(SWEEP_OUTCOMES, sums)
    for each in sweep.targets:
        if each.unfinished:
            yield f"{each.target}: not all of its tests have run: {each.unfinished}"
    rows = [
        (
            f"#{finding.number}",
            finding.kind,
            str(len(finding.tests)),
            " ".join(finding.targets),
            ": ".join(filter(None, (finding.kernel, finding.line))),
        )
        for finding in sweep.findings
    ]
    if rows:
        yield ""
        yield Table([("", "finding", "tests", "targets", "kernel and line"), *rows[:_ROWS]])
        yield from [f"and {len(rows) - _ROWS} more"] if rows[_ROWS:] else ()
        yield ""
        yield f"what each says is in {place!s}/index.html; for a patch of the first:"
        yield f"contribbot new NAME --from-finding {place!s}#{sweep.findings[0].number}"
    yield from _compared(comparison) if comparison else ()
    yield _EMULATED


def _compared(found: SweepComparison) -> Iterator[str]:
    """Yield the differences of two sweeps: versions, findings, outcomes, and bits of results."""
    yield ""
    for name, (before, now) in found.versions.items():
        yield f"{name} {before or 'none'} -> {now or 'none'}"
    for rows in (
        [f"new: {row.kind}: {row.kernel}: {row.line}" for row in found.new],
        [f"gone: {row.kind}: {row.kernel}: {row.line}" for row in found.gone],
        [
            f"grown: {row.needs} of {row.kernel} on {row.target}: {row.before} -> {row.now}"
            for row in found.grown
        ],
        [f"{row.target}: {row.test}: {row.before} -> {row.now}" for row in found.outcomes],
        [f"{row.target}: other bits of {', '.join(row.kernels)}: {row.test}" for row in found.bits],
    ):
        yield from rows[:_ROWS]
        yield from [f"and {len(rows) - _ROWS} more"] if len(rows) > _ROWS else ()
    alike, others = count(found.alike, "test"), count(found.uncompared, "test")
    yield f"{alike} left the same bits; {others} could not be compared"
