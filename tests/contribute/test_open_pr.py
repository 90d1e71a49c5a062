from __future__ import annotations

from datetime import UTC, datetime

import pytest

from contribbot.contribute.open_pr import PushedCommit
from contribbot.contribute.publication import state
from contribbot.model.history import PullRequestEvent
from tests.contribute.opening import Desk, make_desk
from tests.github.handle import GitHub
from tests.toy import AREA, FIXED, Toy


def test_a_pull_request_is_opened_as_a_draft_with_what_git_am_makes(desk: Desk) -> None:
    (done,) = desk.open()
    assert [text.patch for text in desk.attested] == ["area"]
    desk.assert_as_am()
    (pull,) = desk.pulls()
    assert (pull.issue.title, pull.issue.body) == (desk.title, desk.body)
    assert pull.draft
    assert (pull.head_sha, pull.base_ref) == (desk.branch(), "main")
    assert (done.head, done.pull_request, done.state) == (desk.branch(), "example/toy#1", "draft")
    assert done.commits == [PushedCommit(done.head, "Multiply the sides of a rectangle")]


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("fork", [False, True])
def test_one_patch_takes_at_most_twelve_requests_and_one_a_changed_file(
    toy: Toy, github: GitHub, *, moved: bool, fork: bool
) -> None:
    changed: dict[str, str | bytes] = {"src/toy/area.py": FIXED, "new": "1\n", "README": "Toy\n"}
    toy.put_patch(patch=toy.format_patch(changed))
    toy.put_queue(["area"])
    desk = make_desk(toy, github, fork=fork)
    if moved:
        desk.push({"src/toy/area.py": AREA.replace("Areas.", "All areas.").encode()})
    made = desk.requests(desk.open)
    desk.assert_as_am()
    assert len(made) <= 12 + len(changed)
    # Only what the pin does not have is read.
    assert sum("/git/blobs/" in row.path for row in made) == moved
    assert sum(row.path.endswith("/git/blobs") for row in made) == len(changed)


def test_a_second_run_with_nothing_new_writes_nothing(desk: Desk) -> None:
    desk.open()
    events = desk.events()
    assert desk.writes() == []
    assert desk.events() == events
    kinds = [(event.event, getattr(event, "what", "")) for event in events]
    # What is meant is noted before what is done.
    assert [kind for kind in kinds if kind[0] != "version"] == [
        ("intent", "branch"), ("done", "branch"), ("intent", "pull-request"), ("pull-request", ""),
    ]  # fmt: skip


def test_two_at_once_make_one_branch_and_one_pull_request(desk: Desk) -> None:
    for child in [desk.start(), desk.start()]:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors.decode()
    assert len(desk.pulls()) == 1
    assert desk.github.count("POST", "/git/refs") == desk.github.count("POST", "/pulls") == 1
    desk.assert_as_am()


def test_events_of_an_older_contribbot_still_say_where_a_patch_stands() -> None:
    when = datetime(2026, 11, 21, tzinfo=UTC)
    old = PullRequestEvent(time=when, summary="opened", reference="a/b#7", state="open")
    assert state([]) is None
    known = state([old])
    assert known is not None
    assert (known.reference, known.number, known.ended) == ("a/b#7", 7, False)
    assert known.heads == frozenset()
    # What follow saw on the branch is nobody's word that it is ours.
    theirs = PullRequestEvent(
        time=when, summary="seen", reference="a/b#7", state="merged", head="a" * 40,
        digest="b" * 64,
    )  # fmt: skip
    known = state([old, theirs])
    assert known is not None
    assert (known.heads, known.head, known.ended) == (frozenset(), "", True)
