"""What is new in what people say about a pull request, and what the reviewers decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from contribbot.contribute.following.threads import (
    Thread,
    name_of,
    remark,
    review_remark,
    same_person,
    threads_of,
)
from contribbot.github.fields import login_of, text_of, whole
from contribbot.model.follow import Remark, ThreadCount

if TYPE_CHECKING:
    from github.IssueComment import IssueComment
    from github.PullRequest import PullRequest
    from github.PullRequestComment import PullRequestComment
    from github.PullRequestReview import PullRequestReview

    from contribbot.github.client import GitHub, ReviewThread

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
    """How far the talk is known."""

    until: datetime | None = None
    #: What was seen: its id, and when it was last changed.
    seen: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Heard:
    """What was heard."""

    talk: Talk
    threads: ThreadCount
    reviews: tuple[PullRequestReview, ...]
    new: tuple[Remark, ...]
    more: int


@dataclass(frozen=True)
class _Said:
    """What GitHub gives of a pull request's talk; of the comments only the latest."""

    reviews: Sequence[PullRequestReview]
    lines: Sequence[PullRequestComment]
    #: The comments below it, from the time up to which the talk is known.
    comments: Sequence[IssueComment]

    @property
    def seen(self) -> dict[str, str]:
        """When each was last changed, by its id; of a review what it says."""
        return {
            **{f"c{one.id}": _time(one) for one in self.comments},
            **{f"l{one.id}": _time(one) for one in self.lines},
            **{f"r{one.id}": one.state for one in self.reviews},
        }


def listen(
    github: GitHub,
    repository: str,
    pull: PullRequest,
    talk: Talk,
    told: Sequence[ReviewThread] | None,
) -> Heard:
    """Ask what was said.

    Comments are asked for from the time up to which they are known; what comes again
    because that second is asked for too is passed over.
    """
    author = login_of(pull.user) or ""
    issue = github.issue(repository, pull.number)
    listed = issue.get_comments(talk.until) if talk.until else issue.get_comments()
    said = _Said(
        reviews=tuple(pull.get_reviews()),
        lines=whole(pull.get_review_comments()),
        comments=whole(listed),
    )
    threads = threads_of(said.lines, told)
    new = _new(said, threads, talk, author)
    return Heard(
        talk=_known_now(said, talk),
        threads=count(threads, author, known=told is not None),
        reviews=tuple(said.reviews),
        new=tuple(new[-_SHOWN:]),
        more=max(0, len(new) - _SHOWN),
    )


def _new(said: _Said, threads: Sequence[Thread], talk: Talk, author: str) -> list[Remark]:
    """Return what others said, or changed, since the talk was known; the latest last."""
    ids = {one.id: thread.id for thread in threads for one in thread.comments}
    now = said.seen

    def news(key: str, who: str | None) -> bool:
        return talk.seen.get(key) != now[key] and not same_person(who, author)

    def told(one: IssueComment | PullRequestComment, *, before: bool, thread: str = "") -> Remark:
        shown = remark(one, rows=_ROWS, characters=_CHARACTERS, thread=thread)
        changed = before and one.updated_at > one.created_at
        return shown.model_copy(update={"changed": True, "at": one.updated_at} if changed else {})

    new = [
        # Of those below it only the last second's are kept: an older one came in its time.
        told(one, before=talk.until is not None and one.created_at <= talk.until)
        for one in said.comments
        if news(f"c{one.id}", login_of(one.user))
    ]
    new += [
        told(one, before=f"l{one.id}" in talk.seen, thread=ids.get(one.id, ""))
        for one in said.lines
        if news(f"l{one.id}", login_of(one.user))
    ]
    new += [
        review_remark(one, rows=_ROWS, characters=_CHARACTERS).model_copy(
            update={"changed": f"r{one.id}" in talk.seen}
        )
        for one in said.reviews
        if news(f"r{one.id}", login_of(one.user))
        and (text_of(one.body).strip() or one.state not in _NO_VERDICT)
    ]
    new.sort(key=lambda one: one.at.timestamp() if one.at else 0.0)
    return new


def _known_now(said: _Said, talk: Talk) -> Talk:
    """Return how far the talk is known: of comments only those of the last second come again."""
    times = [one.updated_at for one in said.comments]
    until = max([*times, *([talk.until] if talk.until else [])], default=None)
    last = until.isoformat() if until else ""
    kept = {key: at for key, at in talk.seen.items() if key[:1] == "c" and at == last}
    now = {key: at for key, at in said.seen.items() if key[:1] != "c" or at == last}
    return Talk(until, kept | now)


def _time(comment: IssueComment | PullRequestComment) -> str:
    return comment.updated_at.isoformat()


def count(threads: Sequence[Thread], author: str, *, known: bool) -> ThreadCount:
    """Count threads."""
    left = [one for one in threads if not one.resolved]
    answered = sum(one.answered(author) for one in left)
    return ThreadCount(
        open=len(left) - answered,
        answered=answered,
        resolved=len(threads) - len(left),
        known=known,
    )


def counted(pull: PullRequest, told: Sequence[ReviewThread]) -> ThreadCount:
    """Ask which threads there are, and nothing else."""
    threads = threads_of(whole(pull.get_review_comments()), told)
    return count(threads, login_of(pull.user) or "", known=True)


def decision(reviews: Sequence[PullRequestReview], author: str) -> tuple[Decision, tuple[str, ...]]:
    """Say what the reviewers decided: of each the last word that is one.

    Whether their word counts for the upstream is not known: anybody may approve.
    """
    last: dict[str, str] = {}
    for one in reviews:
        who = login_of(one.user)
        if not same_person(who, author) and one.state not in _NO_VERDICT:
            last[name_of(who)] = one.state
    against = [name for name, state in last.items() if state == "CHANGES_REQUESTED"]
    if against:
        return "changes requested", tuple(against[:_NAMED])
    favour = [name for name, state in last.items() if state == "APPROVED"]
    return ("approved", tuple(favour[:_NAMED])) if favour else ("none", ())
