"""What is new in what people say about a pull request, and what the reviewers decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from contribbot.contribute.following.threads import (
    Thread,
    name_of,
    remark,
    review_remark,
    same_person,
    threads_of,
)
from contribbot.github.protocol import Reader
from contribbot.model.discussion import Comment, Review, ReviewThread
from contribbot.model.follow import Remark, ThreadCount
from contribbot.model.github import PullRequest

#: New remarks that are shown, the latest, and how much of each.
_SHOWN: Final = 10
_ROWS: Final = 4
_CHARACTERS: Final = 500
#: Reviewers that are named.
_NAMED: Final = 10
#: What a review is called that decides nothing.
_NO_VERDICT: Final = frozenset({"COMMENTED", "PENDING"})

Decision = Literal["approved", "changes requested", "none"]


@dataclass(frozen=True)
class Talk:
    """How far the talk is known.

    Attributes:
        until: When the last comment was written or changed.
        seen: What was seen: its id, and when it was last changed.
    """

    until: datetime | None = None
    seen: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Heard:
    """What was heard.

    Attributes:
        talk: How far the talk is known now.
        threads: How many threads there are.
        reviews: All reviews.
        new: What is new, the latest of it.
        more: How much more is new.
    """

    talk: Talk
    threads: ThreadCount
    reviews: tuple[Review, ...]
    new: tuple[Remark, ...]
    more: int


def listen(
    github: Reader,
    repository: str,
    pull: PullRequest,
    talk: Talk,
    told: Sequence[ReviewThread] | None,
) -> Heard:
    """Ask what was said.

    Comments are asked for from the time up to which they are known; what comes again
    because that second is asked for too is passed over.

    Args:
        github: Reads from GitHub.
        repository: Where the pull request is.
        pull: It.
        talk: How far the talk is known.
        told: What GitHub says of its threads, where it does.

    Raises:
        GitHubError: It cannot be read.
    """
    author = pull.user or ""
    reviews = github.reviews(repository, pull.number)
    lines = github.review_comments(repository, pull.number)
    comments = github.comments(repository, pull.number, talk.until)
    threads = threads_of(lines, told)
    ids = {one.id: thread.id for thread in threads for one in thread.comments}
    seen: dict[str, str] = {}

    def news(key: str, changed: str, who: str | None) -> bool:
        seen[key] = changed
        return talk.seen.get(key) != changed and not same_person(who, author)

    new = [
        remark(one, rows=_ROWS, characters=_CHARACTERS)
        for one in comments
        if news(f"c{one.id}", _time(one), one.user)
    ]
    new += [
        remark(one, rows=_ROWS, characters=_CHARACTERS, thread=ids.get(one.id, ""))
        for one in lines
        if news(f"l{one.id}", _time(one), one.user)
    ]
    new += [
        review_remark(one, rows=_ROWS, characters=_CHARACTERS)
        for one in reviews
        if news(f"r{one.id}", one.state, one.user)
        and (one.body.strip() or one.state not in _NO_VERDICT)
    ]
    times = [one.updated_at for one in comments]
    until = max([*times, *([talk.until] if talk.until else [])], default=None)
    # Of the comments only those of the last second come again.
    last = until.isoformat() if until else ""
    kept = {key: at for key, at in talk.seen.items() if key[:1] == "c" and at == last}
    now = {key: at for key, at in seen.items() if key[:1] != "c" or at == last}
    new.sort(key=lambda one: one.at.timestamp() if one.at else 0.0)
    return Heard(
        talk=Talk(until, kept | now),
        threads=count(threads, author, known=told is not None),
        reviews=reviews,
        new=tuple(new[-_SHOWN:]),
        more=max(0, len(new) - _SHOWN),
    )


def _time(comment: Comment) -> str:
    return comment.updated_at.isoformat()


def count(threads: Sequence[Thread], author: str, *, known: bool) -> ThreadCount:
    """Count threads.

    Args:
        threads: The threads.
        author: Who opened the pull request.
        known: Whether GitHub says which are resolved.
    """
    left = [one for one in threads if not one.resolved]
    answered = sum(one.answered(author) for one in left)
    return ThreadCount(
        open=len(left) - answered,
        answered=answered,
        resolved=len(threads) - len(left),
        known=known,
    )


def counted(
    github: Reader, repository: str, pull: PullRequest, told: Sequence[ReviewThread]
) -> ThreadCount:
    """Ask which threads there are, and nothing else.

    Args:
        github: Reads from GitHub.
        repository: Where the pull request is.
        pull: It.
        told: What GitHub says of its threads.

    Raises:
        GitHubError: It cannot be read.
    """
    threads = threads_of(github.review_comments(repository, pull.number), told)
    return count(threads, pull.user or "", known=True)


def decision(reviews: Sequence[Review], author: str) -> tuple[Decision, tuple[str, ...]]:
    """Say what the reviewers decided: of each the last word that is one.

    Whether their word counts for the upstream is not known: anybody may approve.

    Args:
        reviews: All reviews, oldest first.
        author: Who opened the pull request.
    """
    last: dict[str, str] = {}
    for one in reviews:
        if not same_person(one.user, author) and one.state not in _NO_VERDICT:
            last[name_of(one.user)] = one.state
    against = [name for name, state in last.items() if state == "CHANGES_REQUESTED"]
    if against:
        return "changes requested", tuple(against[:_NAMED])
    favour = [name for name, state in last.items() if state == "APPROVED"]
    return ("approved", tuple(favour[:_NAMED])) if favour else ("none", ())
