"""POST /graphql, executed by graphql-core against the part of GitHub's schema in schema.graphql.

A node is a mapping with what this GitHub models of a type; a field that it lacks raises, so that
nothing is null by accident. A query that the schema does not allow fails the test.
"""

from __future__ import annotations

import base64
import http
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from pydantic import JsonValue

from tests.github import pulling
from tests.github.anchors import current_line
from tests.github.gitdata import GitRefusedError
from tests.github.state import PUSHERS, Pull, Repository, ReviewComment, node_id
from tests.github.wire import Answer, GitHubFault, Json, Request, UnmodelledError, route

if TYPE_CHECKING:
    from graphql import DocumentNode, GraphQLResolveInfo, GraphQLSchema

#: Bytes of a blob that GitHub gives as text at most.
TEXT_LIMIT: Final = 512_000
Node = Mapping[str, object]


class RefusalError(Exception):
    """GitHub says no in a field of an answer, in its word for it (NOT_FOUND) and in a sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@route("POST", "/graphql", scopes=("read:user", "public_repo", "repo"), resource="graphql")
def graphql(request: Request) -> Answer:
    """Execute a query or a mutation; errors come with status 200, as GitHub's do."""
    from graphql import ExecutionResult, execute_sync

    if request.user is None:
        raise GitHubFault(401, "This endpoint requires you to be authenticated.")
    body = request.json("query", "variables")
    result = execute_sync(
        schema(),
        _document(str(body["query"])),
        root_value=_root(request),
        variable_values=cast("dict[str, JsonValue]", body.get("variables") or {}),
        field_resolver=_resolve,
    )
    assert isinstance(result, ExecutionResult)
    answer: Json = {"data": cast("Json | None", result.data)}
    if result.errors:
        found = [one.original_error for one in result.errors]
        if any(not isinstance(one, RefusalError) for one in found):
            raise UnmodelledError(f"GraphQL: {'; '.join(one.message for one in result.errors)}")
        answer["errors"] = [
            {"type": one.kind, "message": str(one)}
            for one in found if isinstance(one, RefusalError)
        ]  # fmt: skip
    return Answer(http.HTTPStatus.OK, answer)


@cache
def schema() -> GraphQLSchema:
    """Return the part of GitHub's schema that this GitHub has."""
    from graphql import build_schema

    return build_schema(Path(__file__).with_name("schema.graphql").read_text(encoding="utf-8"))


@cache
def _document(query: str) -> DocumentNode:
    """Parse a query and hold it against the schema."""
    from graphql import GraphQLSyntaxError, parse, validate

    try:
        document = parse(query)
    except GraphQLSyntaxError as error:
        raise UnmodelledError(f"GraphQL that cannot be read: {error}") from error
    if wrong := validate(schema(), document):
        words = "; ".join(one.message for one in wrong)
        raise UnmodelledError(f"GraphQL that the schema refuses: {words}")
    return document


def _resolve(source: Node, info: GraphQLResolveInfo[Node], **given: JsonValue) -> object:
    """Give a field of a node."""
    if info.field_name not in source:
        raise UnmodelledError(f"{info.parent_type.name}.{info.field_name} is not modelled")
    value = source[info.field_name]
    return cast("Callable[..., object]", value)(**given) if callable(value) else value


def _root(request: Request) -> Node:
    """Return what queries and mutations start from."""

    def repository(owner: str, name: str) -> Node:
        found = request.state.repository(f"{owner}/{name}")
        if found is None or found.permission(request.user) is None:
            words = f"Could not resolve to a Repository with the name '{owner}/{name}'."
            raise RefusalError("NOT_FOUND", words)
        return _repository(found)

    return {
        "repository": repository,
        "updateRefs": lambda input: _update_refs(request, input),  # noqa: A006  GraphQL's name
        "markPullRequestReadyForReview": lambda input: _mark_ready(request, input),  # noqa: A006
    }


