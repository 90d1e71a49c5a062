"""What is asked of opening a pull request, what it needs, and what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from contribbot.contribute.book import Book
from contribbot.contribute.opening.branch import Place
from contribbot.contribute.opening.updating import Text
from contribbot.git.source import Progress, Silent
from contribbot.github.waits import sleep
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from contribbot.github.client import GitHub


@dataclass(frozen=True)
class Wanted:
    """What a user asks for."""

    #: Whether a new pull request is to be reviewed at once, and no draft.
    ready: bool = False
    #: Whether only to push the branch, for a person to open the pull request.
    handoff: bool = False
    #: Whether to carry the branch onto the upstream's newest commit even when the patch is what
    #: it was.
    up_to_date: bool = False
    #: Whether nothing is written anywhere: `github` then sends reads alone.
    dry_run: bool = False


@dataclass(frozen=True)
class Tools:
    """What opening needs from elsewhere."""

    #: GitHub, in a dry run one that sends nothing but reads.
    github: GitHub
    text: Callable[[Patch], Text]
    #: Raises unless a person stands for a patch with that text.
    attested: Callable[[Patch, Text], None]
    branch: Callable[[Patch], str]
    #: The page of the server, such as `https://github.com`.
    server: str
    progress: Progress = field(default_factory=Silent)
    wait: Callable[[float], None] = sleep


@dataclass(frozen=True)
class Opened:
    """What was done for a patch."""

    patch: str
    upstream: str
    fork: str
    branch: str
    base_branch: str
    base: str
    head: str
    #: What was made: of each its id and its subject; none where the branch was kept.
    commits: tuple[tuple[str, str], ...] = ()
    branch_was: Literal["made", "moved", "kept"] = "kept"
    #: The pull request, or empty.
    reference: str = ""
    url: str = ""
    #: `draft` or `open`; `to be opened` by a person.
    state: Literal["draft", "open", "to be opened"] = "to be opened"
    #: What was done to the pull request; `edited`: a person changed its text, and it was left
    #: alone.
    pull_was: Literal["opened", "updated", "kept", "edited", "handed off"] = "kept"
    #: The page of the comment that tells what changed, or empty.
    comment: str = ""
    #: Where the body lies that was too long for the page's address.
    body_file: Path | None = None
    waits_for: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """A patch on its way to GitHub."""

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
