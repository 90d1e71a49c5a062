"""`contribbot verify`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from contribbot.cli.options import (
    JsonOption,
    PatchArgument,
    command,
    open_queue,
    print_json,
    print_report,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contribbot.lifecycle.rebase import Wanted
    from contribbot.model.evidence import PatchReport
    from contribbot.model.lifecycle import Question, Step
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
    from contribbot.cli.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.cli.output import closing_lines  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.verify.run import exit_code, targets, verify_and_record  # noqa: PLC0415  start-up time

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
    from contribbot.cli.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.cli.show_verify import alone_lines  # noqa: PLC0415  start-up time
    from contribbot.lifecycle import leave_one_out  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

    tops = leave_one_out.stacks(queue, select(queue, patches, everything=not patches))
    # What fails without a member is a finding here: the table is the result.
    lines = Lines(console(stderr=True))
    with lines.shown():
        report = leave_one_out.leave_one_out(
            queue, tops, options=Options(jobs=jobs, force=force), watcher=lines
        )
    print_report(report, alone_lines(report), as_json=as_json)
    return leave_one_out.exit_code(report)


def _report(reports: list[PatchReport], *, as_json: bool, junit: Path | None) -> None:
    from contribbot.cli.output import append_summary  # noqa: PLC0415  start-up time
    from contribbot.cli.show_verify import write_junit  # noqa: PLC0415  start-up time
    from contribbot.model.evidence import VerifyReport  # noqa: PLC0415  start-up time

    if as_json:
        print_json(VerifyReport(patches=tuple(reports)))
    if junit is not None:
        write_junit(junit, reports)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        append_summary(Path(summary), reports)


app = typer.Typer(help="Look at the records of verifications.", no_args_is_help=True)


@app.command("show")
@command
def show(
    context: typer.Context,
    patch: PatchArgument,
    as_json: JsonOption = False,
) -> int:
    """Show the records of a patch: what was seen, where and when, and what is open."""
    from contribbot.cli.show_verify import RecordList, show_lines  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.verify.evidence import read_records  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    records = read_records(queue, queue.evidence, name)
    print_report(RecordList.of(queue, records), show_lines(queue, name, records), as_json=as_json)
    return 0


@app.command("check")
@command
def check(
    context: typer.Context,
    as_json: JsonOption = False,
) -> int:
    """Tell fresh records from stale, tampered and foreign ones; say no unless all are fresh."""
    from contribbot.cli.show_verify import RecordList, check_lines  # noqa: PLC0415  start-up time
    from contribbot.verify.evidence import State, missing, read_records  # noqa: PLC0415  start-up time

    queue = open_queue(context)
    records = read_records(queue, queue.evidence)
    print_report(RecordList.of(queue, records), check_lines(queue, records), as_json=as_json)
    good = all(one.state in {State.FRESH, State.RETIRED} for one in records) and not missing(
        queue, records
    )
    return 0 if good else 1


@command
def status(
    context: typer.Context,
    patches: Annotated[
        list[str] | None,
        typer.Argument(help="Names of patches, or their folders.", show_default="all"),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="TAG", help="Ask what this release (or newest) makes of them."),
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="Whose release it is, where the patches are for several.")
    ] = None,
    text_only: Annotated[
        bool, typer.Option("--text-only", help="With --against: run no checks.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Show every patch at a glance: does it apply, is it needed, what is proved where."""
    from contribbot.cli.show_verify import status_lines  # noqa: PLC0415  start-up time
    from contribbot.errors import UsageError  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time

    queue = open_queue(context, *(patches or ()))
    names = select(queue, patches or (), everything=not patches)
    if against is None:
        if upstream or text_only:
            raise UsageError("--upstream and --text-only go with --against TAG")
        from contribbot.lifecycle.status import status as at_a_glance  # noqa: PLC0415  start-up time

        report = at_a_glance(queue, names)
    else:
        from contribbot.cli.live import Lines, console  # noqa: PLC0415  start-up time
        from contribbot.lifecycle.stack import upstream_meant  # noqa: PLC0415  start-up time
        from contribbot.lifecycle.status import status_against  # noqa: PLC0415  start-up time
        from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

        lines = Lines(console(stderr=True))
        with lines.shown():
            report = status_against(
                queue,
                names,
                upstream=upstream_meant(queue, names, upstream or ""),
                tag=against,
                run=not text_only,
                options=Options(jobs=len(os.sched_getaffinity(0))),
                watcher=lines,
            )
    print_report(report, status_lines(report), as_json=as_json)
    return 0


