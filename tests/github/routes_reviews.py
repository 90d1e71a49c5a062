"""Reviews of pull requests and comments on their lines."""

from __future__ import annotations

import http
from typing import Final

from tests.github import fields, pulling, render_social
from tests.github.anchors import Side, find_anchor
from tests.github.routes_social import said, since
from tests.github.state import Pull, ReviewComment, User
from tests.github.state_social import (
    add_reply,
    add_review_comment,
)
from tests.github.wire import (
    Answer,
    Json,
    Request,
    UnmodelledError,
    invalid,
    not_found,
    page,
    route,
)

_REPO: Final = "/repos/{owner}/{repo}"
_PULL: Final = _REPO + "/pulls/{number}"


def _find_pull(request: Request) -> Pull:
    """Return the pull request of the path, as its branches are now."""
    where = request.repository()
    pulling.settle(request.state)
    number = request.parameters["number"]
    issue = where.issues.get(int(number)) if number.isdecimal() else None
    if issue is None or issue.pull is None:
        raise not_found()
    return issue.pull


@route("GET", f"{_PULL}/reviews", paged=True)
def list_reviews(request: Request) -> Answer:
    """List reviews, oldest first; one that is not yet submitted only to its author."""
    pull = _find_pull(request)
    found = [one for one in pull.reviews if one.state != "PENDING" or one.user is request.user]
    return page(request, found, lambda one: render_social.review(request.state, pull, one))


def _commit(pull: Pull, body: Json) -> str:
    """Return the commit that was read."""
    commit = fields.optional_text(body, "commit_id") or pull.head_sha
    if pull.base.git.kind(commit) != "commit":
        raise invalid("PullRequestReviewComment", "commit_id", "invalid")
    return commit


def _place(pull: Pull, body: Json, commit: str) -> tuple[str, int, Side]:
    """Return the line that a comment is to be on, if the diff shows it."""
    if "position" in body:
        raise UnmodelledError("comments by position; GitHub is closing that down")
    path, line = fields.text(body, "path"), fields.number(body, "line")
    side: Side = "LEFT" if fields.optional_text(body, "side") == "LEFT" else "RIGHT"
    if find_anchor(pull, commit, path, line, side) is None:
        name = "pull_request_review_thread.line"
        words = f"{name} must be part of the diff"
        raise invalid("PullRequestReviewComment", name, "custom", words)
    return path, line, side


@route("GET", f"{_PULL}/comments", query=("since", "sort", "direction"), paged=True)
def list_review_comments(request: Request) -> Answer:
    """List comments on lines, by default oldest first."""
    pull = _find_pull(request)
    found = [one for one in pull.review_comments if since(request, one.updated_at)]
    if sort := request.query.get("sort"):
        key = "updated_at" if sort == "updated" else "created_at"
        down = request.query.get("direction") == "desc"
        found.sort(key=lambda one: str(getattr(one, key)), reverse=down)
    return page(request, found, lambda one: render_social.review_comment(request.state, pull, one))


@route("POST", f"{_PULL}/comments", permission="pull_requests")
def create_review_comment(request: Request) -> Answer:
    """Say something on a line; `in_reply_to` makes it an answer, and all else is ignored."""
    pull, who = _find_pull(request), request.signed_in()
    body = request.json(
        "body", "commit_id", "path", "line", "side", "start_line", "start_side", "in_reply_to",
        "position",
    )  # fmt: skip
    text = said(body, "PullRequestReviewComment")
    if "in_reply_to" in body:
        root = _root(pull, fields.number(body, "in_reply_to"))
        if root is None:
            raise invalid("PullRequestReviewComment", "in_reply_to", "invalid")
        return _answered(request, pull, who, root, text)
    commit = _commit(pull, body)
    path, line, side = _place(pull, body, commit)
    start = fields.number(body, "start_line") if "start_line" in body else None
    if start is not None and start >= line:
        name = "pull_request_review_thread.start_line"
        words = f"{name} must precede the end line."
        raise invalid("PullRequestReviewComment", name, "custom", words)
    comment = add_review_comment(
        request.state,
        pull,
        who,
        text,
        path=path,
        line=line,
        side=side,
        commit=commit,
        start_line=start,
    )
    written = render_social.review_comment(request.state, pull, comment)
    return Answer(http.HTTPStatus.CREATED, written)


@route("POST", f"{_PULL}/comments/{{comment}}/replies", permission="pull_requests")
def reply(request: Request) -> Answer:
    """Answer the first comment of a thread; GitHub has no answers to answers."""
    pull, who = _find_pull(request), request.signed_in()
    text = said(request.json("body"), "PullRequestReviewComment")
    number = request.parameters["comment"]
    root = _root(pull, int(number)) if number.isdecimal() else None
    if root is None:
        raise not_found()
    return _answered(request, pull, who, root, text)


def _root(pull: Pull, number: int) -> ReviewComment | None:
    """Return a comment that begins a thread."""
    for one in pull.review_comments:
        if one.id == number and one.reply_to is None:
            return one
    return None


def _answered(request: Request, pull: Pull, who: User, root: ReviewComment, text: str) -> Answer:
    """Add an answer and show it."""
    comment = add_reply(request.state, pull, who, root, text)
    written = render_social.review_comment(request.state, pull, comment)
    return Answer(http.HTTPStatus.CREATED, written)
