"""Status, rebases and bisections for people."""

from __future__ import annotations

from typing import Final

from contribbot.cli.text import clean, side_lines, table, titled
from contribbot.model.evidence import target_order
from contribbot.model.lifecycle import (
    Bisection,
    Need,
    PatchStatus,
    Question,
    RebasePlan,
    Share,
    StackReport,
    StatusReport,
    Step,
    Text,
)

#: Outcomes of one member of a stack that are listed; the rest is counted.
_SHOWN: Final = 8
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
#: What a step of a bisection says, and what was searched for.
_STEPS: Final[dict[Question, dict[str, str]]] = {
    "breaks": {"before": "applies", "after": "does not apply"},
    "unneeded": {"before": "needed", "after": "not needed"},
}
_FIRSTS: Final[dict[Question, str]] = {
    "breaks": "the first at which its text does not apply",
    "unneeded": "the first at which it is not needed",
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


def plan_lines(plan: RebasePlan) -> list[str]:
    """Return what becomes of each patch, with the three sides of every conflict."""
    wide = max((len(patch.patch) for patch in plan.patches), default=0)
    lines = [f"{plan.upstream} {plan.old} -> {plan.new}"]
    for patch in plan.patches:
        why = f": {clean(patch.why)}" if patch.why else ""
        lines.append(f"{patch.patch:{wide}}  {patch.decision} ({patch.text}){why}")
        if patch.behaviour is not None and patch.behaviour.why != patch.why:
            lines.append(f"    without it there: {clean(patch.behaviour.why)}")
        for side in patch.conflicts:
            lines += side_lines(side, base="the release", indent="    ")
    return lines


def step_line(step: Step, *, question: Question) -> str:
    """Return one step of a bisection as a line."""
    twice = ", looked at twice" if step.again else ""
    why = f"{clean(step.why)}{twice}".removeprefix(", ")
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


def alone_lines(report: StackReport) -> list[str]:
    """Return the table of stacks, members, and what fails without each."""
    lines = [f"{top}: not clear: {clean(why)}" for top, why in report.untold.items()]
    shares = report.shares
    heads = table([(share.top, f"without {share.without}", _lost(share)) for share in shares])
    for share, head in zip(shares, heads, strict=True):
        lines.append(head)
        lines += [f"  {loss.what}: {clean(loss.reason)}" for loss in share.losses[:_SHOWN]]
        if len(share.losses) > _SHOWN:
            lines.append(f"  and {len(share.losses) - _SHOWN} more")
    return lines


def _lost(share: Share) -> str:
    if not share.applies:
        text = "the rest does not apply"
    elif share.losses:
        text = f"{len(share.losses)} no longer pass, {share.kept} still do"
    else:
        text = f"all {share.kept} still pass: it contributes nothing that was seen"
    return text + (f"; {share.open} not run here" if share.open else "")
