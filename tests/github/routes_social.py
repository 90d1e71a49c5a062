"""Issues, their conversations, labels and events; a pull request is an issue too."""

from __future__ import annotations

import http
from typing import Final

from pydantic import JsonValue

from tests.github import fields, pulling, render, render_social
from tests.github.state import PUSHERS, Comment, Issue, Repository
from tests.github.state_social import add_comment, add_issue, set_labels
from tests.github.wire import (
    Answer,
    GitHubFault,
    Json,
    Request,
    UnmodelledError,
    invalid,
    not_found,
    page,
    route,
)

_REPO: Final = "/repos/{owner}/{repo}"
_ISSUE: Final = _REPO + "/issues/{number}"
#: Characters that a body may have, as GitHub counts.
BODY_LIMIT: Final = 65536


def find_issue(request: Request) -> tuple[Repository, Issue]:
    """Return the issue of the path, as its branches are now."""
    where = request.repository()
    pulling.settle(request.state)
    number = request.parameters["number"]
    issue = where.issues.get(int(number)) if number.isdecimal() else None
    if issue is None or (issue.pull is None and not where.has_issues):
        raise not_found()
    return where, issue


def said(body: Json, resource: str, key: str = "body") -> str:
    """Return what somebody wants to say, if it is neither nothing nor too much."""
    text = fields.text(body, key)
    if not text.strip():
        raise invalid(resource, key, "missing_field")
    if len(text) > BODY_LIMIT:
        words = f"body is too long (maximum is {BODY_LIMIT} characters)"
        raise invalid(resource, key, "custom", words)
    return text


def since(request: Request, updated: str) -> bool:
    """Say whether something changed late enough for the query."""
    return updated >= request.query.get("since", "")


@route("GET", f"{_REPO}/issues", query=("state", "since", "creator", "labels"), paged=True)
def list_issues(request: Request) -> Answer:
    """List issues and pull requests, newest first."""
    where = request.repository()
    pulling.settle(request.state)
    state, creator = request.query.get("state", "open"), request.query.get("creator")
    names = set(filter(None, request.query.get("labels", "").split(",")))
    found = [
        one
        for one in where.issues.values()
        if state in {"all", one.state}
        and creator in {None, one.user.login}
        and names <= set(one.labels)
        and since(request, one.updated_at)
    ]
    return page(request, found[::-1], lambda one: render_social.issue(request.state, one))


@route("POST", f"{_REPO}/issues", permission="issues")
def create_issue(request: Request) -> Answer:
    """Open an issue."""
    where, who = request.repository(), request.signed_in()
    body = request.json("title", "body", "labels")
    if not where.has_issues:
        raise GitHubFault(410, "Issues has been disabled in this repository.")
    text = said(body, "Issue") if body.get("body") else fields.optional_text(body, "body")
    issue = add_issue(request.state, where, who, said(body, "Issue", "title"), text)
    if where.permission(who) != "read":  # others may ask for labels, and get none
        set_labels(request.state, issue, who, fields.texts(body, "labels"))
    return Answer(http.HTTPStatus.CREATED, render_social.full_issue(request.state, issue))


@route("GET", _ISSUE)
def get_issue(request: Request) -> Answer:
    """Show an issue."""
    _, issue = find_issue(request)
    return Answer(http.HTTPStatus.OK, render_social.full_issue(request.state, issue))


@route("PATCH", _ISSUE, permission="issues")
def update_issue(request: Request) -> Answer:
    """Change an issue: its author may, and whoever may triage, who alone sets labels."""
    where, issue = find_issue(request)
    who, state = request.signed_in(), request.state
    body = request.json("title", "body", "state", "state_reason", "labels")
    triage = where.permission(who) not in {None, "read"}
    if not triage and who is not issue.user:
        raise GitHubFault(403, "Must have admin rights to Repository.")
    if "title" in body:
        issue.title = said(body, "Issue", "title")
    if "body" in body:
        issue.body = fields.optional_text(body, "body")
    if "labels" in body and triage:
        set_labels(state, issue, who, fields.texts(body, "labels"))
    wanted = fields.optional_text(body, "state")
    if wanted not in {None, issue.state}:
        if wanted == "closed":
            issue.state_reason = fields.optional_text(body, "state_reason")
            pulling.close(state, issue, who)
        elif wanted == "open":
            pulling.reopen(state, issue, who)
        else:
            raise invalid("Issue", "state", "invalid")
    issue.updated_at = state.clock.now()
    return Answer(http.HTTPStatus.OK, render_social.full_issue(state, issue))


