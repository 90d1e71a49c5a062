"""What is said about a pull request: threads at lines of it, comments, reviews.

All of it was written by anybody. What leaves this module is clean (no control characters,
terminal escapes or writing directions) and bounded.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from contribbot.contribute.markdown import shortened
from contribbot.contribute.model import GITHUB_LIMIT, Remark, ReviewsReport, ThreadCount, ThreadView
from contribbot.contribute.publication import Book, Contribution, state
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


#: Characters of a name, of a line, and of a text that are shown; lines of a text and of code.
NAME: Final = 60
LINE: Final = 300
_TEXT: Final = 6000
_ROWS: Final = 60
_CODE: Final = 12
#: Comments below a pull request, and comments of one thread, that are listed without `--all`.
_LATEST: Final = 20
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_LEFT: Final = "LEFT"
#: What GitHub calls the verdict of a review, in words.
_VERDICTS: Final = {
    "APPROVED": "approved",
    "CHANGES_REQUESTED": "changes requested",
    "DISMISSED": "dismissed",
    "COMMENTED": "",
}


@dataclass(frozen=True)
class Thread:
    """A thread of review comments."""

    root: int
    comments: tuple[PullRequestComment, ...]
    #: Whether it is resolved; None: not known.
    resolved: bool | None = None
    #: Whether its lines have changed; None: not known.
    outdated: bool | None = None

    @property
    def id(self) -> str:
        """Its short id: the number of its first comment in base 36, so that it stays."""
        return short_id(self.root)

    def answered(self, author: str) -> bool:
        """Return whether the last word is the author's of the pull request."""
        return same_person(login_of(self.comments[-1].user), author)


def short_id(number: int) -> str:
    """Return a number in base 36."""
    digits = ""
    while True:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
        if number <= 0:
            return digits


def same_person(one: str | None, other: str | None) -> bool:
    """Return whether two logins are of one account; none is nobody's."""
    return one is not None and other is not None and one.lower() == other.lower()


def line_of(text: str, limit: int = LINE) -> str:
    """Return foreign text as one clean line of bounded length."""
    # Cut before it is searched: what cleans must not be given work without end.
    return shortened(text[: 8 * limit], limit)


def rows_of(text: str, *, rows: int = _ROWS, characters: int = _TEXT) -> list[str]:
    """Return foreign text as clean lines, bounded in number and length."""
    told = text[:characters]
    # Not `splitlines`: other line ends than these are no line ends to a terminal.
    found = [
        line_of(row.expandtabs(4)) if not row[:1].isspace() else _indented(row)
        for row in told.replace("\r\n", "\n").replace("\r", "\n").strip("\n").split("\n")
    ]
    if len(found) > rows or len(text) > characters:
        found = [*found[:rows], "… (more on its page)"]
    return found


def _indented(row: str) -> str:
    wide = row.expandtabs(4)
    inner = line_of(wide)
    depth = min(len(wide) - len(wide.lstrip(" ")), 40)
    return f"{' ' * depth}{inner}" if inner else ""


def threads_of(
    comments: Sequence[PullRequestComment], told: Sequence[ReviewThread] | None
) -> tuple[Thread, ...]:
    """Put review comments together as threads, oldest first."""
    above = {one.id: one.in_reply_to_id for one in comments}
    by_root: dict[int, list[PullRequestComment]] = {}
    for one in sorted(comments, key=lambda one: (one.created_at, one.id)):
        by_root.setdefault(_root(one.id, above), []).append(one)
    known = {one.first: one for one in told or () if one.first is not None}
    found = []
    for root, said in sorted(by_root.items()):
        state = known.get(root) or known.get(said[0].id)
        found.append(
            Thread(
                root,
                tuple(said),
                None if state is None else state.resolved,
                None if state is None else state.outdated,
            )
        )
    return tuple(found)


def _root(number: int, above: Mapping[int, int | None]) -> int:
    """Follow answers up to what began the thread; it may be deleted, or (never seen) a circle."""
    seen = {number}
    while (higher := above.get(number)) is not None and higher not in seen:
        seen.add(higher)
        number = higher
    return number


def remark(
    said: IssueComment | PullRequestComment,
    *,
    rows: int = _ROWS,
    characters: int = _TEXT,
    thread: str = "",
) -> Remark:
    """Return a comment, clean and bounded; one at a line is of a thread."""
    return Remark(
        kind="thread" if thread else "comment",
        author=name_of(login_of(said.user)),
        at=said.created_at,
        text="\n".join(rows_of(text_of(said.body), rows=rows, characters=characters)),
        url=line_of(said.html_url),
        thread=thread,
        place=_place(cast("PullRequestComment", said)) if thread else "",
    )


