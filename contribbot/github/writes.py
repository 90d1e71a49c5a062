"""Writing to GitHub."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final

from pydantic import AliasPath, Field, JsonValue, TypeAdapter

from contribbot.errors import GitHubError, RefusedError
from contribbot.github.base import ONCE, REPEATED, STORED, Part
from contribbot.github.bodies import MOVE, READY, commit_body, move_variables, tree_body
from contribbot.github.caller import part, slug
from contribbot.github.git_reads import GitReads
from contribbot.github.objects import blob_id
from contribbot.model.base import ObjectId
from contribbot.model.discussion import Comment, ReviewComment
from contribbot.model.gitdata import NewCommit, TreeChange
from contribbot.model.github import PullRequest, Repository, Said

_UNPROCESSABLE: Final = 422
#: Blobs that are sent at once; GitHub asks clients not to send many writes at a time.
_AT_ONCE: Final = 4


class _Made(Said):
    sha: ObjectId


class _Ready(Said):
    """What came of it; a part that GraphQL refuses is null."""

    draft: Annotated[
        bool,
        Field(
            validation_alias=AliasPath(
                "data", "markPullRequestReadyForReview", "pullRequest", "isDraft"
            )
        ),
    ] = True


class Writes(Part):
    """The part of `GitHub` that writes."""

    def fork(self, repository: str) -> Repository:
        """See `GitHub.fork`."""
        answer = self._caller.send("POST", f"{slug(repository)}/forks", {}, ONCE)
        return self._caller.read(answer, TypeAdapter(Repository))

    def sync_fork(self, repository: str, branch: str) -> None:
        """See `GitHub.sync_fork`."""
        path = f"{slug(repository)}/merge-upstream"
        self._caller.send("POST", path, {"branch": branch}, REPEATED)

    def create_blob(self, repository: str, content: bytes) -> str:
        """See `GitHub.create_blob`."""
        body: JsonValue = {"content": base64.b64encode(content).decode(), "encoding": "base64"}
        made = self._store(f"{slug(repository)}/git/blobs", body)
        if made != blob_id(content):
            raise GitHubError(
                f"POST {slug(repository)}/git/blobs: GitHub stored something else ({made[:12]})"
            )
        return made

    def create_blobs(self, repository: str, contents: Sequence[bytes]) -> tuple[str, ...]:
        """See `GitHub.create_blobs`."""
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="github")
        try:
            return tuple(pool.map(lambda one: self.create_blob(repository, one), contents))
        finally:
            # After a failure those that nobody began are not begun.
            pool.shutdown(cancel_futures=True)

    def create_tree(
        self, repository: str, base_tree: str | None, changes: Sequence[TreeChange]
    ) -> str:
        """See `GitHub.create_tree`."""
        return self._store(f"{slug(repository)}/git/trees", tree_body(base_tree, changes))

    def create_commit(self, repository: str, commit: NewCommit) -> str:
        """See `GitHub.create_commit`."""
        return self._store(f"{slug(repository)}/git/commits", commit_body(commit))

    def create_ref(self, repository: str, branch: str, sha: str) -> None:
        """See `GitHub.create_ref`."""
        body: JsonValue = {"ref": f"refs/heads/{branch}", "sha": sha}
        try:
            self._caller.send("POST", f"{slug(repository)}/git/refs", body, STORED)
        except RefusedError as error:
            # Made before, in this call or by somebody: the same commit is what was wanted.
            if (
                error.status != _UNPROCESSABLE
                or "already exists" not in error.message
                or GitReads(self._caller).ref(repository, branch) != sha
            ):
                raise

    def update_ref(self, repository: str, branch: str, sha: str, *, force: bool = False) -> None:
        """See `GitHub.update_ref`."""
        path = f"{slug(repository)}/git/refs/heads/{part(branch, slashes=True)}"
        self._caller.send("PATCH", path, {"sha": sha, "force": force}, REPEATED)

    def move_ref(self, repository_id: str, branch: str, *, old: str, new: str) -> None:
        """See `GitHub.move_ref`."""
        # A second one finds another commit there, and changes nothing.
        self._graphql(MOVE, move_variables(repository_id, branch, old=old, new=new))

    def create_pull(
        self, repository: str, *, title: str, body: str, head: str, base: str, draft: bool
    ) -> PullRequest:
        """See `GitHub.create_pull`."""
        content: JsonValue = {
            "title": title, "body": body, "head": head, "base": base, "draft": draft,
        }  # fmt: skip
        answer = self._caller.send("POST", f"{slug(repository)}/pulls", content, ONCE)
        return self._caller.read(answer, TypeAdapter(PullRequest))

    def update_pull(
        self,
        repository: str,
        number: int,
        *,
        title: str | None = None,
        body: str | None = None,
        base: str | None = None,
    ) -> PullRequest:
        """See `GitHub.update_pull`."""
        given = {"title": title, "body": body, "base": base}
        content: JsonValue = {key: value for key, value in given.items() if value is not None}
        path = f"{slug(repository)}/pulls/{number:d}"
        answer = self._caller.send("PATCH", path, content, REPEATED)
        return self._caller.read(answer, TypeAdapter(PullRequest))

    def mark_ready(self, repository: str, pull: PullRequest) -> bool:
        """See `GitHub.mark_ready`."""
        del repository  # GraphQL knows it by the pull request's id
        answer = self._graphql(READY, {"pull": pull.node_id}) if pull.node_id else None
        return answer is not None and not self._caller.read(answer, TypeAdapter(_Ready)).draft

    def create_comment(self, repository: str, number: int, text: str) -> Comment:
        """See `GitHub.create_comment`."""
        path = f"{slug(repository)}/issues/{number:d}/comments"
        answer = self._caller.send("POST", path, {"body": text}, ONCE)
        return self._caller.read(answer, TypeAdapter(Comment))

    def reply(self, repository: str, number: int, comment: int, text: str) -> ReviewComment:
        """See `GitHub.reply`."""
        path = f"{slug(repository)}/pulls/{number:d}/comments/{comment:d}/replies"
        answer = self._caller.send("POST", path, {"body": text}, ONCE)
        return self._caller.read(answer, TypeAdapter(ReviewComment))

    def _store(self, path: str, body: JsonValue) -> str:
        """Store a git object: its id follows from its content, so it may be sent twice."""
        answer = self._caller.send("POST", path, body, STORED)
        return self._caller.read(answer, TypeAdapter(_Made)).sha
