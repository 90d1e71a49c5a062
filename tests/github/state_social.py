"""Things that people and machines do besides git: talk, review, judge. For handlers and tests."""

from __future__ import annotations

from collections.abc import Sequence

from tests.github.state import (
    CheckRun,
    Comment,
    CommitStatus,
    Event,
    Issue,
    Mood,
    Pull,
    Repository,
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
    state: State, pull: Pull, author: User, verdict: Verdict, *, body: str = ""
) -> Comment:
    """Judge a pull request."""
    pull.issue.updated_at = now = state.clock.now()
    pull.reviews.append(Comment(state.next_id(), author, body, now, now, verdict))
    return pull.reviews[-1]


def add_review_comment(
    state: State, pull: Pull, author: User, body: str, *, path: str, line: int
) -> Comment:
    """Say something on a line of the diff, in a review of its own, and so begin a thread."""
    now = add_review(state, pull, author, "COMMENTED").created_at
    told = Comment(state.next_id(), author, body, now, now, path=path, line=line)
    pull.review_comments.append(told)
    return told


def add_reply(state: State, pull: Pull, author: User, root: Comment, body: str) -> Comment:
    """Answer in a thread, whose first comment is `root`."""
    told = add_review_comment(state, pull, author, body, path=root.path, line=root.line)
    told.reply_to = root
    return told


def add_check_run(
    state: State, where: Repository, commit: str, name: str, conclusion: str | None
) -> None:
    """Run a check on a commit; no conclusion: it has not ended."""
    now = state.clock.now()
    where.check_runs.append(CheckRun(state.next_id(), name, commit, conclusion, now))


def add_status(state: State, where: Repository, commit: str, mood: Mood, *, context: str) -> None:
    """Set the status of a commit in a context."""
    now = state.clock.now()
    where.statuses.append(CommitStatus(state.next_id(), commit, context, mood, now))
