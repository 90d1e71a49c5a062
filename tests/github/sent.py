"""The requests that contribbot sends: an example of each kind.

`test_sent.py` sends them to a local GitHub that validates requests and answers; where others use
the local GitHub, `Known` lets through what is like one of them. GraphQL has a schema for that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from pydantic import JsonValue

from tests.github.described import Row, find
from tests.github.server import Hook
from tests.github.validate import GRAPHQL, UndescribedError
from tests.github.wire import Answer, Request

UP: Final = "/repos/upstream/project"
FORK: Final = "/repos/author/project"
_ACTIONS: Final = f"{UP}/actions"
_WORKFLOW: Final = f"{_ACTIONS}/workflows/verify.yml"
_ALL: Final = {"per_page": "100"}
_WHO: Final[JsonValue] = {
    "name": "Ada",
    "email": "ada@example.org",
    "date": "2025-05-06T07:08:09+02:00",
}
_FILE: Final = {"path": "file.txt", "mode": "100644", "type": "blob"}


@dataclass(frozen=True)
class Sent:
    """A request; `<words>` in its path or body are what the test's scene has."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: JsonValue = None

    def __str__(self) -> str:
        return " ".join([self.method, self.path, *sorted(self.query)])


SENT: Final = (
    Sent("GET", "/user"),
    Sent("GET", "/search/issues", {"q": "repo:upstream/project is:pr fused_moe", **_ALL}),
    Sent("GET", UP),
    Sent("GET", f"{UP}/branches/main"),
    Sent("GET", f"{UP}/commits/<head>/check-runs", {"filter": "latest", **_ALL}),
    Sent("GET", f"{UP}/commits/<head>/status", _ALL),
    Sent("GET", f"{UP}/compare/main...<head>", {"page": "1", "per_page": "1"}),
    Sent("GET", f"{UP}/contents/file.txt"),
    Sent("GET", f"{UP}/contents/file.txt", {"ref": "main"}),
    Sent("GET", f"{UP}/git/commits/<base>"),
    Sent("GET", f"{UP}/git/ref/heads/main"),
    Sent("GET", f"{UP}/git/trees/<tree>"),
    Sent("GET", f"{UP}/git/trees/<tree>", {"recursive": "1"}),
    Sent("GET", f"{UP}/issues", {"state": "open", "creator": "author", **_ALL}),
    Sent("GET", f"{UP}/issues/<number>"),
    Sent("GET", f"{UP}/issues/<number>/comments", _ALL),
    Sent("GET", f"{UP}/issues/<number>/comments", {"since": "2026-01-01T00:00:00Z", **_ALL}),
    Sent("GET", f"{UP}/issues/<number>/events", _ALL),
    Sent("GET", f"{UP}/pulls", {"head": "author:fix", "state": "all", **_ALL}),
    Sent("GET", f"{UP}/pulls", {"state": "all", "sort": "updated", "direction": "desc", **_ALL}),
    Sent("GET", f"{UP}/pulls/<number>"),
    Sent("GET", f"{UP}/pulls/<number>/comments", _ALL),
    Sent("GET", f"{UP}/pulls/<number>/files", _ALL),
    Sent("GET", f"{UP}/pulls/<number>/reviews", _ALL),
    Sent("GET", f"{_ACTIONS}/artifacts/<artifact>/zip"),
    Sent("GET", f"{_ACTIONS}/runs/<run>"),
    Sent("GET", f"{_ACTIONS}/runs/<run>/artifacts", _ALL),
    Sent("GET", f"{_ACTIONS}/runs/<run>/jobs", {"filter": "all", **_ALL}),
    Sent("GET", f"{_WORKFLOW}/runs", {"branch": "main", "event": "workflow_dispatch", **_ALL}),
    Sent("PATCH", f"{FORK}/git/refs/heads/fix", body={"sha": "<base>", "force": True}),
    Sent("PATCH", f"{UP}/issues/<number>", body={"body": "A text"}),
    Sent("PATCH", f"{UP}/pulls/<number>", body={"title": "A title", "body": "A text"}),
    Sent("POST", f"{FORK}/git/blobs", body={"content": "eA==", "encoding": "base64"}),
    Sent("POST", f"{FORK}/git/commits", body={
        "message": "A change\n", "tree": "<tree>", "parents": ["<base>"], "author": _WHO,
        "committer": _WHO,
    }),
    Sent("POST", f"{FORK}/git/refs", body={"ref": "refs/heads/new", "sha": "<base>"}),
    Sent("POST", f"{FORK}/git/trees", body={"base_tree": "<tree>", "tree": [
        {**_FILE, "sha": "<blob>"}, {**_FILE, "path": "other.txt", "sha": None},
    ]}),
    Sent("POST", f"{FORK}/merge-upstream", body={"branch": "main"}),
    Sent("POST", f"{UP}/forks", body={"default_branch_only": True}),
    Sent("POST", f"{UP}/issues", body={"title": "A title"}),
    Sent("POST", f"{UP}/issues", body={"title": "A title", "body": "A text", "labels": ["bug"]}),
    Sent("POST", f"{UP}/issues/<number>/comments", body={"body": "A text"}),
    Sent("POST", f"{UP}/pulls", body={
        "title": "A title", "body": "A text", "base": "main", "head": "author:again",
        "draft": False,
    }),
    Sent("POST", f"{UP}/pulls/<number>/comments/<comment>/replies", body={"body": "A text"}),
    Sent("POST", f"{_ACTIONS}/runs/<run>/cancel"),
    Sent("POST", f"{_WORKFLOW}/dispatches", body={
        "ref": "main", "inputs": {"patches": "", "targets": "", "request": ""},
        "return_run_details": True,
    }),
)  # fmt: skip


def alike(sent: JsonValue, example: JsonValue) -> bool:
    """Say whether JSON has the keys and the types of an example."""
    if isinstance(sent, dict) and isinstance(example, dict):
        same = sent.keys() == example.keys()
        return same and all(alike(one, example[key]) for key, one in sent.items())
    if isinstance(sent, list) and isinstance(example, list):
        return all(any(alike(one, other) for other in example) for one in sent)
    return type(sent) is type(example)


@cache
def _examples() -> dict[Row | None, list[Sent]]:
    """Return the examples by what they ask."""
    found: dict[Row | None, list[Sent]] = {}
    for one in SENT:
        row = find(one.method, one.path)
        assert row is not None, one
        found.setdefault(row, []).append(one)
    return found


class Known(Hook):
    """The hook that lets only requests through that `test_sent.py` validates."""

    def before(self, request: Request) -> Answer | None:
        """Look for an example; a request without one ends in `server.broken`."""
        if request.path == GRAPHQL:
            return None
        row = find(request.method, request.path)
        body: JsonValue = json.loads(request.body) if request.body else None
        for one in _examples().get(row, ()):
            if one.query.keys() == request.query.keys() and alike(body, one.body):
                return None
        what = f"{request.method} {request.path} {request.query} {request.body[:200]!r}"
        raise UndescribedError(f"{what}: tests/github/sent.py has no example of it")
