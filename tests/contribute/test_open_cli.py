"""`contribbot open-pr` as a user runs it: a proved patch, a person's attestation, the body."""

from __future__ import annotations

import json

import pytest

from contribbot.cli.show_contribute import RequestView, request_lines
from tests.contribute.gatetoy import Table
from tests.contribute.place import WRITES

pytestmark = pytest.mark.usefixtures("cached")


def attest(table: Table) -> None:
    """Let a person attest the patch as it is."""
    table.attest()


def test_what_is_posted_is_what_was_attested(table: Table) -> None:
    table.attest()
    ran = table.run("open-pr", "area")
    assert ran.exit_code == 0, ran.output
    (pull,) = table.upstream.pulls()
    body = table.body()
    assert (pull.issue.title, pull.issue.body) == (body.title, body.text)
    assert pull.draft
    rows = ran.stdout.splitlines()
    assert rows[0].startswith("area: branch ada/toy:contribbot/area made, on example/toy@main ")
    assert rows[1].strip() == f"{pull.head_sha[:12]} Multiply the sides of a rectangle"
    assert rows[2].strip().startswith("draft pull request example/toy#2 opened: http")
    again = table.run("open-pr", "area", "--json")
    (view,) = json.loads(again.stdout)["patches"]
    assert (view["branch_was"], view["pull_request_was"]) == ("kept", "kept")


def test_a_rehearsal_lists_requests_and_writes_nothing(table: Table) -> None:
    table.attest()
    before = len(table.github.requests)
    ran = table.run("open-pr", "area", "--dry-run")
    assert ran.exit_code == 0, ran.output
    assert "nothing was sent" in ran.stdout
    assert "POST  /repos/example/toy/pulls" in ran.stdout
    assert request_lines([]) == ["nothing was sent, and nothing would be"]
    view = RequestView(method="POST", path="/repos/a/b/git/refs", what="make the branch c\x1b[31m")
    assert "\x1b" not in request_lines([view])[1]
    sent = table.github.requests[before:]
    assert not any(row.method in WRITES and row.path != "/graphql" for row in sent)
    assert table.upstream.pulls() == []
    assert not (table.toy.queue / "history/area/v1.mbox").exists()
    said = json.loads(table.run("open-pr", "area", "--dry-run", "--json").stdout)
    assert said["dry_run"] is True
    assert [row["method"] for row in said["requests"]][-1] == "POST"


def test_the_page_is_on_the_server_that_the_branch_is_on(table: Table) -> None:
    table.attest()
    ran = table.run("open-pr", "area", "--handoff", "--dry-run")
    assert ran.exit_code == 0, ran.output
    # Of a company's own server nothing goes into an address of github.com.
    assert f" {table.github.base}/example/toy/compare/main...ada:" in ran.stdout
    assert "github.com" not in ran.stdout


def test_an_unknown_patch_and_a_wrong_token_have_their_exit_codes(table: Table) -> None:
    assert table.run("open-pr", "nothing").exit_code == 2
    assert table.run("open-pr", "area", "--ready", "--handoff").exit_code == 2
    table.attest()
    wrong = {"GITHUB_TOKEN": "ghp_nobodys"}
    ran = table.run("open-pr", "area", **wrong)
    assert ran.exit_code == 3
    assert "ghp_nobodys" not in ran.output
    assert table.upstream.pulls() == []
