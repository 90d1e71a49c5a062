"""The remarks on a pull request, clean and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from contribbot.contribute.model import (
    DiscussionCursor,
    Remark,
    ReviewsReport,
    ThreadCount,
    ThreadView,
)
from contribbot.contribute.publication import Publication, state
from contribbot.errors import UsageError
from contribbot.github.fields import login_of, whole
from contribbot.github.pull_state import read_pull_state
from contribbot.markdown import line_of, row_of, rows_of
from contribbot.queue import history
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.IssueComment import IssueComment
    from github.PullRequestComment import PullRequestComment
    from github.PullRequestReview import PullRequestReview

    from contribbot.github.client import GitHub
    from contribbot.github.pull_state import PullState, ReviewThread

_NAME: Final = 60
_CODE: Final = 12
#: Comments below a pull request, and comments of one thread, that are listed without `--all`.
_LATEST: Final = 20
#: New remarks that `follow` shows, the latest; lines and characters of each; reviewers.
_SHOWN: Final = 10
_EXCERPT_ROWS: Final = 4
_EXCERPT: Final = 500
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
#: GitHub's verdicts of a review in words; two decide nothing.
_VERDICTS: Final = {"CHANGES_REQUESTED": "changes requested", "COMMENTED": ""}
_NO_VERDICT: Final = frozenset({"COMMENTED", "PENDING"})


@dataclass(frozen=True)
class CommentThread:
    """A thread of review comments; whether it is resolved or outdated may not be known."""

    root: int
    comments: tuple[PullRequestComment, ...]
    resolved: bool | None = None
    outdated: bool | None = None

    @property
    def id(self) -> str:
        """Its short id: the number of its first comment in base 36, so that it stays."""
        return short_id(self.root)

    def answered(self, author: str) -> bool:
        """Return whether the last word is the author's of the pull request."""
        return _same_person(login_of(self.comments[-1].user), author)

    def view(self, author: str, *, everything: bool) -> ThreadView:
        """Return it as it is shown."""
        first = self.comments[0]
        hunk = (first.diff_hunk or "").split("\n")
        code = [*hunk[:1], *hunk[1:][-_CODE:]]
        comments = self.comments if everything else self.comments[-_LATEST:]
        return ThreadView(
            id=self.id, file=line_of(first.path), line=first.line, was=first.original_line,
            side="base" if first.side == "LEFT" else "change", resolved=self.resolved,
            outdated=self.outdated, answered=self.answered(author),
            # The sign of a line stands first, and its indentation stays.
            code=tuple(f"{line_of(row[:1], 1) or ' '}{row_of(row[1:])}" for row in code if row),
            comments=tuple(_line_comment(comment, self.id) for comment in comments),
        )  # fmt: skip


def short_id(number: int) -> str:
    """Return a number in base 36."""
    digits = _DIGITS[number % 36]
    while number := number // 36:
        digits = _DIGITS[number % 36] + digits
    return digits


def threads_of(
    comments: Sequence[PullRequestComment], resolutions: Sequence[ReviewThread] | None
) -> tuple[CommentThread, ...]:
    """Put review comments together as threads, oldest first; what began one may be deleted."""
    by_root: dict[int, list[PullRequestComment]] = {}
    for comment in sorted(comments, key=lambda comment: (comment.created_at, comment.id)):
        by_root.setdefault(comment.in_reply_to_id or comment.id, []).append(comment)
    known = {thread.first: thread for thread in resolutions or ()}
    threads = []
    for root, thread in sorted(by_root.items()):
        said = known.get(root) or known.get(thread[0].id)
        resolved, outdated = (said.resolved, said.outdated) if said else (None, None)
        threads.append(CommentThread(root, tuple(thread), resolved, outdated))
    return tuple(threads)


def _same_person(login: str | None, other: str | None) -> bool:
    """Return whether two logins are of one account; none is nobody's."""
    return login is not None and other is not None and login.lower() == other.lower()


def _name(login: str | None) -> str:
    return line_of(login, _NAME) if login else "(an account that is gone)"


def _line(comment: PullRequestComment) -> int:
    """Return the line that it is about, of the change or of an earlier one."""
    return comment.line or comment.original_line or 0


def _place(comment: PullRequestComment) -> str:
    line = _line(comment)
    return f"{line_of(comment.path)}:{line}" if line else line_of(comment.path)


def _remark(
    item: IssueComment | PullRequestComment | PullRequestReview, *, excerpt: bool, **more: object
) -> Remark:
    """Return what somebody said, clean and bounded."""
    limits = {"rows": _EXCERPT_ROWS, "characters": _EXCERPT} if excerpt else {}
    more |= {"author": _name(login_of(item.user)), "url": line_of(item.html_url)}
    return Remark.model_validate(more | {"text": "\n".join(rows_of(item.body or "", **limits))})


def _comment(comment: IssueComment, *, excerpt: bool = False) -> Remark:
    return _remark(comment, excerpt=excerpt, kind="comment", at=comment.created_at)


def _line_comment(comment: PullRequestComment, thread: str, *, excerpt: bool = False) -> Remark:
    at, place = comment.created_at, _place(comment)
    return _remark(comment, excerpt=excerpt, kind="thread", at=at, thread=thread, place=place)


