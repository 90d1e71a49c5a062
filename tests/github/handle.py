"""The HTTP side of the local GitHub: threads, faults, the log.

Whatever no handler models gets a 501 that names it and is kept in `github.broken`; the fixture
fails the test then. A fault acts outside of any lock, in the connection's thread; `HangUpError`
out of a fault resets the connection.
"""

from __future__ import annotations

import http.server
import importlib
import itertools
import socket
import struct
import sys
import traceback
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tests.github.faults import Faults
from tests.github.state import State
from tests.github.wire import Answer, HangUpError, Request, UnmodelledError

for room in ("routes_actions", "routes_git", "routes_talk"):
    importlib.import_module(f"tests.github.{room}")  # they register their routes


class GitHub(State):
    """The object that the fixture `github` gives to a test: the state, and its HTTP server."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.faults = Faults()
        self.requests: list[Request] = []
        self.broken: list[str] = []
        self.numbers = itertools.count(1)
        self.http = _Http(("127.0.0.1", 0), _Connection)
        self.http.owner = self
        #: The URL of the server, for GITHUB_API_URL.
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}"

    def count(self, method: str | None = None, path: str = "") -> int:
        return sum(method in {None, it.method} and path in it.path for it in self.requests)

    def answer(self, request: Request) -> Answer:
        try:
            answer = self._act(request)
            request.status = answer.status
        finally:
            self.requests.append(request)
        return answer

    def _act(self, request: Request) -> Answer:
        try:
            request.find_route()
            return self.faults.run(request)
        except HangUpError:
            raise
        except Exception as error:  # noqa: BLE001  the test must see it, whatever it is
            known = isinstance(error, UnmodelledError)
            self.broken.append(f"not modelled: {error}" if known else traceback.format_exc())
            return Answer(501 if known else 500, {"message": f"{type(error).__name__}: {error}"})


class _Http(http.server.ThreadingHTTPServer):
    owner: GitHub
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep the traceback of an error; a client that hangs up or is killed is no error."""
        del request, client_address
        if not isinstance(sys.exception(), OSError):
            self.owner.broken.append(traceback.format_exc())


class _Connection(http.server.BaseHTTPRequestHandler):
    """One connection, kept alive between requests."""

    server: _Http
    protocol_version = "HTTP/1.1"
    server_version = "GitHub.com"
    sys_version = ""
    disable_nagle_algorithm = True
    timeout = 60

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base's name
        """Say nothing on standard error."""

    def _serve(self) -> None:
        """Answer one request, or reset the connection."""
        split, owner = urlsplit(self.path), self.server.owner
        request = Request(
            next(owner.numbers), self.command, split.path,
            dict(parse_qsl(split.query, keep_blank_values=True)),
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(int(self.headers.get("Content-Length", "0"))), owner,
        )  # fmt: skip
        try:
            self._send(owner.answer(request))
        except HangUpError:
            self.close_connection = True
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.rfile.close()
            self.connection.close()

    # The base class calls these names.
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve  # noqa: N815

    def _send(self, answer: Answer) -> None:
        body = answer.body()
        self.send_response(answer.status)
        answer.headers.setdefault("Content-Type", "application/json; charset=utf-8")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status not in {204, 304}:
            self.send_header("Content-Length", str(len(body)))
        sent = body if answer.cut is None else body[: answer.cut]
        self._headers_buffer: list[bytes]
        self._headers_buffer.append(b"\r\n" + sent)
        self.flush_headers()
        self.close_connection = self.close_connection or answer.cut is not None
