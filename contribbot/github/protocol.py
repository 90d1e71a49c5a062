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
        """Make the account's fork of a repository. GitHub makes it while it answers.

        Raises:
            UncertainError: The answer was lost; look with `repository`.
            RefusedError: It may not be forked.
        """
        ...

    def sync_fork(self, repository: str, branch: str) -> None:
        """Bring a fork's branch, and with it the fork's objects, up to its upstream.

        Args:
            repository: The fork.
            branch: Its branch, by the upstream's name.

        Raises:
            RefusedError: The branch has commits that conflict (409).
        """
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
        """Store a tree that is another with changes, and return its id.

        Raises:
            NotFoundError, RefusedError: The repository does not have `base_tree` (a fork
                that has not seen the upstream's newest: `sync_fork`) or a blob.
        """
        ...

    def create_commit(self, repository: str, commit: NewCommit) -> str:
        """Store a commit and return its id.

        Raises:
            NotFoundError, RefusedError: The repository does not have a parent or the tree.
        """
        ...

    def create_ref(self, repository: str, branch: str, sha: str) -> None:
        """Make a branch; one that is there already and has that commit is fine.

        Raises:
            RefusedError: There is such a branch with another commit (422).
        """
        ...

    def update_ref(self, repository: str, branch: str, sha: str, *, force: bool = False) -> None:
        """Move a branch to a commit.

        Args:
            repository: The repository.
            branch: The branch.
            sha: The commit.
            force: Whether the commit need not follow the one that the branch has.

        Raises:
            RefusedError: Not a fast forward, and not forced (422); or there is no such branch.
        """
        ...

    def move_ref(self, repository_id: str, branch: str, *, old: str, new: str) -> None:
        """Move a branch, forced, if it still has the commit that it is thought to have.

        Whether it moved is not said: GitHub may refuse it (only GraphQL can ask for it), or
        the branch has another commit by now. Look with `ref`.

        Args:
            repository_id: The repository's `node_id`.
            branch: The branch.
            old: The commit that it must have.
            new: The commit that it gets.
        """
        ...

    def create_pull(
        self, repository: str, *, title: str, body: str, head: str, base: str, draft: bool
    ) -> PullRequest:
        """Open a pull request.

        Args:
            repository: Where to.
            title: Its title.
            body: Its text.
            head: `owner:branch` that it brings.
            base: The branch that it goes to.
            draft: Whether it is a draft.

        Raises:
            UncertainError: The answer was lost; look with `pulls_from`.
            RefusedError: There is one already from that branch, or nothing to merge (422).
        """
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
        """Mark a draft ready for review; return whether it is, as GraphQL may be refused.

        Args:
            repository: Where it is.
            pull: The draft.
        """
        ...

    def create_comment(self, repository: str, number: int, text: str) -> Comment:
        """Comment on a pull request or issue.

        Raises:
            UncertainError: The answer was lost; look with `comments`.
        """
        ...

    def reply(self, repository: str, number: int, comment: int, text: str) -> ReviewComment:
        """Answer in a thread of a pull request.

        Args:
            repository: Where.
            number: The pull request.
            comment: The comment that began the thread.
            text: The answer.

        Raises:
            UncertainError: The answer was lost; look with `review_comments`.
        """
        ...