@command
def rebase(
    context: typer.Context,
    to: Annotated[
        str | None, typer.Option(metavar="TAG", help="The release to move to, or newest.")
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="Whose pin moves, where the queue has several upstreams.")
    ] = None,
    old: Annotated[
        str | None,
        typer.Option("--from", metavar="TAG", help="Which pin moves, where there are several."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would become of each patch, and end.")
    ] = False,
    text_only: Annotated[
        bool, typer.Option("--text-only", help="Do not ask the checks if patches are needed.")
    ] = False,
    superseded: Annotated[
        Literal["stop", "retire", "keep"],
        typer.Option(help="What to do with patches that the release does without."),
    ] = "stop",
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Open a work tree with the first conflict in it.")
    ] = False,
    at: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --resolve or --continue: where the tree goes."),
    ] = None,
    proceed: Annotated[
        bool, typer.Option("--continue", help="Take the resolved conflict, and go on.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Give up a move that waits.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Move a pin and every patch on it to another release: all of them, or nothing."""
    from contribbot.errors import UsageError  # noqa: PLC0415  start-up time
    from contribbot.lifecycle.rebase import Wanted  # noqa: PLC0415  start-up time

    if abort and (to or upstream or old or dry_run or resolve or at or proceed):
        raise UsageError("--abort goes with no other option", hint="contribbot rebase --abort")
    if at and not (resolve or proceed):
        raise UsageError("--at is for --resolve and --continue", hint="leave it out")
    queue = open_queue(context)
    if abort:
        return _abort(queue, as_json=as_json)
    wanted = Wanted(
        to=to or "",
        upstream=upstream or "",
        old=old or "",
        dry_run=dry_run,
        run=not text_only,
        superseded=superseded,
        resolve=resolve or proceed,
        at=at,
        proceed=proceed,
    )
    return _move(queue, wanted, as_json=as_json)


def _abort(queue: Queue, *, as_json: bool) -> int:
    from contribbot.lifecycle import rebase as rebase_module  # noqa: PLC0415  start-up time

    ended = rebase_module.abort(queue)
    if as_json:
        print_json(ended)
    else:
        typer.echo(f"the move of {ended.upstream} to {ended.new} is given up")
    return 0


def _move(queue: Queue, wanted: Wanted, *, as_json: bool) -> int:
    from contribbot.cli.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.cli.show_verify import plan_lines  # noqa: PLC0415  start-up time
    from contribbot.lifecycle import rebase as rebase_module  # noqa: PLC0415  start-up time
    from contribbot.lifecycle.rebase import obstacles  # noqa: PLC0415  start-up time
    from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

    lines = Lines(console(stderr=True))
    with lines.shown():
        plan = rebase_module.rebase(
            queue, wanted, options=Options(jobs=len(os.sched_getaffinity(0))), watcher=lines
        )
    print_report(plan, (*plan_lines(plan), *rebase_module.closing(plan, wanted)), as_json=as_json)
    return 0 if plan.done or (wanted.dry_run and not obstacles(plan)) else 1


@command
def bisect(
    context: typer.Context,
    patch: PatchArgument,
    start: Annotated[
        str, typer.Option("--from", metavar="TAG", help="A release at which all is still well.")
    ],
    end: Annotated[
        str, typer.Option("--to", metavar="TAG", help="A later one at which it is not.")
    ],
    unneeded: Annotated[
        bool,
        typer.Option(
            "--unneeded",
            help="Find where its checks begin to pass without it, not where its text breaks.",
        ),
    ] = False,
    commits: Annotated[
        bool,
        typer.Option("--commits", help="Look at commits, not releases; needs a git source."),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Find the first release that breaks a patch, or that makes it unnecessary."""
    from contribbot.cli.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.cli.show_verify import bisection_lines, step_line  # noqa: PLC0415  start-up time
    from contribbot.lifecycle.bisect import Range  # noqa: PLC0415  start-up time
    from contribbot.lifecycle.bisect import bisect as search  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time
    from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    out = console(stderr=True)
    lines = Lines(out)
    question: Question = "unneeded" if unneeded else "breaks"

    def told(step: Step) -> None:
        out.print(step_line(step, question=question))

    with lines.shown():
        found = search(
            queue,
            name,
            Range(start, end, commits),
            question=question,
            options=Options(jobs=len(os.sched_getaffinity(0))),
            watcher=lines,
            told=told,
        )
    print_report(found, bisection_lines(found), as_json=as_json)
    return 0 if found.first else 1
