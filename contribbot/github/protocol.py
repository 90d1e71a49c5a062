"""What contribbot asks of GitHub: the only surface that the other rooms know.

`Reader` (in `reading`) reads; `GitHub` also writes. `client.Client` speaks to a server;
`rehearsal.Rehearsal` passes reads on and writes down what it would send.

Every method may raise, beside what it names:

- `TokenError`: the token is refused, or lacks a scope (which one, and what to do).
- `RateLimitError`: GitHub asks for a longer pause than contribbot waits.
- `NotFoundError`: it is not there, or the token may not see it.
- `RefusedError`: GitHub understood and said no (400, 403, 409, 410, 422, 451); `.status`.
- `MovedError`: what was to be written to has another name now; a write follows no redirect.
- `GitHubError`: no usable answer (no connection, 5xx, cut short, an answer of another shape).

Reads are tried again by themselves, and so are writes whose repetition changes nothing.
A write that is not (`fork`, `create_pull`, `create_comment`, `reply`) is sent once; where
its answer is lost, `UncertainError` says that nobody knows whether it happened: look for
it (`repository`, `pulls_from`, `comments`, `review_comments`) before sending it again.

`repository` is always `owner/name`, `branch` a name without `refs/heads/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from contribbot.github.reading import Reader
from contribbot.model.discussion import Comment, ReviewComment
from contribbot.model.gitdata import NewCommit, TreeChange
from contribbot.model.github import PullRequest, Repository

__all__ = ["GitHub", "Reader"]


class GitHub(Reader, Protocol):
    """What is read from GitHub and written to it."""

    def fork(self, repository: str) -> Repository:
        """Make the account's fork of a repository. GitHub makes it while it answers."""
        ...

    def sync_fork(self, repository: str, branch: str) -> None:
        """Bring a fork's branch, and with it the fork's objects, up to its upstream."""
        ...

    def create_blob(self, repository: str, content: bytes) -> str:
        """Store a file's content and return its id."""
        ...

    def create_blobs(self, repository: str, contents: Sequence[bytes]) -> tuple[str, ...]:
        """Store contents, four at a time, and return their ids in the same order."""
        ...

    def create_tree(
        self, repository: str, base_tree: str | None, changes: Sequence[TreeChange]
    ) -> str:
        """Store a tree that is another with changes, and return its id."""
        ...

    def create_commit(self, repository: str, commit: NewCommit) -> str:
        """Store a commit and return its id."""
        ...

    def create_ref(self, repository: str, branch: str, sha: str) -> None:
        """Make a branch; one that is there already and has that commit is fine."""
        ...

    def update_ref(self, repository: str, branch: str, sha: str, *, force: bool = False) -> None:
        """Move a branch to a commit."""
        ...

    def move_ref(self, repository_id: str, branch: str, *, old: str, new: str) -> None:
        """Move a branch, forced, if it still has the commit that it is thought to have.

        Whether it moved is not said: GitHub may refuse it (only GraphQL can ask for it), or
        the branch has another commit by now. Look with `ref`.
        """
        ...

    def create_pull(
        self, repository: str, *, title: str, body: str, head: str, base: str, draft: bool
    ) -> PullRequest:
        """Open a pull request."""
        ...

    def update_pull(
        self,
        repository: str,
        number: int,
        *,
        title: str | None = None,
        body: str | None = None,
        base: str | None = None,
    ) -> PullRequest:
        """Change a pull request; what is None stays."""
        ...

    def mark_ready(self, repository: str, pull: PullRequest) -> bool:
        """Mark a draft ready for review; return whether it is, as GraphQL may be refused."""
        ...

    def create_comment(self, repository: str, number: int, text: str) -> Comment:
        """Comment on a pull request or issue."""
        ...

    def reply(self, repository: str, number: int, comment: int, text: str) -> ReviewComment:
        """Answer in a thread of a pull request."""
        ...
