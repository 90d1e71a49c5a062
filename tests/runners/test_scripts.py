"""The scripts of jobs that may write, run on what a job that went bad could send them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import parse_qs, urlsplit

import pytest
from ruamel.yaml import YAML

from contribbot.runners.workflows import templates_folder
from tests.github.handle import GitHub
from tests.github.state import Repository, User
from tests.github.state_social import set_labels
from tests.github.world import make_source

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
) -> dict[str, str | int | None]:
    return {"id": 1, "name": name, "digest": digest, "expired": expired}


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


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on this machine, and give the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def pages() -> Iterator[str]:
    with serving(Pages) as address:
        yield address


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


class Zips(BaseHTTPRequestHandler):
    """Gives artifacts by their ids, which are their places in what is sent."""

    sent: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        found = re.fullmatch(r"/repos/example/queue/actions/artifacts/(\d+)/zip", self.path)
        assert found
        assert self.headers["Authorization"] == "Bearer ghs_secret"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.sent[int(found[1])])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return an artifact with some files."""
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as artifact:
        for name, content in files.items():
            artifact.writestr(name, content)
    return into.getvalue()


def test_each_record_is_attested_by_its_own_digest_and_nothing_else(tmp_path: Path) -> None:
    good, bad = (
        json.dumps({"predicate": {"result": each}}).encode() for each in ("PASSED", "FAILED")
    )
    Zips.sent = [
        zipped({"job.json": b"{}", "records/area/x.json": good, "records/volume/x.json": bad}),
        b"no zip",
        zipped({"records/area/y.json": b'{"predicate": {"result": "LUCK"}}'}),
        zipped({"records/../../x.json": good, "records/a\n/x.json": good, "x.json": good}),
        zipped({"records/area/z.json": good}),
        zipped({"records/area/w.json": b"["}),
        zipped({"records/area/v.json": good}),
    ]  # fmt: skip
    # One is not what GitHub listed.
    digests = [hashlib.sha256(content).hexdigest() for content in Zips.sent]
    digests[4] = DIGEST
    rows = [{**row(f"contribbot-{n}", f"sha256:{each}"), "id": n} for n, each in enumerate(digests)]
    (tmp_path / "artifacts.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    with serving(Zips) as address:
        env = {"GITHUB_TOKEN": "ghs_secret", "GITHUB_API_URL": address,
               "GITHUB_OUTPUT": str(tmp_path / "output")}  # fmt: skip
        done = run_step("verify.yml", "attest", "List the records", tmp_path, env)

    assert done.returncode == 0, done.stderr
    known = hashlib.sha256(good).hexdigest()
    passed = [f"{known}  records/area/v.json", f"{known}  records/area/x.json"]
    assert (tmp_path / "PASSED.txt").read_text().splitlines() == passed
    failed = f"{hashlib.sha256(bad).hexdigest()}  records/volume/x.json\n"
    assert (tmp_path / "FAILED.txt").read_text() == failed
    assert (tmp_path / "output").read_text() == "passed=true\nfailed=true\n"
    lost = re.findall(r"^(\S+): its records cannot be listed$", done.stdout, re.MULTILINE)
    assert lost == ["contribbot-1", "contribbot-4", "contribbot-5"]


LINE = "patch: applies, and is still needed\n"


class Teller:
    """The job that may write issues, on a machine of its own each time."""

    def __init__(self, github: GitHub, root: Path) -> None:
        self.bot: User = github.add_user("github-actions[bot]", kind="Bot")
        self.queue: Repository = github.add_repository(
            "example/queue", make_source(root / "source"), members={self.bot.login: "write"}
        )
        self.github, self.root, self.runs, self.place = github, root, 0, root

    def __call__(
        self, report: str | bytes | Path, token: str = ""
    ) -> subprocess.CompletedProcess[str]:
        self.runs += 1
        self.place = self.root / f"runner-{self.runs}"
        file = self.place / "report/report.txt"
        file.parent.mkdir(parents=True)
        if isinstance(report, Path):
            file.symlink_to(report)
        else:
            file.write_bytes(report.encode() if isinstance(report, str) else report)
        token = token or self.bot.tokens[0].text
        env = {"GITHUB_TOKEN": token, "GITHUB_API_URL": self.github.base}
        return run_step("rebase.yml", "tell", "Open or update the issue", self.place, env)

    def bodies(self) -> list[str]:
        """Return what the issues say."""
        return [each.body or "" for each in self.queue.issues.values()]


@pytest.fixture
def tell(github: GitHub, tmp_path: Path) -> Teller:
    return Teller(github, tmp_path)


def test_a_link_does_not_read_the_machine(tell: Teller) -> None:
    token = tell.bot.tokens[0].text
    ran = tell(Path("/proc/self/environ"))
    assert token not in "".join(tell.bodies())
    assert (ran.returncode, tell.bodies()) == (1, [])
    assert "no plain file" in ran.stdout


def test_a_hostile_report_stays_text(tell: Teller) -> None:
    done = tell(REPORT)
    assert done.returncode == 0, done.stdout + done.stderr
    (body,) = tell.bodies()
    assert len(body) < 65536
    # What GitHub makes of it: the first line, one block of code, the last line.
    head, _, rest = body.partition("\n\n")
    block, _, tail = rest.rpartition("\n\n")
    assert "@" not in head + tail
    assert all(re.fullmatch(r" {4}[ -~]*| {0,4}", line) for line in block.split("\n"))
    assert "    @everyone /merge" in block.split("\n")
    assert sorted(each.name for each in tell.place.iterdir()) == [
        "body.md", "issue.json", "open.json", "report", "told.txt",
    ]  # fmt: skip
    # A refusal of GitHub's fails the job.
    done = tell(LINE, "ghp_nobody")
    assert (done.returncode, done.stdout) == (22, "")
    assert "401" in done.stderr
    assert "ghp_nobody" not in done.stderr


def test_one_issue_which_says_where_it_was_cut(tell: Teller) -> None:
    cut = "This is its beginning; the artifact contribbot-rebase has all of it."
    for report, whole in ((LINE * 3000, False), (LINE, True), (LINE * 3000, False)):
        assert tell(report).returncode == 0
        (body,) = tell.bodies()
        assert (cut in body.splitlines()) is not whole
        assert len(body) < 65536
    # One, whatever people do with its labels.
    (issue,) = tell.queue.issues.values()
    assert issue.labels
    with tell.github.state.lock:
        set_labels(tell.github.state, issue, tell.bot, [])
    assert tell(LINE * 2).returncode == 0
    (body,) = tell.bodies()
    assert body.count("    patch: applies") == 2
    assert "beginning" not in body
