"""Things that people and machines do besides git: talk, review, judge. For handlers and tests."""

from __future__ import annotations

from collections.abc import Sequence

from tests.github.render import find_hunk
from tests.github.state import (
    CheckRun,
    Comment,
    CommitStatus,
    Event,
    Issue,
    Mood,
    Pull,
    Repository,
    Review,
    ReviewComment,
    Side,
    State,
    User,
    Verdict,
)


def add_issue(state: State, where: Repository, author: User, title: str, body: str | None) -> Issue:
    now = state.clock.now()
    issue = Issue(state.next_id(), next(where.numbers), where, author, title, body, now, now)
    where.issues[issue.number] = issue
    return issue


def add_comment(state: State, issue: Issue, author: User, body: str) -> Comment:
    issue.updated_at = now = state.clock.now()
    issue.comments.append(Comment(state.next_id(), author, body, now, now))
    return issue.comments[-1]


def add_event(
    state: State, issue: Issue, actor: User, event: str, *, commit: str | None = None
) -> Event:
    """Note that something happened, by a commit perhaps; it may change the state."""
    now = issue.updated_at = state.clock.now()
    if event == "closed":
        issue.state, issue.closed_at = "closed", now
    elif event == "reopened":
        issue.state, issue.closed_at = "open", None
    issue.events.append(Event(state.next_id(), event, actor, now, commit))
    return issue.events[-1]


def set_labels(state: State, issue: Issue, actor: User, names: Sequence[str]) -> None:
    """Replace the labels, each an event."""
    for name in {*names} ^ {*issue.labels}:
        add_event(state, issue, actor, "labeled" if name in names else "unlabeled")
    issue.labels = list(names)


def add_review(
    state: State, pull: Pull, author: User, verdict: Verdict, *, body: str = "",
    commit: str | None = None,
) -> Review:  # fmt: skip
    """Judge a pull request; `commit`: the one that was read, by default the newest."""
    pull.issue.updated_at = now = state.clock.now()
    review = Review(state.next_id(), author, body, verdict, commit or pull.head_sha, now)
    pull.reviews.append(review)
    return review


def add_review_comment(
    state: State, pull: Pull, author: User, body: str, *, path: str, line: int,
    side: Side = "RIGHT",
) -> ReviewComment:  # fmt: skip
    """Say something on a line of the diff, in a review of its own, and so begin a thread."""
    hunk = find_hunk(pull, pull.head_sha, path, line, side)
    if hunk is None:
        raise ValueError(f"{path}:{line} ({side}) is not part of the diff")
    review = add_review(state, pull, author, "COMMENTED")
    now = review.submitted_at
    pull.review_comments.append(ReviewComment(
        state.next_id(), author, body, now, now, path, pull.head_sha, hunk, line, side, review,
    ))  # fmt: skip
    return pull.review_comments[-1]


def add_reply(
    state: State, pull: Pull, author: User, root: ReviewComment, body: str
) -> ReviewComment:
    """Answer in a thread, whose first comment is `root`."""
    review = add_review(state, pull, author, "COMMENTED")
    now = review.submitted_at
    pull.review_comments.append(ReviewComment(
        state.next_id(), author, body, now, now, root.path, root.original_commit_id,
        root.diff_hunk, root.original_line, root.side, review, root,
    ))  # fmt: skip
    return pull.review_comments[-1]


def add_check_run(
    state: State, where: Repository, commit: str, name: str, conclusion: str | None, *,
    title: str | None = None, summary: str | None = None,
) -> CheckRun:  # fmt: skip
    """Run a check on a commit; no conclusion: it has not ended."""
    now = state.clock.now()
    run = CheckRun(state.next_id(), name, commit, conclusion, now, title, summary)
    where.check_runs.append(run)
    return run


def add_status(
    state: State, where: Repository, commit: str, mood: Mood, *, context: str,
    description: str | None = None,
) -> CommitStatus:  # fmt: skip
    """Set the status of a commit in a context."""
    now = state.clock.now()
    status = CommitStatus(state.next_id(), commit, context, mood, description, now)
    where.statuses.append(status)
    return status
