"""POST /graphql: the query and two mutations that contribbot sends, told by their words.

That GitHub knows what they ask is for `test_schema.py`; what is none of them is refused.
"""

from __future__ import annotations

import base64
from typing import cast

from pydantic import JsonValue

from tests.github import pulling, render
from tests.github.models import Json
from tests.github.state import PUSHERS, Pull
from tests.github.wire import Answer, GitHubFault, Request, UnmodelledError, route


def _refusal(kind: str, message: str) -> GitHubFault:
    """Return GitHub's no in a field of an answer, in its word for it and in a sentence."""
    fault = GitHubFault(200, message)
    fault.answer.json = {"data": None, "errors": [{"type": kind, "message": message}]}
    return fault


@route("POST", "/graphql", scopes=("read:user", "public_repo", "repo"), resource="graphql")
def graphql(request: Request) -> Answer:
    """Answer a query or a mutation; errors come with status 200, as GitHub's do."""
    if request.user is None:
        raise GitHubFault(401, "This endpoint requires you to be authenticated.")
    body = request.json("query", "variables")
    query, given = str(body["query"]), cast("Json", body["variables"])
    if "updateRefs" in query:
        data = _update_refs(request, cast("Json", given["input"]))
    elif "markPullRequestReadyForReview" in query:
        data = _mark_ready(request, cast("dict[str, str]", given["input"])["pullRequestId"])
    elif "reviewThreads" in query:
        data = _threads(request, given)
    else:
        raise UnmodelledError(f"GraphQL: {query}")
    return Answer(json={"data": data})


def _threads(request: Request, given: Json) -> Json:
    where = request.state.repository(f"{given['owner']}/{given['name']}")
    pulls = where.pulls() if where else []
    pull = next((pull for pull in pulls if pull.number == given["number"]), None)
    if pull is None:
        raise _refusal("NOT_FOUND", "Could not resolve to a PullRequest with that number.")
    roots = [comment for comment in pull.review_comments if comment.reply_to is None]
    start = int(base64.b64decode(str(given["after"]))) if given.get("after") else 0
    end = min(start + 100, len(roots))
    nodes: list[JsonValue] = [
        {"id": render.node_id("PullRequestReviewThread", root.id),
         "isResolved": root.id in pull.resolved,
         "isOutdated": render.current_line(pull, root) is None,
         "comments": {"nodes": [{"fullDatabaseId": str(root.id)}]}}
        for root in roots[start:end]
    ]  # fmt: skip
    info: Json = {"hasNextPage": end < len(roots),
                  "endCursor": base64.b64encode(str(end).encode()).decode()}  # fmt: skip
    return {"repository": {"pullRequest": {"reviewThreads": {"nodes": nodes, "pageInfo": info}}}}


def _mark_ready(request: Request, node: str) -> Json:
    pulls = (pull for where in request.state.repositories.values() for pull in where.pulls()
             if render.node_id("PullRequest", pull.id) == node)  # fmt: skip
    pull: Pull | None = next(pulls, None)
    if pull is None or request.user not in {pull.issue.user, pull.base.owner}:
        raise _refusal("FORBIDDEN" if pull else "NOT_FOUND", "not with these permissions")
    pull.draft = False
    done: Json = {"clientMutationId": None, "pullRequest": {"isDraft": False}}
    return {"markPullRequestReadyForReview": done}


def _update_refs(request: Request, asked: Json) -> Json:
    """Move one branch that has the commit that is named."""
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
    pulling.settle(request.state, where)
    return {"updateRefs": {"clientMutationId": None}}
