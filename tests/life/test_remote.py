"""Repositories over HTTP that ask for credentials: contribbot asks nobody for them."""

from __future__ import annotations

import http.server
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.sources.index_server import LocalServer
from tests.toy import Toy


class Locked(LocalServer):
    """A server that asks for credentials, and takes none."""

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(401)
        request.send_header("WWW-Authenticate", 'Basic realm="git"')
        request.send_header("Content-Length", "0")
        request.end_headers()


@pytest.mark.parametrize(
    "args",
    [
        ("status", "--against", "v1.2", "--text-only"),
        ("bisect", "area", "--commits", "v1.0", "v1.5"),
    ],
)
def test_credentials_are_never_asked_for(
    releases: Toy, program: Program, tmp_path: Path, args: tuple[str, ...]
) -> None:
    """Neither on the terminal, nor by a window, which is what these programs open."""
    asked, ask, settings = tmp_path / "asked", tmp_path / "ask", tmp_path / "settings"
    ask.write_text(f"#!/bin/sh\ntouch {asked}\nsleep 30\n")
    ask.chmod(0o755)
    settings.write_text(f"[core]\n\taskPass = {ask}\n")
    env = {"no_proxy": "127.0.0.1", "SSH_ASKPASS": str(ask), "GIT_CONFIG_GLOBAL": str(settings)}
    ours, terminal = pty.openpty()
    with Locked() as server:
        remote = f"http://{server.host}/upstream"
        queue = releases.queue / "patches/queue.toml"
        queue.write_text(queue.read_text().replace(releases.upstream.as_uri(), remote))
        done = subprocess.run(
            ["setsid", "--ctty", "--wait", sys.executable, "-m", "contribbot", *args],
            cwd=program.cwd, env={**os.environ, **env}, stdin=terminal, check=False, timeout=20,
            capture_output=True, text=True,
        )  # fmt: skip
    os.close(terminal)
    os.close(ours)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert f"{remote}: fatal: could not read Username" in done.stderr
    assert not asked.exists()
