"""The scripts of jobs that may write, run on what a job that went bad could send them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import pytest
from ruamel.yaml import YAML

from contribbot.runners.workflows import templates_folder
from tests.github.world import make_source

if TYPE_CHECKING:
    from tests.github.handle import GitHub

pytestmark = pytest.mark.tool("curl", "jq")
DIGEST: Final = "ab" * 32
REPORT: Final = (
    b"```\r\r</pre><script>\n@everyone /merge\n~~~\n\x1b[2J\xe2\x80\xae[x](http://evil.example)\n"
    b"$(touch gone)`touch gone`\0\n::error::no\n" + b"\n" * 70_000
)


def run_step(
    workflow: str, job: str, name: str, place: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the script of a step as a runner does."""
    parsed = YAML(typ="safe").load(templates_folder() / workflow)
    (step,) = (each for each in parsed["jobs"][job]["steps"] if each["name"] == name)
    plain = {key: value for key, value in step["env"].items() if "${{" not in value}
    common = {"GITHUB_REPOSITORY": "example/queue", "GITHUB_RUN_ID": "7", "GITHUB_SHA": "0" * 40,
              "GITHUB_SERVER_URL": "https://example.org", "PATH": os.environ["PATH"]}  # fmt: skip
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=place, env={**common, **plain, **env}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


def test_a_hostile_report_stays_text(github: GitHub, tmp_path: Path) -> None:
    bot = github.add_user("github-actions[bot]", kind="Bot")
    queue = github.add_repository(
        "example/queue", make_source(tmp_path / "source"), members={bot.login: "write"}
    )
    place = tmp_path / "runner"
    (place / "report").mkdir(parents=True)
    (place / "report/report.txt").write_bytes(REPORT)
    env = {"GITHUB_TOKEN": bot.tokens[0].text, "GITHUB_API_URL": github.base}

    done = run_step("rebase.yml", "tell", "Open or update the issue", place, env)

    assert done.returncode == 0, done.stdout + done.stderr
    (issue,) = queue.issues.values()
    assert issue.body is not None
    assert len(issue.body) < 65536
    # What GitHub makes of it: the first line, one block of code, the last line.
    head, _, rest = issue.body.partition("\n\n")
    block, _, tail = rest.rpartition("\n\n")
    assert "@" not in head + tail
    assert all(re.fullmatch(r" {4}[ -~]*| {0,4}", line) for line in block.split("\n"))
    assert "    @everyone /merge" in block.split("\n")
    assert sorted(each.name for each in place.iterdir()) == [
        "body.md", "issue.json", "open.json", "report", "told.txt",
    ]  # fmt: skip


def test_a_refusal_of_github_fails_the_job(github: GitHub, tmp_path: Path) -> None:
    env = {"GITHUB_TOKEN": "ghp_nobody", "GITHUB_API_URL": github.base}
    (tmp_path / "runner/report").mkdir(parents=True)
    (tmp_path / "runner/report/report.txt").write_bytes(b"nothing\n")

    done = run_step("rebase.yml", "tell", "Open or update the issue", tmp_path / "runner", env)

    assert (done.returncode, done.stdout) == (22, "")
    assert "401" in done.stderr
    assert "ghp_nobody" not in done.stderr


class Pages(BaseHTTPRequestHandler):
    """Lists the artifacts of a run: a hundred good ones, then some that no job of ours made."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        assert address.path == "/repos/example/queue/actions/runs/7/artifacts"
        assert self.headers["Authorization"] == "Bearer ghs_secret"
        page = parse_qs(address.query)["page"]
        found = {"1": [row(f"contribbot-gfx942-rocm7.1-{each}") for each in range(100)]}
        body = json.dumps({"total_count": 108, "artifacts": found.get(page[0], ODD)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def row(
    name: str, digest: str | None = f"sha256:{DIGEST}", *, expired: bool = False
) -> dict[str, str | bool | None]:
    return {"name": name, "digest": digest, "expired": expired}


ODD: Final = [
    row("contribbot-plan"),
    row("other"),
    row("contribbot-old", expired=True),
    row("contribbot-none", digest=None),
    row("contribbot-short", digest="sha256:ab"),
    row(f"contribbot-x\n{DIGEST}  contribbot-gfx942-rocm7.1-1.zip"),
    row("contribbot-y\n"),
    row("contribbot-../../up"),
    row("contribbot-" + "a" * 200),
]


@pytest.fixture
def pages() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_attested_is_named_plainly(pages: str, tmp_path: Path) -> None:
    env = {"GITHUB_TOKEN": "ghs_secret", "GITHUB_API_URL": pages,
           "GITHUB_OUTPUT": str(tmp_path / "output")}  # fmt: skip

    done = run_step("verify.yml", "attest", "List the artifacts", tmp_path, env)

    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "checksums.txt").read_text().splitlines()
    assert lines == [
        *(f"{DIGEST}  contribbot-gfx942-rocm7.1-{each}.zip" for each in range(100)),
        f"{DIGEST}  contribbot-plan.zip",
    ]
    assert (tmp_path / "output").read_text() == "some=true\n"
