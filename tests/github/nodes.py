"""What the GraphQL side models of each type, as mappings from field to value.

A value that can be called is a field with arguments, or one that is worked out only when asked.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Final

from tests.github.anchors import current_line
from tests.github.connections import Arguments, Node, RefusalError, connection
from tests.github.state import Pull, Repository, ReviewComment, User, node_id
from tests.github.wire import Request, UnmodelledError

#: Bytes of a blob that GitHub gives as text at most.
TEXT_LIMIT: Final = 512_000
#: A file with a NUL byte among so many first ones is binary, as for git.
_LOOKED_AT: Final = 8000


def query_root(request: Request) -> Node:
    """Return what a query starts from."""

    def find(arguments: Arguments) -> Node:
        arguments.only("owner", "name", "followRenames")
        name = f"{arguments.text('owner')}/{arguments.text('name')}"
        found = request.state.repository(name)
        if found is None or found.permission(request.user) is None:
            words = f"Could not resolve to a Repository with the name '{name}'."
            raise RefusalError("NOT_FOUND", words)
        return _repository(found)

    def limits(arguments: Arguments) -> Node:
        arguments.only("dryRun")
        if arguments.given.get("dryRun"):
            raise UnmodelledError("rateLimit: a query that is only to be counted")
        used = request.user.used.get("graphql", 0) if request.user else 0
        limit = request.state.rate_limits["graphql"]
        reset = dt.datetime.fromtimestamp(time.time() + request.state.reset_after, tz=dt.UTC)
        return {
            "__typename": "RateLimit",
            "cost": 1,
            "limit": limit,
            "nodeCount": 0,
            "remaining": max(limit - used, 0),
            "resetAt": reset.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "used": used,
        }

    return {"repository": find, "rateLimit": limits, "viewer": _person(request.signed_in())}


def _person(one: User) -> Node:
    return {
        "__typename": one.kind,
        "id": node_id("User", one.id),
        "databaseId": one.id,
        "login": one.login,
    }


def _repository(one: Repository) -> Node:
    def pull_request(arguments: Arguments) -> Node:
        arguments.only("number")
        number = arguments.number("number") or 0
        issue = one.issues.get(number)
        if issue is None or issue.pull is None:
            words = f"Could not resolve to a PullRequest with the number of {number}."
            raise RefusalError("NOT_FOUND", words)
        return pull_node(issue.pull)

    return {
        "__typename": "Repository",
        "id": node_id("Repository", one.id),
        "databaseId": one.id,
        "name": one.name,
        "nameWithOwner": one.full_name,
        "isArchived": one.archived,
        "isFork": one.parent is not None,
        "object": lambda arguments: _object(one, arguments),
        "pullRequest": pull_request,
    }


def _object(where: Repository, arguments: Arguments) -> Node | None:
    """Find an object by its id, or by what git would call it (`main:folder/file`)."""
    arguments.only("oid", "expression")
    oid = arguments.text("oid")
    if oid is None:
        expression = arguments.text("expression") or ""
        name, colon, path = expression.partition(":")
        commit = where.git.resolve(name)
        if commit is None:
            return None
        oid = where.git.parse(f"{commit}{colon}{path}")
    if oid is None or (kind := where.git.kind(oid)) is None:
        return None
    node: dict[str, object] = {"__typename": kind.capitalize(), "oid": oid}
    node["abbreviatedOid"] = oid[:7]
    if kind == "blob":
        node |= _blob(where.git.blob(oid))
    return node


def _blob(content: bytes) -> Node:
    """Say what GitHub says of a file's content: no text of binaries, and not all of large ones."""
    binary = b"\0" in content[:_LOOKED_AT]
    return {
        "byteSize": len(content),
        "isBinary": binary,
        "isTruncated": len(content) > TEXT_LIMIT,
        "text": None if binary else content[:TEXT_LIMIT].decode(errors="replace"),
    }


def pull_node(one: Pull) -> Node:
    """Return a pull request."""
    return {
        "__typename": "PullRequest",
        "id": node_id("PullRequest", one.id),
        "databaseId": one.id,
        "number": one.number,
        "title": one.issue.title,
        "state": "MERGED" if one.merged_at else one.issue.state.upper(),
        "isDraft": one.draft,
        "headRefOid": one.head_sha,
        "reviewThreads": lambda arguments: connection(
            arguments, [thread_node(one, root) for root in threads(one)]
        ),
    }


def threads(pull: Pull) -> list[ReviewComment]:
    """Return the first comment of each thread, oldest first."""
    return [one for one in pull.review_comments if one.reply_to is None]


def thread_id(root: ReviewComment) -> str:
    """Return the id of the thread that a comment began."""
    return node_id("PullRequestReviewThread", root.id)


def thread_node(pull: Pull, root: ReviewComment) -> Node:
    """Return the thread that a comment began."""
    line = current_line(pull, root)
    said = [one for one in pull.review_comments if root in {one, one.reply_to}]
    return {
        "__typename": "PullRequestReviewThread",
        "id": thread_id(root),
        "isResolved": root.id in pull.resolved,
        "isCollapsed": root.id in pull.resolved,
        "isOutdated": line is None,
        "path": root.path,
        "line": line,
        "originalLine": root.original_line,
        "diffSide": root.side,
        "comments": lambda arguments: connection(arguments, [_comment(one) for one in said]),
    }


def _comment(one: ReviewComment) -> Node:
    return {
        "__typename": "PullRequestReviewComment",
        "id": node_id("PullRequestReviewComment", one.id),
        "databaseId": one.id,
        "fullDatabaseId": str(one.id),
        "body": one.body,
        "path": one.path,
        "createdAt": one.created_at,
        "author": _person(one.user),
    }
