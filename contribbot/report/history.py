"""A patch's history and the differences between its versions, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence

from contribbot.model.base import Model
from contribbot.model.history import Event
from contribbot.queue.rangediff import Compared
from contribbot.report.text import clean


class HistoryView(Model):
    """What `log --json` prints.

    Attributes:
        patch: The patch.
        events: What happened to it, oldest first, as its journal has it.
    """

    patch: str
    events: tuple[Event, ...]


class CompareView(Model):
    """What `diff --json` prints.

    Attributes:
        patch: The patch.
        old: The older version, such as `v1`.
        new: The newer one; `files`: what is in the queue now.
        same: Whether both have the same files on the same pin.
        range_diff: What git range-diff says.
    """

    patch: str
    old: str
    new: str
    same: bool
    range_diff: str

    @classmethod
    def of(cls, patch: str, compared: Compared) -> CompareView:
        """View a comparison."""
        return cls(
            patch=patch,
            old=compared.old,
            new=compared.new,
            same=compared.same,
            range_diff=compared.text,
        )


def log_lines(patch: str, events: Sequence[Event]) -> list[str]:
    """Return a line an event, oldest first: time, kind, what happened."""
    if not events:
        return [f"{patch}: nothing is recorded yet"]
    width = max(len(clean(one.event)) for one in events)
    return [
        f"{one.time:%Y-%m-%d %H:%M}  {clean(one.event):{width}}  {clean(one.summary)}"
        for one in events
    ]


def diff_lines(view: CompareView) -> list[str]:
    """Return a comparison as lines for a terminal."""
    if view.same:
        return [f"{view.patch}: {view.old} and {view.new} are the same"]
    rows = view.range_diff.splitlines()
    return [
        f"{view.patch}: {view.old} against {view.new}",
        *(clean(row.expandtabs()).rstrip() for row in rows),
    ]
