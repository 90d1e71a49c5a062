"""Everything but the sending: reads go to GitHub, writes are written down."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from contribbot.errors import GitHubError
from contribbot.github.bodies import MOVE, READY, commit_body, move_variables, tree_body
from contribbot.github.caller import Caller, part, slug
from contribbot.github.git_reads import GitReads
from contribbot.github.objects import blob_id, commit_id, tree_id
from contribbot.github.pull_reads import PullReads
from contribbot.model.discussion import Comment, ReviewComment
from contribbot.model.gitdata import NewCommit, TreeChange, TreeEntry
from contribbot.model.github import Origin, Permissions, PullRequest, Repository, Side

#: Stands for an id that only GitHub could have given.
UNKNOWN: Final = "0" * 40
_FOLDER: Final = "040000"


@dataclass(frozen=True)
class Planned:
    """A request that would be sent.

    Attributes:
        method: POST or PATCH.
        path: The path behind the API's URL.
        body: What would be sent; of a blob, its size and not its content.
        summary: What it does, in a line.
    """

    method: str
    path: str
    body: Mapping[str, JsonValue]
    summary: str


@dataclass
class _Memory:
    """What was rehearsed, so that later reads fit to it."""

    refs: dict[tuple[str, str], str] = field(default_factory=dict)
    forks: dict[str, Repository] = field(default_factory=dict)
    #: Names of repositories, by their ids in GraphQL.
    names: dict[str, str] = field(default_factory=dict)
    #: Where a tree was read: the fork may not have it, or not be there yet.
    trees: dict[str, str] = field(default_factory=dict)
    #: The folders of trees that were made here.
    made: dict[str, tuple[TreeEntry, ...]] = field(default_factory=dict)


class Rehearsal(GitReads, PullReads):
    """`GitHub` that sends nothing but reads.

    The ids of blobs, trees and commits are those that GitHub would give, as far as the base
    can be read; numbers are 0.
    """

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self.planned: list[Planned] = []
        self._memory = _Memory()

    def repository(self, repository: str) -> Repository:
        """See `Reader.repository`; a fork that was rehearsed is there."""
        known = self._memory.forks.get(repository.lower())
        if known is None:
            known = super().repository(repository)
            self._memory.names[known.node_id] = known.full_name
        return known

    def ref(self, repository: str, branch: str) -> str | None:
        """See `Reader.ref`; a branch that was rehearsed is there."""
        known = self._memory.refs.get((repository.lower(), branch))
        if known is not None:
            return known
        if repository.lower() in self._memory.forks:
            return None
        return super().ref(repository, branch)

    def tree(self, repository: str, tree: str, paths: Collection[str]) -> Mapping[str, TreeEntry]:
        """See `Reader.tree`."""
        self._memory.trees[tree] = repository
        return super().tree(repository, tree, paths)

    def fork(self, repository: str) -> Repository:
        """See `GitHub.fork`."""
        upstream, me = super().repository(repository), self.me().login
        name = f"{me}/{upstream.full_name.partition('/')[2]}"
        self._plan("POST", f"{slug(repository)}/forks", {}, f"fork {repository} as {name}")
        origin = Origin(full_name=upstream.full_name)
        made = upstream.model_copy(
            update={
                "full_name": name, "html_url": f"{self._caller.server.web}/{name}", "fork": True,
                "parent": origin, "source": upstream.source or origin,
                "permissions": Permissions(push=True), "node_id": "",
            }
        )  # fmt: skip
        self._memory.forks[name.lower()] = made
        return made

    def sync_fork(self, repository: str, branch: str) -> None:
        """See `GitHub.sync_fork`."""
        path = f"{slug(repository)}/merge-upstream"
        self._plan("POST", path, {"branch": branch}, f"bring {branch} of {repository} up to date")

    def create_blob(self, repository: str, content: bytes) -> str:
        """See `GitHub.create_blob`."""
        made = blob_id(content)
        self._plan(
            "POST",
            f"{slug(repository)}/git/blobs",
            {"encoding": "base64", "bytes": len(content)},
            f"store a file of {len(content)} bytes as {made[:12]}",
        )
        return made

    def create_blobs(self, repository: str, contents: Sequence[bytes]) -> tuple[str, ...]:
        """See `GitHub.create_blobs`."""
        return tuple(self.create_blob(repository, one) for one in contents)

    def create_tree(
        self, repository: str, base_tree: str | None, changes: Sequence[TreeChange]
    ) -> str:
        """See `GitHub.create_tree`."""
        try:
            made = self._tree(repository, base_tree, {one.path: one for one in changes})
        except GitHubError:
            made = UNKNOWN  # the base cannot be read
        touched = ", ".join(one.path for one in changes)
        self._plan(
            "POST",
            f"{slug(repository)}/git/trees",
            tree_body(base_tree, changes),
            f"store the tree {made[:12]}: {touched}",
        )
        if base_tree is not None:
            where = self._memory.trees.get(base_tree, repository)
            self._memory.trees.setdefault(made, where)
        return made

    def create_commit(self, repository: str, commit: NewCommit) -> str:
        """See `GitHub.create_commit`."""
        made = commit_id(commit)
        title = commit.message.partition("\n")[0]
        self._plan(
            "POST",
            f"{slug(repository)}/git/commits",
            commit_body(commit),
            f"store the commit {made[:12]}: {title}",
        )
        return made

    def create_ref(self, repository: str, branch: str, sha: str) -> None:
        """See `GitHub.create_ref`."""
        self._memory.refs[repository.lower(), branch] = sha
        self._plan(
            "POST",
            f"{slug(repository)}/git/refs",
            {"ref": f"refs/heads/{branch}", "sha": sha},
            f"make the branch {branch} of {repository} at {sha[:12]}",
        )

    def update_ref(self, repository: str, branch: str, sha: str, *, force: bool = False) -> None:
        """See `GitHub.update_ref`."""
        self._memory.refs[repository.lower(), branch] = sha
        self._plan(
            "PATCH",
            f"{slug(repository)}/git/refs/heads/{part(branch, slashes=True)}",
            {"sha": sha, "force": force},
            f"move the branch {branch} of {repository} to {sha[:12]}{', forced' if force else ''}",
        )

    def move_ref(self, repository_id: str, branch: str, *, old: str, new: str) -> None:
        """See `GitHub.move_ref`; a repository that was not looked at has no such id."""
        repository = self._memory.names[repository_id]
        self._memory.refs[repository.lower(), branch] = new
        variables = move_variables(repository_id, branch, old=old, new=new)
        self._plan(
            "POST", "/graphql", {"query": MOVE, "variables": variables},
            f"move the branch {branch} of {repository} to {new[:12]}, if it has {old[:12]}",
        )  # fmt: skip

    def create_pull(
        self, repository: str, *, title: str, body: str, head: str, base: str, draft: bool
    ) -> PullRequest:
        """See `GitHub.create_pull`."""
        kind = "a draft of a pull request" if draft else "a pull request"
        content: dict[str, JsonValue] = {
            "title": title, "body": body, "head": head, "base": base, "draft": draft,
        }  # fmt: skip
        path = f"{slug(repository)}/pulls"
        self._plan("POST", path, content, f"open {kind} of {head} to {repository}: {title}")
        owner, _, branch = head.rpartition(":")
        fork = f"{owner or repository.partition('/')[0]}/{repository.partition('/')[2]}"
        head_sha = self._memory.refs.get((fork.lower(), branch), UNKNOWN)
        now = datetime.now(UTC)
        return PullRequest(
            number=0,
            state="open",
            title=title,
            body=body,
            draft=draft,
            head=Side(ref=branch, sha=head_sha, repository=fork),
            base=Side(ref=base, sha=UNKNOWN, repository=repository),
            html_url=f"{self._caller.server.web}/{repository}/pulls",
            created_at=now,
            updated_at=now,
        )

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
        content = {key: value for key, value in given.items() if value is not None}
        path = f"{slug(repository)}/pulls/{number:d}"
        self._plan("PATCH", path, content, f"change {', '.join(content)} of {repository}#{number}")
        now = self.pull(repository, number).value
        return now.model_copy(
            update={key: value for key, value in content.items() if key != "base"}
        )

    def mark_ready(self, repository: str, pull: PullRequest) -> bool:
        """See `GitHub.mark_ready`."""
        self._plan(
            "POST", "/graphql", {"query": READY, "variables": {"pull": pull.node_id}},
            f"mark {repository}#{pull.number} ready for review",
        )  # fmt: skip
        return True

    def create_comment(self, repository: str, number: int, text: str) -> Comment:
        """See `GitHub.create_comment`."""
        path = f"{slug(repository)}/issues/{number:d}/comments"
        self._plan("POST", path, {"body": text}, f"comment on {repository}#{number}")
        now = datetime.now(UTC)
        page = f"{self._caller.server.web}/{repository}/pull/{number}"
        return Comment(id=0, body=text, html_url=page, created_at=now, updated_at=now)

    def reply(self, repository: str, number: int, comment: int, text: str) -> ReviewComment:
        """See `GitHub.reply`."""
        path = f"{slug(repository)}/pulls/{number:d}/comments/{comment:d}/replies"
        self._plan("POST", path, {"body": text}, f"answer in a thread of {repository}#{number}")
        now = datetime.now(UTC)
        page = f"{self._caller.server.web}/{repository}/pull/{number}"
        return ReviewComment(
            id=0, body=text, html_url=page, created_at=now, updated_at=now, path="",
            in_reply_to_id=comment,
        )  # fmt: skip

    def _plan(self, method: str, path: str, body: Mapping[str, JsonValue], summary: str) -> None:
        self.planned.append(Planned(method, path, body, " ".join(summary.split())))

    def _tree(self, repository: str, base: str | None, changes: Mapping[str, TreeChange]) -> str:
        """Work out the id of a tree with changes, folder by folder."""
        here = {one.path: one for one in self._folder(repository, base)} if base else {}
        below: dict[str, dict[str, TreeChange]] = {}
        for path, change in changes.items():
            name, slash, rest = path.partition("/")
            if slash:
                below.setdefault(name, {})[rest] = change
            elif change.sha is None:
                here.pop(name, None)
            else:
                here[name] = TreeEntry(path=name, mode=change.mode, sha=change.sha)
        for name, inside in below.items():
            old = here.get(name)
            where = self._memory.trees.get(base or "", repository)
            if old is not None and old.is_folder:
                self._memory.trees.setdefault(old.sha, where)
            sha = self._tree(repository, old.sha if old and old.is_folder else None, inside)
            if self._memory.made[sha]:
                here[name] = TreeEntry(path=name, mode=_FOLDER, sha=sha)
            else:
                here.pop(name, None)  # git has no empty folders
        made = tree_id(list(here.values()))
        self._memory.made[made] = tuple(here.values())
        return made

    def _folder(self, repository: str, tree: str) -> tuple[TreeEntry, ...]:
        if tree in self._memory.made:
            return self._memory.made[tree]
        return self.folder(self._memory.trees.get(tree, repository), tree)
