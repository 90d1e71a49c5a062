"""What people and machines say on GitHub about a pull request, as far as contribbot reads it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field

from contribbot.model.base import ObjectId
from contribbot.model.github import Labels, Login, Said, Text, Time


def _is_there(value: object) -> object:
    """Return whether a key has something, for keys whose content does not matter."""
    return value if isinstance(value, bool) else value is not None


def _number(value: object) -> object:
    """Return the number that GraphQL gives as text, because its own have 32 bits."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class PullFile(Said):
    """A file that a pull request touches.

    Attributes:
        filename: Its path.
        status: `added`, `removed`, `modified`, `renamed`, `copied`, `changed`, `unchanged`.
        additions: Lines added.
        deletions: Lines removed.
        patch: Its hunks; none for binary and very large files.
        previous_filename: Where it was, when it was renamed.
    """

    filename: str
    status: str
    additions: int = 0
    deletions: int = 0
    patch: str | None = None
    previous_filename: str | None = None


class Issue(Said):
    """An issue or, for GitHub's issue endpoints and search, a pull request.

    Attributes:
        number: Its number.
        title: Title.
        body: Text.
        state: `open` or `closed`.
        user: Who opened it.
        html_url: Its page.
        is_pull_request: Whether it is a pull request.
        merged_at: When GitHub merged it, where it is a pull request.
        labels: Names of its labels.
        created_at: When it was opened.
        updated_at: When anything happened to it.
        closed_at: When it was closed.
    """

    number: int
    title: str
    body: Text = ""
    state: Literal["open", "closed"]
    user: Login = None
    html_url: str
    is_pull_request: Annotated[
        bool,
        BeforeValidator(_is_there),
        Field(validation_alias=AliasChoices("pull_request", "is_pull_request")),
    ] = False
    merged_at: Annotated[
        Time | None, Field(validation_alias=AliasPath("pull_request", "merged_at"))
    ] = None
    labels: Labels = ()
    created_at: Time
    updated_at: Time
    closed_at: Time | None = None


class Search(Said):
    """What a search found.

    Attributes:
        total_count: How many there are, which may be more than `items`.
        incomplete_results: Whether GitHub gave up before it had looked everywhere.
        items: The first of them, best first.
    """

    total_count: int
    incomplete_results: bool = False
    items: tuple[Issue, ...]


class IssueEvent(Said):
    """Something that happened to an issue or pull request.

    Attributes:
        id: Its number.
        event: What, such as `closed`, `referenced` or `merged`.
        actor: Who did it.
        commit_id: The commit that did it.
        created_at: When.
    """

    id: int
    event: str
    actor: Login = None
    commit_id: ObjectId | None = None
    created_at: Time


class Comment(Said):
    """A comment below a pull request or issue.

    Attributes:
        id: Its number.
        user: Who wrote it.
        body: Text.
        html_url: Its place on the page.
        created_at: When it was written.
        updated_at: When it was last changed.
    """

    id: int
    user: Login = None
    body: Text = ""
    html_url: str
    created_at: Time
    updated_at: Time


class ReviewComment(Comment):
    """A comment at a line of the change.

    Attributes:
        path: The file.
        line: The line in the newest version; none when it is outdated, or about a whole file.
        original_line: The line in the version that it was written about.
        start_line: Where it spans several lines, the first.
        side: `LEFT`: the line is one of the base; `RIGHT`: of the change.
        diff_hunk: The hunk down to that line.
        commit_id: The newest commit that it fits.
        original_commit_id: The commit that it was written about.
        in_reply_to_id: The comment that began the thread; none: this one does.
        pull_request_review_id: The review that it belongs to.
    """

    path: str
    line: int | None = None
    original_line: int | None = None
    start_line: int | None = None
    side: str = "RIGHT"
    diff_hunk: str = ""
    commit_id: ObjectId | None = None
    original_commit_id: ObjectId | None = None
    in_reply_to_id: int | None = None
    pull_request_review_id: int | None = None


class Review(Said):
    """A review.

    Attributes:
        id: Its number.
        user: Who wrote it.
        body: Text.
        state: `APPROVED`, `CHANGES_REQUESTED`, `COMMENTED`, `DISMISSED` or `PENDING`.
        html_url: Its place on the page.
        submitted_at: When; none while it is pending.
        commit_id: The commit that it is about.
    """

    id: int
    user: Login = None
    body: Text = ""
    state: str
    html_url: str
    submitted_at: Time | None = None
    commit_id: ObjectId | None = None


class ReviewThread(Said):
    """What only GraphQL says of a thread of review comments.

    Attributes:
        id: Its id in GraphQL.
        is_resolved: Whether somebody resolved it.
        is_outdated: Whether the lines that it is about have changed.
        first: The number of the comment that began it (`ReviewComment.id`); none where
            GitHub does not say.
    """

    id: str
    is_resolved: Annotated[bool, Field(validation_alias=AliasChoices("isResolved", "is_resolved"))]
    is_outdated: Annotated[bool, Field(validation_alias=AliasChoices("isOutdated", "is_outdated"))]
    first: Annotated[
        int | None,
        BeforeValidator(_number),
        Field(
            validation_alias=AliasChoices(
                AliasPath("comments", "nodes", 0, "fullDatabaseId"), "first"
            )
        ),
    ] = None


class CheckRun(Said):
    """A run of CI, as GitHub Actions and apps report it.

    Attributes:
        id: Its number.
        name: What it is called.
        status: `queued`, `in_progress`, `completed`, `waiting`, `requested` or `pending`.
        conclusion: Once completed: `success`, `failure`, `neutral`, `cancelled`,
            `skipped`, `timed_out`, `action_required` or `stale`.
        html_url: Its page.
        started_at: When it began.
        completed_at: When it ended.
    """

    id: int
    name: str
    status: str
    conclusion: str | None = None
    html_url: str | None = None
    started_at: Time | None = None
    completed_at: Time | None = None


class CommitStatus(Said):
    """A status of CI, as older systems report it: the latest of its context.

    Attributes:
        context: What it is called.
        state: `error`, `failure`, `pending` or `success`.
        description: In its own words.
        target_url: Its page.
        updated_at: When it was said.
    """

    context: str
    state: Literal["error", "failure", "pending", "success"]
    description: str | None = None
    target_url: str | None = None
    updated_at: Time
