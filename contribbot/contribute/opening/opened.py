"""What is asked of opening a pull request, what it needs, and what it did."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from contribbot.contribute.book import Book
from contribbot.contribute.opening.branch import Place
from contribbot.contribute.opening.updating import Text
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue
from contribbot.sources import Progress, Silent

if TYPE_CHECKING:
    from contribbot.github.client import GitHub


@dataclass(frozen=True)
class Wanted:
    """What a user asks for.

    Attributes:
        ready: Whether a new pull request is to be reviewed at once, and no draft.
        handoff: Whether only to push the branch, for a person to open the pull request.
        up_to_date: Whether to carry the branch onto the upstream's newest commit even when
            the patch is what it was.
        dry_run: Whether nothing is written anywhere: `github` then sends reads alone.
    """

    ready: bool = False
    handoff: bool = False
    up_to_date: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Tools:
    """What opening needs from elsewhere.

    Attributes:
        github: GitHub, in a dry run one that sends nothing but reads.
        text: Returns what the pull request of a patch says.
        attested: Raises unless a person stands for a patch with that text.
        branch: Returns the name of a patch's branch.
        server: The page of the server, such as `https://github.com`.
        progress: Who is told how far the download of a pin is.
        wait: Waits so many seconds.
    """

    github: GitHub
    text: Callable[[Patch], Text]
    attested: Callable[[Patch, Text], None]
    branch: Callable[[Patch], str]
    server: str
    progress: Progress = field(default_factory=Silent)
    wait: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Opened:
    """What was done for a patch.

    Attributes:
        patch: The patch.
        upstream: The upstream's repository.
        fork: The repository that has the branch.
        branch: The branch.
        base_branch: The upstream's branch that it goes to.
        base: The commit that it stands on.
        head: The branch's commit.
        commits: What was made: of each its id and its subject; none where the branch was kept.
        branch_was: What was done to the branch.
        reference: The pull request, or empty.
        url: Its page, or the page on which a person opens it.
        state: `draft` or `open`; `to be opened` by a person.
        pull_was: What was done to the pull request; `edited`: a person changed its text,
            and it was left alone.
        comment: The page of the comment that tells what changed, or empty.
        body_file: Where the body lies that was too long for the page's address.
        waits_for: The pull requests that it waits for.
        notes: What else a person should know.
    """

    patch: str
    upstream: str
    fork: str
    branch: str
    base_branch: str
    base: str
    head: str
    commits: tuple[tuple[str, str], ...] = ()
    branch_was: Literal["made", "moved", "kept"] = "kept"
    reference: str = ""
    url: str = ""
    state: Literal["draft", "open", "to be opened"] = "to be opened"
    pull_was: Literal["opened", "updated", "kept", "edited", "handed off"] = "kept"
    comment: str = ""
    body_file: Path | None = None
    waits_for: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """A patch on its way to GitHub.

    Attributes:
        queue: The queue.
        tools: What it needs.
        wanted: What is asked for.
        book: The journal.
        patch: The patch.
        text: What its pull request says.
        place: Where its branch goes.
        login: Whose token it is.
        branch: The branch.
    """

    queue: Queue
    tools: Tools
    wanted: Wanted
    book: Book
    patch: Patch
    text: Text
    place: Place
    login: str
    branch: str

    @property
    def key(self) -> str:
        """What tells its branch from others."""
        return f"{self.place.fork}:{self.branch}"
