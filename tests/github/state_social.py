"""Things that people and machines do besides git: talk, review, judge. For handlers and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tests.github import pulling
from tests.github.anchors import Side, find_anchor
from tests.github.state import (
    CheckRun,
    Comment,
    CommitStatus,
    Event,
    Issue,
    Pull,
    Repository,
    Review,
    ReviewComment,
    State,
    User,
)

Verdict = Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED", "PENDING"]
Mood = Literal["error", "failure", "pending", "success"]


def add_issue(state: State, where: Repository, author: User, title: str, body: str | None) -> Issue:
    """Open an issue."""
    with state.lock:
        now = state.clock.now()
        issue = Issue(state.next_id(), next(where.numbers), where, author, title, body, now, now)
        where.issues[issue.number] = issue
        return issue


def add_comment(state: State, issue: Issue, author: User, body: str) -> Comment:
    """Say something in the conversation of an issue or a pull request."""
    with state.lock:
        now = state.clock.now()
        comment = Comment(state.next_id(), author, body, now, now)
        issue.comments.append(comment)
        issue.updated_at = now
        return comment


def add_event(
    state: State, issue: Issue, actor: User, event: str, *,
    commit: str | None = None, label: str | None = None,
) -> Event:  # fmt: skip
    """Note that something happened; `closed` and `reopened` also change the state.

    Args:
        state: Where it all is.
        issue: The issue, or that of a pull request.
        actor: Who did it.
        event: GitHub's word for it.
        commit: The commit by which it happened: a bot's landing closes with one.
        label: The label, of `labeled` and `unlabeled`.
    """
    with state.lock:
        if event == "closed":
            pulling.close(state, issue, actor, commit)
        elif event == "reopened":
            pulling.reopen(state, issue, actor)
        else:
            now = state.clock.now()
            issue.events.append(Event(state.next_id(), event, actor, now, commit, label))
            issue.updated_at = now
        return issue.events[-1]


def set_labels(state: State, issue: Issue, actor: User, names: Sequence[str]) -> None:
    """Replace the labels, and note each that came or went."""
    for name in names:
        if name not in issue.labels:
            issue.repository.labels.setdefault(name, "ededed")
            add_event(state, issue, actor, "labeled", label=name)
    for name in issue.labels:
        if name not in names:
            add_event(state, issue, actor, "unlabeled", label=name)
    issue.labels = list(names)


def add_review(
    state: State, pull: Pull, author: User, verdict: Verdict, *, body: str = "",
    commit: str | None = None,
) -> Review:  # fmt: skip
    """Judge a pull request; `commit`: the one that was read, by default the newest."""
    with state.lock:
        now = state.clock.now()
        review = Review(state.next_id(), author, body, verdict, commit or pull.head_sha, now)
        pull.reviews.append(review)
        pull.issue.updated_at = now
        return review


def add_review_comment(
    state: State, pull: Pull, author: User, body: str, *, path: str,
    line: int, side: Side = "RIGHT", commit: str | None = None, start_line: int | None = None,
    review: Review | None = None,
) -> ReviewComment:  # fmt: skip
    """Say something on a line of the diff, and so begin a thread.

    Without a review that it is part of, it makes one of its own, as GitHub does.

    Raises:
        ValueError: The diff does not show that line.
    """
    with state.lock:
        at = commit or pull.head_sha
        anchor = find_anchor(pull, at, path, line, side)
        if anchor is None:
            raise ValueError(f"{path}:{line} ({side}) is not part of the diff")
        review = review or add_review(state, pull, author, "COMMENTED", commit=at)
        now = state.clock.now()
        comment = ReviewComment(
            state.next_id(), author, body, now, now, path, at, at, anchor.hunk, line, line,
            side, start_line, review,
        )  # fmt: skip
        pull.review_comments.append(comment)
        pull.issue.updated_at = now
        return comment


def add_reply(
    state: State, pull: Pull, author: User, root: ReviewComment, body: str
) -> ReviewComment:
    """Answer in a thread, whose first comment is `root`."""
    with state.lock:
        review = add_review(state, pull, author, "COMMENTED")
        now = state.clock.now()
        reply = ReviewComment(
            state.next_id(), author, body, now, now, root.path, root.commit_id,
            root.original_commit_id, root.diff_hunk, root.line, root.original_line, root.side,
            root.start_line, review, root,
        )  # fmt: skip
        pull.review_comments.append(reply)
        return reply


def add_check_run(
    state: State, where: Repository, commit: str, name: str, conclusion: str | None, *,
    title: str | None = None, summary: str | None = None, details_url: str | None = None,
    app: str = "github-actions",
) -> CheckRun:  # fmt: skip
    """Run a check on a commit; `conclusion` None: it has not ended."""
    with state.lock:
        now = state.clock.now()
        ended = conclusion is not None
        run = CheckRun(
            state.next_id(), name, commit, "completed" if ended else "in_progress", conclusion,
            now, state.clock.now() if ended else None, details_url, title, summary, app,
        )  # fmt: skip
        where.check_runs.append(run)
        return run


def add_status(
    state: State, where: Repository, commit: str, creator: User, mood: Mood, *,
    context: str = "default", description: str | None = None, target_url: str | None = None,
) -> CommitStatus:  # fmt: skip
    """Set the status of a commit in a context."""
    with state.lock:
        status = CommitStatus(
            state.next_id(), commit, context, mood, description, target_url, creator,
            state.clock.now(),
        )  # fmt: skip
        where.statuses.append(status)
        return status
