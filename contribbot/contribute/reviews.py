"""What is said about a pull request: threads at lines of it, comments, reviews; and answers.

All of it was written by anybody. What leaves this module is clean (no control characters,
terminal escapes or writing directions) and bounded.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from contribbot.contribute.markdown import line_of, row_of, rows_of
from contribbot.contribute.model import (
    GITHUB_LIMIT,
    Decision,
    DiscussionCursor,
    Remark,
    ReviewsReport,
    ThreadCount,
    ThreadView,
    plain_text,
)
from contribbot.contribute.publication import REPLY, Contribution, PublicationJournal, state
from contribbot.errors import MovedError, UncertainError, UsageError
from contribbot.files import lock
from contribbot.github.fields import login_of, text_of, whole
from contribbot.model.history import IntentEvent
from contribbot.queue import history
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.IssueComment import IssueComment
    from github.PullRequest import PullRequest
    from github.PullRequestComment import PullRequestComment
    from github.PullRequestReview import PullRequestReview

    from contribbot.github.client import GitHub, ReviewThread

#: Characters of a name; lines of code that a thread shows.
_NAME: Final = 60
_CODE: Final = 12
#: Comments below a pull request, and comments of one thread, that are listed without `--all`.
_LATEST: Final = 20
#: New remarks that `follow` shows, the latest; lines and characters of each; reviewers.
_SHOWN: Final = 10
_EXCERPT_ROWS: Final = 4
_EXCERPT: Final = 500
_NAMED: Final = 10
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
#: What GitHub calls the verdict of a review, in words; two decide nothing.
_VERDICTS: Final = {
    "APPROVED": "approved",
    "CHANGES_REQUESTED": "changes requested",
    "DISMISSED": "dismissed",
    "COMMENTED": "",
}
_NO_VERDICT: Final = frozenset({"COMMENTED", "PENDING"})
#: Bytes of an answer that are read: more than any text that GitHub takes has.
_BYTES: Final = 4 * GITHUB_LIMIT + 4
_DIGEST: Final = 16


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

    @property
    def line(self) -> int:
        """The line that it is about, of the change or of an earlier one."""
        return self.comments[0].line or self.comments[0].original_line or 0

    def answered(self, author: str) -> bool:
        """Return whether the last word is the author's of the pull request."""
        return _same_person(login_of(self.comments[-1].user), author)

    def view(self, author: str, *, everything: bool) -> ThreadView:
        """Return it as it is shown."""
        first = self.comments[0]
        hunk = text_of(first.diff_hunk).split("\n")
        # The line that it is about is the hunk's last.
        code = [*hunk[:1], *hunk[1:][-_CODE:]]
        return ThreadView(
            id=self.id,
            file=line_of(first.path),
            line=first.line,
            was=first.original_line,
            side="base" if first.side == "LEFT" else "change",
            resolved=self.resolved,
            outdated=self.outdated,
            answered=self.answered(author),
            # The sign of a line stands first, and its indentation stays.
            code=tuple(f"{line_of(row[:1], 1) or ' '}{row_of(row[1:])}" for row in code if row),
            comments=tuple(
                _remark(comment, thread=self.id)
                for comment in (self.comments if everything else self.comments[-_LATEST:])
            ),
        )


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


def _place(comment: PullRequestComment) -> str:
    line = comment.line or comment.original_line
    return f"{line_of(comment.path)}:{line}" if line else line_of(comment.path)


def _text(body: str | None, *, excerpt: bool) -> str:
    limits = {"rows": _EXCERPT_ROWS, "characters": _EXCERPT} if excerpt else {}
    return "\n".join(rows_of(text_of(body), **limits))


def _remark(
    comment: IssueComment | PullRequestComment, *, thread: str = "", excerpt: bool = False
) -> Remark:
    """Return a comment, clean and bounded; one at a line is of a thread."""
    return Remark(
        kind="thread" if thread else "comment",
        author=_name(login_of(comment.user)),
        at=comment.created_at,
        text=_text(comment.body, excerpt=excerpt),
        url=line_of(comment.html_url),
        thread=thread,
        place=_place(cast("PullRequestComment", comment)) if thread else "",
    )


def _review_remark(review: PullRequestReview, *, excerpt: bool = False) -> Remark:
    return Remark(
        kind="review",
        author=_name(login_of(review.user)),
        at=review.submitted_at,
        text=_text(review.body, excerpt=excerpt),
        url=line_of(review.html_url),
        verdict=_VERDICTS.get(review.state, line_of(review.state, _NAME).lower()),
    )


def _says_something(review: PullRequestReview) -> bool:
    return bool(text_of(review.body).strip()) or review.state not in _NO_VERDICT


def _when(remark: Remark) -> float:
    return remark.at.timestamp() if remark.at else 0.0


