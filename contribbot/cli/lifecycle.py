"""`contribbot rebase` and `bisect`."""

from __future__ import annotations

from typing import Final, Literal

from contribbot.cli import command as cli
from contribbot.cli.render import Block, Table, conflict_blocks, indented
from contribbot.errors import UsageError
from contribbot.lifecycle import rebase as rebasing
from contribbot.lifecycle.status import Question, Range, Step
from contribbot.lifecycle.status import bisect as search
from contribbot.verify.pipeline import Options


@cli.command("rebase newest --pin vllm --dry-run")
def rebase(
    to: str | None = cli.argument("TAG", "The release to move to, or newest.", None),
    pin: str | None = cli.PIN,
    dry_run: bool = cli.flag("--dry-run", "Say what would become of each patch, and end."),
    text_only: bool = cli.TEXT_ONLY,
    superseded: Literal["stop", "retire", "keep"] = cli.option(
        "stop", "stop|retire|keep", "The fate of patches that the release does not need."
    ),
    resolve: bool = cli.flag("--resolve", "Open a work tree with the first conflict in it."),
    proceed: bool = cli.flag("--continue", "Take the resolved conflict, and go on."),
    abort: bool = cli.flag("--abort", "Give up a move that waits."),
) -> cli.Reply:
    """Move a pin and every patch on it to another release: all of them, or nothing."""
    if abort and (to or pin or dry_run or resolve or proceed):
        raise UsageError("--abort goes with no other option", hint="contribbot rebase --abort")
    queue = cli.open_queue()
    if abort:
        ended = rebasing.abort(queue)
        return cli.Reply(ended, [f"the move of {ended.upstream} to {ended.new} is given up"])
    wanted = rebasing.Wanted(
        to=to or "",
        pin=pin or "",
        dry_run=dry_run,
        run=not text_only,
        superseded=superseded,
        resolve=resolve or proceed,
        proceed=proceed,
    )
    with cli.live_lines() as lines:
        plan = rebasing.rebase(queue, wanted, options=Options(), watcher=lines)
    rows = [(row.patch, f"{row.decision} ({row.text})", row.why) for row in plan.patches]
    blocks: list[Block] = [f"{plan.upstream} {plan.old} -> {plan.new}", Table(rows)]
    for patch in plan.patches:
        if patch.behaviour is not None and patch.behaviour.why != patch.why:
            blocks.append(f"{patch.patch}: without it there: {patch.behaviour.why}")
        blocks += [f"{patch.patch}:"] if patch.conflicts else []
        blocks += indented(conflict_blocks(patch.conflicts, "the release"))
    good = plan.done or (dry_run and not rebasing.obstacles(plan))
    return cli.Reply(plan, (*blocks, *rebasing.closing(plan)), int(not good))


@cli.command("bisect rmsnorm v0.5.10 v0.5.12")
def bisect(
    patch: str = cli.PATCH,
    good: str = cli.argument("GOOD", "A release at which all is still well."),
    bad: str = cli.argument("BAD", "A later one at which it is not."),
    unneeded: bool = cli.flag(
        "--unneeded", "Find where its checks begin to pass without it, not where its text breaks."
    ),
    commits: bool = cli.flag("--commits", "Look at commits, not releases; needs a git source."),
) -> cli.Reply:
    """Find the first release that breaks a patch, or that makes it unnecessary."""
    queue, name = cli.open_patch(patch)
    question: Question = "unneeded" if unneeded else "breaks"

    def say(step: Step) -> None:
        what = "upstream already" if step.taken else _STEPS[question].get(step.says, "skipped")
        lines.say(f"{step.at}: {what}{f' ({step.why})' if step.why else ''}")

    with cli.live_lines() as lines:
        span, options = Range(good, bad, commits), Options()
        bisection = search(
            queue, name, span, question=question, options=options, watcher=lines, heard=say
        )
    what = _FIRSTS[question]
    if bisection.first and bisection.taken:
        what = "the first that has all of its text already: it is upstream there, not broken"
    if bisection.first:
        return cli.Reply(bisection, [f"{name}: {bisection.first} is {what}"])
    last = ", and the last has all of it already" if bisection.taken else ""
    text = f"{name}: {what} is not clear: it is one of {', '.join(bisection.suspects)}"
    return cli.Reply(bisection, [f"{text}; those before the last could not be tried{last}"], 1)


_STEPS: Final[dict[Question, dict[str, str]]] = {
    "breaks": {"before": "applies", "after": "does not apply"},
    "unneeded": {"before": "needed", "after": "not needed"},
}
_FIRSTS: Final[dict[Question, str]] = {
    "breaks": "the first at which its text does not apply",
    "unneeded": "the first at which it is not needed",
}
