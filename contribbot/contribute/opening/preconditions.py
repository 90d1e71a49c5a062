"""What must be so before anything is written: whose token, which upstream, which fork."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from contribbot.contribute.book import Book
from contribbot.contribute.opening.branch import Place
from contribbot.contribute.state import FORK
from contribbot.errors import GitHubError, NotFoundError, OpeningError, UncertainError
from contribbot.github.protocol import GitHub
from contribbot.model.github import Account, Repository
from contribbot.model.history import DoneEvent, IntentEvent
from contribbot.queue import journal

log: Final = logging.getLogger(__name__)

#: Seconds between looks at a fork that GitHub is making; it may take minutes.
_WAITS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, *itertools.repeat(10.0, 28))


@dataclass(frozen=True)
class Grounds:
    """Whose token it is, and what is known of an upstream.

    Attributes:
        me: The account.
        upstream: The upstream's repository.
    """

    me: Account
    upstream: Repository


def look(github: GitHub, repository: str, me: Account | None = None) -> Grounds:
    """Look at an upstream."""
    account = me or github.me()
    upstream = github.repository(repository)
    if upstream.archived or upstream.disabled:
        what = "archived: its owners take no changes" if upstream.archived else "switched off"
        raise OpeningError(
            f"{upstream.full_name} is {what}",
            hint="look on its page for where the project went, and change its repository in"
            " upstreams/NAME.toml",
        )
    return Grounds(account, upstream)


def fork_of(grounds: Grounds, github: GitHub, known: str = "") -> Repository | None:
    """Return the account's fork, or the upstream where that is one's own; None: there is none."""
    upstream, login = grounds.upstream, grounds.me.login
    owner = upstream.full_name.partition("/")[0]
    if owner.lower() == login.lower():
        return upstream
    mine = known.partition("/")[0].lower() == login.lower()
    try:
        found = github.repository(known if mine else fork_name(grounds))
    except NotFoundError:
        return None
    if found.full_name.partition("/")[0].lower() != login.lower():
        return None  # it moved to somebody else, and GitHub follows the old name
    if not found.forked_from(upstream.full_name):
        origin = found.parent.full_name if found.parent else "nothing"
        raise OpeningError(
            f"{found.full_name} is no fork of {upstream.full_name} (it is one of {origin}),"
            " and stands where the fork would be",
            hint=f"rename it on {found.html_url}/settings, and run this again",
        )
    if found.archived:
        raise OpeningError(
            f"{found.full_name}: your fork is archived",
            hint=f"unarchive it on {found.html_url}/settings",
        )
    return found


def make_fork(
    github: GitHub,
    grounds: Grounds,
    book: Book,
    patch: str,
    *,
    wait: Callable[[float], None] = time.sleep,
) -> Repository:
    """Fork an upstream, and wait until GitHub has made it."""
    name = grounds.upstream.full_name
    key = fork_name(grounds)
    book.note(
        patch,
        IntentEvent(time=journal.now(), summary=f"about to fork {name}", what=FORK, key=key),
    )
    try:
        made: Repository | None = github.fork(name)
    except UncertainError:
        made = None
    if made is not None and made.full_name.lower() != key.lower():
        # GitHub had a fork under another name.
        raise OpeningError(
            f"{made.full_name} is your fork of {name}, and {key} is looked for",
            hint=f"rename it to {key.partition('/')[2]} on {made.html_url}/settings",
        )
    for pause in _WAITS:
        found = fork_of(grounds, github)
        if found is not None:
            note_fork(book, patch, grounds, found)
            return found
        if pause == _WAITS[0]:
            log.warning("GitHub is making the fork %s: waiting up to %d s", key, sum(_WAITS))
        wait(pause)
    raise GitHubError(
        f"{key}: GitHub is still making the fork", hint="run this again in some minutes"
    )


def note_fork(book: Book, patch: str, grounds: Grounds, fork: Repository) -> None:
    """Note that a fork is there, where that was begun and is not noted yet."""
    if not book.contribution(patch).begun(FORK, fork_name(grounds)):
        return
    book.note(
        patch,
        DoneEvent(
            time=journal.now(),
            summary=f"forked {grounds.upstream.full_name} to {fork.full_name}",
            what=FORK,
            key=fork_name(grounds),
            fork=fork.full_name,
            url=fork.html_url,
        ),
    )


def fork_name(grounds: Grounds) -> str:
    """Return how the account's fork is called, or will be."""
    return f"{grounds.me.login}/{grounds.upstream.full_name.partition('/')[2]}"


def place_at(github: GitHub, grounds: Grounds, fork: Repository | None, server: str) -> Place:
    """Return where a branch goes, with the upstream's newest commit."""
    upstream = grounds.upstream
    tip = github.branch(upstream.full_name, upstream.default_branch)
    if fork is None:
        return Place(upstream.full_name, fork_name(grounds), tip, server, missing=True)
    return Place(upstream.full_name, fork.full_name, tip, server, fork.node_id)
