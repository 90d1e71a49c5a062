"""`contribbot fallback`: a program's work on the CPU, and its copies, line by line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from rich.filesize import decimal

from contribbot.cli.command import argument, command, option, print_json, print_lines
from contribbot.cli.refusal import current_settings
from contribbot.cli.render import Code, Table, count, lines_of, near
from contribbot.errors import MachineError
from contribbot.fallback.watch import AuditRow, FallbackReport, exit_code, watch
from contribbot.machine import gpus
from contribbot.process import describe

_TITLES: Final = {
    "fallback": "ran on the CPU, with data from the GPU",
    "download": "copied from the GPU, and waited for it",
    "upload": "copied to the GPU in a loop, and waited",
}


@command("fallback -- python train.py --steps 10")
def fallback(
    program: Annotated[list[str], argument("-- PROGRAM ARGS", "A Python program: python x.py, ….")],
    device: Annotated[
        str, option("TYPE", "The device to watch, as torch calls it.", default="any but the CPU")
    ] = "",
) -> int:
    """Run a program, and name each line that falls back to the CPU or copies in passing.

    The program has its own streams, signals and exit code. The report goes to standard error; with
    --json, it is standard output, and the program's output goes to standard error.
    """
    as_json = current_settings().as_json
    if not device and not gpus():
        raise MachineError(
            "no GPU on this machine: there is nothing to watch, and the program was not run",
            hint="run it where its GPU is",
        )
    report = watch(program, device=device, quiet=as_json)
    if as_json:
        print_json(report)
    else:
        print_lines(report_lines(report), stderr=True)
    return exit_code(report)


def report_lines(report: FallbackReport) -> Iterator[str]:
    """Yield the lines of the report, with a heading for each kind of finding."""
    yield ""
    ended = f"exit status {report.exit_code} after {report.seconds:.1f} s"
    program = textwrap.shorten(describe(report.program), 60, placeholder=" …")
    yield f"fallback: {program}: {ended}"
    if report.unwatched:
        yield f"  {report.unwatched}; docs/fallback.md says what is not seen"
        return
    places = count(len({(each.file, each.line) for each in report.findings}), "line")
    operators = count(report.gpu_operators, "operator")
    yield f"  {operators} on the GPU, {places} of the program to look at (torch {report.torch})"
    for kind, title in _TITLES.items():
        found = [each for each in report.findings if each.kind == kind]
        rows = lines_of([Table([*map(_cells, found)])])
        if found:
            yield from ("", f"  {title}")
        for row, each in zip(rows, found, strict=True):
            yield f"    {row}"
            if each.code:
                yield Code(f"        {each.code}")


def _cells(each: AuditRow) -> tuple[str, ...]:
    """Return a finding's place in the program, count, bytes, milliseconds and operator."""
    place, cost = f"{near(Path(each.file))}:{each.line}", f"{each.seconds * 1e3:,.1f} ms"
    return place, f"{each.count:,} x", decimal(each.bytes), cost, each.operator
