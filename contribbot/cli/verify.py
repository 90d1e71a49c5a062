"""`contribbot verify`, `rebase` and `bisect`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from contribbot.cli.command import (
    JobsOption,
    JsonOption,
    PatchArgument,
    SomePatchesArgument,
    TextOnlyOption,
    command,
    flag,
    live_lines,
    open_patch,
    open_queue,
    option,
    print_json,
    print_lines,
    print_report,
)
from contribbot.cli.complete import pin_tags, target_names
from contribbot.cli.show_lifecycle import alone_lines, bisection_lines, plan_lines, step_line
from contribbot.cli.show_results import annotation_lines, append_summary, closing_lines
from contribbot.cli.show_verify import expected, write_junit
from contribbot.errors import UsageError
from contribbot.lifecycle import leave_one_out as stacks
from contribbot.lifecycle import rebase as rebasing
from contribbot.lifecycle.bisect import Range
from contribbot.lifecycle.bisect import bisect as search
from contribbot.model.evidence import VerifyReport
from contribbot.model.lifecycle import Question
from contribbot.queue.load import select
from contribbot.verify.pipeline import Options
from contribbot.verify.run import exit_code, targets, verify_and_record


@command
def verify(
    context: typer.Context,
    patches: SomePatchesArgument = None,
    everything: Annotated[bool, flag("--all", "Verify every patch.")] = False,
    require: Annotated[
        list[str] | None,
        option(
            "TARGET",
            "Fail unless it is proved here on this target: cpu, cuda, gfx942, …",
            complete=target_names,
        ),
    ] = None,
    force: Annotated[bool, flag("--force", "Repeat what is remembered.")] = False,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
    output_format: Annotated[
        Literal["text", "github"],
        option("text|github", "github: also annotations for GitHub Actions."),
    ] = "text",
    junit: Annotated[Path | None, option("FILE", "Write the outcomes as JUnit XML.")] = None,
    evidence: Annotated[
        Path | None, option("DIR", "Where records go.", default="evidence/")
    ] = None,
    leave_one_out: Annotated[
        bool,
        flag(
            "--leave-one-out",
            "Verify stacks with each member left out, to see what it contributes.",
        ),
    ] = False,
) -> int:
    """Test patches: checks fail without them and pass with them, or it says what could not run."""
    queue = open_queue(context, *(patches or ()))
    options = Options(jobs=jobs, force=force) if jobs else Options(force=force)
    if leave_one_out:
        tops = stacks.stacks(queue, select(queue, patches or (), everything=not patches))
        # What fails without a member is a finding here: the table is the result.
        with live_lines() as lines:
            report = stacks.leave_one_out(queue, tops, options=options, watcher=lines)
        print_report(report, alone_lines(report), as_json=as_json)
        return stacks.exit_code(report)
    names = select(queue, patches or (), everything=everything)
    required = targets(require or ())
    folder = evidence or queue.evidence
    with live_lines(stderr=as_json, order=names) as lines:
        lines.expect(expected(queue, names))
        done = verify_and_record(queue, names, options=options, folder=folder, watcher=lines)
    print_lines(closing_lines(done.reports, done.records, required), stderr=as_json)
    if output_format == "github":
        print_lines(annotation_lines(queue, done.reports), stderr=as_json)
    if as_json:
        print_json(VerifyReport(patches=tuple(done.reports)))
    if junit is not None:
        write_junit(junit, done.reports)
    if step_summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_summary(Path(step_summary), done.reports)
    return exit_code(done.reports, required)


@command
def rebase(
    context: typer.Context,
    to: Annotated[str | None, option("TAG", "The release to move to, or newest.")] = None,
    upstream: Annotated[
        str | None, option("NAME", "Whose pin moves, where the queue has several upstreams.")
    ] = None,
    old: Annotated[
        str | None,
        option("PIN", "Which pin moves, where there are several.", "--from", complete=pin_tags),
    ] = None,
    dry_run: Annotated[
        bool, flag("--dry-run", "Say what would become of each patch, and end.")
    ] = False,
    text_only: TextOnlyOption = False,
    superseded: Annotated[
        Literal["stop", "retire", "keep"],
        option("stop|retire|keep", "What to do with patches that the release does without."),
    ] = "stop",
    resolve: Annotated[
        bool, flag("--resolve", "Open a work tree with the first conflict in it.")
    ] = False,
    at: Annotated[
        Path | None, option("DIR", "With --resolve or --continue: where the tree goes.")
    ] = None,
    proceed: Annotated[bool, flag("--continue", "Take the resolved conflict, and go on.")] = False,
    abort: Annotated[bool, flag("--abort", "Give up a move that waits.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Move a pin and every patch on it to another release: all of them, or nothing."""
    if abort and (to or upstream or old or dry_run or resolve or at or proceed):
        raise UsageError("--abort goes with no other option", hint="contribbot rebase --abort")
    if at and not (resolve or proceed):
        raise UsageError("--at is for --resolve and --continue", hint="leave it out")
    queue = open_queue(context)
    if abort:
        ended = rebasing.abort(queue)
        line = f"the move of {ended.upstream} to {ended.new} is given up"
        print_report(ended, [line], as_json=as_json)
        return 0
    wanted = rebasing.Wanted(
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
    with live_lines() as lines:
        plan = rebasing.rebase(queue, wanted, options=Options(), watcher=lines)
    print_report(plan, (*plan_lines(plan), *rebasing.closing(plan, wanted)), as_json=as_json)
    return 0 if plan.done or (dry_run and not rebasing.obstacles(plan)) else 1


@command
def bisect(
    context: typer.Context,
    patch: PatchArgument,
    start: Annotated[str, option("TAG", "A release at which all is still well.", "--from")],
    end: Annotated[str, option("TAG", "A later one at which it is not.", "--to")],
    unneeded: Annotated[
        bool,
        flag(
            "--unneeded",
            "Find where its checks begin to pass without it, not where its text breaks.",
        ),
    ] = False,
    commits: Annotated[
        bool, flag("--commits", "Look at commits, not releases; needs a git source.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Find the first release that breaks a patch, or that makes it unnecessary."""
    queue, name = open_patch(context, patch)
    question: Question = "unneeded" if unneeded else "breaks"
    with live_lines() as lines:
        bisection = search(
            queue,
            name,
            Range(start, end, commits),
            question=question,
            options=Options(),
            watcher=lines,
            told=lambda step: lines.say(step_line(step, question=question)),
        )
    print_report(bisection, bisection_lines(bisection), as_json=as_json)
    return 0 if bisection.first else 1
