"""`contribbot workflows`."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.shell import JsonOption, command, open_queue, print_json

app = typer.Typer(help="GitHub Actions for this queue.", no_args_is_help=True)


@app.callback()
def workflows() -> None:
    """GitHub Actions for this queue."""


@app.command("install")
@command
def install(
    context: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; show what differs, and say no if any.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that were changed by hand.")
    ] = False,
    branch: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The queue's main branch.",
            show_default="what the installed workflows name, else main",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """Write .github/workflows/ for this queue's runners: verify, rebase, open-pr."""
    from contribbot.errors import UsageError  # noqa: PLC0415  start-up time
    from contribbot.model.workflows import Standing, Workflows  # noqa: PLC0415  start-up time
    from contribbot.report.workflows import checked_lines, installed_lines  # noqa: PLC0415  start-up time
    from contribbot.runners import install as installing  # noqa: PLC0415  start-up time

    if check and force:
        raise UsageError("--check writes nothing, and --force is for writing", hint="give one")
    queue = open_queue(context)
    if check:
        found = installing.look(queue, branch=branch)
    else:
        found = installing.install(queue, branch=branch, force=force)
    if as_json:
        print_json(Workflows(written=not check, workflows=found))
    else:
        for line in (checked_lines if check else installed_lines)(found):
            typer.echo(line)
    return 1 if check and any(one.standing is not Standing.CURRENT for one in found) else 0


@app.command("run")
@command
def run(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Where records and job.json go.")
    ] = Path("answer"),
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Checks that run at the same time.", show_default="cores"),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Do the work of one job, on its runner; verify.yml calls it."""
    from contribbot.report.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.report.workflows import done_lines, tell_patch  # noqa: PLC0415  start-up time
    from contribbot.runners.work import work  # noqa: PLC0415  start-up time

    queue = open_queue(context)
    out = console(stderr=as_json)
    lines = Lines(out)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    with lines.shown():
        done = work(
            queue,
            output,
            jobs=jobs or len(os.sched_getaffinity(0)),
            watcher=lines,
            told=functools.partial(tell_patch, summary=Path(summary) if summary else None),
        )
    if as_json:
        print_json(done)
    else:
        for line in done_lines(done):
            out.print(line)
    return done.exit_code


@app.command("pin")
@command
def pin(
    context: typer.Context,
    ours: Annotated[
        str,
        typer.Option(
            "--contribbot",
            metavar="URL",
            help="contribbot's own wheel, where no index has it: https://….whl#sha256=….",
        ),
    ] = "",
) -> int:
    """Write what runners install: the versions that are installed here, by their digests."""
    from contribbot.runners import pinning  # noqa: PLC0415  start-up time
    from contribbot.runners.requirements import REQUIREMENTS  # noqa: PLC0415  start-up time

    pinned = pinning.pin(open_queue(context), ours=ours)
    without = ", ".join(sorted(pinning.LEFT_OUT))
    typer.echo(f"{REQUIREMENTS}: {len(pinned)} packages; left to the runner's image: {without}")
    if note := pinning.wheel_note(ours):
        typer.echo(note, err=True)
    return 0
