"""Each fault happens at the request it is meant for, and does to the state what it says."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import time

import httpx2
import pytest
from pydantic import JsonValue

from tests.github import faults
from tests.github.faults import ALL_FAULTS, WIRE_FAULTS, Fault
from tests.github.handle import GitHub
from tests.github.scene import Scene, make_scene

_CLIENT = """
import sys, urllib.request
url, token = sys.argv[1:]
sys.stdin.readline()
headers = {"Authorization": f"Bearer {token}", "User-Agent": "x"}
request = urllib.request.Request(url, b'{"body": "Hello"}', headers)
print("answered", urllib.request.urlopen(request).status)
"""


@pytest.fixture
def scene(github: GitHub) -> Scene:
    return make_scene(github)


def said(scene: Scene) -> int:
    """Return how many comments the pull request has."""
    return len(scene.pull.issue.comments)


def test_names_are_unique() -> None:
    assert len({one.name for one in ALL_FAULTS}) == len(ALL_FAULTS)


@pytest.mark.parametrize("fault", WIRE_FAULTS, ids=str)
def test_each_changes_what_it_says_and_lets_the_next_request_through(
    scene: Scene, fault: Fault
) -> None:
    path = f"{scene.issue}/comments"
    scene.faults.arm(fault, number=2, method="POST", path="/comments$")
    scene.json("POST", path, {"body": "1"})
    scene.json("GET", path)
    try:
        scene.ask("POST", path, {"body": "2"})
    except httpx2.TransportError:
        assert fault.name in {"reset-before", "reset-after", "truncated"}
    else:
        assert fault.name not in {"reset-before", "reset-after", "truncated"}
    assert said(scene) == (2 if fault.acted else 1)
    assert scene.faults.struck == [(fault, f"POST {path}")]
    scene.json("POST", path, {"body": "3"})
    assert said(scene) == (3 if fault.acted else 2)


@pytest.mark.parametrize(
    ("fault", "status", "headers"),
    [
        (faults.UNAUTHORIZED, 401, {}),
        (faults.FORBIDDEN, 403, {"Retry-After": None}),
        (faults.primary_limit(60), 403, {"X-RateLimit-Remaining": "0", "Retry-After": None}),
        (faults.secondary_limit(403, 7), 403, {"Retry-After": "7"}),
        (faults.secondary_limit(429, 7), 429, {"Retry-After": "7"}),
        (faults.NOT_FOUND, 404, {}),
        (faults.CONFLICT, 409, {}),
        (faults.EXISTS, 422, {}),
        (faults.SERVER_ERROR, 500, {}),
        (faults.BAD_GATEWAY, 502, {"Content-Type": "text/html; charset=utf-8"}),
        (faults.BAD_GATEWAY_AFTER, 502, {}),
        (faults.UNAVAILABLE, 503, {}),
    ],
    ids=str,
)
def test_answers_of_faults(
    scene: Scene, fault: Fault, status: int, headers: dict[str, str | None]
) -> None:
    scene.faults.arm(fault)
    answer = scene.ask("GET", "/user")
    assert answer.status_code == status
    for name, value in headers.items():
        assert answer.headers.get(name) == value
    assert scene.ask("GET", "/user").status_code == 200


def test_the_primary_limit_says_when(scene: Scene) -> None:
    scene.faults.arm(faults.primary_limit(60))
    reset = int(scene.ask("GET", "/user").headers["X-RateLimit-Reset"])
    assert 55 < reset - time.time() < 65


def test_what_exists_already_depends_on_what_was_asked_for(scene: Scene) -> None:
    scene.faults.arm(faults.EXISTS, times=2)
    body: dict[str, JsonValue] = {"title": "x", "head": "author:fix", "base": "main"}
    assert "A pull request already exists" in scene.ask("POST", f"{scene.api}/pulls", body).text
    ref: dict[str, JsonValue] = {"ref": "refs/heads/x", "sha": scene.pull.head_sha}
    answer = scene.ask("POST", f"/repos/{scene.fork.full_name}/git/refs", ref)
    assert answer.json()["message"] == "Reference already exists"


def test_a_truncated_body_announces_more_than_comes(scene: Scene) -> None:
    scene.faults.arm(faults.TRUNCATED)
    server = http.client.HTTPConnection(scene.github.base.removeprefix("http://"), timeout=10)
    token = scene.author.tokens[0].text
    server.request("GET", "/user", headers={"Authorization": f"Bearer {token}", "User-Agent": "x"})
    answer = server.getresponse()
    announced = int(answer.headers["Content-Length"])
    with pytest.raises(http.client.IncompleteRead) as caught:
        answer.read()
    server.close()
    assert len(caught.value.partial) == announced // 2


def test_a_slow_answer_is_late_and_right(scene: Scene) -> None:
    scene.faults.arm(faults.slow(0.4))
    with pytest.raises(httpx2.ReadTimeout):
        scene.ask("GET", "/user", timeout=0.1)
    scene.faults.arm(faults.slow(0.2))
    start = time.monotonic()
    assert scene.ask("GET", "/user").status_code == 200
    assert time.monotonic() - start >= 0.2


def test_a_fault_can_go_on_and_be_taken_away(scene: Scene) -> None:
    scene.faults.arm(faults.UNAVAILABLE, number=2, times=0)
    assert [scene.ask("GET", "/user").status_code for _ in range(4)] == [200, 503, 503, 503]
    scene.faults.clear()
    assert scene.ask("GET", "/user").status_code == 200


@pytest.mark.parametrize("fault", [faults.KILL_BEFORE, faults.KILL_AFTER], ids=str)
def test_a_client_is_killed_before_or_after_the_server_acted(scene: Scene, fault: Fault) -> None:
    scene.faults.arm(fault, method="POST")
    url = f"{scene.github.base}{scene.issue}/comments"
    client = subprocess.Popen(
        [sys.executable, "-I", "-c", _CLIENT, url, scene.author.tokens[0].text],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    scene.faults.victim(client.pid)
    out, _ = client.communicate(b"\n", timeout=60)
    assert client.returncode == -signal.SIGKILL
    assert out == b""
    assert said(scene) == (1 if fault.acted else 0)
