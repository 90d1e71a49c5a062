"""Issues, their conversations, labels and events; a pull request is an issue too."""

from __future__ import annotations

import http
from typing import Final

from tests.github import fields, pulling, render_social
from tests.github.state import PUSHERS, Issue, Repository
from tests.github.state_social import add_comment, add_issue, set_labels
from tests.github.wire import (
    Answer,
    GitHubFault,
    Json,
    Request,
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


@route("GET", f"{_ISSUE}/events", paged=True)
def list_events(request: Request) -> Answer:
    """List what happened, oldest first."""
    _, issue = find_issue(request)
    return page(request, issue.events, lambda one: render_social.event(request.state, issue, one))
