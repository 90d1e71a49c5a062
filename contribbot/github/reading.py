"""What contribbot reads from GitHub; `protocol` has what it writes, and what may go wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Literal, Protocol

from contribbot.model.discussion import (
    CheckRun,
    Comment,
    CommitStatus,
    Issue,
    IssueEvent,
    PullFile,
    Review,
    ReviewComment,
    ReviewThread,
    Search,
)
from contribbot.model.gitdata import Branch, Commit, Comparison, TreeEntry
from contribbot.model.github import Account, Fetched, PullRequest, Repository


class Reader(Protocol):
    """What is read from GitHub."""

    def me(self) -> Account:
        """Return whose token it is."""
        ...

    def repository(self, repository: str) -> Repository:
        """Return a repository; `full_name` is the new name of one that was renamed."""
        ...

    def branch(self, repository: str, branch: str) -> Branch:
        """Return the commit and the tree of a branch."""
        ...

    def ref(self, repository: str, branch: str) -> str | None:
        """Return the commit of a branch, or None where there is no such branch."""
        ...

    def tree(self, repository: str, tree: str, paths: Collection[str]) -> Mapping[str, TreeEntry]:
        """Return the entries of a tree at the paths that are asked for; those that it has.

        One request, or one a folder where the tree is too large for one answer.
        """
        ...

    def blobs(self, repository: str, ids: Collection[str]) -> Mapping[str, bytes]:
        """Return the contents of blobs, each checked against its id.

        One GraphQL request, and one more for each that is not text (or for all, where
        GraphQL is refused); no request for no ids.
        """
        ...

    def file(self, repository: str, path: str, ref: str = "") -> bytes | None:
        """Return a file at a branch or commit, or None where there is no such file.

        Without `ref` it is the one of the default branch.
        """
        ...

    def commit(self, repository: str, sha: str) -> Commit:
        """Return a commit.

        That it is answered does not show that a branch has it: forks share their objects.
        """
        ...

    def compare(self, repository: str, base: str, head: str) -> Comparison:
        """Return how `head` stands to `base`: branches, commits or `owner:branch`."""
        ...

    def pull(self, repository: str, number: int) -> Fetched[PullRequest]:
        """Return a pull request; one conditional request."""
        ...

    def pulls_from(
        self, repository: str, owner: str, branch: str
    ) -> Fetched[tuple[PullRequest, ...]]:
        """Return the pull requests from somebody's branch, in any state, newest first."""
        ...

    def recent_pulls(
        self,
        repository: str,
        *,
        state: Literal["open", "closed", "all"] = "open",
        since: datetime | None = None,
        pages: int = 3,
    ) -> tuple[PullRequest, ...]:
        """Return pull requests, the last changed first, down to `since` or so many pages of 100."""
        ...

    def pull_files(self, repository: str, number: int) -> tuple[PullFile, ...]:
        """Return the files that a pull request touches (GitHub lists at most 3000)."""
        ...

    def pull_diff(self, repository: str, number: int) -> bytes:
        """Return the diff of a pull request, as git writes it."""
        ...

    def pull_commits(self, repository: str, number: int) -> bytes:
        """Return the commits of a pull request one after the other, as `git format-patch` does."""
        ...

    def issue(self, repository: str, number: int) -> Issue:
        """Return an issue or pull request."""
        ...

    def issue_events(self, repository: str, number: int) -> tuple[IssueEvent, ...]:
        """Return what happened to an issue or pull request, oldest first."""
        ...

    def comments(
        self, repository: str, number: int, since: datetime | None = None
    ) -> tuple[Comment, ...]:
        """Return the comments below a pull request or issue, changed at or after `since`."""
        ...

    def review_comments(
        self, repository: str, number: int, since: datetime | None = None
    ) -> tuple[ReviewComment, ...]:
        """Return the comments at lines of a pull request, changed at or after `since`."""
        ...

    def reviews(self, repository: str, number: int) -> tuple[Review, ...]:
        """Return the reviews of a pull request, oldest first."""
        ...

    def review_threads(self, repository: str, number: int) -> tuple[ReviewThread, ...] | None:
        """Return which threads are resolved or outdated, or None where GraphQL is refused."""
        ...

    def check_runs(self, repository: str, sha: str) -> Fetched[tuple[CheckRun, ...]]:
        """Return the check runs of a commit, of each name the latest."""
        ...

    def statuses(self, repository: str, sha: str) -> Fetched[tuple[CommitStatus, ...]]:
        """Return the statuses of a commit, of each context the latest."""
        ...

    def search_issues(self, query: str, limit: int = 30) -> Search:
        """Return issues and pull requests that a search finds, at most `limit` (up to 100)."""
        ...

    def count_open_pulls(self, repository: str, author: str) -> int:
        """Return how many open pull requests somebody has in a repository."""
        ...
