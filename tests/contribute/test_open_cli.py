"""`contribbot open-pr` as a user runs it: a proved patch, a person's attestation, the body."""

from __future__ import annotations

import json

import pytest

from contribbot.cli.pull_request import RequestView, request_blocks
from contribbot.cli.render import lines_of
from tests.contribute.gatetoy import Table
from tests.contribute.place import WRITES

pytestmark = pytest.mark.usefixtures("cached")


def test_a_rehearsal_lists_requests_and_writes_nothing(table: Table) -> None:
    table.attest()
    before = len(table.github.requests)
    ran = table.run("open-pr", "area", "--dry-run")
    assert ran.exit_code == 0, ran.output
    assert "nothing was sent" in ran.stdout
    assert "POST  /repos/example/toy/pulls" in ran.stdout
    assert request_blocks([]) == ["it would send nothing"]
    view = RequestView(method="POST", path="/repos/a/b/git/refs", what="make the branch c\x1b[31m")
    assert "\x1b" not in "".join(lines_of(request_blocks([view])))
    sent = table.github.requests[before:]
    assert not any(row.method in WRITES and row.path != "/graphql" for row in sent)
    assert table.upstream.pulls() == []
    assert not (table.toy.queue / "history/area/v1.mbox").exists()
    said = json.loads(table.run("open-pr", "area", "--dry-run", "--json").stdout)
    assert said["dry_run"] is True
    assert [row["method"] for row in said["requests"]][-1] == "POST"


def test_an_unknown_patch_and_a_wrong_token_have_their_exit_codes(table: Table) -> None:
    assert table.run("open-pr", "nothing").exit_code == 2
    assert table.run("open-pr", "area", "--ready", "--handoff").exit_code == 2
    table.attest()
    wrong = {"GITHUB_TOKEN": "ghp_nobodys"}
    ran = table.run("open-pr", "area", **wrong)
    assert ran.exit_code == 3
    assert "ghp_nobodys" not in ran.output
    assert table.upstream.pulls() == []
