"""`contribbot runners`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli import show_runners as show
from contribbot.cli.command import (
    JsonOption,
    PatchesArgument,
    argument,
    command,
    flag,
    live_lines,
    open_queue,
    option,
    print_json,
    print_lines,
    print_notes,
    print_report,
)
from contribbot.cli.complete import target_names
from contribbot.cli.show_results import append_summary
from contribbot.errors import ContribbotError, ExitCode, UsageError
from contribbot.files import write_named
from contribbot.queue.load import select
from contribbot.runners import workflows as queue_workflows
from contribbot.runners.collect import exit_code, gather, gather_again
from contribbot.runners.dispatch import Selection, Sender, sending
from contribbot.runners.plan import make_plan
from contribbot.runners.run_job import work
from contribbot.runners.workflows import Standing, Workflows


@command
def matrix(
    context: typer.Context,
    patches: PatchesArgument = None,
    everything: Annotated[bool, flag("--all", "Also run what a fresh record answers.")] = False,
    on: Annotated[
        list[str] | None,
        option("SET", "Only these runners, by name of the set, target or label."),
    ] = None,
    output: Annotated[Path | None, option("FILE", "Write the plan there, too.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Plan which runner proves what: jobs, what has no runner, and what is fresh."""
    queue = open_queue(context, *(patches or ()))
    names = select(queue, patches or (), everything=not patches)
    outputs = os.environ.get("GITHUB_OUTPUT")
    plan = make_plan(
        queue, names, everything=everything, on=on or (), for_a_run=bool(outputs or output)
    )
    if output is not None:
        write_named(output, (plan.model_dump_json(indent=2) + "\n").encode())
    if outputs:
        show.append_outputs(Path(outputs), plan)
    print_report(plan, show.matrix_lines(plan), as_json=as_json)
    return 0


@command
def install(
    context: typer.Context,
    check: Annotated[
        bool, flag("--check", "Write nothing; show what differs, and fail if anything does.")
    ] = False,
    force: Annotated[bool, flag("--force", "Replace files that were changed by hand.")] = False,
    branch: Annotated[
        str,
        option(
            "NAME",
            "The queue's main branch.",
            default="what the installed workflows name, else main",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """Write .github/workflows/ for this queue's runners: verify, rebase, open-pr."""
    if check and force:
        raise UsageError("--check writes nothing, and --force is for writing", hint="give one")
    queue = open_queue(context)
    if check:
        these = queue_workflows.look(queue, branch=branch)
    else:
        these = queue_workflows.install(queue, branch=branch, force=force)
    lines = show.workflow_lines(these, written=not check)
    print_report(Workflows(written=not check, workflows=these), lines, as_json=as_json)
    return int(check and any(each.standing is not Standing.CURRENT for each in these))


@command
def run(
    context: typer.Context,
    output: Annotated[
        Path, argument("DIR", "Where records and job.json go.", default="answer")
    ] = Path("answer"),
    as_json: JsonOption = False,
) -> int:
    """Do the work of one job, on its runner; verify.yml calls it."""
    queue = open_queue(context)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    cores = len(os.sched_getaffinity(0))
    with live_lines(stderr=as_json) as lines:
        done = work(
            queue, output, jobs=cores, watcher=lines,
            told=lambda report: append_summary(Path(summary), [report]) if summary else None,
        )  # fmt: skip
    print_report(done, show.done_lines(done), as_json=as_json)
    return done.exit_code


@command
def pin(
    context: typer.Context,
    ours: Annotated[
        str,
        option(
            "URL",
            "contribbot's own wheel, where no index has it: https://….whl#sha256=….",
            "--contribbot",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """Write what runners install: the versions that are installed here, by their digests."""
    pinned = queue_workflows.pin(open_queue(context), ours=ours)
    without = ", ".join(sorted(queue_workflows.LEFT_OUT))
    count = f"{pinned.packages} packages; left to the runner's image: {without}"
    lines = [f"{queue_workflows.REQUIREMENTS}: {count}"]
    if pinned.wheel:
        lines.append(f"{pinned.wheel}: contribbot as it is installed here; commit it, too")
    print_report(pinned, lines, as_json=as_json)
    print_notes([pinned.note] if pinned.note else [])
    return 0


@command
def dispatch(
    context: typer.Context,
    patches: PatchesArgument = None,
    ref: Annotated[
        str, option("BRANCH", "The branch of the queue to test.", default="the default branch")
    ] = "",
    target: Annotated[
        list[str] | None,
        option("TARGET", "Only this one: gfx942, ….", default="all", complete=target_names),
    ] = None,
    resume: Annotated[
        int | None, typer.Option(metavar="RUN", min=1, help="Watch a run that was started.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Start a run of verify.yml on GitHub, and watch it; interrupted, it goes on there."""
    if resume is not None and (patches or target or ref):
        raise UsageError("--resume starts nothing", hint="name either a run or what to prove")
    queue = open_queue(context, *(patches or ()))
    asked = resume or Selection.of(queue, patches or (), target or (), ref)

    def say(lines: list[str]) -> None:
        print_lines(lines, stderr=as_json)

    with sending(queue) as sender:
        try:
            run_id = _start(sender, asked, say) if isinstance(asked, Selection) else asked
            with show.board(say, stderr=as_json) as watcher:
                ended = sender.watch(run_id, watcher=watcher)
        except KeyboardInterrupt:
            print_notes(show.left_lines(sender) or ["nothing was started"])
            return ExitCode.INTERRUPTED
        except ContribbotError:
            print_notes(show.left_lines(sender))
            raise
    say(show.over_lines(ended))
    if as_json:
        print_json(ended)
    return ended.exit_code


def _start(sender: Sender, asked: Selection, say: Callable[[list[str]], None]) -> int:
    """Start a run, say which, and end those that it makes pointless."""
    selection = sender.on_branch(asked)
    state = sender.state(selection)
    say(show.state_lines(state))
    run = sender.start(selection)
    say(show.started_lines(run, state))
    ended = sender.supersede(selection, run)
    say([f"ended run {each.id}, which this one replaces" for each in ended])
    return run.id


@command
def collect(
    context: typer.Context,
    run: Annotated[
        int | None, typer.Argument(metavar="RUN", min=1, help="Its number.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None,
        option("DIR", "Take the run's zips from there; GitHub says what they are.", "--from"),
    ] = None,
    again: Annotated[
        bool,
        flag("--again", "Keep nothing; say what runners failed so far, and plan second tries."),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Fetch what a run of verify.yml left, judge it, and keep the records that are good."""
    if run is None and folder is None:
        raise UsageError(
            "neither a run nor --from", hint="name the run's number, which its page has"
        )
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="name the one that holds the run's zips")
    queue = open_queue(context)
    if again:
        tries = gather_again(queue, run, folder=folder)
        if outputs := os.environ.get("GITHUB_OUTPUT"):
            show.append_again(Path(outputs), tries.jobs)
        print_report(tries, show.again_lines(tries), as_json=as_json)
        return 0
    collected = gather(queue, run, folder=folder)
    print_report(collected, show.collect_lines(collected), as_json=as_json)
    if outputs := os.environ.get("GITHUB_OUTPUT"):
        show.append_runners_failed(Path(outputs), collected)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        show.append_collected(Path(summary), collected)
    return exit_code(collected).value
