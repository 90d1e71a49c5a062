"""The gate says when a patch is needed no more."""

from __future__ import annotations

import pytest

from contribbot.contribute.model import Row
from tests.contribute.gatetoy import Table, close, edit


@pytest.mark.parametrize("how", ["squash", "bot"])
def test_a_merged_pull_request_of_this_patch_fails_whether_or_not_follow_saw_it(
    table: Table, how: str
) -> None:
    pull = table.publish()
    assert table.row("own-pr").state == "passed"
    assert table.offline("own-pr").state == "not looked at"
    table.github.merge(pull, "bot" if how == "bot" else "squash")
    row = table.row("own-pr")
    said = "landed by a bot as" if how == "bot" else "merged as"
    assert (row.state, row.next) == ("failed", "contribbot retire area")
    assert row.seen.startswith(f"example/toy#{pull.number}: {said}")
    assert "own-pr" in [blocking.rule for blocking in table.gate().blocking]
    table.note(pull, "merged")
    assert table.row("own-pr").state == "failed"
    assert table.offline("own-pr").state == "failed"


def test_a_closed_one_stands_in_the_way_of_its_own_branch_alone(table: Table) -> None:
    close(table.publish())
    row = table.row("own-pr")
    assert (row.state, "closed without being merged" in row.seen) == ("failed", True)
    assert "name another `branch`" in row.next
    edit(table.toy, "[contribution]", '[contribution]\nbranch = "again"')
    row = table.row("own-pr")
    assert (row.state, "opens another from again" in row.seen) == ("passed", True)


def expires(table: Table, *conditions: str) -> Row:
    edit(table.toy, "problem =", f"expires_when = [{', '.join(conditions)}]\nproblem =")
    return table.row("expiry")


@pytest.mark.parametrize(
    ("condition", "state", "seen"),
    [
        ('{ release = "v1.0" }', "failed", "it has expired: release v1.0: this is it"),
        ('{ release = "v0.9" }', "failed", "it has expired: release v0.9: v1.0 is at or after it"),
        ('{ release = "v1.1" }', "passed", "release v1.1: v1.0 is before it"),
        ('{ release = "soon" }', "for a person", "v1.0 and soon are not both versions"),
        ('{ dependency = "pytest>=1" }', "for a person", "is installed here"),
        ('{ dependency = "pytest<1" }', "for a person", "is installed here"),
        ('{ pull_request = "example/toy#77" }', "for a person", "there is no example/toy#77"),
    ],
)
def test_a_condition_of_expiry_that_has_come_is_said(
    table: Table, condition: str, state: str, seen: str
) -> None:
    row = expires(table, condition)
    assert (row.state, seen in row.seen) == (state, True), row
    assert ("contribbot retire area --why" in row.next) == (state != "passed")


def test_a_pull_request_that_makes_it_unnecessary_is_asked_for(table: Table) -> None:
    pull = table.pull("theirs", {"docs/x.md": "x\n"}, title="Another way")
    row = expires(table, f'{{ pull_request = "example/toy#{pull.number}" }}')
    assert (row.state, row.seen) == ("passed", f"example/toy#{pull.number} is open")
    table.github.merge(pull, "squash")
    row = table.row("expiry")
    assert row.state == "failed"
    assert row.seen.startswith(f"it has expired: example/toy#{pull.number}: merged as")
    assert table.offline("expiry").state == "not looked at"
