"""What the servers of these tests have in common: HTTP on a port of this machine, in a thread."""

from __future__ import annotations

import http.server
import sys
import threading
import traceback
from abc import ABC, abstractmethod
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