def review_remark(said: PullRequestReview, *, rows: int = _ROWS, characters: int = _TEXT) -> Remark:
    """Return a review, clean and bounded; see `remark`."""
    return Remark(
        kind="review",
        author=name_of(login_of(said.user)),
        at=said.submitted_at,
        text="\n".join(rows_of(text_of(said.body), rows=rows, characters=characters)),
        url=line_of(said.html_url),
        verdict=_VERDICTS.get(said.state, line_of(said.state, NAME).lower()),
    )


def name_of(login: str | None) -> str:
    """Return who somebody is, in one short clean line."""
    return line_of(login, NAME) if login else "(an account that is gone)"


def _place(said: PullRequestComment) -> str:
    line = said.line or said.original_line
    return f"{line_of(said.path)}:{line}" if line else line_of(said.path)


def view(thread: Thread, author: str, *, everything: bool = False) -> ThreadView:
    """Return a thread as it is shown."""
    first = thread.comments[0]
    said = thread.comments if everything else thread.comments[-_LATEST:]
    hunk = text_of(first.diff_hunk).split("\n")
    # The line that it is about is the hunk's last.
    code = [*hunk[:1], *hunk[1:][-_CODE:]]
    return ThreadView(
        id=thread.id,
        file=line_of(first.path),
        line=first.line,
        was=first.original_line,
        side="base" if first.side == _LEFT else "change",
        resolved=thread.resolved,
        outdated=thread.outdated,
        answered=thread.answered(author),
        code=tuple(_code(row) for row in code if row),
        comments=tuple(remark(one, thread=thread.id) for one in said),
    )


def _code(row: str) -> str:
    """Return a line of a diff: its sign stands first, and its indentation stays."""
    return f"{line_of(row[:1], 1) or ' '}{_indented(row[1 : 8 * LINE])}"


def reviews(
    github: GitHub, patch: str, repository: str, number: int, *, everything: bool = False
) -> ReviewsReport:
    """Read what is said about a pull request."""
    pull = github.pull(repository, number).complete()
    told = github.review_threads(repository, number)
    found = threads_of(whole(pull.get_review_comments()), told)
    shown = [one for one in found if everything or not one.resolved]
    shown.sort(key=lambda one: (one.comments[0].path, _line(one), one.root))
    said = [
        *(remark(one) for one in whole(pull.get_issue_comments())),
        *(
            review_remark(one)
            for one in pull.get_reviews()
            if text_of(one.body).strip() or _VERDICTS.get(one.state, "x")
        ),
    ]
    said.sort(key=lambda one: (one.at is None, one.at.timestamp() if one.at else 0.0))
    latest = said if everything else said[-_LATEST:]
    return ReviewsReport(
        patch=patch,
        reference=f"{repository}#{number}",
        url=line_of(pull.html_url),
        known=told is not None,
        threads=tuple(view(one, login_of(pull.user) or "", everything=everything) for one in shown),
        hidden=len(found) - len(shown),
        comments=tuple(latest),
        earlier=len(said) - len(latest),
    )


def _line(thread: Thread) -> int:
    first = thread.comments[0]
    return first.line or first.original_line or 0


def some_ids(threads: Sequence[Thread], limit: int = 12) -> str:
    """Return the ids of threads with their places, for a message."""
    parts = [f"{one.id} ({_place(one.comments[0])})" for one in itertools.islice(threads, limit)]
    rest = len(threads) - len(parts)
    return ", ".join([*parts, *([f"and {rest} more"] if rest > 0 else [])])


