"""`body` compares its template with the upstream's own, and never fails because of that."""

from __future__ import annotations

import pytest

from contribbot.contribute.body import make_body
from tests.contribute.gatetoy import LIVE, Table
from tests.github.faults import WIRE_FAULTS, Fault, each


def about_the_template(table: Table, *options: str, **env: str) -> list[str]:
    """Run it, see that the text is there as ever, and return what it says of the template."""
    done = table.run("body", "area", *options, **env)
    assert done.exit_code == 0, done.output
    assert done.stdout == make_body(table.queue, "area").text
    return [line for line in done.stderr.splitlines() if "live template" in line]


def test_the_live_template_is_read_with_one_request(table: Table) -> None:
    assert about_the_template(table) == []
    asked = table.github.requests[-1]
    assert asked.path == f"/repos/example/toy/contents/{LIVE}"


def test_a_template_that_is_gone_is_said(table: Table) -> None:
    table.github.commit(table.upstream, "main", {LIVE: None}, "Remove it\n")
    (line,) = about_the_template(table)
    assert line == f"area: not compared with the live template: example/toy has no {LIVE}"


def test_without_a_token_or_github_it_is_said_and_the_text_is_there(table: Table) -> None:
    nothing = {"GITHUB_TOKEN": "", "GH_TOKEN": "", "PATH": "/nonexistent:/usr/bin:/bin"}
    (line,) = about_the_template(table, **nothing)
    assert "not compared with the live template: no GitHub token for 127.0.0.1" in line
    (line,) = about_the_template(table, GITHUB_API_URL="http://127.0.0.1:9")
    assert "not compared with the live template: GET /repos/example/toy/contents/" in line


@pytest.mark.parametrize("fault", each(WIRE_FAULTS))
def test_no_fault_of_github_keeps_the_text_back(table: Table, fault: Fault) -> None:
    table.faults.arm(fault, number=1)
    lines = about_the_template(table)
    assert len(table.faults.struck) == 1
    assert len(lines) <= 1
    assert all("not compared with the live template: " in line for line in lines)
