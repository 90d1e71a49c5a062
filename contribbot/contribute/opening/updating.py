"""Bringing a pull request that is there up to date: its text, and what changed since."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from contribbot.contribute.book import Book
from contribbot.contribute.state import COMMENT, TEXT, Contribution, text_digest
from contribbot.contribute.text.escape import fence
from contribbot.errors import OpeningError, UncertainError
from contribbot.github.fields import login_of, text_of, whole
from contribbot.model.history import IntentEvent
from contribbot.queue import history

if TYPE_CHECKING:
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub

#: Lines and characters of a range-diff that a comment shows; GitHub takes 65,536 characters.
_LINES: Final = 400
_LONGEST: Final = 48_000
#: The line of a pair of commits in a range-diff, whose ids name nothing that readers have.
_PAIR: Final = re.compile(
    r"^(?P<old> *(?:\d+|-)):  ?[0-9a-f-]+ (?P<sign>[=!<>]) (?P<new> *(?:\d+|-)):  ?[0-9a-f-]+ "
)


@dataclass(frozen=True)
class Text:
    """What a pull request says."""

    title: str
    body: str

    @property
    def digest(self) -> str:
        """The digest by which it is known again on GitHub."""
        return text_digest(self.title, self.body)


def judge(
    pulls: Sequence[PullRequest], patch: str, known: Contribution, *, repository: str
) -> PullRequest | None:
    """Return the open pull request of a branch; None where it never had one."""
    for pull in pulls:
        if pull.state == "open":
            return pull
    if not pulls:
        return None
    last = pulls[0]
    reference = f"{repository}#{last.number}"
    another = "name another branch in [contribution] of patch.toml"
    if known.former == reference:
        raise OpeningError(
            f"{patch}: {reference} is of this branch, and of the patch that had the name before"
            " it was retired",
            hint=f"this one is another: {another}",
        )
    if known.state == "reverted" and known.reference == reference:
        raise OpeningError(
            f"{patch}: {reference} was merged and then reverted",
            hint=f"read there why ({last.html_url}); to open it anew, {another}",
        )
    if last.merged_at is not None:
        raise OpeningError(
            f"{patch}: {reference} is merged already",
            hint=f"take the patch out: contribbot retire {patch}",
        )
    raise OpeningError(
        f"{patch}: {reference}, the pull request of this branch, was closed",
        hint=f"read there why ({last.html_url}); reopen it, or {another}",
    )


def update_text(
    book: Book, patch: str, pull: PullRequest, text: Text, *, repository: str
) -> Literal["kept", "updated", "edited"]:
    """Give a pull request its text, unless a person has written there."""
    now = text_digest(pull.title, text_of(pull.body))
    known = book.contribution(patch)
    reference = f"{repository}#{pull.number}"
    said = f"the text of {reference}"
    intent = IntentEvent(
        time=history.now(),
        summary=f"about to update {said}",
        what=TEXT,
        key=reference,
        reference=reference,
        text=text.digest,
    )
    if now == text.digest:
        if known.begun(TEXT, reference):
            book.done(patch, intent, f"updated {said}")
        return "kept"
    if now not in known.texts:
        return "edited"
    book.note(patch, intent)
    pull.edit(title=text.title, body=text.body)
    book.done(patch, intent, f"updated {said}")
    return "updated"


def range_text(patch: str, old: int, new: int, range_diff: str) -> str:
    """Return the comment that shows what changed between two versions."""
    rows = [_PAIR.sub(r"\g<old> \g<sign> \g<new> ", row) for row in range_diff.splitlines()]
    count = min(len(rows), _LINES)
    shown = fence("\n".join(rows), language="diff", lines=count)
    while len(shown.encode()) > _LONGEST and count > 1:
        count //= 2
        shown = fence("\n".join(rows), language="diff", lines=count)
    if len(shown.encode()) > _LONGEST:
        shown = fence("(its lines are too long to show)")
    return (
        f"{_marker(patch, old, new)}\nWhat changed from v{old} to v{new} (`git range-diff`):\n\n"
        f"<details><summary>range-diff</summary>\n\n{shown}\n\n</details>\n"
    )


def _marker(patch: str, old: int, new: int) -> str:
    """Return the line by which a comment of ours is known again."""
    return f"<!-- contribbot: range-diff of {patch}, v{old} to v{new} -->"


def post_range(
    github: GitHub,
    book: Book,
    patch: str,
    known: Contribution,
    comment: str,
    *,
    repository: str,
    login: str,
) -> str:
    """Comment on what changed since the version that readers know, once."""
    said = f"{known.reference}: what is new in v{known.version}"
    intent = IntentEvent(
        time=history.now(),
        summary=f"about to comment on {said}",
        what=COMMENT,
        key=f"{known.reference} v{known.announced}..v{known.version}",
        reference=known.reference,
        version=known.version,
    )
    marker = comment.partition("\n")[0]
    url = ""
    if known.begun(COMMENT, intent.key):
        # A crash came between: it may be there.
        url = _find(github, known.number, marker, repository=repository, login=login)
    else:
        book.note(patch, intent)
    if not url:
        try:
            url = github.pull(repository, known.number).create_issue_comment(comment).html_url
        except UncertainError:
            url = _find(github, known.number, marker, repository=repository, login=login)
            if not url:
                raise
    book.done(patch, intent, f"commented on {said}", url=url)
    return url


def _find(github: GitHub, number: int, marker: str, *, repository: str, login: str) -> str:
    """Return the page of our comment, or nothing."""
    for one in whole(github.issue(repository, number).get_comments()):
        first = text_of(one.body).replace("\r\n", "\n").partition("\n")[0]
        if first == marker and (login_of(one.user) or "").lower() == login.lower():
            return one.html_url
    return ""
