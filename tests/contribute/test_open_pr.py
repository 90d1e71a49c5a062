from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from contribbot.contribute.open_pr import PushedCommit
from contribbot.contribute.publication import state
from contribbot.model.history import PullRequestEvent
from tests.contribute.opening import WRITES, Desk, make_desk
from tests.github.handle import GitHub
from tests.toy import AREA, FIXED, Toy

ROOT = Path(__file__).parent.parent.parent


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
def test_one_patch_takes_at_most_twelve_requests_and_one_a_changed_file(
    toy: Toy, github: GitHub, *, moved: bool
) -> None:
    changed: dict[str, str | bytes] = {"src/toy/area.py": FIXED, "new": "1\n", "README": "Toy\n"}
    toy.put_patch(patch=toy.format_patch(changed))
    toy.put_queue(["area"])
    desk = make_desk(toy, github)
    if moved:
        text = AREA.replace('"""Areas."""', '"""All areas."""')
        github.commit(desk.upstream, "main", {"src/toy/area.py": text.encode()})
    made = desk.requests(desk.open)
    desk.assert_as_am()
    assert len(made) <= 12 + len(changed)
    # Only what the pin does not have is read.
    assert sum("/git/blobs/" in one.path for one in made) == moved
    assert sum(one.path.endswith("/git/blobs") for one in made) == len(changed)


def test_a_second_run_with_nothing_new_writes_nothing(desk: Desk) -> None:
    desk.open()
    events = desk.events()
    again = desk.requests(desk.open)
    assert [one.method for one in again if one.method in WRITES] == []
    assert desk.events() == events


def test_two_at_once_make_one_branch_and_one_pull_request(desk: Desk) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contribute.opening_child", str(desk.toy.queue),
             desk.title, desk.body],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={
                **os.environ, "GITHUB_API_URL": desk.github.base,
                "GITHUB_TOKEN": desk.me.tokens[0].text,
            },
        )
        for _ in range(2)
    ]  # fmt: skip
    for child in children:
        _, said = child.communicate(timeout=60)
        assert child.returncode == 0, said.decode()
    assert len(desk.pulls()) == 1
    assert desk.github.count("POST", "/git/refs") == desk.github.count("POST", "/pulls") == 1
    desk.assert_as_am()


def test_events_of_an_older_contribbot_still_say_where_a_patch_stands() -> None:
    when = datetime(2026, 11, 21, tzinfo=UTC)
    old = PullRequestEvent(time=when, summary="opened", reference="a/b#7", state="open")
    assert state([]) is None
    found = state([old])
    assert found is not None
    assert (found.reference, found.number, found.ended, found.heads) == (
        "a/b#7",
        7,
        False,
        frozenset(),
    )
    # What follow saw on the branch is nobody's word that it is ours.
    theirs = PullRequestEvent(
        time=when, summary="seen", reference="a/b#7", state="merged", head="a" * 40,
        digest="b" * 64,
    )  # fmt: skip
    found = state([old, theirs])
    assert found is not None
    assert (found.heads, found.head, found.ended) == (frozenset(), "", True)
