"""What rebase.yml tells in its issue: one issue, all of the report or a word that it is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.github.state_social import set_labels
from tests.github.world import make_source
from tests.runners.test_scripts import run_step

if TYPE_CHECKING:
    import subprocess

    from tests.github.handle import GitHub
    from tests.github.state import Repository, User

pytestmark = pytest.mark.tool("curl", "jq")
LINE = "patch: applies, and is still needed\n"


class Teller:
    """The job that may write issues, on a machine of its own each time."""

    def __init__(self, github: GitHub, root: Path) -> None:
        self.bot: User = github.add_user("github-actions[bot]", kind="Bot")
        self.queue: Repository = github.add_repository(
            "example/queue", make_source(root / "source"), members={self.bot.login: "write"}
        )
        self.github, self.root, self.runs = github, root, 0

    def __call__(self, report: str | Path) -> subprocess.CompletedProcess[str]:
        self.runs += 1
        place = self.root / f"runner-{self.runs}"
        (place / "report").mkdir(parents=True)
        file = place / "report/report.txt"
        if isinstance(report, Path):
            file.symlink_to(report)
        else:
            file.write_text(report)
        env = {"GITHUB_TOKEN": self.bot.tokens[0].text, "GITHUB_API_URL": self.github.base}
        return run_step("rebase.yml", "tell", "Open or update the issue", place, env)

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


def test_a_report_that_is_cut_says_so_outside_of_what_strangers_wrote(tell: Teller) -> None:
    assert tell(LINE * 3000).returncode == 0
    assert tell(LINE * 30).returncode == 0
    assert tell(LINE * 3000).returncode == 0
    (body,) = tell.bodies()
    cut = "This is its beginning; the artifact contribbot-rebase has all of it."
    assert cut in body.splitlines()
    assert len(body) < 65536
    assert tell(LINE * 30).returncode == 0
    assert "beginning" not in tell.bodies()[0]


def test_one_issue_whatever_people_do_with_its_labels(tell: Teller) -> None:
    assert tell(LINE).returncode == 0
    (issue,) = tell.queue.issues.values()
    assert issue.labels
    with tell.github.state.lock:
        set_labels(tell.github.state, issue, tell.bot, [])

    assert tell(LINE * 2).returncode == 0

    (body,) = tell.bodies()
    assert body.count("    patch: applies") == 2
