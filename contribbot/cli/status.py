"""`contribbot status`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from contribbot.cli.command import (
    JsonOption,
    PatchesArgument,
    TextOnlyOption,
    command,
    live_lines,
    open_queue,
    option,
    print_report,
)
from contribbot.cli.text import titled
from contribbot.errors import UsageError
from contribbot.lifecycle.status import status as local_status
from contribbot.lifecycle.status import status_against
from contribbot.model.evidence import target_order
from contribbot.model.lifecycle import Need, PatchStatus, StatusReport, Text
from contribbot.queue.load import select
from contribbot.queue.stack import upstream_meant


@command
def status(
    context: typer.Context,
    patches: PatchesArgument = None,
    against: Annotated[
        str | None, option("TAG", "Look at the patches on this release, or on the newest.")
    ] = None,
    upstream: Annotated[
        str | None, option("NAME", "Whose release it is, where the patches are for several.")
    ] = None,
    text_only: TextOnlyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show every patch: does it apply, is it needed, where is it proved."""
    queue = open_queue(context, *(patches or ()))
    names = select(queue, patches or (), everything=not patches)
    if against is None:
        if upstream or text_only:
            hint = "contribbot status --against newest"
            raise UsageError("--upstream and --text-only go with --against TAG", hint=hint)
        report = local_status(queue, names)
    else:
        from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

        theirs = list(dict.fromkeys(queue.specs[name].upstream for name in names))
        if upstream or against != "newest":
            theirs = [upstream_meant(queue, names, upstream or "")]
        with live_lines(order=names) as lines:
            report = status_against(
                queue,
                names,
                upstreams=theirs,
                tag=against,
                run=not text_only,
                options=Options(),
                watcher=lines,
            )
    print_report(report, status_lines(report), as_json=as_json)


_TEXTS: Final = {
    Text.CLEAN: "applies",
    Text.OFFSET: "applies with offset",
    Text.MERGED: "applies after a merge",
    Text.CONFLICT: "conflicts",
    Text.UPSTREAM: "already upstream",
    Text.BLOCKED: "blocked by a dependency",
    Text.UNKNOWN: "not known",
}
_NEEDS: Final = {
    Need.SUPERSEDED: "superseded (its checks pass without it)",
    Need.PARTLY: "partly superseded (some of its checks pass without it)",
    Need.NEEDED: "still needed",
    Need.UNCLEAR: "unclear whether it is needed",
}


def status_lines(report: StatusReport) -> list[str]:
    """Return a heading a patch, and below it where it stands."""
    return [line for patch in report.patches for line in _status(patch)]


def _status(patch: PatchStatus) -> list[str]:
    at = "" if patch.against == patch.pin else f" at {patch.against}"
    state, behaviour = _TEXTS[patch.text], patch.behaviour
    why = [patch.text_why] if patch.text not in {Text.CLEAN, Text.UPSTREAM} else []
    why += [patch.clash]
    need = []
    if behaviour is not None:
        state += f", {_NEEDS[behaviour.verdict]}"
        need = [behaviour.why, *(f"{old} is {new} there" for old, new in behaviour.moved.items())]
    evidence = [
        f"{state}: {', '.join(sorted(targets, key=target_order))}"
        for state in ("fresh", "stale", "missing")
        if (targets := [row.target for row in patch.evidence if row.evidence == state])
    ]
    return [
        f"{patch.patch}  {patch.upstream} {patch.pin}{at}: {state}",
        *titled([
            ("text", filter(None, why)),
            ("without it", need),
            ("proposed", [f"never: {patch.superseded}"] if patch.superseded else []),
            ("evidence", evidence or ["asked for nowhere"]),
            ("pull request", [patch.contribution]),
            ("expires", [f"{due.condition}: {due.why}" for due in patch.due if due.come]),
        ]),
    ]  # fmt: skip
