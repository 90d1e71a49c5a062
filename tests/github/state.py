"""What the local GitHub knows besides git: users, repositories, pull requests, what was said.

Plain dataclasses; the facts about commits are never kept here but read from git. Whoever
changes anything holds `State.lock`: handlers of POST, PUT, PATCH and DELETE do already
(see `wire.route`), and so do the methods of the fixture's handle.
"""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.github.gitdata import BareRepository
from tests.github.records import (
    CheckRun,
    Comment,
    CommitStatus,
    Event,
    Review,
    ReviewComment,
    Token,
    User,
    node_id,
)

__all__ = [
    "PUSHERS",
    "CheckRun",
    "Clock",
    "Comment",
    "CommitStatus",
    "Event",
    "Issue",
    "Permission",
    "Pull",
    "Repository",
    "Review",
    "ReviewComment",
    "State",
    "Token",
    "User",
    "node_id",
]

Permission = Literal["read", "triage", "write", "maintain", "admin"]
PUSHERS: frozenset[Permission] = frozenset({"write", "maintain", "admin"})


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
    state_reason: str | None = None
    closed_at: str | None = None
    closed_by: User | None = None
    locked: bool = False
    labels: list[str] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    pull: Pull | None = None


@dataclass(eq=False)
class Pull:
    """What a pull request has beyond its issue.

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
    maintainer_can_modify: bool = True
    merged_at: str | None = None
    merged_by: User | None = None
    merge_commit: str | None = None
    test_merge: str | None = None
    judged: tuple[str, str] | None = None  # the (head, base) for which mergeability is known
    reviews: list[Review] = field(default_factory=list)
    review_comments: list[ReviewComment] = field(default_factory=list)
    resolved: set[int] = field(default_factory=set)  # id of the first comment of a thread

    @property
    def number(self) -> int:
        """The number, shared with issues."""
        return self.issue.number


@dataclass(eq=False)
class Repository:
    """A repository; `git` holds its refs, and its objects are those of its fork network."""

    id: int
    owner: User
    name: str
    git: BareRepository
    default_branch: str
    created_at: str
    parent: Repository | None = None
    private: bool = False
    archived: bool = False
    has_issues: bool = True
    has_pull_requests: bool = True
    pull_request_creation_policy: str = "all"  # or "collaborators_only"
    description: str | None = None
    polls_until_ready: int = 0  # a fork that GitHub still copies answers 404 so many times
    members: dict[str, Permission] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # name -> colour
    check_runs: list[CheckRun] = field(default_factory=list)
    statuses: list[CommitStatus] = field(default_factory=list)
    truncate_trees: bool = False  # a recursive tree answers as if it were too large
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def full_name(self) -> str:
        """Owner and name."""
        return f"{self.owner.login}/{self.name}"

    @property
    def source(self) -> Repository | None:
        """The root of the fork network, for a fork."""
        root = self.parent
        while root is not None and root.parent is not None:
            root = root.parent
        return root

    def permission(self, user: User | None) -> Permission | None:
        """Say what a user may do here; None: not even see it."""
        if user is not None:
            if user is self.owner:
                return "admin"
            if user.login in self.members:
                return self.members[user.login]
        return None if self.private else "read"

    def pulls(self) -> list[Pull]:
        """Return the pull requests, oldest first."""
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
    """Everything, with one lock for whoever changes it.

    Args:
        root: A folder for the repositories.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = threading.RLock()
        self.clock = Clock()
        self.ids = itertools.count(1001)
        self.users: dict[str, User] = {}
        self.repositories: dict[str, Repository] = {}
        self.base = ""  # set by the server: where it is reached
        # Options, as tests want them.
        self.forks_ready_after = 0  # polls of a new fork that answer 404
        self.lagging_forks = False  # a new fork misses what its upstream gets later
        self.mergeable_at_once = True  # else null at the first GET after a change, as on GitHub
        self.missing_scope_status: Literal[403, 404] = 403
        self.rate_limits = {"core": 5000, "search": 30, "graphql": 5000}
        self.reset_after = 3600  # seconds until a rate limit is full again

    def next_id(self) -> int:
        """Return a number that nothing has yet."""
        return next(self.ids)

    def user(self, login: str) -> User | None:
        """Find a user; case does not matter."""
        return self.users.get(login.lower())

    def repository(self, full_name: str) -> Repository | None:
        """Find a repository by owner/name; case does not matter."""
        return self.repositories.get(full_name.lower())

    def bearer(self, text: str) -> tuple[User, Token] | None:
        """Find whose token it is."""
        for user in list(self.users.values()):
            for token in user.tokens:
                if token.text == text:
                    return user, token
        return None
