"""The scripts of jobs that may write, run on what a job that went bad could send them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from ruamel.yaml import YAML

from contribbot.runners.actions import templates_folder
from tests.github.handle import GitHub
from tests.github.state import Repository, User
from tests.github.state_social import set_labels
from tests.github.world import make_source

pytestmark = pytest.mark.tool("curl", "jq")
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
