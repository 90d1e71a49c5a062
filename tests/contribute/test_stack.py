"""Stacks: what is below is opened first, and its commits are carried along."""

from __future__ import annotations

import pytest

from contribbot.contribute.publication import waits_for
from tests.contribute.opening import Desk, make_desk, put_series
from tests.github.handle import GitHub
from tests.lifetoy import commit
from tests.toy import FIXED, Toy, git

DEPENDS = 'depends_on = ["area"]\n'


@pytest.fixture
def desk(toy: Toy, github: GitHub) -> Desk:
    folder = toy.root / "work"
    git(toy.root, "clone", "-q", str(toy.upstream), str(folder))
    commit(folder, "First\n", {"src/toy/area.py": FIXED})
    commit(folder, "Second\n", {"src/toy/area.py": FIXED + "\n\nUNIT = 1\n", "new": "1\n"})
    put_series(toy, "area", folder, "HEAD~2..HEAD~1")
    put_series(toy, "unit", folder, "HEAD~1..HEAD", extra=DEPENDS)
    toy.put_queue(["area", "unit"])
    return make_desk(toy, github)


def test_what_is_below_comes_first(desk: Desk) -> None:
    error = desk.refused("depends on area, which has no pull request", "unit")
    assert "contribbot open-pr area" in error.hint
    assert desk.github.requests == []


def test_a_stack_is_opened_in_order_and_carries_what_is_below(desk: Desk) -> None:
    before = len(desk.github.requests)
    lower, upper = desk.open("area", "unit")
    # It is asked once whose token it is.
    paths = [row.path for row in desk.github.requests[before:]]
    assert (paths.count("/user"), paths.count("/repos/example/toy")) == (1, 1)
    assert lower.pull_request == "example/toy#1"
    assert upper.waits_for == ["example/toy#1"]
    assert [commit.subject for commit in upper.commits] == ["First", "Second"]
    # The same commits, so that GitHub takes the lower one off the upper when it is merged.
    assert upper.commits[0] == lower.commits[0]
    desk.assert_as_am("area")
    desk.assert_as_am("area", "unit", branch="contribbot/unit")
    assert len(desk.pulls()) == 2


def test_the_text_names_what_it_waits_for_until_that_is_merged(desk: Desk) -> None:
    assert waits_for(desk.queue, "unit") == ("`area` (no pull request yet)",)
    desk.open("area")
    assert waits_for(desk.queue, "unit") == ("example/toy#1",)
    assert waits_for(desk.queue, "area") == ()
    desk.note("merged")
    assert waits_for(desk.queue, "unit") == ()


@pytest.mark.parametrize("state", ["closed", "reverted"])
def test_what_the_upstream_did_not_keep_below_stops_what_is_above(desk: Desk, state: str) -> None:
    desk.open("area")
    desk.note(state)
    desk.refused(f"whose pull request example/toy#1 was {state}", "unit")
    assert len(desk.pulls()) == 1


def test_a_change_below_moves_what_is_above(desk: Desk) -> None:
    desk.open("area", "unit")
    changed = FIXED.replace("area = width * height", "area = height * width")
    patch = desk.toy.format_patch({"src/toy/area.py": changed}, subject="First")
    for path in (desk.toy.queue / "patches" / "area").glob("*.patch"):
        path.write_bytes(patch)
    lower, upper = desk.open("area", "unit")
    assert (lower.branch_was, upper.branch_was) == ("moved", "moved")
    desk.assert_as_am("area", "unit", branch="contribbot/unit")
    assert len(desk.pulls()) == 2


@pytest.mark.parametrize("opened", [False, True])
def test_a_merged_one_below_leaves_only_the_upper(desk: Desk, *, opened: bool) -> None:
    desk.open(*(("area", "unit") if opened else ("area",)))
    desk.github.merge(desk.pulls()[0], "squash")
    (upper,) = desk.open("unit", up_to_date=opened)
    assert upper.branch_was == ("moved" if opened else "made")
    assert [commit.subject for commit in upper.commits] == ["Second"]
    assert "example/toy@main has all of area already" in upper.notes
