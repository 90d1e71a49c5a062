"""`contribbot verify`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contribbot.model.report import PatchReport
    from contribbot.queue.load import Queue


@command
def verify(
    context: typer.Context,
    patches: Annotated[
        list[str] | None, typer.Argument(help="Names of patches, or their folders.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Verify every patch.")] = False,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TARGET",
            help="Say no when this target is not proved here: cpu, cuda, gfx942, …",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Repeat what is remembered.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Checks that run at the same time.", show_default="cores"),
    ] = None,
    as_json: JsonOption = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the outcomes as JUnit XML.")
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where records go.", show_default="evidence/"),
    ] = None,
    leave_one_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out",
            help="Verify stacks with each member left out, to see what it contributes.",
        ),
    ] = False,
) -> int:
    """Prove patches: red without them, green with them, and what this machine cannot say."""
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.report.text import closing_lines  # noqa: PLC0415  start-up time
    from contribbot.verify.command import exit_code, targets, verify_and_record  # noqa: PLC0415  start-up time

    queue = open_queue(context, *(patches or ()))
    workers = jobs or len(os.sched_getaffinity(0))
    if leave_one_out:
        return _leave_one_out(queue, patches or (), jobs=workers, force=force, as_json=as_json)
    names = select(queue, patches or (), everything=everything)
    required = targets(require or ())
    out = console(stderr=as_json)
    lines = Lines(out)
    with lines.shown():
        folder = evidence or queue.evidence
        done = verify_and_record(
            queue, names, jobs=workers, force=force, folder=folder, watcher=lines
        )
    for line in closing_lines(done.reports, done.records, required):
        out.print(line)
    _report(done.reports, as_json=as_json, junit=junit)
    return exit_code(done.reports, required)


def _leave_one_out(
    queue: Queue, patches: Sequence[str], *, jobs: int, force: bool, as_json: bool
) -> int:
    from contribbot.life import alone  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.report.alone import alone_lines  # noqa: PLC0415  start-up time
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

    tops = alone.stacks(queue, select(queue, patches, everything=not patches))
    # What fails without a member is a finding here: the table is the result.
    lines = Lines(console(stderr=True))
    with lines.shown():
        report = alone.leave_one_out(
            queue, tops, options=Options(jobs=jobs, force=force), watcher=lines
        )
    if as_json:
        print_json(report)
    else:
        for line in alone_lines(report):
            typer.echo(line)
    return alone.exit_code(report)


def _report(reports: list[PatchReport], *, as_json: bool, junit: Path | None) -> None:
    from contribbot.model.report import VerifyReport  # noqa: PLC0415  start-up time
    from contribbot.report.junit import write_junit  # noqa: PLC0415  start-up time
    from contribbot.report.summary import append_summary  # noqa: PLC0415  start-up time

    if as_json:
        print_json(VerifyReport(patches=tuple(reports)))
    if junit is not None:
        write_junit(junit, reports)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        append_summary(Path(summary), reports)
