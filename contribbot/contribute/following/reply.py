"""Answering in a review thread, as the person, with the person's own text and nothing else.

A crash or a lost answer does not post twice: the journal says before the request what is
meant and what was the last comment then, and whoever tries again looks behind it first.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.contribute.book import Book
from contribbot.contribute.following.threads import (
    Thread,
    line_of,
    same_person,
    some_ids,
    threads_of,
)
from contribbot.contribute.state import Contribution, state
from contribbot.errors import MovedError, UncertainError, UsageError
from contribbot.files import lock
from contribbot.github.fields import login_of, text_of, whole
from contribbot.model.history import IntentEvent
from contribbot.model.rules import GITHUB_LIMIT
from contribbot.queue import history
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.PullRequestComment import PullRequestComment

    from contribbot.github.client import GitHub

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
