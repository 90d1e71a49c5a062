"""Writing into the journal what became of a pull request, each change once."""

from __future__ import annotations

from dataclasses import dataclass

from contribbot.contribute.state import Contribution, state
from contribbot.model.history import PullRequestEvent
from contribbot.queue import history
from contribbot.queue.load import Queue


@dataclass(frozen=True)
class Sight:
    """What was seen of a pull request."""

    #: It, as `owner/name#number`.
    reference: str
    word: str
    #: How it came to that, as `Landing.words`; or empty.
    why: str
    head: str


def note(queue: Queue, patch: str, seen: Sight) -> str:
    """Write a change of state to the journal."""
    # Nothing is written, and nobody waited for, where there is no news.
    if not _is_news(_known(queue, patch), seen):
        return ""
    with history.held(queue.folder):
        # Read anew: another contribbot may have noted it meanwhile.
        now = _known(queue, patch)
        if not _is_news(now, seen):
            return ""
        event = PullRequestEvent(
            time=history.now(),
            summary=f"{seen.reference} {_words(now, seen)}",
            reference=seen.reference,
            state=seen.word,
            fork=now.fork or None,
            branch=now.branch or None,
            head=seen.head,
        )
        history.append_held(queue.folder, patch, event)
    return now.state or "not opened"


def _known(queue: Queue, patch: str) -> Contribution:
    return state(history.read(queue.folder, patch)) or Contribution()


def _is_news(now: Contribution, seen: Sight) -> bool:
    if now.reference and now.reference != seen.reference:
        return False
    return (now.reference, now.state) != (seen.reference, seen.word)


def _words(was: Contribution, seen: Sight) -> str:
    """Say what happened, behind the name of the pull request."""
    again = " again" if was.ended else ""
    words = {
        "draft": f"is a draft{again}",
        "open": f"is open{again}",
        "merged": f"was {seen.why or 'merged'}",
        "reverted": f"was {seen.why or 'reverted'}",
        "closed": f"is closed: {seen.why}" if seen.why else "was closed without being merged",
    }.get(seen.word, f"is {seen.word}")
    if was.reference:
        return words
    # One that contribbot opened itself, and then lost the answer, is found in the same way.
    return f"was opened{' by a person' if was.handed_off else ''}; it {words}"