def read_reviews(
    github: GitHub, patch: str, known: Contribution, *, everything: bool = False
) -> ReviewsReport:
    """Read what is said about a pull request."""
    pull = github.pull(known.repository, known.number).complete()
    resolutions = github.review_threads(known.repository, known.number)
    threads = threads_of(whole(pull.get_review_comments()), resolutions)
    shown = [thread for thread in threads if everything or not thread.resolved]
    shown.sort(key=lambda thread: (thread.comments[0].path, thread.line, thread.root))
    remarks = [_remark(comment) for comment in whole(pull.get_issue_comments())]
    remarks += [_review_remark(review) for review in pull.get_reviews() if _says_something(review)]
    remarks.sort(key=lambda remark: (remark.at is None, _when(remark)))
    latest = remarks if everything else remarks[-_LATEST:]
    author = login_of(pull.user) or ""
    return ReviewsReport(
        patch=patch,
        reference=known.reference,
        url=line_of(pull.html_url),
        known=resolutions is not None,
        threads=tuple(thread.view(author, everything=everything) for thread in shown),
        hidden=len(threads) - len(shown),
        comments=tuple(latest),
        earlier=len(remarks) - len(latest),
    )


@dataclass(frozen=True)
class Discussion:
    """What `follow` heard: how far it is known now, and what is new."""

    cursor: DiscussionCursor
    threads: ThreadCount
    decision: Decision
    by: tuple[str, ...]
    new: tuple[Remark, ...]
    more: int


def poll_discussion(
    github: GitHub,
    repository: str,
    pull: PullRequest,
    cursor: DiscussionCursor,
    resolutions: Sequence[ReviewThread] | None,
) -> Discussion:
    """Ask what was said since.

    Comments are asked for from the time up to which they are known; what comes again
    because that second is asked for too is passed over.
    """
    issue, author = github.issue(repository, pull.number), login_of(pull.user) or ""
    comments = whole(issue.get_comments(cursor.until) if cursor.until else issue.get_comments())
    lines, judged = whole(pull.get_review_comments()), tuple(pull.get_reviews())
    threads = threads_of(lines, resolutions)
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
                yield _excerpt(comment, before=before)
        for line in lines:
            if news(f"l{line.id}", login_of(line.user)):
                yield _excerpt(line, before=f"l{line.id}" in seen, thread=thread_of[line.id])
        for review in judged:
            if news(f"r{review.id}", login_of(review.user)) and _says_something(review):
                changed = {"changed": f"r{review.id}" in seen}
                yield _review_remark(review, excerpt=True).model_copy(update=changed)

    new = sorted(fresh(), key=_when)
    known = [*(comment.updated_at for comment in comments), *filter(None, [cursor.until])]
    until: datetime | None = max(known, default=None)
    last = until.isoformat() if until else ""
    kept = {
        key: at for key, at in (seen | times).items() if key.startswith("c") and at == last
    }  # those of the last second come again
    decided, by = _decision(judged, author)
    return Discussion(
        cursor=DiscussionCursor(until=until, seen=kept | others),
        threads=count_threads(threads, author, known=resolutions is not None),
        decision=decided,
        by=by,
        new=tuple(new[-_SHOWN:]),
        more=max(0, len(new) - _SHOWN),
    )


def _excerpt(
    comment: IssueComment | PullRequestComment, *, before: bool, thread: str = ""
) -> Remark:
    """Return a comment as news; one that was known before is told as changed."""
    remark = _remark(comment, thread=thread, excerpt=True)
    if before and comment.updated_at > comment.created_at:
        return remark.model_copy(update={"changed": True, "at": comment.updated_at})
    return remark


def count_threads(threads: Sequence[CommentThread], author: str, *, known: bool) -> ThreadCount:
    """Count threads."""
    left = [thread for thread in threads if not thread.resolved]
    answered = sum(thread.answered(author) for thread in left)
    return ThreadCount(
        open=len(left) - answered,
        answered=answered,
        resolved=len(threads) - len(left),
        known=known,
    )


def _decision(judged: Sequence[PullRequestReview], author: str) -> tuple[Decision, tuple[str, ...]]:
    """Say what the reviewers decided: of each the last word that is one.

    Whether their word counts for the upstream is not known: anybody may approve.
    """
    last: dict[str, str] = {}
    for review in judged:
        who = login_of(review.user)
        if not _same_person(who, author) and review.state not in _NO_VERDICT:
            last[_name(who)] = review.state
    decisions: tuple[tuple[str, Decision], ...] = (
        ("CHANGES_REQUESTED", "changes requested"),
        ("APPROVED", "approved"),
    )
    for verdict, decision in decisions:
        if names := [name for name, word in last.items() if word == verdict]:
            return decision, tuple(names[:_NAMED])
    return "none", ()


@dataclass(frozen=True)
class Replied:
    """What was done; `posted`: now, else it was there already."""

    thread: str
    url: str
    posted: bool


def contribution_of(queue: Queue, name: str) -> Contribution:
    """Return how far a patch is on GitHub, which must be a pull request."""
    known = state(history.read(queue.folder, name))
    if known is not None and known.reference:
        return known
    hint = f"open it first: contribbot open-pr {name}"
    if known is not None and known.handed_off:
        hint = "a person was to open it: contribbot follow"
    raise UsageError(f"{name}: no pull request of it is known", hint=hint)