def _repository(one: Repository) -> Node:
    def pull_request(number: int) -> Node:
        issue = one.issues.get(number)
        if issue is None or issue.pull is None:
            words = f"Could not resolve to a PullRequest with the number of {number}."
            raise RefusalError("NOT_FOUND", words)
        return _pull(issue.pull)

    def object_(oid: str) -> Node | None:
        kind = one.git.kind(oid)
        if kind is None:
            return None
        content = one.git.blob(oid) if kind == "blob" else b""
        text = content[:TEXT_LIMIT].decode(errors="replace")
        return {
            "__typename": kind.capitalize(),
            "isTruncated": len(content) > TEXT_LIMIT,
            # Git, too, takes a file with a NUL byte for binary.
            "text": None if b"\0" in content[:8000] else text,
        }  # fmt: skip

    return {"id": node_id("Repository", one.id), "object": object_, "pullRequest": pull_request}


def _pull(pull: Pull) -> Node:
    roots = [one for one in pull.review_comments if one.reply_to is None]
    return {
        "isDraft": pull.draft,
        "reviewThreads": lambda first=None, after=None: _page(
            [_thread(pull, root) for root in roots], first, after
        ),
    }


def _thread(pull: Pull, root: ReviewComment) -> Node:
    said = [one for one in pull.review_comments if root in {one, one.reply_to}]
    return {
        "id": node_id("PullRequestReviewThread", root.id),
        "isResolved": root.id in pull.resolved,
        "isOutdated": current_line(pull, root) is None,
        "comments": lambda first=None: _page(
            [{"fullDatabaseId": str(one.id)} for one in said], first, None
        ),
    }


def _page(nodes: Sequence[Node], first: int | None, after: str | None) -> Node:
    """Give the part of a list that was asked for; GitHub insists on a number of nodes."""
    if first is None or not 0 < first <= 100:
        kind = "MISSING_PAGINATION_BOUNDARIES" if first is None else "EXCESSIVE_PAGINATION"
        raise RefusalError(kind, f"{first} records")
    start = int(base64.b64decode(after)) if after else 0
    end = min(start + first, len(nodes))
    cursor = base64.b64encode(str(end).encode()).decode() if end > start else None
    info = {"hasNextPage": end < len(nodes), "endCursor": cursor}
    return {"nodes": nodes[start:end], "pageInfo": info}


def _mark_ready(request: Request, asked: Mapping[str, str]) -> Node:
    for repository in request.state.repositories.values():
        for pull in repository.pulls():
            if node_id("PullRequest", pull.id) == asked["pullRequestId"]:
                if request.user not in {pull.issue.user, repository.owner}:
                    raise RefusalError("FORBIDDEN", "not with these permissions")
                pull.draft = False
                return {"clientMutationId": None, "pullRequest": _pull(pull)}
    raise RefusalError("NOT_FOUND", f"no node {asked['pullRequestId']}")


def _update_refs(request: Request, asked: Mapping[str, object]) -> Node:
    """Move one branch that has the commit that is named."""
    known = {node_id("Repository", one.id): one for one in request.state.repositories.values()}
    repository = known.get(str(asked["repositoryId"]))
    if repository is None:
        raise RefusalError("NOT_FOUND", f"no node {asked['repositoryId']}")
    if repository.permission(request.user) not in PUSHERS:
        raise RefusalError("FORBIDDEN", "not with these permissions")
    (update,) = cast("list[dict[str, str]]", asked["refUpdates"])
    name, old, new = update["name"], update["beforeOid"], update["afterOid"]
    if repository.git.ref(name) != old or repository.git.kind(new) != "commit":
        raise RefusalError("UNPROCESSABLE", f"{name} does not point to {old}, or is no commit")
    try:
        repository.git.set_ref(name, new)
    except GitRefusedError:
        raise RefusalError("UNPROCESSABLE", f"{name} cannot be moved") from None
    pulling.settle(request.state, repository)
    return {"clientMutationId": None}
