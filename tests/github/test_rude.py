"""Servers that are no GitHub, or are not there: an error of ours, and soon."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from email.utils import formatdate
from unittest import mock

import pytest

from contribbot.errors import GitHubError, RateLimitError, UncertainError
from contribbot.github import client as client_module
from contribbot.github.client import Waits, whole
from tests.github import faults as f
from tests.github.wire import Answer
from tests.github.world import Patience, World, client


@contextlib.contextmanager
def rude(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """Start a server that answers each connection by `speak`, whatever the request."""

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


LOGIN = b'{"login": "me"}'
NAMED = "Location: http://example.org/user"
RUDE: list[tuple[str, Callable[[socket.socket], None], str]] = [
    ("reset", _reset, "the connection broke"),
    ("no http", lambda it: it.sendall(b"SSH-2.0-OpenSSH\r\n\r\n"), "the connection broke"),
    ("html", reply("200 OK", b"<html>"), "an answer of another shape"),
    ("type", reply("200 OK", b'{"login": 3}'), "an answer of another shape: BadAttribute"),
    ("deep", reply("200 OK", b"[" * 500_000), "an answer of another shape"),
    ("gzip", reply("200 OK\r\nContent-Encoding: gzip", LOGIN), "the answer is none"),
    ("elsewhere", reply(f"301 Moved\r\n{NAMED}"), "the connection broke"),
    ("moved", reply("302 Found\r\nLocation: /user"), "GitHub says that it has moved"),
    ("teapot", reply("418 Teapot", b'{"message": "x\\u001b[2J\\ny"}'), "GET /user: x y"),
    ("huge words", reply("422 No", b'{"message": "' + b"a" * 99999 + b'"}'), "a{99}…$"),
    ("odd words", reply("422 No", b'{"message": 3, "errors": [1, {}, "w"]}'), "GET /user: : w|w$"),
    ("numbers", reply("429 No\r\nRetry-After: nan\r\nX-RateLimit-Reset: x"), "GET /user: "),
    ("superscript", reply("429 No\r\nRetry-After: \xb2"), "GET /user: "),
    ("far", reply("429 No\r\nRetry-After: 99999999999999999999"), "asks for a pause until"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("speak", "words"), [row[1:] for row in RUDE], ids=[row[0] for row in RUDE]
)
def test_rude_servers_give_errors_of_ours(
    speak: Callable[[socket.socket], None], words: str
) -> None:
    waits = Patience().waits(longest=10, attempts=2)
    with (
        rude(speak) as base,
        pytest.raises(GitHubError, match=words) as caught,
        client(base, "ghp_secret", waits=waits) as ours,
    ):
        assert ours.me
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("302 Found", "HTTP 302"),
        ("302 Found\r\nLocation: /repos/o/n/pulls/1", "the connection broke"),
    ],
)
def test_a_download_that_leads_nowhere_ends(head: str, words: str) -> None:
    waits = Patience().waits(attempts=1)
    with (
        rude(reply(head)) as base,
        pytest.raises(GitHubError, match=words) as caught,
        client(base, "ghp_x", waits=waits) as ours,
    ):
        ours.mails("o/n", 1)
    assert caught.value.hint


def test_what_is_no_repository_is_not_asked_for(world: World) -> None:
    with client(world.github, world.ada.tokens[0].text) as ours:
        assert (ours.me, ours.me) == ("ada", "ada")
        for odd in ("tool", "org/tool/x", "../user", "org/", "org/.."):
            with pytest.raises(GitHubError, match="not a repository"):
                ours.repository(odd)
    assert len(world.github.requests) == 1


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    patience = Patience()
    # The request was not sent, so the write has not happened.
    with (
        client(f"http://127.0.0.1:{port}", "ghp_x", waits=patience.waits()) as ours,
        pytest.raises(GitHubError, match=rf"127.0.0.1:{port} cannot be reached") as caught,
    ):
        ours.repository("o/n").create_fork()
    assert type(caught.value) is GitHubError


def test_a_limit_ends_by_the_clock_of_github() -> None:
    now, patience = 1_000_000_000, Patience()
    limit = f"X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: {now + 40}\r\n"
    head = f"403 No\r\n{limit}Date: {formatdate(now, usegmt=True)}"
    body = b'{"message": "API rate limit exceeded for user ID 1."}'
    with (
        rude(reply(head, body)) as base,
        pytest.raises(RateLimitError),
        client(base, "ghp_x", waits=patience.waits(attempts=2)) as ours,
    ):
        assert ours.me
    assert patience.slept == [41]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_login_says_so(scheme: str) -> None:
    waits = Patience().waits(attempts=1)
    with (
        rude(reply("407 Proxy Authentication Required")) as proxy,
        mock.patch.dict("os.environ", {f"{scheme}_proxy": proxy}),
    ):
        # Only requests to this machine use plain HTTP, and these use no proxy.
        url = "https://git.example.org/api/v3" if scheme == "https" else proxy
        with pytest.raises(GitHubError) as caught, client(url, "ghp_x", waits=waits) as ours:
            assert ours.me
    assert "it wants a login: HTTPS_PROXY=" in f"{caught.value.message} {caught.value.hint}"


def test_a_renamed_repository_is_followed(world: World) -> None:
    assert world.pull.issue.state == "open"
    world.faults.arm(f.moved("old/name", "org/tool"), path="^/repos/old/name", times=0)
    with client(world.github, world.ada.tokens[0].text) as ours:
        assert ours.repository("old/name").complete().full_name == "org/tool"


def link(text: Callable[[str], str]) -> f.Fault:
    def after(answer: Answer) -> Answer:
        answer.headers["Link"] = text(answer.headers.get("Link", ""))
        return answer

    return f.Fault("link", after=after)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('<https://example.org/pulls?page=2>; rel="next"', "points to another server"),
        # PyGithub would send the token to any subdomain.
        ('<http://x.127.0.0.1/pulls?page=2>; rel="next"', "points to another server"),
        ("<BASE/x>; rel", ""),
    ],
)
def test_a_list_that_leads_nowhere_ends(world: World, text: str, words: str) -> None:
    base = world.github.base
    world.faults.arm(link(lambda _: text.replace("BASE", base)), path="/pulls$", times=0)
    with (
        pytest.raises(GitHubError, match=words) if words else contextlib.nullcontext(),
        client(world.github, world.ada.tokens[0].text) as ours,
    ):
        ours.pulls_from("org/tool", "ada", world.pull.head_ref)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
def test_a_server_that_falls_silent_is_given_up(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speak(connection: socket.socket) -> None:
        connection.settimeout(5)
        connection.sendall(head)
        while connection.recv(65536):  # until the client has gone
            pass

    monkeypatch.setattr(client_module, "_TIMEOUT", 0.2)
    waits = Waits(attempts=1, between_writes=0)
    with rude(speak) as base, client(base, "ghp_x", waits=waits) as ours:
        with pytest.raises(GitHubError, match="GET /user: no answer in time"):
            assert ours.me
        # Nobody knows whether the server did the write.
        with pytest.raises(UncertainError, match="no answer in time: nobody knows"):
            ours.repository("o/n").create_fork()
        with pytest.raises(GitHubError, match="GET /repos/o/n/pulls/1: no answer in time"):
            ours.mails("o/n", 1)


@pytest.mark.parametrize("answer", [b"[]", b"{}", b"null", b'[{"id": null}, 3]'])
@pytest.mark.parametrize(
    "rows", ["repos/o/n/actions/runs/1/jobs", "repos/o/n/actions/runs/1/artifacts", "search/issues"]
)
def test_rows_that_are_not_there_are_not_taken_for_none(answer: bytes, rows: str) -> None:
    with (
        rude(reply("200 OK", answer)) as base,
        pytest.raises(GitHubError, match="an answer of another shape: no object"),
        client(base, "ghp_x") as ours,
    ):
        ours.requester.requestJsonAndCheck("GET", f"/{rows}?per_page=100")


def test_all_pages_of_a_list_are_read_each_time(world: World) -> None:
    for number in range(101):
        world.github.pull(world.upstream, world.fork, branch(world, number))
    with client(world.github, world.ada.tokens[0].text) as ours:
        upstream = ours.repository("org/tool")
        assert len(whole(upstream.get_pulls(state="all"))) == 101
        world.github.pull(world.upstream, world.fork, branch(world, 101))
        assert len(whole(upstream.get_pulls(state="all"))) == 102


def branch(world: World, number: int) -> str:
    world.change(f"b{number}", f"x = {number}\n")
    return f"b{number}"
