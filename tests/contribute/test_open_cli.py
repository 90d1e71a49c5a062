"""`contribbot open-pr` as a user runs it: a proved patch, a person's attestation, the body."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import typer
from typer.testing import CliRunner, Result

from contribbot.cli import contribute
from contribbot.cli.command import Settings
from contribbot.cli.show_contribute import RequestView, request_lines
from contribbot.contribute import attest as attest_module
from contribbot.contribute.body import make_body
from tests.contribute.gatetoy import Table
from tests.contribute.opening import WRITES

pytestmark = pytest.mark.usefixtures("cached")


def attest(table: Table) -> None:
    """Let a person attest the patch as it is."""
    queue = table.queue
    shown = attest_module.prepare(queue, "area", table.gate(now=datetime.now(UTC)))
    answers = attest_module.ask_all(
        shown.questions, lambda one: "yes" if one.answer == "yes" else "on a machine of mine"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", table.env()["GIT_CONFIG_GLOBAL"])
        attest_module.conclude(queue, shown, answers, attest_module.person_of(queue))


def run(table: Table, *args: str, **env: str) -> Result:
    """Run the command."""
    app = typer.Typer()
    app.command("open-pr")(contribute.open_pr)
    settings = Settings(queue=table.toy.queue, debug=False)
    given = {**table.env(), "GITHUB_SERVER_URL": table.github.base, **env}
    return CliRunner().invoke(app, list(args), obj=settings, env=given)


def test_without_an_attestation_the_answer_is_no(table: Table) -> None:
    before = len(table.github.requests)
    ran = run(table, "area")
    assert ran.exit_code == 1
    assert "nobody has attested it" in ran.stderr
    assert "contribbot attest area" in ran.stderr
    assert len(table.github.requests) == before


def test_what_is_posted_is_what_was_attested(table: Table) -> None:
    attest(table)
    ran = run(table, "area")
    assert ran.exit_code == 0, ran.output
    (pull,) = table.upstream.pulls()
    body = make_body(table.queue, "area")
    assert (pull.issue.title, pull.issue.body) == (body.title, body.text)
    assert pull.draft
    rows = ran.stdout.splitlines()
    assert rows[0].startswith("area: branch ada/toy:contribbot/area made, on example/toy@main ")
    assert rows[1].strip() == f"{pull.head_sha[:12]} Multiply the sides of a rectangle"
    assert rows[2].strip().startswith("draft pull request example/toy#2 opened: http")
    again = run(table, "area", "--json")
    (view,) = json.loads(again.stdout)["patches"]
    assert (view["branch_was"], view["pull_request_was"]) == ("kept", "kept")


def test_a_rehearsal_lists_requests_and_writes_nothing(table: Table) -> None:
    attest(table)
    before = len(table.github.requests)
    ran = run(table, "area", "--dry-run")
    assert ran.exit_code == 0, ran.output
    assert "nothing was sent" in ran.stdout
    assert "POST  /repos/example/toy/pulls" in ran.stdout
    made = table.github.requests[before:]
    assert not any(one.method in WRITES and one.path != "/graphql" for one in made)
    assert table.upstream.pulls() == []
    assert not (table.toy.queue / "history/area/v1.mbox").exists()
    said = json.loads(run(table, "area", "--dry-run", "--json").stdout)
    assert said["dry_run"] is True
    assert [one["method"] for one in said["requests"]][-1] == "POST"


def test_the_page_is_on_the_server_that_the_branch_is_on(table: Table) -> None:
    attest(table)
    ran = run(table, "area", "--handoff", "--dry-run", GITHUB_SERVER_URL="")
    assert ran.exit_code == 0, ran.output
    # Of a company's own server nothing goes into an address of github.com.
    assert f" {table.github.base}/example/toy/compare/main...ada:" in ran.stdout
    assert "github.com" not in ran.stdout


def test_an_unknown_patch_and_a_wrong_token_have_their_exit_codes(table: Table) -> None:
    assert run(table, "nothing").exit_code == 2
    assert run(table, "area", "--ready", "--handoff").exit_code == 2
    attest(table)
    wrong = {"GITHUB_TOKEN": "ghp_nobodys"}
    ran = run(table, "area", **wrong)
    assert ran.exit_code == 3
    assert "ghp_nobodys" not in ran.output
    assert table.upstream.pulls() == []


def test_a_rehearsal_that_would_send_nothing_says_so() -> None:
    assert request_lines([]) == ["nothing was sent, and nothing would be"]


def test_a_rehearsal_lists_what_it_would_send() -> None:
    one = RequestView(method="POST", path="/repos/a/b/git/refs", what="make the branch c\x1b[31m")
    first, second = request_lines([one])
    assert first == "nothing was sent; these requests would be:"
    assert second.startswith("  POST  /repos/a/b/git/refs  make the branch c")
    assert "\x1b" not in second
