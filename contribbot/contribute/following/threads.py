"""What is said about a pull request: threads at lines of it, comments, reviews.

All of it was written by anybody. What leaves this module is clean (no control characters,
terminal escapes or writing directions) and bounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from contribbot.contribute.text.escape import shortened
from contribbot.github.fields import login_of, text_of, whole
from contribbot.model.follow import Remark, ReviewsReport, ThreadView

if TYPE_CHECKING:
    from github.IssueComment import IssueComment
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
