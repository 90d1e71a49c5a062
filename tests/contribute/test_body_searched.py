"""The words of a text on the look for duplicates: of this very patch, and lately."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from contribbot.contribute.attest import require
from contribbot.contribute.body import make_body
from contribbot.contribute.duplicates import look_file
from contribbot.contribute.model import Body, Look
from contribbot.errors import AttestationError
from tests.contribute.gatetoy import BESIDE, CHANGES, Table, edit

RULES = "upstreams/contributing/toy.toml"


@pytest.fixture
def table(table: Table) -> Iterator[Table]:
    edit(table.toy, "[body]\n", "[body]\nduplicates = true\n", RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_API_URL", table.github.base)
        yield table


def line_of(table: Table) -> str:
    done = table.run("body", "area")
    assert done.code == 0, done.err
    return next((row for row in done.out.splitlines() if "duplicate was found" in row), "")


def posted(table: Table) -> Body:
    return make_body(table.queue, "area")


def age(table: Table, by: timedelta) -> None:
    path = look_file(table.queue, "area")
    look = Look.model_validate_json(path.read_bytes())
    path.write_text(look.model_copy(update={"time": look.time - by}).model_dump_json())


def test_a_look_that_found_none_is_told_with_its_day_and_its_bounds(table: Table) -> None:
    table.pull("far", {"docs/y.md": "y\n"}, title="Circles")
    assert line_of(table) == ""
    assert table.run("gate", "area").code == 0
    assert re.fullmatch(
        rf"\*\*No duplicate was found\*\* on {datetime.now(UTC):%Y-%m-%d}, by the issue, and by "
        r"files and title words, among 0 pull requests of example/toy, open or merged in the "
        r"90 days before\.",
        line_of(table),
    )


def test_nothing_is_told_where_it_is_not_asked_for_or_was_not_seen(table: Table) -> None:
    assert table.run("gate", "area").code == 0
    assert line_of(table)
    edit(table.toy, "duplicates = true\n", "", RULES)
    assert line_of(table) == ""
    edit(table.toy, "[body]\n", "[body]\nduplicates = true\n", RULES)
    # A search for another issue, or an old search, is not named.
    edit(table.toy, 'issue = "example/toy#1"', 'issue = "example/toy#2"')
    assert line_of(table) == ""
    edit(table.toy, 'issue = "example/toy#2"', 'issue = "example/toy#1"')
    age(table, timedelta(hours=23))
    assert line_of(table)
    age(table, timedelta(hours=1))
    assert line_of(table) == ""


def test_what_was_found_and_answered_is_told_instead(table: Table) -> None:
    table.pull("beside", BESIDE, title="Multiply")
    assert table.run("gate", "area").code == 1
    assert line_of(table) == ""
    reason = "It is about triangles, not rectangles."
    assert table.run("gate", "area", "--different", f"example/toy#2={reason}").code == 0
    assert line_of(table) == ""
    assert f"- example/toy#2: {reason}" in table.run("body", "area").out


def test_what_somebody_found_since_is_not_passed_over(table: Table) -> None:
    table.attest()
    look_file(table.queue, "area").unlink()
    table.pull("same", {path: str(text) for path, text in CHANGES.items()}, title="Multiply")
    assert table.run("gate", "area").code == 1
    assert "No duplicate was found" not in posted(table).text
    with pytest.raises(AttestationError, match="void: the text, the patch or an answer changed"):
        require(table.queue, posted(table))
