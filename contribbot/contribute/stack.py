"""Stacks: what a patch stands on goes to its upstream first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from contribbot.contribute.book import Book
from contribbot.contribute.state import state
from contribbot.errors import OpeningError
from contribbot.queue import history
from contribbot.queue.load import Queue

#: Ended, and the upstream does not have it.
_NOT_KEPT: Final = frozenset({"closed", "reverted"})


def check_below(
    queue: Queue, book: Book, name: str, *, rehearsed: Collection[str] = ()
) -> dict[str, str]:
    """See that what a patch depends on has its pull request, open or merged."""
    found: dict[str, str] = {}
    missing: list[str] = []
    for lower in queue.below(name):
        known = book.contribution(lower)
        if lower in rehearsed:
            found[lower] = known.reference or f"the pull request of {lower}"
        elif not known.reference:
            missing.append(lower)
        elif known.state in _NOT_KEPT:
            raise OpeningError(
                f"{name}: it depends on {lower}, whose pull request {known.reference} was"
                f" {known.state}",
                hint=f"take it up again there, or take {lower} out of depends_on",
            )
        elif not known.ended:
            found[lower] = known.reference
    if missing:
        handed = [one for one in missing if book.contribution(one).handed_off]
        look = f"; of {handed[0]} it is not known yet: contribbot follow" if handed else ""
        raise OpeningError(
            f"{name}: it depends on {', '.join(missing)}, which"
            f" {'has' if len(missing) == 1 else 'have'} no pull request yet{look}",
            hint=f"open that first: contribbot open-pr {missing[0]}",
        )
    return found


def waits_for(queue: Queue, name: str) -> tuple[str, ...]:
    """Return what must be merged before a patch can be, as its pull request names it."""
    known = [(lower, state(history.read(queue.folder, lower))) for lower in queue.below(name)]
    return tuple(
        one.reference if one and one.reference else f"`{lower}` (no pull request yet)"
        for lower, one in known
        if one is None or not one.ended
    )


def digests_below(queue: Queue, name: str) -> dict[str, str]:
    """Return the digests of the patches that a patch stands on, by name, lowest first."""
    return {lower: queue.patch(lower).digest for lower in queue.below(name)}
