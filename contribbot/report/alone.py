"""What each member of a stack contributes, as text."""

from __future__ import annotations

from contribbot.model.behaviour import Share, StackReport
from contribbot.report.text import clean

#: Outcomes of one member that are listed; the rest is counted.
_SHOWN = 8


def alone_lines(report: StackReport) -> list[str]:
    """Return the table of stacks, members, and what fails without each."""
    lines = [f"{top}: cannot be told: {clean(why)}" for top, why in report.untold.items()]
    width = max((len(one.top) for one in report.shares), default=0)
    next_width = max((len(one.without) for one in report.shares), default=0)
    for one in report.shares:
        head = f"{one.top.ljust(width)}  without {one.without.ljust(next_width)}  {_told(one)}"
        lines.append(head)
        lines += [f"  {loss.what}: {clean(loss.reason)}" for loss in one.losses[:_SHOWN]]
        if len(one.losses) > _SHOWN:
            lines.append(f"  and {len(one.losses) - _SHOWN} more")
    return lines


def _told(share: Share) -> str:
    if not share.applies:
        text = "the rest does not apply"
    elif share.losses:
        text = f"{len(share.losses)} no longer pass, {share.kept} still do"
    else:
        text = f"all {share.kept} still pass: it contributes nothing that was seen"
    return text + (f"; {share.open} not run here" if share.open else "")