def read_text(file: Path) -> str:
    """Read the text of an answer."""
    try:
        if str(file) == "-":
            return text_from(sys.stdin.buffer.read(_BYTES), "standard input")
        with file.open("rb") as stream:
            return text_from(stream.read(_BYTES), str(file))
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror or error}", hint="name the file that holds your answer"
        ) from error


def text_from(content: bytes, place: str) -> str:
    """Return the text of an answer."""
    too_long = UsageError(
        f"{place}: more than the {GITHUB_LIMIT} characters that GitHub takes", hint="shorten it"
    )
    if len(content) >= _BYTES:
        raise too_long
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{place}: not UTF-8 at byte {error.start}", hint="save it as UTF-8"
        ) from None
    if len(text) > GITHUB_LIMIT:
        raise too_long
    if not text.strip():
        raise UsageError(f"{place}: nothing is written there", hint="write the answer into it")
    odd = next((char for char in text if ord(char) < ord(" ") and char not in "\n\t\r"), None)
    if odd is not None:
        raise UsageError(
            f"{place}: it holds the control character U+{ord(odd):04X}", hint="take it out"
        )
    return text


def reply(queue: Queue, github: GitHub, name: str, thread: str, text: str) -> Replied:
    """Answer in a thread, once."""
    # Two at once would each find that it is not there yet.
    with lock(queue.local / "reply.lock", "answering"):
        return _reply(queue, github, name, thread, text)


def _reply(queue: Queue, github: GitHub, name: str, thread_id: str, text: str) -> Replied:
    known = contribution_of(queue, name)
    thread = _thread_of(github, known, name, thread_id)
    me, journal, summary = github.me, PublicationJournal(queue), f"answered in {known.reference}"
    digest = hashlib.sha256(plain_text(text).encode()).hexdigest()[:_DIGEST]
    stem = f"{known.reference} {thread_id} {digest} after "
    begun = [i for i in known.open if i.what == REPLY and i.key.startswith(stem)]
    for intent in begun:
        # A crash came between: it may be there.
        ours = _ours(thread, text, me, after=int(intent.key.removeprefix(stem)))
        if ours is not None:
            journal.done(name, intent, summary, url=line_of(ours.html_url))
            return Replied(thread_id, line_of(ours.html_url), posted=False)
    last = thread.comments[-1]
    if _says(last, text, me):
        return Replied(thread_id, line_of(last.html_url), posted=False)
    if all(comment.id != thread.root for comment in thread.comments):
        raise UsageError(
            f"{known.reference}: thread {thread.id}: the comment that began it is gone, and"
            " GitHub takes answers to that one alone",
            hint=f"answer on its page: {line_of(last.html_url)}",
        )
    intent = IntentEvent(
        time=history.now(),
        summary=f"about to answer in thread {thread_id} of {known.reference}",
        what=REPLY,
        key=begun[-1].key if begun else f"{stem}{max(c.id for c in thread.comments)}",
        reference=known.reference,
    )
    if not begun:
        journal.note(name, intent)
    try:
        posted = _post(github, known, thread.root, text)
    except UncertainError:
        again = _thread_of(github, known, name, thread_id)
        ours = _ours(again, text, me, after=int(intent.key.removeprefix(stem)))
        if ours is None:
            raise
        posted = ours
    url = line_of(posted.html_url)
    journal.done(name, intent, summary, url=url)
    return Replied(thread_id, url, posted=True)


def _post(github: GitHub, known: Contribution, root: int, text: str) -> PullRequestComment:
    """Post an answer; where the upstream was renamed, under the name that it has now.

    A write follows no redirect: nothing was posted, and it may be sent again.
    """
    try:
        return github.pull(known.repository, known.number).create_review_comment_reply(root, text)
    except MovedError:
        now = github.repository(known.repository).complete().full_name
    return github.pull(now, known.number).create_review_comment_reply(root, text)


def _thread_of(github: GitHub, known: Contribution, name: str, thread_id: str) -> CommentThread:
    """Return the thread that a person means."""
    pull = github.pull(known.repository, known.number)
    threads = threads_of(whole(pull.get_review_comments()), None)
    by_id = {thread.id: thread for thread in threads}
    if thread_id in by_id:
        return by_id[thread_id]
    listed = [f"{id_} ({_place(thread.comments[0])})" for id_, thread in by_id.items()]
    if len(listed) > _CODE:
        listed[_CODE:] = [f"and {len(listed) - _CODE} more"]
    raise UsageError(
        f"{known.reference}: no thread {line_of(thread_id, 40)}",
        hint=f"it has {', '.join(listed)}; see contribbot reviews {name} --all"
        if listed
        else "nobody has begun one; comments below the pull request are answered on its page",
    )


def _ours(thread: CommentThread, text: str, me: str, *, after: int) -> PullRequestComment | None:
    """Return our reply with that text behind a comment, if it is there."""
    later = (comment for comment in thread.comments if comment.id > after)
    return next((comment for comment in later if _says(comment, text, me)), None)


def _says(comment: PullRequestComment, text: str, me: str) -> bool:
    same = plain_text(text_of(comment.body)) == plain_text(text)
    return same and _same_person(login_of(comment.user), me)
