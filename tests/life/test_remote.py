"""Repositories over HTTP: certificates of the user's own, and credentials that are not there."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Program, dig
from tests.sources.git_server import GitServer
from tests.toy import Toy, git

COMMITS = ("bisect", "area", "--commits", "v1.0", "v1.5")
AGAINST = ("status", "--against", "v1.2", "--text-only")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate that nobody vouches for, and its key, in one file."""
    file = tmp_path_factory.mktemp("certificate") / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", file, "-out", file.with_name("certificate")],
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_text(file.read_text() + file.with_name("certificate").read_text())
    return file


@pytest.fixture(
    params=["http", pytest.param("https", marks=(pytest.mark.tool("openssl"), pytest.mark.slow))]
)
def server(request: pytest.FixtureRequest, releases: Toy, program: Program) -> Iterator[GitServer]:
    """Serve the toy's upstream; the queue names the server in place of the folder."""
    encrypted = request.param == "https"
    certificate = request.getfixturevalue("certificate") if encrypted else None
    with GitServer(releases.root, certificate) as server:
        queue = releases.queue / "patches/queue.toml"
        remote = f"{server.url}/upstream"
        queue.write_text(queue.read_text().replace(releases.upstream.as_uri(), remote))
        program.env = {"no_proxy": "127.0.0.1", "GIT_SSL_CAINFO": str(certificate or "")}
        yield server


@pytest.mark.usefixtures("server")
def test_releases_and_commits_come_over_http(releases: Toy, program: Program) -> None:
    ran = program(*AGAINST, "--json")
    assert ran.code == 0, ran.err
    assert dig(ran.json(), "patches", 0, "text") == "merged"
    ran = program(*COMMITS, "--json")
    assert ran.code == 0, ran.err
    expected = git(releases.upstream, "rev-parse", "v1.3").decode().strip()
    assert dig(ran.json(), "first") == expected


@pytest.mark.tool("openssl")
@pytest.mark.parametrize("server", ["https"], indirect=True)
@pytest.mark.usefixtures("server")
def test_a_certificate_that_nobody_vouches_for_is_refused(program: Program) -> None:
    del program.env["GIT_SSL_CAINFO"]
    ran = program(*AGAINST)
    assert ran.code == 3
    assert ran.err.count("\n") == 1
    assert "certificate" in ran.err


@pytest.mark.parametrize("args", [AGAINST, COMMITS], ids=["status", "bisect"])
@pytest.mark.parametrize("server", ["http"], indirect=True)
def test_credentials_are_never_asked_for(
    server: GitServer, program: Program, tmp_path: Path, args: tuple[str, ...]
) -> None:
    """Neither on the terminal, nor by a window, which is what these programs open."""
    server.locked = True
    asked = tmp_path / "asked"
    ask = tmp_path / "ask"
    ask.write_text(f"#!/bin/sh\ntouch {asked}\nsleep 30\n")
    ask.chmod(0o755)
    settings = tmp_path / "settings"
    settings.write_text(f"[core]\n\taskPass = {ask}\n")
    env = {**program.env, "SSH_ASKPASS": str(ask), "GIT_CONFIG_GLOBAL": str(settings)}
    started = time.monotonic()
    ours, terminal = pty.openpty()
    done = subprocess.run(
        ["setsid", "--ctty", "--wait", sys.executable, "-m", "contribbot", *args],
        cwd=program.cwd, env={**os.environ, **env}, stdin=terminal, check=False, timeout=60,
        capture_output=True, text=True,
    )  # fmt: skip
    os.close(terminal)
    os.close(ours)
    assert time.monotonic() - started < 20
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert f"{server.url}/upstream: fatal: could not read Username" in done.stderr
    assert not asked.exists()
