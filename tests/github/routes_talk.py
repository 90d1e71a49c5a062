"""Pull requests and issues: opened, read, searched, talked about, changed; GraphQL."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final, cast

from tests.github import graph, render
from tests.github.state import PUSHERS, Issue, Json, Pull
from tests.github.wire import REPO, Answer, GitHubFault, Request, Route, UnmodelledError, not_found

_PULL: Final = f"{REPO}/pulls/{{pull_number}}"
_ISSUE: Final = f"{REPO}/issues/{{issue_number}}"
_LONGEST: Final = {"title": 256, "body": 65536}
_TERM: Final = re.compile(r'(?:(?P<key>[a-z-]+):)?(?P<value>"[^"]*"|\S+)')


def _issue(request: Request, key: str = "issue_number") -> Issue:
    issue = request.repository().issues.get(int(request.parameters[key]))
    if issue is None:
        raise not_found()
    return issue


def _pull(request: Request) -> Pull:
    pull = _issue(request, "pull_number").pull
    if pull is None:
        raise not_found()
    return pull


def _text(body: Json, key: str) -> str | None:
    """Return a text, which is neither empty nor too long."""
    text = body.get(key)
    assert text is None or 0 < len(str(text).strip()) <= _LONGEST[key]
    return None if text is None else str(text)


@Route("GET", f"{REPO}/pulls", paged=True, query=("state", "head"))
def list_pulls(request: Request) -> list[Json]:
    where, query = request.repository(), request.query
    owner, colon, ref = query.get("head", "").partition(":")
    pulls = [
        pull for pull in where.pulls()
        if query.get("state", "open") in {"all", pull.issue.state}
        # GitHub ignores a `head` without an owner.
        and (not colon or (pull.head.owner.login.lower(), pull.head_ref) == (owner.lower(), ref))
    ]  # fmt: skip
    return [render.pull(pull, request.user) for pull in pulls[::-1]]


@Route("POST", f"{REPO}/pulls", permission="pull_requests")
def open_pull(request: Request) -> Json:
    base = request.repository()
    body = request.json("title", "head", "base", "body", "draft")
    owner, _, ref = str(body["head"]).partition(":")
    network = request.state.network(base)
    head = next(it for it in network if it.owner.login.lower() == owner.lower())
    who, onto = request.who, str(body["base"])
    theirs, ours = head.git.tip(ref), base.git.tip(onto)
    label = f"{head.owner.login}:{ref}"
    known = [(it.head, it.head_ref, it.base_ref) for it in base.pulls() if it.issue.state == "open"]
    for holds, words in (
        (PUSHERS.isdisjoint({head.permission(who), base.permission(who)}),
         f"user must have push access to {head.full_name}"),
        ((head, ref, onto) in known, f"A pull request already exists for {label}."),
        (base.git.merge_base(ours, theirs) is None,
         f"The {ref} branch has no history in common with {base.full_name}"),
        (base.git.is_ancestor(theirs, ours),
         f"No commits between {base.owner.login}:{onto} and {label}"),
    ):  # fmt: skip
        if holds:
            error: Json = {"resource": "PullRequest", "code": "custom", "message": words}
            raise GitHubFault(422, "Validation Failed", [error])
    pull = request.state.pull(
        base, head, ref, user=who, base_branch=onto, title=_text(body, "title") or "",
        body=_text(body, "body"), draft=bool(body.get("draft")),
    )  # fmt: skip
    return _full(request, pull)


def _full(request: Request, pull: Pull) -> Json:
    """Return a pull request as `GET /repos/OWNER/NAME/pulls/N` shows a pull request."""
    judged = request.state.mergeable(pull)
    word = graph.merge_state(pull, judged).lower()
    return render.pull(pull, request.user) | {"mergeable": judged, "mergeable_state": word}


@Route("GET", _PULL)
def get_pull(request: Request) -> Answer | Json:
    pull = _pull(request)
    media = "application/vnd.github.v3.patch"
    if media in request.headers.get("accept", ""):
        headers = {"Content-Type": f"{media}; charset=utf-8"}
        return Answer(raw=pull.base.git.series(pull.part, pull.head_sha), headers=headers)
    return _full(request, pull)


@Route("PATCH", _PULL, permission="pull_requests")
def change_pull(request: Request) -> Json:
    pull = _pull(request)
    _change(request, pull.issue, request.json("title", "body"))
    return _full(request, pull)


def _change(request: Request, issue: Issue, body: Json) -> None:
    """Change the texts of an issue, which its author may do and whoever may push."""
    assert request.who is issue.user or issue.repository.permission(request.who) in PUSHERS
    issue.title = _text(body, "title") or issue.title
    if "body" in body:
        issue.body = _text(body, "body")


@Route("GET", f"{REPO}/issues", paged=True, query=("state", "creator"))
def list_issues(request: Request) -> list[Json]:
    where, query = request.repository(), request.query
    return [render.issue(issue) for issue in [*where.issues.values()][::-1]
            if query.get("state", "open") in {"all", issue.state}
            and query.get("creator") in {None, issue.user.login}]  # fmt: skip


@Route("POST", f"{REPO}/issues", permission="issues")
def create_issue(request: Request) -> Json:
    where, body = request.repository(), request.json("title", "body", "labels")
    title, labels = _text(body, "title") or "", body.get("labels") or []
    issue = request.state.add_issue(where, request.who, title, _text(body, "body"))
    if isinstance(labels, list) and where.permission(request.who) in PUSHERS:
        issue.labels = [str(name) for name in labels]
    return render.issue(issue)


@Route("PATCH", _ISSUE, permission="issues")
def update_issue(request: Request) -> Json:
    issue = _issue(request)
    _change(request, issue, request.json("title", "body"))
    return render.issue(issue)


def _mentions(pull: Pull, issue: Issue) -> bool:
    """Return whether a pull request names an issue, so that the issue's timeline has an event."""
    name = re.escape(issue.repository.full_name)
    here = [r"(?<!\S)#"] if pull.base is issue.repository else []
    named = re.compile(rf"(?:{'|'.join([f'{name}#', f'{name}/issues/', *here])}){issue.number}\b")
    texts = (pull.issue.body or "", *(comment.body for comment in pull.issue.comments))
    return any(named.search(text) for text in texts)


