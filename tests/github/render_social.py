"""Issues, comments, events, reviews, checks and statuses as GitHub writes them."""

from __future__ import annotations

from typing import Final

from tests.github import render
from tests.github.anchors import current_line, find_anchor
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
    node_id,
)
from tests.github.wire import Json

_APP_TIME: Final = "2020-01-01T00:00:00Z"


def _api(state: State, where: Repository) -> str:
    return f"{state.base}/repos/{where.full_name}"


def page(issue: Issue) -> str:
    """Return where people read an issue or a pull request."""
    kind = "pull" if issue.pull else "issues"
    return f"{render.WEB}/{issue.repository.full_name}/{kind}/{issue.number}"


def issue(state: State, one: Issue) -> Json:
    """Write an issue, or a pull request as an issue."""
    url = f"{_api(state, one.repository)}/issues/{one.number}"
    written: Json = {
        "url": url,
        "repository_url": _api(state, one.repository),
        "labels_url": f"{url}/labels{{/name}}",
        "comments_url": f"{url}/comments",
        "events_url": f"{url}/events",
        "html_url": page(one),
        "id": one.id,
        "node_id": node_id("Issue", one.id),
        "number": one.number,
        "title": one.title,
        "user": render.user(state, one.user),
        "labels": render.labels(state, one),
        "state": one.state,
        "locked": one.locked,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "comments": len(one.comments),
        "created_at": one.created_at,
        "updated_at": one.updated_at,
        "closed_at": one.closed_at,
        "author_association": render.association(one.repository, one.user),
        "active_lock_reason": None,
        "body": one.body,
        "timeline_url": f"{url}/timeline",
        "performed_via_github_app": None,
        "state_reason": one.state_reason,
    }
    if one.pull is not None:
        written["draft"] = one.pull.draft
        written["pull_request"] = {
            "url": f"{_api(state, one.repository)}/pulls/{one.number}",
            "html_url": page(one),
            "diff_url": f"{page(one)}.diff",
            "patch_url": f"{page(one)}.patch",
            "merged_at": one.pull.merged_at,
        }
    return written


def full_issue(state: State, one: Issue) -> Json:
    """Write an issue as `GET /repos/OWNER/NAME/issues/N` does."""
    by = render.user(state, one.closed_by) if one.closed_by else None
    return {**issue(state, one), "closed_by": by}


def comment(state: State, where: Issue, one: Comment) -> Json:
    """Write a comment of a conversation."""
    url = _api(state, where.repository)
    return {
        "url": f"{url}/issues/comments/{one.id}",
        "html_url": f"{page(where)}#issuecomment-{one.id}",
        "issue_url": f"{url}/issues/{where.number}",
        "id": one.id,
        "node_id": node_id("IssueComment", one.id),
        "user": render.user(state, one.user),
        "created_at": one.created_at,
        "updated_at": one.updated_at,
        "author_association": render.association(where.repository, one.user),
        "body": one.body,
        "performed_via_github_app": None,
    }


def event(state: State, where: Issue, one: Event) -> Json:
    """Write an event of an issue."""
    url = _api(state, where.repository)
    written: Json = {
        "id": one.id,
        "node_id": node_id("Event", one.id),
        "url": f"{url}/issues/events/{one.id}",
        "actor": render.user(state, one.actor),
        "event": one.event,
        "commit_id": one.commit_id,
        "commit_url": f"{url}/commits/{one.commit_id}" if one.commit_id else None,
        "created_at": one.created_at,
        "performed_via_github_app": None,
    }
    if one.label is not None:
        color = where.repository.labels.get(one.label, "ededed")
        written["label"] = {"name": one.label, "color": color}
    if one.event == "closed":
        written["state_reason"] = where.state_reason
    return written


