"""The remarks on a pull request, clean and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal

from contribbot.contribute.model import Remark, ReviewsReport, ThreadCount, ThreadView
from contribbot.contribute.publication import Publication, state
from contribbot.errors import UsageError
from contribbot.github.pull_state import read_pull_state
from contribbot.markdown import line_of, row_of, rows_of
from contribbot.queue import history
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from contribbot.github.client import GitHub
    from contribbot.github.pull_state import Note, PullState, ReviewThread

_NAME: Final = 60
_CODE: Final = 12
#: Comments below a pull request, and comments of one thread, that are listed without `--all`.
_LATEST: Final = 20
#: New remarks that `follow` shows, the latest; lines and characters of each.
_SHOWN: Final = 10
_EXCERPT_ROWS: Final = 4
_EXCERPT: Final = 500
#: GitHub's verdicts of a review in words; two decide nothing.
_VERDICTS: Final = {"CHANGES_REQUESTED": "changes requested", "COMMENTED": "", "": ""}
_NO_VERDICT: Final = frozenset({"COMMENTED", "PENDING"})


def _answered(thread: ReviewThread, author: str) -> bool:
    """Tell whether the author of the pull request spoke last in a thread."""
    return _same_person(thread.comments[-1].author, author)


def _same_person(login: str, other: str) -> bool:
    """Tell whether two logins are of one account; a deleted account matches none."""
    return bool(login) and login.lower() == other.lower()


def _view(thread: ReviewThread, author: str, *, everything: bool) -> ThreadView:
    """Return a thread as `follow` shows threads."""
    hunk = thread.comments[0].diff_hunk.split("\n")
    code = [*hunk[:1], *hunk[1:][-_CODE:]]
    comments = thread.comments if everything else thread.comments[-_LATEST:]
    return ThreadView(
        id=thread.id,
        file=line_of(thread.path),
        line=thread.line,
        was=thread.original_line,
        side="base" if thread.diff_side == "LEFT" else "change",
        resolved=thread.is_resolved,
        outdated=thread.is_outdated,
        answered=_answered(thread, author),
        # The sign of a line stands first, and its indentation stays.
        code=tuple(f"{line_of(row[:1], 1) or ' '}{row_of(row[1:])}" for row in code if row),
        comments=tuple(_remark("thread", comment, thread) for comment in comments),
    )


def _line(thread: ReviewThread) -> int:
    """Return the line that a thread is about, in the newest change or an earlier one."""
    return thread.line or thread.original_line or 0


def _remark(
    kind: Literal["comment", "review", "thread"],
    note: Note,
    thread: ReviewThread | None = None,
    *,
    excerpt: bool = False,
    changed: bool = False,
) -> Remark:
    """Return a note, clean and bounded."""
    limits = {"rows": _EXCERPT_ROWS, "characters": _EXCERPT} if excerpt else {}
    place = ""
    if thread is not None:
        place = f"{line_of(thread.path)}{f':{_line(thread)}' if _line(thread) else ''}"
    return Remark(
        kind=kind,
        author=line_of(note.author, _NAME) if note.author else "(an account that is gone)",
        at=note.updated_at if changed else note.created_at,
        text="\n".join(rows_of(note.body, **limits)),
        url=line_of(note.url),
        thread=thread.id if thread is not None else "",
        place=place,
        verdict=_VERDICTS.get(note.verdict, line_of(note.verdict, _NAME).lower()),
        changed=changed,
    )


def _says_something(review: Note) -> bool:
    return bool(review.body.strip()) or review.verdict not in _NO_VERDICT


def _when(remark: Remark) -> float:
    return remark.at.timestamp() if remark.at else 0.0


def read_reviews(
    github: GitHub, patch: str, known: Publication, *, everything: bool = False
) -> ReviewsReport:
    """Read what is said about a pull request."""
    pull = read_pull_state(github, known.repository, known.number)
    shown = [thread for thread in pull.threads if everything or not thread.is_resolved]
    shown.sort(key=lambda thread: (thread.path, _line(thread), int(thread.id)))
    remarks = [_remark(kind, note) for kind, note, thread in _notes(pull) if thread is None]
    remarks.sort(key=_when)
    latest = remarks if everything else remarks[-_LATEST:]
    return ReviewsReport(
        patch=patch,
        reference=known.reference,
        url=line_of(pull.url),
        known=pull.resolution,
        hidden=len(pull.threads) - len(shown),
        threads=tuple(_view(thread, pull.author, everything=everything) for thread in shown),
        comments=tuple(latest),
        earlier=len(remarks) - len(latest),
        unread=tuple(line_of(row) for row in pull.unread),
    )


def read_news(pull: PullState, seen: Mapping[str, str]) -> tuple[dict[str, str], dict[str, object]]:
    """Return the keys of all remarks, to remember, and the fields of `Followed` on new ones."""
    now: dict[str, str] = {}

    def fresh() -> Iterator[Remark]:
        for kind, note, thread in _notes(pull):
            key = f"{kind} {note.id}"
            # Of a review only its verdict is news.
            now[key] = note.verdict or note.updated_at.isoformat()
            if seen.get(key) != now[key] and not _same_person(note.author, pull.author):
                yield _remark(kind, note, thread, excerpt=True, changed=key in seen)

    new = sorted(fresh(), key=_when)
    left = [thread for thread in pull.threads if not thread.is_resolved]
    answered = sum(_answered(thread, pull.author) for thread in left)
    threads = ThreadCount(
        open=len(left) - answered,
        answered=answered,
        resolved=len(pull.threads) - len(left),
        known=pull.resolution,
    )
    told = {"new": tuple(new[-_SHOWN:]), "more": max(0, len(new) - _SHOWN), "threads": threads}
    return {**seen, **now}, told


def _notes(
    pull: PullState,
) -> Iterator[tuple[Literal["comment", "review", "thread"], Note, ReviewThread | None]]:
    yield from (("comment", comment, None) for comment in pull.comments)
    for thread in pull.threads:
        yield from (("thread", comment, thread) for comment in thread.comments)
    yield from (("review", each, None) for each in pull.reviews if _says_something(each))


def publication_of(queue: Queue, name: str) -> Publication:
    """Return the published state of a patch; refuse a patch without a pull request."""
    known = state(history.read(queue.folder, name))
    if known is not None and known.reference:
        return known
    hint = f"open it first: contribbot open-pr {name}"
    if known is not None and known.handed_off:
        hint = "a person was to open it: contribbot follow"
    raise UsageError(f"{name}: no pull request of it is known", hint=hint)