#: New remarks that are shown, the latest, and how much of each.
_SHOWN: Final = 10
_EXCERPT_ROWS: Final = 4
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
        shown = remark(one, rows=_EXCERPT_ROWS, characters=_CHARACTERS, thread=thread)
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
        review_remark(one, rows=_EXCERPT_ROWS, characters=_CHARACTERS).model_copy(
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


#: The kind of write (`IntentEvent.what`).
REPLY: Final = "reply"
_DIGEST: Final = 16
#: Bytes that are read: more than any text that GitHub takes has.
_BYTES: Final = 4 * GITHUB_LIMIT + 4


@dataclass(frozen=True)
class Replied:
    """What was done."""

    thread: str
    url: str
    #: Whether it was posted now; else it was there already.
    posted: bool


def contribution_of(queue: Queue, name: str) -> Contribution:
    """Return how far a patch is on GitHub, which must be a pull request."""
    known = state(history.read(queue.folder, name))
    if known is None or not known.reference:
        waits = known is not None and known.handed_off
        hint = "a person was to open it: contribbot follow" if waits else "open it first"
        raise UsageError(
            f"{name}: no pull request of it is known",
            hint=hint if waits else f"{hint}: contribbot open-pr {name}",
        )
    return known


def read_text(file: Path) -> str:
    """Read the text of an answer."""
    try:
        if str(file) == "-":
            return text_from(sys.stdin.buffer.read(_BYTES), "standard input")
        with file.open("rb") as opened:
            return text_from(opened.read(_BYTES), str(file))
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
    if not text.strip():
        raise UsageError(f"{place}: nothing is written there", hint="write the answer into it")
    if len(text) > GITHUB_LIMIT:
        raise too_long
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


def _reply(queue: Queue, github: GitHub, name: str, thread: str, text: str) -> Replied:
    known = contribution_of(queue, name)
    repository = known.reference.partition("#")[0]
    meant = _meant(github, repository, known, name, thread)
    me = github.me
    book, said = Book(queue), f"answered in {known.reference}"
    stem = f"{known.reference} {thread} {_digest(text)} after "
    begun = [one for one in known.open if one.what == REPLY and one.key.startswith(stem)]
    for one in begun:
        # A crash came between: it may be there.
        there = _ours(meant, text, me, after=int(one.key.removeprefix(stem)))
        if there is not None:
            book.done(name, one, said, url=line_of(there.html_url))
            return Replied(thread, line_of(there.html_url), posted=False)
    last = meant.comments[-1]
    if _says(last, text, me):
        return Replied(thread, line_of(last.html_url), posted=False)
    _refuse_headless(known, meant)
    intent = IntentEvent(
        time=history.now(),
        summary=f"about to answer in thread {thread} of {known.reference}",
        what=REPLY,
        key=begun[-1].key if begun else f"{stem}{max(one.id for one in meant.comments)}",
        reference=known.reference,
    )
    if not begun:
        book.note(name, intent)
    try:
        posted = _post(github, repository, known.number, meant.root, text)
    except UncertainError:
        again = _meant(github, repository, known, name, thread)
        found = _ours(again, text, me, after=int(intent.key.removeprefix(stem)))
        if found is None:
            raise
        posted = found
    url = line_of(posted.html_url)
    book.done(name, intent, said, url=url)
    return Replied(thread, url, posted=True)


def _post(github: GitHub, repository: str, number: int, root: int, text: str) -> PullRequestComment:
    """Post an answer; where the upstream was renamed, under the name that it has now.

    A write follows no redirect: nothing was posted, and it may be sent again.
    """
    try:
        return github.pull(repository, number).create_review_comment_reply(root, text)
    except MovedError:
        now = github.repository(repository).complete().full_name
    return github.pull(now, number).create_review_comment_reply(root, text)


def _meant(github: GitHub, repository: str, known: Contribution, name: str, thread: str) -> Thread:
    """Return the thread that a person means."""
    found = threads_of(whole(github.pull(repository, known.number).get_review_comments()), None)
    for one in found:
        if one.id == thread:
            return one
    there = some_ids(found)
    raise UsageError(
        f"{known.reference}: no thread {line_of(thread, 40)}",
        hint=f"it has {there}; see contribbot reviews {name} --all"
        if there
        else "nobody has begun one; comments below the pull request are answered on its page",
    )


def _refuse_headless(known: Contribution, thread: Thread) -> None:
    """Refuse a thread whose first comment was deleted: answers go to that comment."""
    if all(one.id != thread.root for one in thread.comments):
        raise UsageError(
            f"{known.reference}: thread {thread.id}: the comment that began it is gone, and"
            " GitHub takes answers to that one alone",
            hint=f"answer on its page: {line_of(thread.comments[-1].html_url)}",
        )


def _ours(thread: Thread, text: str, me: str, *, after: int) -> PullRequestComment | None:
    """Return our reply with that text behind a comment, if it is there."""
    later: Sequence[PullRequestComment] = [one for one in thread.comments if one.id > after]
    return next((one for one in later if _says(one, text, me)), None)


def _says(comment: PullRequestComment, text: str, me: str) -> bool:
    return same_person(login_of(comment.user), me) and _plain(text_of(comment.body)) == _plain(text)


def _plain(text: str) -> str:
    """Return a text as it survives the way to GitHub and back."""
    return "\n".join(row.rstrip() for row in text.replace("\r\n", "\n").strip().split("\n"))


def _digest(text: str) -> str:
    return hashlib.sha256(_plain(text).encode()).hexdigest()[:_DIGEST]
