"""`contribbot verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli import command as cli
from contribbot.cli.outcomes import closing_blocks
from contribbot.cli.refusal import current_settings
from contribbot.errors import UsageError
from contribbot.model.evidence import VerifyReport
from contribbot.verify.pipeline import Options
from contribbot.verify.run import exit_code, refuse_unknown, verify_and_record


@cli.command("verify rmsnorm --require cpu")
def verify(
    patches: cli.SomePatchesArgument = None,
    everything: Annotated[bool, cli.flag("--all", "Verify every patch.")] = False,
    require: Annotated[
        list[str] | None,
        cli.option(
            "TARGET",
            "Fail unless it is proved here on this target: cpu, cuda, gfx942, …",
        ),
    ] = None,
    force: Annotated[bool, cli.flag("--force", "Repeat what is remembered.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Checks that run at the same time.", show_default="cores"
        ),
    ] = None,
    evidence: Annotated[
        Path | None, cli.option("DIR", "Where records go.", default="evidence/")
    ] = None,
) -> cli.Reply:
    """Test patches: checks fail without them and pass with them, or it says what could not run.

    check: shows; verify: records, with the run without the change that a proof needs.
    """
    if everything and patches:
        hint = f"leave out --all, or {', '.join(patches)}"
        raise UsageError("--all names every patch already", hint=hint)
    queue, names = cli.open_patches(patches, everything=everything)
    options = Options(jobs=jobs, force=force) if jobs else Options(force=force)
    required = require or []
    refuse_unknown(queue, names, required)
    folder = evidence or queue.evidence
    as_json = current_settings().as_json
    with cli.live_lines(stderr=as_json, order=names) as lines:
        done = verify_and_record(queue, names, options=options, folder=folder, watcher=lines)
    blocks = closing_blocks(done.reports, done.records, required)
    report = VerifyReport(patches=tuple(done.reports))
    # With --json, the lines go to standard error, for a person who watches.
    code = exit_code(done.reports, required)
    return cli.Reply(report, blocks, code, blocks if as_json else ())
