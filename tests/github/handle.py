"""The object that the fixture `github` gives to a test."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tests.github import pulling
from tests.github.gitdata import Person, git_time
from tests.github.pulling import add_event, set_labels
from tests.github.render import page
from tests.github.server import Hook, LocalServer
from tests.github.state import Kind, Permission, Pull, Repository, State, Token, User

How = Literal["merge", "squash", "bot"]


class GitHub(LocalServer):
    """The local GitHub, with methods that change its state without requests."""

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
        """Merge it as GitHub does, or land it as a bot does; return the commit on its base.

        A bot pushes one commit and closes: it is then closed and not merged, and the commit and
        the `closed` event name each other (pytorchmergebot).
        """
        state, git, issue = self.state, pull.base.git, pull.issue
        with state.lock:
            pulling.settle(state, pull)
            if how == "bot":
                who = who or state.user("mergebot") or self.add_user("mergebot", kind="Bot")
            who = who or pull.base.owner
            base, head = pull.base_sha, pull.head_sha
            person = Person(who.name, who.noreply, git_time(state.clock.now()))
            tree = git.merge_tree(base, head)
            assert tree is not None, "it conflicts with its base"
            if how == "merge":
                words = f"Merge pull request #{issue.number} from {pull.head_owner.login}"
                message = f"{words}/{pull.head_ref}\n\n{issue.title}"
                sha = git.add_commit(tree, [base, head], person, person, message)
            else:
                first = git.commit(git.between(base, head)[0])
                body = first.message.rstrip("\n").partition("\n\n")[2]
                if how == "bot":
                    body = f"{issue.body or ''}\n\nPull Request resolved: {page(issue)}".strip()
                text = f"{issue.title} (#{issue.number})\n\n{body}".strip()
                sha = git.add_commit(tree, [base], first.author, person, text)
            git.set_ref(f"refs/heads/{pull.base_ref}", sha)
            if how == "bot":
                add_event(state, issue, who, "referenced", commit=sha)
                add_event(state, issue, who, "closed", commit=sha)
                set_labels(state, issue, who, [*issue.labels, "Merged"])
            else:
                pulling.mark_merged(state, pull, who, sha)
            pulling.settle(state, pull.base)
            return sha

    def commit(
        self, repository: Repository, branch: str, files: Mapping[str, bytes | None],
        message: str = "A change\n", *, who: User | None = None,
    ) -> str:  # fmt: skip
        """Push one commit to a branch (made from the default branch if new); None deletes."""
        git, who, heads = repository.git, who or repository.owner, "refs/heads/"
        with self.state.lock:
            tip = git.ref(heads + branch) or git.ref(heads + repository.default_branch)
            rows = [(path, "100644", None if content is None else git.add_blob(content))
                    for path, content in files.items()]  # fmt: skip
            tree = git.add_tree(git.commit(tip).tree if tip else None, rows)
            person = Person(who.name, who.email, git_time(self.state.clock.now()))
            sha = git.add_commit(tree, [tip] if tip else [], person, person, message)
            git.set_ref(heads + branch, sha)
            pulling.settle(self.state, repository)
            return sha

    def count(self, method: str | None = None, path: str = "") -> int:
        return sum(method in {None, it.method} and path in it.path for it in self.requests)


@contextlib.contextmanager
def serve(folder: Path, *hooks: Hook) -> Iterator[GitHub]:
    """Start a local GitHub without users; a request that it does not model fails the test."""
    github = GitHub(State(folder))
    github.hooks += hooks
    github.start()
    try:
        yield github
    finally:
        github.stop()
    assert github.broken == [], "\n".join(github.broken)
