"""`contribbot rebase` and `bisect`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from contribbot.cli.command import (
    JsonOption,
    PatchArgument,
    TextOnlyOption,
    argument,
    command,
    flag,
    live_lines,
    open_patch,
    open_queue,
    option,
    pin_tags,
    print_report,
)
from contribbot.cli.render import Block, Table, indented, side_blocks
from contribbot.errors import UsageError
from contribbot.lifecycle import rebase as rebasing
from contribbot.lifecycle.bisect import Range
from contribbot.lifecycle.bisect import bisect as search
from contribbot.model.lifecycle import Bisection, Question, RebasePlan, Step
from contribbot.verify.pipeline import Options


@command
def rebase(
    context: typer.Context,
    to: Annotated[str | None, argument("TAG", "The release to move to, or newest.")] = None,
    pin: Annotated[
        str | None,
        option(
            "PIN",
            "The pin that moves: the upstream or the tag.",
            default="the only pin",
            complete=pin_tags,
        ),
    ] = None,
    dry_run: Annotated[
        bool, flag("--dry-run", "Say what would become of each patch, and end.")
    ] = False,
    text_only: TextOnlyOption = False,
    superseded: Annotated[
        Literal["stop", "retire", "keep"],
        option("stop|retire|keep", "What to do with patches that the release does not need."),
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
    if abort and (to or pin or dry_run or resolve or at or proceed):
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
        pin=pin or "",
        dry_run=dry_run,
        run=not text_only,
        superseded=superseded,
        resolve=resolve or proceed,
        at=at,
        proceed=proceed,
    )
    with live_lines() as lines:
        plan = rebasing.rebase(queue, wanted, options=Options(), watcher=lines)
    print_report(plan, (*plan_blocks(plan), *rebasing.closing(plan, wanted)), as_json=as_json)
    return 0 if plan.done or (dry_run and not rebasing.obstacles(plan)) else 1


@command
def bisect(
    context: typer.Context,
    patch: PatchArgument,
    good: Annotated[str, argument("GOOD", "A release at which all is still well.")],
    bad: Annotated[str, argument("BAD", "A later one at which it is not.")],
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
            Range(good, bad, commits),
            question=question,
            options=Options(),
            watcher=lines,
            heard=lambda step: lines.say(step_line(step, question=question)),
        )
    print_report(bisection, bisection_lines(bisection), as_json=as_json)
    return 0 if bisection.first else 1


_STEPS: Final[dict[Question, dict[str, str]]] = {
    "breaks": {"before": "applies", "after": "does not apply"},
    "unneeded": {"before": "needed", "after": "not needed"},
}
_FIRSTS: Final[dict[Question, str]] = {
    "breaks": "the first at which its text does not apply",
    "unneeded": "the first at which it is not needed",
}


def plan_blocks(plan: RebasePlan) -> list[Block]:
    """Return what becomes of each patch, with the three sides of every conflict."""
    rows = [(row.patch, f"{row.decision} ({row.text})", row.why) for row in plan.patches]
    blocks: list[Block] = [f"{plan.upstream} {plan.old} -> {plan.new}", Table(rows)]
    for patch in plan.patches:
        if patch.behaviour is not None and patch.behaviour.why != patch.why:
            blocks.append(f"{patch.patch}: without it there: {patch.behaviour.why}")
        sides = (side_blocks(side, base="the release") for side in patch.conflicts)
        blocks += [f"{patch.patch}:"] if patch.conflicts else []
        blocks += indented(itertools.chain.from_iterable(sides))
    return blocks


def step_line(step: Step, *, question: Question) -> str:
    """Return one step of a bisection as a line."""
    twice = ", looked at twice" if step.again else ""
    why = f"{step.why}{twice}".removeprefix(", ")
    what = "upstream already" if step.taken else _STEPS[question].get(step.says, "skipped")
    return f"{step.at}: {what}{f' ({why})' if why else ''}"


def bisection_lines(bisection: Bisection) -> list[str]:
    """Return what a bisection found."""
    what = _FIRSTS[bisection.question]
    if bisection.first and bisection.taken:
        what = "the first that has all of its text already: it is upstream there, not broken"
    if bisection.first:
        return [f"{bisection.patch}: {bisection.first} is {what}"]
    suspects = ", ".join(bisection.suspects)
    last = ", and the last has all of it already" if bisection.taken else ""
    text = f"{bisection.patch}: {what} is not clear: it is one of {suspects}"
    return [f"{text}; those before the last could not be tried{last}"]