@route("GET", f"{_ISSUE}/comments", query=("since",), paged=True)
def list_comments(request: Request) -> Answer:
    """List the conversation, oldest first."""
    _, issue = find_issue(request)
    found = [one for one in issue.comments if since(request, one.updated_at)]
    return page(request, found, lambda one: render_social.comment(request.state, issue, one))


@route("POST", f"{_ISSUE}/comments", permission="issues")
def create_comment(request: Request) -> Answer:
    """Say something."""
    where, issue = find_issue(request)
    who = request.signed_in()
    if issue.locked and where.permission(who) not in PUSHERS:
        raise GitHubFault(403, "Unable to create comment because issue is locked.")
    text = said(request.json("body"), "IssueComment")
    comment = add_comment(request.state, issue, who, text)
    written = render_social.comment(request.state, issue, comment)
    return Answer(http.HTTPStatus.CREATED, written)


def _find_comment(request: Request) -> tuple[Issue, Comment]:
    where = request.repository()
    for issue in where.issues.values():
        for comment in issue.comments:
            if str(comment.id) == request.parameters["comment"]:
                return issue, comment
    raise not_found()


@route("GET", f"{_REPO}/issues/comments/{{comment}}")
def get_comment(request: Request) -> Answer:
    """Show one comment."""
    issue, comment = _find_comment(request)
    return Answer(http.HTTPStatus.OK, render_social.comment(request.state, issue, comment))


@route("PATCH", f"{_REPO}/issues/comments/{{comment}}", permission="issues")
def update_comment(request: Request) -> Answer:
    """Say something else; the author may, and whoever may push."""
    issue, comment = _find_comment(request)
    who = request.signed_in()
    if who is not comment.user and issue.repository.permission(who) not in PUSHERS:
        raise GitHubFault(403, "Must have admin rights to Repository.")
    comment.body = said(request.json("body"), "IssueComment")
    comment.updated_at = issue.updated_at = request.state.clock.now()
    return Answer(http.HTTPStatus.OK, render_social.comment(request.state, issue, comment))


@route("GET", f"{_ISSUE}/events", paged=True)
def list_events(request: Request) -> Answer:
    """List what happened, oldest first."""
    _, issue = find_issue(request)
    return page(request, issue.events, lambda one: render_social.event(request.state, issue, one))


@route("GET", f"{_ISSUE}/timeline", paged=True)
def timeline(request: Request) -> Answer:
    """List what happened and what was said, in order."""
    _, issue = find_issue(request)
    state = request.state
    things: list[tuple[str, Json]] = [
        (one.created_at, render_social.event(state, issue, one)) for one in issue.events
    ]
    for one in issue.comments:
        written = render_social.comment(state, issue, one)
        written |= {"event": "commented", "actor": written["user"]}
        things.append((one.created_at, written))
    for review in issue.pull.reviews if issue.pull else ():
        assert issue.pull is not None
        written = render_social.review(state, issue.pull, review)
        words = review.state.lower()
        things.append((review.submitted_at, {**written, "event": "reviewed", "state": words}))
    ordered = [one for _, one in sorted(things, key=lambda pair: pair[0])]
    return page(request, ordered, _as_it_is)


def _as_it_is(one: Json) -> JsonValue:
    return one


def labels(request: Request, issue: Issue) -> list[JsonValue]:
    """Write labels as they stand by themselves, with a little more than inside an issue."""
    more: Json = {"archived_at": None, "archived_by": None}
    inside = render.labels(request.state, issue)
    return [{**one, **more} for one in inside if isinstance(one, dict)]


@route("GET", f"{_ISSUE}/labels", paged=True)
def list_issue_labels(request: Request) -> Answer:
    """List the labels of an issue."""
    _, issue = find_issue(request)
    return page(request, labels(request, issue), lambda one: one)


@route("POST", f"{_ISSUE}/labels", permission="issues")
def add_labels(request: Request) -> Answer:
    """Add labels; needs triage, as GitHub does."""
    _, issue = find_issue(request)
    request.repository("triage")
    if request.body.lstrip().startswith(b"["):
        raise UnmodelledError("labels as a list; send an object")
    names = fields.texts(request.json("labels"), "labels")
    merged = list(dict.fromkeys([*issue.labels, *names]))
    set_labels(request.state, issue, request.signed_in(), merged)
    return Answer(http.HTTPStatus.OK, labels(request, issue))


@route("GET", f"{_REPO}/labels", paged=True)
def list_labels(request: Request) -> Answer:
    """List the labels that a repository has."""
    where = request.repository()
    found = Issue(0, 0, where, where.owner, "", None, "", "", labels=list(where.labels))
    return page(request, labels(request, found), lambda one: one)
