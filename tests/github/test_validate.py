"""Everything that goes over the wire is what GitHub's own description says."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

import pytest

from tests.github import server, wire
from tests.github.described import ROWS, Row, find
from tests.github.handle import GitHub
from tests.github.scene import Scene, make_scene
from tests.github.server import load_routes
from tests.github.validate import (
    GRAPHQL,
    UndescribedError,
    check_answer,
    check_request,
    describe,
)
from tests.github.wire import Answer, Request

BLOBS = "/repos/o/r/git/blobs"


@pytest.fixture
def scene(github: GitHub) -> Scene:
    return make_scene(github)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.operation)
def test_each_row_agrees_with_the_generated_client(row: Row) -> None:
    described = describe(row.operation)
    assert (described.method, described.path) == (row.method, row.path)
    validated = re.findall(r"type_validate_python\(\s*(.*?),?\s*json", described.source, re.DOTALL)
    for name in row.body:
        assert name in validated[0], "the client validates another body"
    assert bool(validated) == bool(row.body)


def test_every_route_that_is_served_is_described() -> None:
    load_routes()
    assert len(wire.ROUTES) > 35
    for route in wire.ROUTES:
        if route.template != GRAPHQL:
            path = re.sub(r"\{(\w+)(:path)?\}", "1", route.template)
            row = find(route.method, path)
            assert row is not None, f"{route.method} {route.template}"
            unknown = route.query - describe(row.operation).query
            assert not unknown, f"{route.method} {route.template}: {unknown}"


def test_a_path_finds_the_operation_that_names_more_of_it() -> None:
    def operation(path: str, method: str = "GET") -> str:
        row = find(method, path)
        assert row is not None
        return row.operation

    assert operation("/repos/o/r/commits/feature/x/check-runs") == "checks/list-for-ref"
    assert operation("/repos/o/r/contents") == "repos/get-content"
    assert find("DELETE", "/repos/o/r") is None


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "words"),
    [
        ("POST", BLOBS, {}, b'{"content": "x", "encodin": "utf-8"}', r"does not know: \.encodin$"),
        ("POST", BLOBS, {}, b'{"encoding": "utf-8"}', r"content: Field required"),
        ("POST", BLOBS, {}, b'{"content": 5}', r"content: Input should be a valid string"),
        ("POST", BLOBS, {}, b"", "valid dictionary|object"),
        ("GET", "/user", {}, b"{}", "takes no body"),
        ("GET", "/repos/o/r/pulls", {"heads": "x"}, b"", "no query parameter heads"),
        ("GET", "/repos/o/r/nothing", {}, b"", "not in tests/github/described.py"),
        (
            "POST", "/repos/o/r/git/trees", {},
            b'{"tree": [{"path": "a", "mode": "100600", "type": "blob", "sha": "x"}]}', "mode",
        ),
        (
            "POST", "/repos/o/r/git/trees", {},
            b'{"tree": [{"path": "a", "mode": "100644", "kind": "blob"}]}', r"\.tree\[0\]\.kind",
        ),
    ],
)  # fmt: skip
def test_a_request_that_github_does_not_know_is_refused(
    method: str, path: str, query: dict[str, str], body: bytes, words: str
) -> None:
    with pytest.raises(UndescribedError, match=words):
        check_request(method, path, query, body)


def test_requests_that_github_knows_pass() -> None:
    check_request("POST", BLOBS, {}, b'{"content": "x", "encoding": "base64"}')
    check_request("POST", "/repos/o/r/forks", {}, b"")
    check_request("GET", "/repos/o/r/pulls", {"head": "me:x", "state": "all"}, b"")


@dataclass
class Said:
    """An answer to POST /git/blobs, and what is wrong with it."""

    status: int
    body: bytes
    words: str


@pytest.mark.parametrize(
    "said",
    [
        Said(200, b'{"url": "u", "sha": "s"}', "no such status of git/create-blob"),
        Said(201, b'{"url": "u"}', "sha: Field required"),
        Said(201, b'{"url": "u", "sha": 5}', "sha: Input should be a valid string"),
        Said(201, b'{"url": "u", "sha": "s", "size": 5}', r"\.size"),
        Said(201, b"", "valid dictionary|object"),
        Said(304, b"", "no such status"),
        Said(418, b'{"message": "no"}', "no such status"),
        Said(404, b'{"message": "no", "reason": "none"}', r"\.reason"),
    ],
    ids=lambda said: f"{said.status}-{said.words}",
)
def test_an_answer_that_github_would_not_give_is_refused(said: Said) -> None:
    with pytest.raises(UndescribedError, match=said.words):
        check_answer("POST", BLOBS, said.status, "application/json", said.body)


def test_answers_of_github_pass() -> None:
    check_answer("POST", BLOBS, 201, "application/json", b'{"url": "u", "sha": "s"}')
    check_answer("POST", BLOBS, 401, "application/json", b'{"message": "Bad credentials"}')
    check_answer("GET", "/repos/o/r/pulls/1", 200, "application/vnd.github.diff", b"diff --git")
    check_answer("GET", "/repos/o/r/pulls/1", 304, "application/json", b"")


def test_a_request_with_a_wrong_key_fails_the_test_with_a_clear_text(scene: Scene) -> None:
    answer = scene.ask("POST", f"{scene.issue}/comments", {"body": "x", "text": "y"})
    assert answer.status_code == 500
    broken = scene.github.server.broken
    assert any("keys that GitHub does not know: .text" in one for one in broken)
    broken.clear()  # it was meant to be there


def test_an_answer_with_a_wrong_key_fails_the_test(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = wire.find_route("GET", "/user")
    assert found is not None

    def wrong(request: Request) -> Answer:
        answer = found[0].handler(request)
        assert isinstance(answer.json, dict)
        answer.json["nickname"] = "x"
        return answer

    changed = dataclasses.replace(found[0], handler=wrong)
    monkeypatch.setattr(server, "find_route", lambda _method, _path: (changed, {}))
    assert scene.ask("GET", "/user").status_code == 500
    broken = scene.github.server.broken
    assert any("keys that GitHub does not know: .nickname" in one for one in broken)
    broken.clear()
