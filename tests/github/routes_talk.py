"""Pull requests and issues: opened, read, searched, talked about, changed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Final

from tests.github import pulling, render
from tests.github.models import Json
from tests.github.state import PUSHERS, Issue, Pull, Repository
from tests.github.state_social import add_comment, add_issue, add_reply, set_labels
from tests.github.wire import (
    REPO,
    Answer,
    GitHubFault,
    Request,
    UnmodelledError,
    answer,
    invalid,
    not_found,
    page,
    route,
)

_PULL: Final = f"{REPO}/pulls/{{pull_number}}"
_ISSUE: Final = f"{REPO}/issues/{{issue_number}}"
_LONGEST: Final = {"title": 256, "body": 65536}
_WORD: Final = re.compile(r"\w+")
_TERM: Final = re.compile(r'(?:(?P<key>[a-z-]+):)?(?P<value>"[^"]*"|\S+)')
_TIME: Final = re.compile(r"(>=|<=|>|<|)(\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\dZ)?)")

Test = Callable[[Issue], bool]


def _issue(request: Request, key: str = "issue_number") -> Issue:
    """Return the issue of the path, as its branches are now."""
    where = request.repository()
    found = where.issues.get(int(request.parameters[key]))
    if found is None:
        raise not_found()
    pulling.settle(request.state, found.pull or where)
    return found


def _pull(request: Request) -> Pull:
    found = _issue(request, "pull_number").pull
    if found is None:
        raise not_found()
    return found


def _text(body: Json, key: str, resource: str) -> str:
    """Return a text, if it is neither nothing nor too much."""
    text = str(body.get(key) or "")
    if not text.strip():
        raise invalid(resource, key, "missing_field")
    if len(text) > _LONGEST[key]:
        words = f"{key} is too long (maximum is {_LONGEST[key]} characters)"
        raise invalid(resource, key, "custom", words)
    return text


def _optional(body: Json, key: str) -> str | None:
    return _text(body, key, "Issue") if body.get(key) else None


@route("GET", f"{REPO}/pulls", query=("state", "head", "sort", "direction"), paged=True)
def list_pulls(request: Request) -> Answer:
    where, query = request.repository(), request.query
    pulling.settle(request.state, where)
    owner, colon, ref = query.get("head", "").partition(":")
    found = [
        pull for pull in where.pulls()
        if query.get("state", "open") in {"all", pull.issue.state}
        # Without an owner GitHub does not filter.
        and (not colon or (pull.head_owner.login.lower(), pull.head_ref) == (owner.lower(), ref))
    ]  # fmt: skip
    if query.get("sort", "created") == "updated":
        found.sort(key=lambda pull: pull.issue.updated_at)
    return page(request, found[::-1], "PullRequestSimple",
                lambda pull: render.pull(request.state, pull, request.user))  # fmt: skip


@route("POST", f"{REPO}/pulls", permission="pull_requests")
def open_pull(request: Request) -> Answer:
    base = request.repository(filled=True)
    body = request.json("title", "head", "base", "body", "draft")
    title, text = _text(body, "title", "Issue"), _optional(body, "body")
    owner, _, ref = str(body["head"]).partition(":")
    near = (it for it in request.state.network(base) if it.owner.login.lower() == owner.lower())
    head = next(near, None)
    if head is None:
        raise invalid("PullRequest", "head", "invalid")
    pull = pulling.make_pull(
        request.state, request.who, (base, str(body["base"])), (head, ref), title=title, text=text,
        draft=bool(body.get("draft")),
    )  # fmt: skip
    known = render.full_pull(request.state, pull, request.user, None)
    return answer("PullRequest", known, 201)


@route("GET", _PULL)
def get_pull(request: Request) -> Answer:
    pull = _pull(request)
    git = pull.base.git
    part = git.merge_base(pull.base_sha, pull.head_sha) or pull.base_sha
    for kind, read in (("diff", git.diff), ("patch", git.series)):
        if request.wants(kind):
            media = {"Content-Type": f"application/vnd.github.v3.{kind}; charset=utf-8"}
            return Answer(raw=read(part, pull.head_sha), headers=media)
    return _full(request, pull)


def _full(request: Request, pull: Pull) -> Answer:
    judged = pulling.mergeable(request.state, pull)
    return answer("PullRequest", render.full_pull(request.state, pull, request.user, judged))


@route("GET", f"{_PULL}/files", paged=True)
def list_files(request: Request) -> Answer:
    pull = _pull(request)
    git = pull.base.git
    part = git.merge_base(pull.base_sha, pull.head_sha) or pull.base_sha
    return page(request, git.changes(part, pull.head_sha), "DiffEntry", render.file_change)


@route("PATCH", _PULL, permission="pull_requests")
def change_pull(request: Request) -> Answer:
    pull = _pull(request)
    _change(request, pull.issue, request.json("title", "body"))
    return _full(request, pull)


def _change(request: Request, issue: Issue, body: Json) -> None:
    """Change the texts of an issue, which its author may do and whoever may push."""
    if request.who is not issue.user and issue.repository.permission(request.who) not in PUSHERS:
        raise GitHubFault(403, "Must have admin rights to Repository.")
    if "title" in body:
        issue.title = _text(body, "title", "Issue")
    if "body" in body:
        issue.body = _optional(body, "body")
    issue.updated_at = request.state.clock.now()


@route("GET", f"{_PULL}/reviews", paged=True)
def list_reviews(request: Request) -> Answer:
    pull = _pull(request)
    return page(request, pull.reviews, "PullRequestReview", lambda it: render.review(pull, it))


@route("GET", f"{_PULL}/comments", paged=True)
def list_review_comments(request: Request) -> Answer:
    pull = _pull(request)
    return page(request, pull.review_comments, "PullRequestReviewComment",
                lambda it: render.review_comment(request.state, pull, it))  # fmt: skip


@route("POST", f"{_PULL}/comments/{{comment_id}}/replies", permission="pull_requests")
def reply(request: Request) -> Answer:
    """Answer the first comment of a thread; GitHub has no answers to answers."""
    pull, number = _pull(request), int(request.parameters["comment_id"])
    text = _text(request.json("body"), "body", "PullRequestReviewComment")
    roots = (it for it in pull.review_comments if it.id == number and it.reply_to is None)
    root = next(roots, None)
    if root is None:
        raise not_found()
    made = add_reply(request.state, pull, request.who, root, text)
    known = render.review_comment(request.state, pull, made)
    return answer("PullRequestReviewComment", known, 201)


@route("GET", f"{REPO}/issues", query=("state", "creator"), paged=True)
def list_issues(request: Request) -> Answer:
    where, query = request.repository(), request.query
    pulling.settle(request.state, where)
    found = [issue for issue in where.issues.values()
             if query.get("state", "open") in {"all", issue.state}
             and query.get("creator") in {None, issue.user.login}]  # fmt: skip
    return page(request, found[::-1], "Issue", lambda it: render.issue(request.state, it))


@route("POST", f"{REPO}/issues", permission="issues")
def create_issue(request: Request) -> Answer:
    where, body = request.repository(), request.json("title", "body", "labels")
    title, labels = _text(body, "title", "Issue"), body.get("labels") or []
    made = add_issue(request.state, where, request.who, title, _optional(body, "body"))
    if isinstance(labels, list) and where.permission(request.who) in PUSHERS:
        set_labels(request.state, made, request.who, [str(name) for name in labels])
    return answer("Issue", render.issue(request.state, made), 201)


@route("GET", _ISSUE)
def get_issue(request: Request) -> Answer:
    return answer("Issue", render.issue(request.state, _issue(request)))


@route("PATCH", _ISSUE, permission="issues")
def update_issue(request: Request) -> Answer:
    issue, body = _issue(request), request.json("title", "body", "state")
    _change(request, issue, body)
    if "state" in body:
        pulling.close(request.state, issue, request.who, closed=body["state"] == "closed")
    return answer("Issue", render.issue(request.state, issue))


@route("GET", f"{_ISSUE}/comments", query=("since",), paged=True)
def list_comments(request: Request) -> Answer:
    issue, since = _issue(request), request.query.get("since", "")
    found = [comment for comment in issue.comments if comment.updated_at >= since]
    return page(request, found, "IssueComment",
                lambda it: render.comment(request.state, issue, it))  # fmt: skip


@route("POST", f"{_ISSUE}/comments", permission="issues")
def create_comment(request: Request) -> Answer:
    issue = _issue(request)
    text = _text(request.json("body"), "body", "IssueComment")
    made = add_comment(request.state, issue, request.who, text)
    return answer("IssueComment", render.comment(request.state, issue, made), 201)


@route("GET", f"{_ISSUE}/events", paged=True)
def list_events(request: Request) -> Answer:
    issue = _issue(request)
    return page(request, issue.events, "StateChangeIssueEvent",
                lambda it: render.event(request.state, issue, it))  # fmt: skip


# GitHub's query language, as far as duplicates are searched for with it.


def _merged(issue: Issue) -> str | None:
    return issue.pull.merged_at if issue.pull else None


_IS: Final[dict[str, Test]] = {
    "pr": lambda issue: issue.pull is not None,
    "issue": lambda issue: issue.pull is None,
    "open": lambda issue: issue.state == "open",
    "closed": lambda issue: issue.state == "closed",
    "merged": lambda issue: _merged(issue) is not None,
    "unmerged": lambda issue: _merged(issue) is None,
}
_TIMES: Final[dict[str, Callable[[Issue], str | None]]] = {
    "merged": _merged, "closed": lambda issue: issue.closed_at,
    "created": lambda issue: issue.created_at, "updated": lambda issue: issue.updated_at,
}  # fmt: skip
_COMPARE: Final[dict[str, Callable[[str, str], bool]]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "": operator.eq,
}  # fmt: skip
_PLACES: Final[dict[str, Callable[[Issue], Sequence[str]]]] = {
    "title": lambda issue: [issue.title],
    "body": lambda issue: [issue.body or ""],
    "comments": lambda issue: [comment.body for comment in issue.comments],
}


def _words(text: str) -> list[str]:
    """Part a text as an index does: what is no letter, digit or underscore only parts words."""
    return [word.lower() for word in _WORD.findall(text)]


def _says(phrase: list[str], places: Sequence[str]) -> Test:
    """Return whether words stand one after the other in an issue."""

    def test(issue: Issue) -> bool:
        texts = [_words(text) for place in places for text in _PLACES[place](issue)]
        return any(text[at : at + len(phrase)] == phrase
                   for text in texts for at in range(len(text)))  # fmt: skip

    return test


def _qualifier(request: Request, key: str, value: str) -> Test:
    """Return what a qualifier such as `is:pr` or `merged:>=2026-01-01` asks for."""
    if key in {"is", "type", "state"} and value in _IS:
        return _IS[value]
    if key == "author":
        login = (request.who.login if value == "@me" else value).lower()
        return lambda issue: issue.user.login.lower() == login
    match = _TIME.fullmatch(value)
    if key not in _TIMES or match is None:
        raise UnmodelledError(f"search: {key}:{value}")
    compare, wanted, time = _COMPARE[match[1]], match[2], _TIMES[key]
    # A date means its whole day.
    return lambda issue: compare((time(issue) or "")[: len(wanted)], wanted) and bool(time(issue))


@route("GET", "/search/issues", query=("q", "sort", "order"), paged=True, resource="search")
def search_issues(request: Request) -> Answer:
    """Search issues and pull requests of a repository, newest first."""
    text = request.query["q"]
    if len(text) > 256:
        raise invalid("Search", "q", "invalid", "The search is longer than 256 characters.")
    tests: list[Test] = []
    phrases, places, where = [], [*_PLACES], list[Repository]()
    for match in _TERM.finditer(text):
        key, value = match["key"], match["value"].strip('"')
        if key == "repo":
            where.append(_searched(request, value))
        elif key == "in":
            places = value.split(",")
        elif key is not None:
            tests.append(_qualifier(request, key, value))
        elif value.startswith("(") or value in {"AND", "OR", "NOT"}:
            raise UnmodelledError(f"search: {value}")
        elif phrase := _words(value):
            phrases.append(phrase)
    tests += [_says(phrase, places) for phrase in phrases]
    pulling.settle(request.state)
    found = [issue for repository in where for issue in repository.issues.values()
             if all(test(issue) for test in tests)]  # fmt: skip
    key = "updated_at" if request.query.get("sort") == "updated" else "created_at"
    found.sort(key=operator.attrgetter(key), reverse=request.query.get("order", "desc") == "desc")
    return page(
        request, found, "IssueSearchResultItem",
        lambda issue: render.issue(request.state, issue) | {"score": 1.0},
        {"incomplete_results": False, "items": []},
    )  # fmt: skip


def _searched(request: Request, name: str) -> Repository:
    """Return a repository to search; GitHub refuses to search what may not be seen."""
    found = request.state.repository(name)
    if found is None or found.permission(request.user) is None:
        words = "The listed users and repositories cannot be searched either because they do not"
        raise invalid("Search", "q", "invalid", f"{words} exist or you may not view them.")
    return found
