"""HTTP servers of this machine, in a thread: a package index that can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import http.server
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self


class _Http(http.server.ThreadingHTTPServer):
    """Standard error is the program's here: a client that hangs up says nothing."""

    def handle_error(self, request: object, client_address: object) -> None:
        del request, client_address
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()


class LocalServer(ABC):
    """Answers while it is entered."""

    def __init__(self) -> None:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
                pass

        self._server = _Http(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def host(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @abstractmethod
    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        """Answer a GET."""


class Index(LocalServer):
    """Serves `/simple/NAME/` pages and the files on them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}  # by name; all belong to `demo`
        self.announce = True  # whether pages state digests
        self.folder = "/files/"  # to which pages link
        self.yanked: dict[str, str] = {}  # what the project withdrew, with its reason
        self.garbled = False  # pages are JSON, cut in the middle
        self.credentials = ""  # `user:password` that is asked for
        # Of the next downloads and pages: short, flip (other bytes), or a status.
        self.faults: list[str] = []
        self.page_faults: list[str] = []
        self.asked: list[str] = []
        super().__init__()

    @property
    def url(self) -> str:
        return f"http://{self.host}/simple/"

    def url_as(self, userinfo: str) -> str:
        return f"http://{userinfo}@{self.host}/simple/"

    def offer(self, archive: Path) -> None:
        self.files[archive.name] = archive.read_bytes()

    @property
    def pages(self) -> int:
        return self.asked.count("/simple/demo/")

    @property
    def downloads(self) -> int:
        return sum(path.startswith("/files/") for path in self.asked)

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        wanted = "Basic " + base64.b64encode(self.credentials.encode()).decode()
        if self.credentials and request.headers.get("Authorization") != wanted:
            self._send(request, 401, b"", "text/plain")
        elif request.path == "/simple/demo/":
            kind = "application/vnd.pypi.simple.v1+json" if self.garbled else "text/html"
            page = b"{" if self.garbled else self._page()
            self._misbehave(request, self.page_faults, page, kind)
        elif (name := request.path.removeprefix("/files/")) in self.files:
            self._misbehave(request, self.faults, self.files[name], "application/gzip")
        else:
            self._send(request, 404, b"", "text/plain")

    def _page(self) -> bytes:
        lines = []
        for name, content in self.files.items():
            digest = f"#sha256={hashlib.sha256(content).hexdigest()}" if self.announce else ""
            reason = self.yanked.get(name)
            yanked = "" if reason is None else f' data-yanked="{reason}"'
            lines.append(f'<a href="{self.folder}{name}{digest}"{yanked}>{name}</a>')
        return f"<html><body>{''.join(lines)}</body></html>".encode()

    def _misbehave(
        self,
        request: http.server.BaseHTTPRequestHandler,
        faults: list[str],
        content: bytes,
        kind: str,
    ) -> None:
        fault = faults.pop(0) if faults else ""
        if fault.isdigit():
            self._send(request, int(fault), b"", kind)
        elif fault == "short":
            self._send(request, 200, content[: len(content) // 2], kind, len(content))
        elif fault == "flip":
            self._send(request, 200, content[:-1] + bytes((content[-1] ^ 1,)), kind)
        else:
            self._send(request, 200, content, kind)

    @staticmethod
    def _send(
        request: http.server.BaseHTTPRequestHandler,
        status: int,
        content: bytes,
        kind: str,
        length: int | None = None,
    ) -> None:
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content) if length is None else length))
        request.end_headers()
        request.wfile.write(content)
        request.close_connection = True
