"""What a look at a contribution is about, and what it saw."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.contribute.following import lastlook
from contribbot.contribute.following.noting import Sight
from contribbot.contribute.state import Contribution
from contribbot.errors import GitHubError, RateLimitError, TokenError
from contribbot.model.follow import Followed, Kept
from contribbot.model.rules import Rules

if TYPE_CHECKING:
    from contribbot.github.client import GitHub, ReviewThread

#: Stands for every repository.
_EVERYWHERE: Final = ""


class Upstreams:
    """What many looks need of the same repositories, each asked for once."""

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._lock = threading.Lock()
        self._branches: dict[str, str] = {}
        self._asking = threading.Lock()
        self._threads: dict[str, bool] = {}
        self._refusals: dict[str, GitHubError] = {}

    def refusal(self, repository: str) -> GitHubError | None:
        """Return why nothing more is to be asked about a repository; None: nothing speaks for it.

        Whoever goes on asking after a limit, or with a token that is not taken, is shut out.
        """
        return self._refusals.get(_EVERYWHERE) or self._refusals.get(repository)

    def heed(self, repository: str, error: GitHubError) -> None:
        """Remember an error that the next request would only meet again."""
        if isinstance(error, RateLimitError):
            self._refusals.setdefault(_EVERYWHERE, error)
        elif isinstance(error, TokenError):
            # An organisation may refuse a token that the others take.
            self._refusals.setdefault(repository, error)

    def default_branch(self, repository: str) -> str:
        """Return the default branch of a repository."""
        with self._lock:
            if repository not in self._branches:
                self._branches[repository] = (
                    self._github.repository(repository).complete().default_branch
                )
            return self._branches[repository]

    def review_threads(self, repository: str, number: int) -> tuple[ReviewThread, ...] | None:
        """Return which threads are resolved; None where GraphQL is refused, asked once a run."""
        with self._asking:
            if repository not in self._threads:
                # The first answer says for all whether there is any.
                found = self._github.review_threads(repository, number)
                self._threads[repository] = found is not None
                return found
        return (
            self._github.review_threads(repository, number) if self._threads[repository] else None
        )


@dataclass(frozen=True)
class Subject:
    """What is looked at."""

    patch: str
    #: Whether the queue still has it.
    queued: bool
    repository: str
    known: Contribution
    rules: Rules | None = None
    kept: Kept | None = None
    above: tuple[str, ...] = ()
    #: The pull requests that go to its upstream before it.
    waits: tuple[str, ...] = ()

    def is_ours(self, head: str) -> bool:
        """Return whether contribbot gave a commit to the branch; without a journal it may have."""
        return not self.known.heads or head in self.known.heads

    @property
    def rules_digest(self) -> str:
        """Digest of how CI is read."""
        return lastlook.digest(self.rules.ci.model_dump_json() if self.rules else "")

    def blank(self) -> Followed:
        """Return what is known without asking."""
        kept = self.kept.followed if self.kept else None
        if kept is not None and kept.reference == self.known.reference:
            return kept.model_copy(
                update={"queued": self.queued, "new": (), "more": 0, "change": "", "error": ""}
            )
        return Followed(
            patch=self.patch,
            queued=self.queued,
            repository=self.repository,
            reference=self.known.reference,
        )


@dataclass(frozen=True)
class Seen:
    """What a look saw."""

    followed: Followed
    #: What is to be remembered; None: nothing.
    kept: Kept | None = None
    #: What is for the journal, where that does not know it; None: nothing was read.
    sight: Sight | None = None
