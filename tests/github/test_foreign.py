"""The client against a GitHub that somebody else wrote: it answers with GitHub's own examples.

Left out is what crashes that server itself (one pull request, one ref, new issues).
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from contribbot.errors import GitHubError
from contribbot.github.client import GitHub
from contribbot.github.git_data import read_tree
from contribbot.github.pull_state import read_pull_state
from tests.github.npm import brought
from tests.github.ours import Patience, client

pytestmark = [pytest.mark.slow, pytest.mark.tool("npm"), pytest.mark.tool("node")]

_PACKAGE: Final = "@simulacrum/github-api-simulator@0.8.0"
_SERVE: Final = """
import { simulation } from "@simulacrum/github-api-simulator";
console.log((await simulation().listen(0)).port);
"""
NAME: Final = "octocat/Hello-World"
SHA: Final = "c5b97d5ae6c19d5c5df71a34c7fbeeda2479ccbc"
CALLS: Final[dict[str, tuple[Callable[[GitHub], object], object]]] = {
    "who asks": (lambda it: it.me, "octocat"),
    "repository": (lambda it: it.repository(NAME).complete().default_branch, "master"),
    "branch": (lambda it: it.repository(NAME).get_branch("main").name, "main"),
    "commit": (lambda it: it.repository(NAME).get_git_commit(SHA).author.name, "Monalisa Octocat"),
    "tree": (lambda it: sorted(read_tree(it.repository(NAME), SHA, ["file.rb"])), ["file.rb"]),
    "comparison": (lambda it: it.repository(NAME).compare("main", "octocat:topic").behind_by, 2),
    "from a branch": (lambda it: [row.number for row in it.pulls_from(
        NAME, "octocat", "new-topic")], [1347]),
    "files": (lambda it: [row.filename for row in it.pull(NAME, 1).get_files()], ["file1.txt"]),
    "reviews": (lambda it: [row.state for row in it.pull(NAME, 1).get_reviews()], ["APPROVED"]),
    "lines": (lambda it: [row.line for row in it.pull(NAME, 1).get_review_comments()], [2]),
    "comments": (lambda it: [row.body for row in it.issue(NAME, 1).get_comments()], ["Me too"]),
    "events": (lambda it: [row.event for row in it.issue(NAME, 1).get_events()], ["closed"]),
    "checks": (lambda it: [row.name for row in it.commit(NAME, SHA).get_check_runs()],
               ["mighty_readme"]),
    "statuses": (lambda it: len([*it.statuses(it.commit(NAME, SHA))]), 2),
    "search": (lambda it: it.search("repo:octocat/Hello-World is:pr").total, 280),
    "runs": (lambda it: [row.id for row in it.workflow(NAME, "verify.yml").get_runs()], [30433642]),
    "run": (lambda it: it.run(NAME, 30433642).complete().status, "queued"),
    "jobs": (lambda it: [row.name for row in it.run(NAME, 30433642).jobs()], ["build"]),
    "artifacts": (lambda it: [row.name for row in it.run(NAME, 30433642).get_artifacts()],
                  ["Rails", "Test output"]),
    "no GraphQL": (lambda it: read_pull_state(it, NAME, 1347).threads, None),
    "a new blob": (lambda it: len(it.repository(NAME).create_git_blob(
        base64.b64encode(b"x").decode(), "base64").sha), 40),
    "a new commit": (lambda it: len(it.repository(NAME).create_git_commit(
        "m", it.repository(NAME).get_git_tree(SHA), []).sha), 40),
    "a new branch": (lambda it: it.repository(NAME).create_git_ref("refs/heads/x", SHA).ref,
                     "refs/heads/featureA"),
    "a fork": (lambda it: it.repository(NAME).create_fork().full_name, NAME),
    "a pull request": (lambda it: it.repository(NAME).create_pull(
        "main", "octocat:x", title="T", body="B", draft=True).number, 1347),
    "a reply": (lambda it: it.pull(NAME, 1).create_review_comment_reply(1, "So.").id, 10),
}  # fmt: skip


@pytest.fixture(scope="module")
def foreign() -> Iterator[GitHub]:
    """Somebody else's GitHub, which npm brings; kept between runs."""
    script = brought(_PACKAGE) / "serve.mjs"
    script.write_text(_SERVE, encoding="utf-8")
    with subprocess.Popen(
        ["node", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            waits = Patience().waits(attempts=4)
            with client(f"http://127.0.0.1:{port}", "ghp_example", waits=waits) as made:
                yield made
        finally:
            server.kill()


@pytest.mark.parametrize("what", CALLS)
def test_the_client_reads_what_it_answers(foreign: GitHub, what: str) -> None:
    call, expected = CALLS[what]
    assert call(foreign) == expected


def test_a_write_goes_to_no_other_server(foreign: GitHub) -> None:
    # Its answers lead to GitHub's own server, where a write must not go.
    (pull,) = foreign.pulls_from(NAME, "octocat", "new-topic")
    with pytest.raises(GitHubError, match="points to another server"):
        pull.edit(title="Other")
