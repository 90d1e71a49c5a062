"""What must be so before anything is written: whose token, which upstream, which fork."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from contribbot.contribute.book import Book
from contribbot.contribute.opening.base import Tip
from contribbot.contribute.opening.branch import Place
from contribbot.contribute.state import FORK
from contribbot.errors import (
    GitHubError,
    NotFoundError,
    OpeningError,
    RefusedError,
    UncertainError,
)
from contribbot.github.fields import may_push
from contribbot.github.git_data import head_of
from contribbot.github.waits import sleep
from contribbot.model.history import DoneEvent, IntentEvent
from contribbot.queue import history

if TYPE_CHECKING:
    from github.Repository import Repository

    from contribbot.github.client import GitHub

log: Final = logging.getLogger(__name__)

#: Seconds between looks at a fork that GitHub is making; its git data may take minutes.
_WAITS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, *itertools.repeat(10.0, 28))
#: How old a fork may be that GitHub may still be copying.
_YOUNG: Final = timedelta(hours=1)

Wait = Callable[[float], None]


def look(github: GitHub, repository: str) -> Repository:
    """Look at an upstream, which must take pull requests."""
    upstream = github.repository(repository).complete()
    why = refuses_pulls(upstream)
    if why:
        raise OpeningError(
            f"{upstream.full_name} {why}",
            hint="look on its page for where the project takes changes; its name is `repository`"
            " in upstreams/NAME.toml",
        )
    return upstream


def refuses_pulls(upstream: Repository) -> str:
    """Say why an upstream takes no pull requests of this account; or nothing."""
    said = upstream.raw_data
    if said.get("archived"):
        return "is archived: its owners take no changes"
    if said.get("disabled"):
        return "is switched off"
    if said.get("has_pull_requests") is False:
        return "has pull requests switched off"
    if said.get("pull_request_creation_policy") == "collaborators_only" and not may_push(upstream):
        return "takes pull requests from its collaborators alone"
    return ""


def fork_of(github: GitHub, upstream: Repository, known: str = "") -> Repository | None:
    """Return the account's fork, or the upstream where that is one's own; None: none is known."""
    login = github.me.lower()
    if upstream.full_name.partition("/")[0].lower() == login:
        return upstream
    mine = known.partition("/")[0].lower() == login
    try:
        found = github.repository(known if mine else fork_name(github, upstream)).complete()
    except NotFoundError:
        return None
    if found.full_name.partition("/")[0].lower() != login:
        return None  # it moved to somebody else, and GitHub follows the old name
    origins = (found.raw_data.get(key) or {} for key in ("parent", "source"))
    if upstream.full_name.lower() not in {str(one.get("full_name")).lower() for one in origins}:
        return None  # GitHub gives the fork another name, or has one of another name
    if found.archived:
        raise OpeningError(
            f"{found.full_name}: your fork is archived",
            hint=f"unarchive it on {found.html_url}/settings",
        )
    return found


def make_fork(
    github: GitHub, upstream: Repository, book: Book, patch: str, *, wait: Wait = sleep
) -> Repository:
    """Fork an upstream, and wait until GitHub has made it; one of another name is as good."""
    name, key = upstream.full_name, fork_name(github, upstream)
    book.note(
        patch,
        IntentEvent(time=history.now(), summary=f"about to fork {name}", what=FORK, key=key),
    )
    try:
        made: Repository | None = upstream.create_fork(default_branch_only=True)
    except UncertainError:
        made = None
    found = _ready(lambda: made or fork_of(github, upstream), upstream.default_branch, key, wait)
    note_fork(github, book, patch, upstream, found)
    return found


def _ready(find: Callable[[], Repository | None], branch: str, name: str, wait: Wait) -> Repository:
    """Wait until a fork is there, with its git data."""
    for number, pause in enumerate((*_WAITS, 0.0)):
        found = find()
        if found is not None and head_of(found, branch) is not None:
            return found
        if number == 0:
            log.warning("GitHub is making the fork %s: waiting up to %d s", name, sum(_WAITS))
        wait(pause)
    raise GitHubError(
        f"{name}: GitHub is still making the fork", hint="run this again in some minutes"
    )


def note_fork(
    github: GitHub, book: Book, patch: str, upstream: Repository, fork: Repository
) -> None:
    """Note that a fork is there, where that was begun and is not noted yet."""
    key = fork_name(github, upstream)
    if not book.contribution(patch).begun(FORK, key):
        return
    book.note(
        patch,
        DoneEvent(
            time=history.now(),
            summary=f"forked {upstream.full_name} to {fork.full_name}",
            what=FORK,
            key=key,
            fork=fork.full_name,
            url=fork.html_url,
        ),
    )


def fork_name(github: GitHub, upstream: Repository) -> str:
    """Return how the account's fork is called, unless it was given another name."""
    return f"{github.me}/{upstream.full_name.partition('/')[2]}"


def place_at(
    github: GitHub, upstream: Repository, fork: Repository | None, server: str,
    *, wait: Wait = sleep,
) -> Place:  # fmt: skip
    """Return where a branch goes, with the upstream's newest commit."""
    name, branch = upstream.full_name, upstream.default_branch
    if fork is not None and fork.full_name != name:
        place = _compared(upstream, fork, server)
        if place is None and datetime.now(UTC) - fork.created_at < _YOUNG:
            fork = _ready(lambda: fork, branch, fork.full_name, wait)
            place = _compared(upstream, fork, server)
        if place is not None:
            return place
    tip = upstream.get_branch(branch).commit
    found = Tip(branch, tip.sha, tip.commit.tree.sha)
    if fork is None:
        return Place(name, fork_name(github, upstream), found, server, missing=True)
    return Place(name, fork.full_name, found, server, fork.node_id)


def _compared(upstream: Repository, fork: Repository, server: str) -> Place | None:
    """Return the place of a branch in a fork, by what the fork's own lacks and has beside."""
    name = upstream.default_branch
    owner = fork.full_name.partition("/")[0]
    try:
        # The commits that it also lists are of no use here: one, and not 250.
        found = upstream.compare(name, f"{owner}:{name}", comparison_commits_per_page=1)
    except (NotFoundError, RefusedError):
        return None  # it is empty yet, has no such branch, or the two are too far apart
    tip = found.base_commit
    return Place(
        upstream.full_name, fork.full_name, Tip(name, tip.sha, tip.commit.tree.sha), server,
        fork.node_id, behind=found.behind_by, own=found.ahead_by,
    )  # fmt: skip
