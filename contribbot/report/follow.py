"""Where contributions stand, for people."""

from __future__ import annotations

from contribbot.model.follow import Followed, FollowReport, Remark, TargetCi, ThreadCount
from contribbot.report.text import clean

_SHORT = 12


def follow_lines(report: FollowReport) -> list[str]:
    """Return where contributions stand, some lines each."""
    lines: list[str] = []
    for one in report.contributions:
        lines += _lines(one)
    if report.without:
        lines.append(f"nothing on GitHub yet: {', '.join(report.without)}")
    if not lines:
        lines.append("nothing to follow: no pull request of this queue is open")
    return [clean(line).rstrip() for line in lines]


def _lines(one: Followed) -> list[str]:
    gone = "" if one.queued else " (no longer in the queue)"
    change = f" (was {one.change})" if one.change else ""
    title = f"  {one.title}" if one.title else ""
    where = one.reference or one.repository
    lines = [f"{one.patch}{gone}: {where} {one.state}{change}{title}"]
    if one.error:
        lines.append(f"  could not be looked at: {one.error}")
        if one.looked is not None:
            lines.append(f"  what follows is of {one.looked:%Y-%m-%d %H:%M} UTC")
    if one.url:
        lines.append(f"  {one.url}")
    if one.why:
        lines.append(f"  {one.why}")
    if one.state in {"draft", "open"}:
        lines += [f"  {row}" for row in _open_rows(one)]
    lines += [f"  {'changed' if said.changed else 'new'}: {remark_line(said)}" for said in one.new]
    if one.more:
        lines.append(f"  and {one.more} earlier new ones: contribbot reviews {one.patch} --all")
    lines += [f"  next, {step.who}: {step.what}" for step in one.next]
    return lines


def _open_rows(one: Followed) -> list[str]:
    merges = {
        "yes": f"merges with {one.base}",
        "no": f"conflicts with {one.base}",
        "not known": f"GitHub has not said whether it merges with {one.base}",
    }[one.mergeable]
    rows = [merges + _behind(one)]
    every = [*one.ci, *([one.other] if one.other else [])]
    rows.append(f"CI: {'; '.join(map(_ci, every)) if every else 'no jobs have started'}")
    if one.start:
        rows.append(f"CI is started so: {one.start}")
    by = f" by {', '.join(one.by)}" if one.by else ""
    verdict = "not reviewed yet" if one.decision == "none" else f"{one.decision}{by}"
    # Nothing of a pull request says that a thread of it was resolved.
    when = f" on {one.looked:%Y-%m-%d %H:%M} UTC" if one.looked is not None else ""
    rows.append(f"{verdict}; threads: {_threads(one.threads)}{when}")
    return rows


def _behind(one: Followed) -> str:
    if one.behind is None:
        return ""
    count = f"{one.behind} commit{'' if one.behind == 1 else 's'} behind it"
    # It is not asked for each time, and the base moves on.
    when = f" on {one.compared:%Y-%m-%d %H:%M} UTC" if one.compared is not None else ""
    return f"; {count if one.behind else 'up to date with it'}{when}"


def _ci(one: TargetCi) -> str:
    count = f" ({one.jobs} job{'' if one.jobs == 1 else 's'})" if one.jobs else ""
    more = f", {one.running} running" if one.running and one.state != "running" else ""
    if not one.failed:
        return f"{one.target} {one.state}{count}{more}"
    rest = one.failures - len(one.failed)
    named = ", ".join(one.failed) + (f" and {rest} more" if rest else "")
    return f"{one.target} {one.state}: {named}{more}"


def _threads(one: ThreadCount) -> str:
    told = f"{one.open} open, {one.answered} answered"
    if not one.known:
        return f"{told} (GitHub does not say which are resolved)"
    return f"{told}, {one.resolved} resolved"


def remark_line(said: Remark) -> str:
    """Return a remark as one line."""
    at = f"{said.at:%Y-%m-%d %H:%M} " if said.at is not None else ""
    thread = f" [{said.thread}]" if said.thread else ""
    place = f" {said.place}" if said.place else ""
    verdict = f" ({said.verdict})" if said.verdict else ""
    text = " ".join(said.text.split())
    return f"{at}{said.author}{place}{thread}{verdict}{': ' if text else ''}{text}"
