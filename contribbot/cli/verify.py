"""`contribbot verify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.command import (
    JobsOption,
    JsonOption,
    SomePatchesArgument,
    command,
    echo,
    flag,
    live_lines,
    open_queue,
    option,
    print_json,
    print_lines,
    print_report,
)
from contribbot.cli.complete import target_names
from contribbot.cli.show_lifecycle import alone_lines
from contribbot.cli.show_results import annotation_lines, append_summary, closing_lines
from contribbot.cli.show_verify import comparison_lines, expected, write_junit
from contribbot.errors import UsageError
from contribbot.lifecycle import leave_one_out as stacks
from contribbot.model.evidence import VerifyReport
from contribbot.queue.load import Queue, select
from contribbot.verify.pipeline import Options
from contribbot.verify.run import exit_code, refuse_unknown, targets, verify_and_record


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
    with_: Annotated[
        str | None,
        option("triton==A,B", "Compare two releases of Triton; records nothing.", "--with"),
    ] = None,
) -> int:
    """Test patches: checks fail without them and pass with them, or it says what could not run."""
    if everything and patches:
        hint = f"leave out --all, or {', '.join(patches)}"
        raise UsageError("--all names every patch already", hint=hint)
    queue = open_queue(context, *(patches or ()))
    if with_:
        given = {"--require": require, "--jobs": jobs, "--junit": junit, "--evidence": evidence,
                 "--leave-one-out": leave_one_out, "--force": force}  # fmt: skip
        if others := [name for name, value in given.items() if value]:
            hint = f"leave out {' and '.join(others)}"
            raise UsageError("--with compares, and records nothing", hint=hint)
        named = select(queue, patches or (), everything=everything)
        return _compare(queue, named, with_, as_json=as_json)
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
    refuse_unknown(queue, names, required)
    folder = evidence or queue.evidence
    with live_lines(stderr=as_json, order=names) as lines:
        lines.expect(expected(queue, names))
        done = verify_and_record(queue, names, options=options, folder=folder, watcher=lines)
    print_lines(closing_lines(done.reports, done.records, required), stderr=as_json)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print_lines(annotation_lines(queue, done.reports), stderr=as_json)
    if as_json:
        print_json(VerifyReport(patches=tuple(done.reports)))
    if junit is not None:
        write_junit(junit, done.reports)
    if step_summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_summary(Path(step_summary), done.reports)
    return exit_code(done.reports, required)


def _compare(queue: Queue, names: Sequence[str], releases: str, *, as_json: bool) -> int:
    """Run what Triton compiles of patches under two releases of it."""
    from contribbot.hardware.triton import two_releases  # noqa: PLC0415  start-up time
    from contribbot.verify.two_tritons import compare_releases  # noqa: PLC0415  the same

    def started(what: str) -> None:
        echo(f"verify: {what}", stderr=True)

    found = compare_releases(queue, names, two_releases(releases), started)
    print_report(found, comparison_lines(found), as_json=as_json)
    return found.exit_code