def _review(review: PullRequestReview, *, excerpt: bool = False) -> Remark:
    verdict = _VERDICTS.get(review.state, line_of(review.state, _NAME).lower())
    at = review.submitted_at
    return _remark(review, excerpt=excerpt, kind="review", at=at, verdict=verdict)


def _says_something(review: PullRequestReview) -> bool:
    return bool((review.body or "").strip()) or review.state not in _NO_VERDICT


def _when(remark: Remark) -> float:
    return remark.at.timestamp() if remark.at else 0.0


def read_reviews(
    github: GitHub, patch: str, known: Publication, *, everything: bool = False
) -> ReviewsReport:
    """Read what is said about a pull request."""
    pull = read_pull_state(github, known.repository, known.number)
    handle = github.pull(known.repository, known.number)
    threads = threads_of(whole(handle.get_review_comments()), pull.threads)
    shown = [thread for thread in threads if everything or not thread.resolved]
    shown.sort(key=lambda t: (t.comments[0].path, _line(t.comments[0]), t.root))
    remarks = [_comment(comment) for comment in whole(handle.get_issue_comments())]
    remarks += [_review(review) for review in handle.get_reviews() if _says_something(review)]
    remarks.sort(key=lambda remark: (remark.at is None, _when(remark)))
    latest = remarks if everything else remarks[-_LATEST:]
    return ReviewsReport(
        patch=patch, reference=known.reference, url=line_of(pull.url),
        known=pull.threads is not None, hidden=len(threads) - len(shown),
        threads=tuple(thread.view(pull.author, everything=everything) for thread in shown),
        comments=tuple(latest), earlier=len(remarks) - len(latest),
    )  # fmt: skip


def poll_discussion(
    github: GitHub, repository: str, pull: PullState, cursor: DiscussionCursor
) -> tuple[DiscussionCursor, dict[str, object]]:
    """Read the remarks since a cursor; return the next cursor, and the fields of `Followed`."""
    handle, author = github.pull(repository, pull.number), pull.author
    issue = github.issue(repository, pull.number)
    comments = whole(issue.get_comments(cursor.until) if cursor.until else issue.get_comments())
    lines, judged = whole(handle.get_review_comments()), tuple(handle.get_reviews())
    threads = threads_of(lines, pull.threads)
    thread_of = {comment.id: thread.id for thread in threads for comment in thread.comments}
    # When each was last changed; of a review what it says.
    times = {f"c{comment.id}": comment.updated_at.isoformat() for comment in comments}
    others = {f"l{comment.id}": comment.updated_at.isoformat() for comment in lines}
    others |= {f"r{review.id}": review.state for review in judged}
    seen = cursor.seen

    def news(key: str, who: str | None) -> bool:
        return seen.get(key) != (times | others)[key] and not _same_person(who, author)

    def fresh() -> Iterator[Remark]:
        for comment in comments:
            if news(f"c{comment.id}", login_of(comment.user)):
                # Of these only the last second's are kept: an older one came in its time.
                before = cursor.until is not None and comment.created_at <= cursor.until
                yield _told(_comment(comment, excerpt=True), comment, before=before)
        for line in lines:
            if news(f"l{line.id}", login_of(line.user)):
                remark = _line_comment(line, thread_of[line.id], excerpt=True)
                yield _told(remark, line, before=f"l{line.id}" in seen)
        for review in judged:
            if news(f"r{review.id}", login_of(review.user)) and _says_something(review):
                changed = {"changed": f"r{review.id}" in seen}
                yield _review(review, excerpt=True).model_copy(update=changed)

    new = sorted(fresh(), key=_when)
    known = [*(comment.updated_at for comment in comments), *filter(None, [cursor.until])]
    until: datetime | None = max(known, default=None)
    last = until.isoformat() if until else ""
    kept = {
        key: at for key, at in (seen | times).items() if key.startswith("c") and at == last
    }  # those of the last second come again
    told = {"new": tuple(new[-_SHOWN:]), "more": max(0, len(new) - _SHOWN)}
    count = _count_threads(threads, author, known=pull.threads is not None)
    return DiscussionCursor(until=until, seen=kept | others), told | {"threads": count}


def _told(remark: Remark, comment: IssueComment | PullRequestComment, *, before: bool) -> Remark:
    """Return a comment as news; one that was known before is told as changed."""
    if before and comment.updated_at > comment.created_at:
        return remark.model_copy(update={"changed": True, "at": comment.updated_at})
    return remark


def _count_threads(threads: Sequence[CommentThread], author: str, *, known: bool) -> ThreadCount:
    """Count threads."""
    left = [thread for thread in threads if not thread.resolved]
    answered = sum(thread.answered(author) for thread in left)
    resolved = len(threads) - len(left)
    return ThreadCount(open=len(left) - answered, answered=answered, resolved=resolved, known=known)


def publication_of(queue: Queue, name: str) -> Publication:
    """Return how far a patch is on GitHub, which must be a pull request."""
    known = state(history.read(queue.folder, name))
    if known is not None and known.reference:
        return known
    hint = f"open it first: contribbot open-pr {name}"
    if known is not None and known.handed_off:
        hint = "a person was to open it: contribbot follow"
    raise UsageError(f"{name}: no pull request of it is known", hint=hint)