def review(state: State, pull: Pull, one: Review) -> Json:
    """Write a review."""
    html = f"{page(pull.issue)}#pullrequestreview-{one.id}"
    url = f"{_api(state, pull.base)}/pulls/{pull.number}"
    return {
        "id": one.id,
        "node_id": node_id("PullRequestReview", one.id),
        "user": render.user(state, one.user),
        "body": one.body,
        "state": one.state,
        "html_url": html,
        "pull_request_url": url,
        "author_association": render.association(pull.base, one.user),
        "_links": {"html": {"href": html}, "pull_request": {"href": url}},
        "submitted_at": one.submitted_at,
        "commit_id": one.commit_id,
    }


def review_comment(state: State, pull: Pull, one: ReviewComment) -> Json:
    """Write a comment on a line; an outdated one has no line and no position any more."""
    line = current_line(pull, one)
    now = None
    if line is not None:
        now = find_anchor(pull, pull.head_sha, one.path, line, one.side)
    then = None
    if one.original_line is not None:
        then = find_anchor(pull, one.original_commit_id, one.path, one.original_line, one.side)
    url = f"{_api(state, pull.base)}/pulls/comments/{one.id}"
    html = f"{page(pull.issue)}#discussion_r{one.id}"
    target = f"{_api(state, pull.base)}/pulls/{pull.number}"
    moved = line - one.original_line if line and one.original_line else 0
    written: Json = {
        "url": url,
        "pull_request_review_id": one.review.id if one.review else None,
        "id": one.id,
        "node_id": node_id("PullRequestReviewComment", one.id),
        "diff_hunk": one.diff_hunk,
        "path": one.path,
        "commit_id": pull.head_sha if line is not None else one.commit_id,
        "original_commit_id": one.original_commit_id,
        "user": render.user(state, one.user),
        "body": one.body,
        "created_at": one.created_at,
        "updated_at": one.updated_at,
        "html_url": html,
        "pull_request_url": target,
        "author_association": render.association(pull.base, one.user),
        "_links": {
            "self": {"href": url},
            "html": {"href": html},
            "pull_request": {"href": target},
        },
        "start_line": one.start_line + moved if one.start_line and line is not None else None,
        "original_start_line": one.start_line,
        "start_side": one.side if one.start_line else None,
        "line": line,
        "original_line": one.original_line,
        "side": one.side,
        "position": now.position if now else None,
        "subject_type": "line",
    }
    if then is not None:
        written["original_position"] = then.position
    if one.reply_to is not None:
        written["in_reply_to_id"] = one.reply_to.id
    return written


def check_run(state: State, where: Repository, one: CheckRun) -> Json:
    """Write a check run."""
    url = f"{_api(state, where)}/check-runs/{one.id}"
    html = f"{render.WEB}/{where.full_name}/runs/{one.id}"
    return {
        "id": one.id,
        "name": one.name,
        "node_id": node_id("CheckRun", one.id),
        "head_sha": one.head_sha,
        "external_id": "",
        "url": url,
        "html_url": html,
        "details_url": one.details_url or html,
        "status": one.status,
        "conclusion": one.conclusion,
        "started_at": one.started_at,
        "completed_at": one.completed_at,
        "output": {
            "title": one.title,
            "summary": one.summary,
            "text": None,
            "annotations_count": 0,
            "annotations_url": f"{url}/annotations",
        },
        "check_suite": {"id": one.id},
        "app": {
            "id": 15368,
            "slug": one.app,
            "node_id": node_id("App", 15368),
            "owner": render.user(state, where.owner),
            "name": one.app,
            "description": None,
            "external_url": "https://example.org",
            "html_url": f"{render.WEB}/apps/{one.app}",
            "created_at": _APP_TIME,
            "updated_at": _APP_TIME,
            "permissions": {"checks": "write"},
            "events": [],
        },
        # A check of a fork's branch does not know its pull request.
        "pull_requests": [],
    }


def status(state: State, where: Repository, one: CommitStatus) -> Json:
    """Write a status of a commit as it stands in a combined one."""
    return {
        "url": f"{_api(state, where)}/statuses/{one.sha}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{one.creator.id}?v=4",
        "id": one.id,
        "node_id": node_id("StatusContext", one.id),
        "state": one.state,
        "description": one.description,
        "target_url": one.target_url,
        "context": one.context,
        "created_at": one.created_at,
        "updated_at": one.created_at,
    }