# Routes that only read:

Route("GET", _ISSUE)(lambda it: render.issue(_issue(it)))
Route("GET", f"{_ISSUE}/timeline", paged=True)(lambda it: [
    {"event": "cross-referenced", "source": {"type": "issue", "issue": render.issue(pull.issue)}}
    for issue in [_issue(it)] for where in it.state.repositories.values()
    for pull in where.pulls() if _mentions(pull, issue)
])  # fmt: skip
Route("GET", f"{_PULL}/files", paged=True)(lambda it: [
    change for pull in [_pull(it)] for change in pull.base.git.changes(pull.part, pull.head_sha)
])  # fmt: skip

# GitHub's query language, as far as contribbot searches with it.

_IS: Final[dict[str, Callable[[Issue], bool]]] = {
    "pr": lambda issue: issue.pull is not None,
    "open": lambda issue: issue.state == "open",
    "closed": lambda issue: issue.state == "closed",
    "unmerged": lambda issue: issue.pull is not None and issue.pull.merged_at is None,
}


def _words(text: str) -> str:
    """Return the words of a text as a search index has them, between spaces."""
    return " ".join(["", *re.findall(r"\w+", text.lower()), ""])


def _fits(issue: Issue, terms: list[tuple[str, str]]) -> bool:
    """Return whether an issue fits all search terms, each with its words in a row."""
    parts = {"title": [issue.title], "body": [issue.body or ""],
             "comments": [comment.body for comment in issue.comments]}  # fmt: skip
    places = dict(terms).get("in", "title,body,comments").split(",")
    texts = [_words(text) for place in places for text in parts[place]]
    for key, value in terms:
        if key == "is" and value in _IS:
            fits = _IS[value](issue)
        elif key == "author":
            fits = issue.user.login.lower() == value.lower()
        elif key == "closed" and value.startswith(">="):
            fits = (issue.closed_at or "") >= value[2:]
        elif key in {"repo", "in"}:
            fits = True
        elif key or value.startswith("(") or value in {"AND", "OR", "NOT"}:
            raise UnmodelledError(f"search: {key}:{value}")
        else:
            fits = not _words(value).strip() or any(_words(value) in text for text in texts)
        if not fits:
            return False
    return True


