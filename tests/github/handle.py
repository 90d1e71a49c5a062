"""What the fixture `github` gives to a test."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.github import pulling
from tests.github.pulling import How
from tests.github.server import Hook, LocalServer
from tests.github.state import Kind, Permission, Pull, Repository, State, Token, User


class GitHub(LocalServer):
    """The local GitHub, with what a test does behind its back."""

    def add_user(
        self, login: str, *, scopes: Sequence[str] = ("repo", "workflow"), kind: Kind = "User"
    ) -> User:
        """Add a user with a classic token, `user.tokens[0].text`."""
        with self.state.lock:
            email = f"{login}@example.org"
            user = User(self.state.next_id(), login, login.title(), email, kind)
            self.state.users[login.lower()] = user
            user.tokens.append(Token(f"ghp_{secrets.token_hex(18)}", tuple(scopes)))
            return user

    def add_token(
        self, user: User, *, repositories: Sequence[str],
        permissions: Sequence[str] = ("contents", "pull_requests", "issues"),
    ) -> str:  # fmt: skip
        """Add a fine-grained token that writes to these repositories alone, and return it."""
        token = Token(
            f"github_pat_{secrets.token_hex(30)}", (), fine_grained=True,
            repositories=frozenset(repositories), permissions=frozenset(permissions),
        )  # fmt: skip
        user.tokens.append(token)
        return token.text

    def add_repository(
        self, full_name: str, source: Path | None = None, *,
        members: dict[str, Permission] | None = None,
    ) -> Repository:  # fmt: skip
        """Add a repository; `source` is a real one, bare or not, whose branches it gets.

        An owner that is not there yet is added as an organization.
        """
        owner_login, _, name = full_name.partition("/")
        with self.state.lock:
            owner = self.state.user(owner_login) or self.add_user(owner_login, kind="Organization")
            made = pulling.add_repository(self.state, owner, name, "main")
            if source is not None:
                made.git.import_from(source)
            made.members.update(members or {})
            return made

    def fork(self, upstream: Repository, user: User, name: str | None = None) -> Repository:
        with self.state.lock:
            return pulling.fork(self.state, upstream, user, name)

    def pull(
        self, base: Repository, head: Repository, branch: str, *, title: str = "A change",
        body: str | None = None, user: User | None = None, base_branch: str | None = None,
        draft: bool = False,
    ) -> Pull:  # fmt: skip
        with self.state.lock:
            return pulling.make_pull(
                self.state, user or head.owner, (base, base_branch or base.default_branch),
                (head, branch), title=title, text=body, draft=draft,
            )  # fmt: skip

    def merge(self, pull: Pull, how: How = "merge", who: User | None = None) -> str:
        """Merge it, or let a bot land it, and return the commit on the base branch."""
        with self.state.lock:
            pulling.settle(self.state, pull)
            if how == "bot" and who is None:
                who = self.state.user("mergebot") or self.add_user("mergebot", kind="Bot")
            return pulling.merge(self.state, pull, who or pull.base.owner, how)

    def commit(
        self, repository: Repository, branch: str, files: Mapping[str, bytes | None],
        message: str = "A change\n", *, who: User | None = None,
    ) -> str:  # fmt: skip
        """Push one commit to a branch (made from the default branch if new); None deletes."""
        with self.state.lock:
            who = who or repository.owner
            return pulling.push(self.state, repository, branch, files, message=message, who=who)

    def count(self, method: str | None = None, path: str = "") -> int:
        return sum(method in {None, it.method} and path in it.path for it in self.requests)


@contextlib.contextmanager
def serve(folder: Path, *hooks: Hook) -> Iterator[GitHub]:
    """Start a local GitHub with nobody in it; what it does not model fails the test."""
    github = GitHub(State(folder))
    github.hooks += hooks
    github.start()
    try:
        yield github
    finally:
        github.stop()
    assert github.broken == [], "\n".join(github.broken)
