"""A git repository over HTTP, plain or encrypted, in a thread, by git's own http-backend."""

from __future__ import annotations

import http.server
import os
import subprocess
from pathlib import Path

from .local_server import LocalServer


class GitServer(LocalServer):
    """Serves the repositories of a folder."""

    def __init__(self, root: Path, certificate: Path | None = None) -> None:
        self.locked = False  # asks for credentials, and takes none
        self._root = root
        self._scheme = "https" if certificate else "http"
        super().__init__(certificate)

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.host}"

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        if self.locked:
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="git"')
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        path, _, query = request.path.partition("?")
        length = request.headers.get("Content-Length", "")
        done = subprocess.run(
            ["git", "http-backend"],
            env={
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self._root),
                "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
                "REQUEST_METHOD": request.command, "CONTENT_LENGTH": length,
                "CONTENT_TYPE": request.headers.get("Content-Type", ""),
                "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            },
            input=request.rfile.read(int(length)) if length else b"",
            capture_output=True,
            check=True,
        )  # fmt: skip
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(row.split(": ", 1) for row in head.decode().split("\r\n"))
        request.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
