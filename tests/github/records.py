"""Users, tokens, and what is said and judged about issues and commits."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Literal


def node_id(kind: str, number: int) -> str:
    """Make GitHub's opaque name of a thing."""
    return base64.b64encode(f"{kind}:{number}".encode()).decode()


@dataclass(eq=False)
class Token:
    """A token; `scopes` of a classic one, repositories and permissions of a fine-grained one."""

    text: str
    scopes: tuple[str, ...] = ("repo",)
    fine_grained: bool = False
    repositories: frozenset[str] = frozenset()
    permissions: frozenset[str] = frozenset({"contents", "pull_requests", "issues"})


@dataclass(eq=False)
class User:
    """A person, a bot, or an organization."""

    id: int
    login: str
    name: str
    email: str
    kind: Literal["User", "Bot", "Organization"] = "User"
    tokens: list[Token] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)  # requests by rate limit resource


@dataclass(eq=False)
class Comment:
    """A comment in the conversation of an issue or a pull request."""

    id: int
    user: User
    body: str
    created_at: str
    updated_at: str


@dataclass(eq=False)
class Event:
    """Something that happened to an issue: closed, reopened, merged, referenced, labeled."""

    id: int
    event: str
    actor: User
    created_at: str
    commit_id: str | None = None
    label: str | None = None


@dataclass(eq=False)
class ReviewComment:
    """A comment on a line; those with the same `thread` are one conversation."""

    id: int
    user: User
    body: str
    created_at: str
    updated_at: str
    path: str
    commit_id: str
    original_commit_id: str
    diff_hunk: str
    line: int | None
    original_line: int | None
    side: Literal["LEFT", "RIGHT"] = "RIGHT"
    start_line: int | None = None
    review: Review | None = None
    reply_to: ReviewComment | None = None


@dataclass(eq=False)
class Review:
    """A review with its verdict."""

    id: int
    user: User
    body: str
    state: Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED", "PENDING"]
    commit_id: str
    submitted_at: str


@dataclass(eq=False)
class CheckRun:
    """A check run on a commit."""

    id: int
    name: str
    head_sha: str
    status: Literal["queued", "in_progress", "completed"]
    conclusion: str | None
    started_at: str
    completed_at: str | None
    details_url: str | None = None
    title: str | None = None
    summary: str | None = None
    app: str = "github-actions"


@dataclass(eq=False)
class CommitStatus:
    """A status of a commit; the newest of a context counts."""

    id: int
    sha: str
    context: str
    state: Literal["error", "failure", "pending", "success"]
    description: str | None
    target_url: str | None
    creator: User
    created_at: str