@Route("GET", "/search/issues", inside="items", query=("q",))
def search_issues(request: Request) -> list[Json]:
    """Search issues and pull requests of a repository, newest first."""
    text = request.query["q"]
    assert len(text) <= 256
    terms = [(match["key"] or "", match["value"].strip('"')) for match in _TERM.finditer(text)]
    where = request.state.repository(dict(terms)["repo"])
    assert where is not None
    issues = [issue for issue in where.issues.values() if _fits(issue, terms)]
    issues.sort(key=operator.attrgetter("created_at"), reverse=True)
    request.around["incomplete_results"] = False
    return [render.issue(issue) | {"score": 1.0} for issue in issues]


# GraphQL: the query and the two mutations of contribbot, recognized by their words. The schema of
# GitHub checks these in `test_schema.py`; all other queries are refused.


def _refusal(kind: str, message: str, data: Json | None = None) -> GitHubFault:
    """Return a GraphQL error, which comes with status 200: its type, message, and partial data."""
    fault = GitHubFault(200, message)
    fault.answer.json = {"data": data, "errors": [{"type": kind, "message": message}]}
    return fault


@Route("POST", "/graphql")
def graphql(request: Request) -> Answer:
    """Answer a query or a mutation; errors come with status 200, as GitHub's do."""
    body = request.json("query", "variables")
    query, given = str(body["query"]), cast("Json", body["variables"])
    if "updateRefs" in query:
        data = _update_refs(request, cast("Json", given["input"]))
    elif "markPullRequestReadyForReview" in query:
        data = _mark_ready(request, cast("dict[str, str]", given["input"])["pullRequestId"])
    elif "reviewThreads" in query:
        data = _pull_state(request, given)
    else:
        raise UnmodelledError(f"GraphQL: {query}")
    return Answer(json={"data": data})


def _pull_state(request: Request, given: Json) -> Json:
    where = request.state.repository(f"{given['owner']}/{given['name']}")
    pulls = where.pulls() if where else []
    pull = next((pull for pull in pulls if pull.number == given["number"]), None)
    if pull is None:
        raise _refusal("NOT_FOUND", "Could not resolve to a PullRequest.", {"repository": None})
    return graph.pull_state(request.state, pull, given)


def _mark_ready(request: Request, node: str) -> Json:
    pulls = (pull for where in request.state.repositories.values() for pull in where.pulls()
             if render.node_id("PullRequest", pull.id) == node)  # fmt: skip
    pull = next(pulls, None)
    if pull is None or request.user not in {pull.issue.user, pull.base.owner}:
        raise _refusal("FORBIDDEN" if pull else "NOT_FOUND", "not with these permissions")
    pull.draft = False
    done: Json = {"clientMutationId": None, "pullRequest": {"isDraft": False}}
    return {"markPullRequestReadyForReview": done}


def _update_refs(request: Request, asked: Json) -> Json:
    """Move a branch, if the branch is at the commit `beforeOid`."""
    known = {render.node_id("Repository", where.id): where
             for where in request.state.repositories.values()}  # fmt: skip
    where = known.get(str(asked["repositoryId"]))
    if where is None or where.permission(request.user) not in PUSHERS:
        raise _refusal("FORBIDDEN" if where else "NOT_FOUND", "not with these permissions")
    (update,) = cast("list[dict[str, str]]", asked["refUpdates"])
    name, old, new = update["name"], update["beforeOid"], update["afterOid"]
    if where.git.ref(name) != old or where.git.kind(new) != "commit":
        raise _refusal("UNPROCESSABLE", f"{name} does not point to {old}, or is no commit")
    where.git.set_ref(name, new)
    return {"updateRefs": {"clientMutationId": None}}
