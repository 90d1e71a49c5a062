"""`contribbot open-pr` as a user runs it: a proved patch, a person's attestation, the body."""

from __future__ import annotations

import pytest

from tests.contribute.gatetoy import Table

pytestmark = pytest.mark.usefixtures("cached")


def test_an_unknown_patch_and_a_wrong_token_have_their_exit_codes(table: Table) -> None:
    assert table.run("open-pr", "nothing").exit_code == 2
    assert table.run("open-pr", "area", "--ready", "--handoff").exit_code == 2
    table.attest()
    wrong = {"GITHUB_TOKEN": "ghp_nobodys"}
    ran = table.run("open-pr", "area", **wrong)
    assert ran.exit_code == 3
    assert "ghp_nobodys" not in ran.output
    assert table.upstream.pulls() == []
