"""Servers that are no GitHub, or are not there: an error of ours, and soon."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from contribbot.errors import GitHubError
from contribbot.github import requester
from tests.github import faults as f
from tests.github.ours import Patience, client
from tests.github.wire import Answer
from tests.github.world import World


@contextlib.contextmanager
def rude(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """Answer each connection so, whatever was asked."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            with contextlib.suppress(OSError):
                speak(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def reply(head: str, body: bytes = b"") -> Callable[[socket.socket], None]:
    sizes = f"Connection: close\r\nContent-Length: {len(body)}"
    return lambda it: it.sendall(f"HTTP/1.1 {head}\r\n{sizes}\r\n\r\n".encode("latin-1") + body)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b" " * 20)
        time.sleep(0.005)


def _endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b" " * 65536)


LOGIN = b'{"login": "me"}'
NAMED = "Location: http://example.org/user"
RUDE: list[tuple[str, Callable[[socket.socket], None], str]] = [
    ("reset", _reset, "the connection broke, 2 times"),
    ("drip", _drip, "no answer in time, 2 times"),
    ("endless", _endless, "more than 1048576 bytes came"),
    ("no http", lambda it: it.sendall(b"SSH-2.0-OpenSSH\r\n\r\n"), "the connection broke"),
    ("html", reply("200 OK", b"<html>"), "an answer of another shape: no JSON"),
    ("type", reply("200 OK", b'{"login": 3}'), "another shape: login"),
    ("deep", reply("200 OK", b"[" * 500_000), "an answer of another shape"),
    ("gzip", reply("200 OK\r\nContent-Encoding: gzip", LOGIN), "the answer is garbled"),
    ("elsewhere", reply(f"301 Moved\r\n{NAMED}"), "GitHub points to another server"),
    ("circle", reply("302 Found\r\nLocation: /user"), "GitHub redirects in a circle"),
    ("teapot", reply("418 Teapot", b'{"message": "x\\u001b[2J\\ny"}'), "GET /user: x\ufffd.2J y"),
    ("huge words", reply("422 No", b'{"message": "' + b"a" * 99999 + b'"}'), "a{99}…$"),
    ("odd words", reply("422 No", b'{"message": 3, "errors": [1, {}, "w"]}'), "GET /user: : w|w$"),
    ("numbers", reply("429 No\r\nRetry-After: nan\r\nX-RateLimit-Reset: x"), "rate limit is used"),
    ("superscript", reply("429 No\r\nRetry-After: \xb2"), "rate limit is used up until"),
    ("links", reply("200 OK\r\nLink: <x>; rel", LOGIN), "an answer of another shape: Link"),
    ("control", reply("301 Moved\r\nLocation: /us\x9ber"), "the connection broke"),
    ("far", reply("429 No\r\nRetry-After: 99999999999999999999"), "rate limit is used up until"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("speak", "words"), [row[1:] for row in RUDE], ids=[row[0] for row in RUDE]
)
def test_rude_servers_give_errors_of_ours(
    speak: Callable[[socket.socket], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requester, "MOST", 1 << 20)
    monkeypatch.setattr(requester, "DEADLINE", 0.5)
    waits = Patience().waits(longest=10, attempts=2)
    with (
        rude(speak) as base,
        client(base, "ghp_secret", waits=waits) as ours,
        pytest.raises(GitHubError, match=words) as caught,
    ):
        assert ours.me
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 500


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    patience = Patience()
    # Not sent, so nothing that must not be repeated can have happened.
    with (
        client(f"http://127.0.0.1:{port}", "ghp_x", waits=patience.waits()) as ours,
        pytest.raises(GitHubError, match=rf"127.0.0.1:{port} cannot be reached, 3 times") as caught,
    ):
        ours.pull("o/n", 1).create_issue_comment("Hello")
    assert type(caught.value) is GitHubError


def test_a_renamed_repository_is_followed_by_reads_alone(world: World) -> None:
    assert world.pull.issue.state == "open"
    world.faults.arm(f.moved("old/name", "org/tool"), path="^/repos/old/name", times=0)
    with client(world.github, world.ada.tokens[0].text) as ours:
        assert ours.repository("old/name").complete().full_name == "org/tool"
        # With its query: without it, this would list all that is open.
        assert ours.recent_pulls("old/name", state="closed", pages=1) == ()
        with pytest.raises(GitHubError, match="has moved, and contribbot writes nowhere") as caught:
            ours.pull("old/name", world.pull.number).create_issue_comment("Hello")
    assert "`repository` in upstreams/NAME.toml" in caught.value.hint
    assert "GITHUB_REPOSITORY=OWNER/NAME" in caught.value.hint
    assert world.github.count("POST") == 1


def test_a_list_that_goes_on_at_another_server_is_not_read_there(world: World) -> None:
    def leads_away(_faults: f.Faults, answer: Answer) -> Answer:
        answer.headers["Link"] = '<https://example.org/pulls?page=2>; rel="next"'
        return answer

    world.faults.arm(f.Fault("away", after=leads_away), path="/pulls$")
    with (
        client(world.github, world.ada.tokens[0].text) as ours,
        pytest.raises(GitHubError, match=r"points to another server: .https://example"),
    ):
        ours.pulls_from("org/tool", "ada", world.pull.head_ref)


@pytest.mark.parametrize(
    "address", ["https://a:b/", "https://a:99999/", "https://\x9b/", "//", "https://[/"]
)
def test_an_address_of_an_artifact_that_is_none_is_an_error_of_ours(address: str) -> None:
    with (
        rude(reply(f"302 Found\r\nLocation: {address}")) as base,
        client(base, "ghp_x") as ours,
        pytest.raises(GitHubError, match=r"which is not https|the connection broke"),
    ):
        ours.requester.fetch("/repos/o/n/actions/artifacts/1/zip", most=100)


def test_rows_that_are_no_jobs() -> None:
    with (
        rude(reply("200 OK", b'{"total_count": 1, "jobs": [{"id": 1}]}')) as base,
        client(base, "ghp_x") as ours,
        pytest.raises(GitHubError, match=r"runs/7/jobs: .* another shape: jobs\.0\.name"),
    ):
        list(ours.run("o/n", 7).jobs())
