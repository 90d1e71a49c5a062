"""The local GitHub's state besides git: users, repositories, pull requests, talk.

Facts about commits are never kept here but read from git. Whoever changes anything holds
`State.lock`, as handlers and the methods of the fixture's handle do.
"""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue

from tests.github.gitdata import BareRepository

Json = dict[str, JsonValue]
Permission = Literal["read", "write", "admin"]
Kind = Literal["User", "Bot", "Organization"]
Verdict = Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED", "PENDING"]
PUSHERS: Final[frozenset[Permission]] = frozenset({"write", "admin"})


@dataclass(eq=False)
class Token:
    """A token: a classic token has scopes, a fine-grained token repositories and permissions."""

    text: str
    scopes: tuple[str, ...] = ("repo",)
    fine_grained: bool = False
    repositories: frozenset[str] = frozenset()
    permissions: frozenset[str] = frozenset()


@dataclass(eq=False)
class User:
    id: int
    login: str
    name: str
    email: str
    kind: Kind = "User"
    tokens: list[Token] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)  # requests by rate limit resource

    @property
    def noreply(self) -> str:
        return f"{self.id}+{self.login}@users.noreply.github.com"


@dataclass(eq=False)
class Comment:
    """A comment, a review (`state`), or a remark in a thread (`path` and `line`)."""

    id: int
    user: User
    body: str
    created_at: str
    updated_at: str
    state: Verdict | Literal[""] = ""
    path: str = ""
    line: int = 0
    reply_to: Comment | None = None


@dataclass(eq=False)
class Event:
    """Something that happened to an issue: closed, reopened, merged, referenced."""

    event: str
    actor: User
    created_at: str
    commit_id: str | None = None
    reason: str | None = None


@dataclass(eq=False)
class Job:
    """A check run or a status of a commit; no word: the job has not ended."""

    sha: str
    name: str
    word: str | None
    started_at: str
    is_status: bool = False


@dataclass(eq=False)
class CheckSuite:
    """A check suite without check runs: GitHub waits, or it could not start; of an app."""

    id: int
    head_sha: str
    app: str
    conclusion: str | None


@dataclass(eq=False)
class Issue:
    """An issue, or the conversation of a pull request."""

    id: int
    number: int
    repository: Repository
    user: User
    title: str
    body: str | None
    created_at: str
    updated_at: str
    state: Literal["open", "closed"] = "open"
    closed_at: str | None = None
    labels: list[str] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    pull: Pull | None = None


@dataclass(eq=False)
class Pull:
    """The fields of a pull request beyond its issue.

    `head_sha` and `base_sha` follow the branches while it is open and stay as they were when it
    was closed. `merge_commit` is set by a merge alone, never by a bot's landing; `test_merge` is
    what GitHub makes to see whether it merges. Both are shown as `merge_commit_sha`.
    """

    id: int
    issue: Issue
    base: Repository
    base_ref: str
    head: Repository | None  # None when the fork was deleted
    head_owner: User
    head_ref: str
    head_sha: str
    base_sha: str
    draft: bool
    merged_at: str | None = None
    merge_commit: str | None = None
    test_merge: str | None = None
    judged: tuple[str, str] | None = None  # the (head, base) for which mergeability is known
    reviews: list[Comment] = field(default_factory=list)
    review_comments: list[Comment] = field(default_factory=list)
    resolved: set[int] = field(default_factory=set)  # id of the first comment of a thread
    merge_state: str = ""  # in place of what follows from the rest

    @property
    def number(self) -> int:
        return self.issue.number

    @property
    def part(self) -> str:
        return self.base.git.merge_base(self.base_sha, self.head_sha) or self.base_sha


@dataclass(eq=False)
class Repository:
    """A repository; `git` holds its refs, and its objects are those of its fork network."""

    id: int
    owner: User
    name: str
    git: BareRepository
    default_branch: str
    created_at: str
    base: str  # the URL of the server
    parent: Repository | None = None
    archived: bool = False
    has_pull_requests: bool = True
    pull_request_creation_policy: str = "all"  # or "collaborators_only"
    polls_until_ready: int = 0  # a fork that GitHub still copies answers 404 so many times
    members: dict[str, Permission] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    check_suites: list[CheckSuite] = field(default_factory=list)
    #: The jobs that a rule of the branch requires.
    required: list[str] = field(default_factory=list)
    requires_review: bool = False
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    @property
    def api(self) -> str:
        return f"{self.base}/repos/{self.full_name}"

    @property
    def root(self) -> Repository:
        return self.parent.root if self.parent else self

    def permission(self, user: User | None) -> Permission:
        known = self.members.get(user.login, "read") if user else "read"
        return "admin" if user is self.owner else known

    def pulls(self) -> list[Pull]:
        return [issue.pull for issue in self.issues.values() if issue.pull is not None]


class Clock:
    """Time that only moves when something happens, one second each time."""

    def __init__(self) -> None:
        self.time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def now(self) -> str:
        """Let a second pass and return the time as GitHub writes it."""
        self.time += dt.timedelta(seconds=1)
        return self.time.strftime("%Y-%m-%dT%H:%M:%SZ")


class State:
    """The whole state of the local GitHub; a change needs `lock`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = threading.RLock()
        self.clock = Clock()
        self.ids = itertools.count(1001)
        self.users: dict[str, User] = {}
        self.repositories: dict[str, Repository] = {}
        self.base = ""  # set by the server: where it is reached
        # Options that tests set.
        self.forks_ready_after = 0  # polls of a new fork that answer 404
        self.mergeable_at_once = True  # else null at the first GET after a change, as on GitHub
        self.missing_scope_status: Literal[403, 404] = 403
        self.rate_limits = {"core": 5000, "search": 30, "graphql": 5000}

    def next_id(self) -> int:
        """Return a new id."""
        return next(self.ids)

    def user(self, login: str) -> User | None:
        return self.users.get(login.lower())

    def repository(self, full_name: str) -> Repository | None:
        return self.repositories.get(full_name.lower())

    def network(self, repository: Repository) -> list[Repository]:
        """Return the repositories that share the objects of a repository."""
        return [other for other in [*self.repositories.values()] if other.root is repository.root]

    def bearer(self, text: str) -> tuple[User, Token] | None:
        owned = ((user, token) for user in [*self.users.values()] for token in user.tokens)
        return next((pair for pair in owned if pair[1].text == text), None)
