"""`contribbot status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from contribbot.cli import command as cli
from contribbot.cli.render import Block, StateText, Table, pairs, summary_of
from contribbot.errors import UsageError
from contribbot.lifecycle.status import status as local_status
from contribbot.lifecycle.status import status_against
from contribbot.model.lifecycle import Need, PatchStatus, Text


@cli.command("status --against newest")
def status(
    patches: cli.PatchesArgument = None,
    against: Annotated[
        str | None, cli.option("TAG", "Look at the patches on this release, or on the newest.")
    ] = None,
    upstream: Annotated[
        str | None, cli.option("NAME", "Whose release it is, where the patches are for several.")
    ] = None,
    text_only: cli.TextOnlyOption = False,
) -> cli.Reply:
    """Show every patch: does it apply, is it needed, where is it proved."""
    queue, names = cli.open_patches(patches)
    if against is None:
        if upstream or text_only:
            hint = "contribbot status --against newest"
            raise UsageError("--upstream and --text-only go with --against TAG", hint=hint)
        report = local_status(queue, names)
    else:
        from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

        theirs = list(dict.fromkeys(queue.specs[name].upstream for name in names))
        if upstream and upstream not in theirs:
            raise UsageError(
                f"--upstream {upstream}: none of these patches is for it",
                hint=f"name one of {', '.join(theirs)}",
            )
        if not upstream and against != "newest" and len(theirs) > 1:
            raise UsageError(
                f"a tag belongs to one upstream, and these patches are for {', '.join(theirs)}",
                hint="name it with --upstream",
            )
        theirs = [upstream] if upstream else theirs
        with cli.live_lines(order=names) as lines:
            report = status_against(
                queue,
                names,
                upstreams=theirs,
                tag=against,
                run=not text_only,
                options=Options(),
                watcher=lines,
            )
    head = ("patch", "release", "text", "without it", "pull request", "evidence")
    blocks: list[Block] = [Table([*map(_row, report.patches)], head)]
    notes = [(patch.patch, notes) for patch in report.patches if (notes := [*_notes(patch)])]
    blocks += ["", pairs(notes, indent=0)] if notes else []
    unknown = [row.text_why for row in report.patches if row.text is Text.UNKNOWN]
    return cli.Reply(report, [*blocks, *([""] if unknown else []), *dict.fromkeys(unknown)])


_TEXTS: Final = {
    Text.CLEAN: "applies",
    Text.OFFSET: "applies, moved",
    Text.MERGED: "applies, merged",
    Text.CONFLICT: "conflicts",
    Text.UPSTREAM: "upstream",
    Text.BLOCKED: "not applied",
    Text.UNKNOWN: "not known",
}
_NEEDS: Final = {
    Need.SUPERSEDED: "superseded",
    Need.PARTLY: "partly superseded",
    Need.NEEDED: "needed",
    Need.UNCLEAR: "unclear",
}


def _row(patch: PatchStatus) -> tuple[str, ...]:
    at = "" if patch.against == patch.pin else f" at {patch.against}"
    states = {
        state: summary_of(row.target for row in patch.evidence if row.evidence == state)
        for state in ("refuted", "fresh", "stale", "missing")
    }
    evidence = "; ".join(f"{state}: {targets}" for state, targets in states.items() if targets)
    return (
        patch.patch,
        f"{patch.upstream} {patch.pin}{at}",
        StateText(_TEXTS[patch.text]),
        StateText(_NEEDS[patch.behaviour.verdict] if patch.behaviour else ""),
        "" if patch.contribution == "none" else patch.contribution[patch.contribution.find("#") :],
        StateText(evidence or "asked for nowhere"),
    )


def _notes(patch: PatchStatus) -> Iterator[str]:
    """Yield the notes of a patch below its row: conflicts, need, supersession, expiry."""
    notable = patch.text not in {Text.CLEAN, Text.UPSTREAM, Text.UNKNOWN}
    yield from [patch.text_why] if notable and patch.text_why else ()
    if patch.behaviour is not None:
        yield patch.behaviour.why
        yield from (f"{old} is {new} there" for old, new in patch.behaviour.moved.items())
    if patch.superseded:
        yield f"not to be proposed: {patch.superseded}"
    yield from (f"expires: {due.condition}: {due.why}" for due in patch.due if due.come)
