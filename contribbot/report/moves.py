"""Where patches stand and what a move makes of them, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from contribbot.model.behaviour import Need
from contribbot.model.bisect import Bisection, Question, Step
from contribbot.model.plan import PatchPlan, RebasePlan
from contribbot.model.status import PatchStatus, StatusReport, TargetState, Text
from contribbot.report.text import clean, side_lines


def status_lines(report: StatusReport) -> list[str]:
    """Return two lines a patch, and more where something asks for attention."""
    width = max((len(one.patch) for one in report.patches), default=0)
    lines: list[str] = []
    for one in report.patches:
        lines.append(f"{one.patch:{width}}  {_place(one)}: {_state(one)}")
        pull_request = f"pull request {clean(one.contribution)}"
        lines.append(f"{'':{width}}  evidence {_evidence(one.evidence)}; {pull_request}")
        lines += [f"{'':{width}}  {row}" for row in _attention(one)]
    return lines


def _place(one: PatchStatus) -> str:
    if one.against == one.pin:
        return f"{one.upstream} {one.pin}"
    return f"{one.upstream} {one.pin} at {one.against}"


def _state(one: PatchStatus) -> str:
    words = {
        Text.CLEAN: "applies",
        Text.OFFSET: "applies with offset",
        Text.MERGED: "applies after a merge",
        Text.CONFLICT: "conflicts",
        Text.UPSTREAM: "already upstream",
        Text.BLOCKED: "blocked by a dependency",
        Text.UNKNOWN: "not known",
    }
    text = words[one.text]
    if one.behaviour is None:
        return text
    need = {
        Need.SUPERSEDED: "superseded (its checks pass without it)",
        Need.PARTLY: "partly superseded (some of its checks pass without it)",
        Need.NEEDED: "still needed",
        Need.UNCLEAR: "unclear whether it is needed",
    }
    return f"{text}, {need[one.behaviour.verdict]}"


def _evidence(states: Sequence[TargetState]) -> str:
    by_state: dict[str, list[str]] = {}
    for one in states:
        by_state.setdefault(one.evidence, []).append(one.target)
    parts = [
        f"{state}: {', '.join(by_state[state])}"
        for state in ("fresh", "stale", "missing")
        if state in by_state
    ]
    return " | ".join(parts) or "asked for nowhere"


def _attention(one: PatchStatus) -> list[str]:
    rows = []
    if one.text not in {Text.CLEAN, Text.UPSTREAM} and one.text_why:
        rows.append(clean(one.text_why))
    if one.behaviour is not None:
        rows.append(clean(one.behaviour.why))
        rows += [f"{clean(old)} is {clean(new)} there" for old, new in one.behaviour.moved.items()]
    rows += [f"expires: {clean(due.condition)}: {clean(due.why)}" for due in one.due if due.come]
    return rows


def plan_lines(plan: RebasePlan) -> list[str]:
    """Return what becomes of each patch, with the three sides of every conflict."""
    width = max((len(one.patch) for one in plan.patches), default=0)
    lines = [f"{plan.upstream} {plan.old} -> {plan.new}"]
    for one in plan.patches:
        why = f": {clean(one.why)}" if one.why else ""
        lines.append(f"{one.patch:{width}}  {one.decision} ({one.text}){why}")
        lines += _behaviour(one)
        for side in one.conflicts:
            lines += [f"    {row}" for row in side_lines(side, base="the release")]
    return lines


def _behaviour(one: PatchPlan) -> list[str]:
    if one.behaviour is None or one.behaviour.why == one.why:
        return []
    return [f"    without it there: {clean(one.behaviour.why)}"]


def step_line(step: Step, *, question: Question) -> str:
    """Return one step of a bisection as a line."""
    words = {
        "breaks": {"before": "applies", "after": "does not apply"},
        "unneeded": {"before": "needed", "after": "not needed"},
    }
    twice = ", looked at twice" if step.again else ""
    why = f"{clean(step.why)}{twice}".removeprefix(", ")
    what = "upstream already" if step.taken else words[question].get(step.says, "skipped")
    return f"{step.at}: {what}{f' ({why})' if why else ''}"


def bisection_lines(found: Bisection) -> list[str]:
    """Return what a bisection found."""
    what = {
        "breaks": "the first at which its text does not apply",
        "unneeded": "the first at which it is not needed",
    }[found.question]
    if found.first and found.taken:
        what = "the first that has all of its text already: it is upstream there, not broken"
    if found.first:
        return [f"{found.patch}: {found.first} is {what}"]
    text = f"{found.patch}: {what} cannot be told: it is one of {', '.join(found.suspects)}"
    last = ", and the last has all of it already" if found.taken else ""
    return [f"{text}; those before the last could not be tried{last}"]
