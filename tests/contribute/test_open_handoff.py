"""Handing over to a person, and rehearsing: what is not done, and what is said about it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from contribbot.cli.show_contribute import (
    OpeningView,
    opened_lines,
    request_lines,
    requests_of,
)
from contribbot.errors import ContribbotError
from tests.contribute.opening import WRITES, Desk, make_desk
from tests.github.handle import GitHub
from tests.lifetoy import snapshot
from tests.toy import Toy


def test_a_token_for_the_fork_alone_is_enough(desk: Desk) -> None:
    desk.title = "Multiply & <divide> #1"
    desk.body = "## Ünïcode\n\n- 100 % + `a&b`\n"
    token = desk.github.add_token(desk.me, repositories=["ada/toy"], permissions=["contents"])
    with desk.client(token) as client:
        (done,) = desk.open(client=client, handoff=True)
    desk.assert_as_am()
    assert desk.pulls() == []
    assert (done.pull_request_was, done.state, done.pull_request) == (
        "handed off",
        "to be opened",
        "",
    )
    url = urlsplit(done.url)
    assert (url.scheme, url.netloc) == ("https", "github.example")
    assert url.path == "/example/toy/compare/main...ada:contribbot/area"
    assert parse_qs(url.query, strict_parsing=True) == {
        "expand": ["1"], "title": [desk.title], "body": [desk.body],
    }  # fmt: skip
    assert "open it on https://" in "\n".join(opened_lines(done))


def test_a_fork_alone_cannot_open_and_loses_nothing(desk: Desk) -> None:
    token = desk.github.add_token(desk.me, repositories=["ada/toy"], permissions=["contents"])
    with desk.client(token) as client, pytest.raises(ContribbotError):
        desk.open(client=client)
    assert desk.pulls() == []
    desk.open()
    assert len(desk.pulls()) == 1
    desk.assert_as_am()


def test_a_long_body_goes_into_a_file(desk: Desk) -> None:
    desk.body = "Wörds.\n" * 2000
    (done,) = desk.open(handoff=True)
    assert len(done.url.encode()) <= 8000
    assert set(parse_qs(urlsplit(done.url).query)) == {"expand", "title"}
    assert Path(done.body_file).read_text(encoding="utf-8") == desk.body
    assert done.body_file in "\n".join(opened_lines(done))
    assert Path(done.body_file).parent.stat().st_mode & 0o777 == 0o700


def test_a_second_hand_off_writes_nothing(desk: Desk) -> None:
    desk.open(handoff=True)
    events = desk.events()
    again = desk.requests(lambda: desk.open(handoff=True))
    assert not any(one.method in WRITES for one in again)
    assert desk.events() == events


def test_what_a_person_opened_is_found_and_not_opened_again(desk: Desk) -> None:
    desk.open(handoff=True)
    desk.github.pull(
        desk.upstream, desk.fork, "contribbot/area", title=desk.title, body=desk.body, user=desk.me
    )
    (done,) = desk.open(handoff=True)
    assert (done.pull_request, done.pull_request_was) == ("example/toy#1", "kept")
    desk.change()
    desk.body = "Words.\n"
    (done,) = desk.open()
    (pull,) = desk.pulls()
    assert (done.pull_request, done.pull_request_was, pull.issue.body) == (
        "example/toy#1",
        "updated",
        "Words.\n",
    )
    assert len(pull.issue.comments) == 1


@pytest.mark.parametrize("fork", [True, False])
def test_a_rehearsal_names_every_write_and_makes_none(
    toy: Toy, github: GitHub, *, fork: bool
) -> None:
    desk = make_desk(toy, github, fork=fork)
    before = snapshot(toy.queue)
    (would,), planned = desk.rehearse()
    assert not any(one.method in WRITES for one in github.requests)
    assert snapshot(toy.queue) == before
    lines = request_lines(requests_of(planned))
    text = "\n".join([*opened_lines(would, dry=True), *lines])
    assert "would be opened at example/toy" in text
    made = [one for one in desk.requests(desk.open) if one.method in WRITES]
    assert [(one.method, one.path) for one in planned] == [(one.method, one.path) for one in made]
    # And what it says would come of it is what comes of it.
    assert would.head == desk.branch()
    view = OpeningView(dry_run=True, patches=(would,), requests=requests_of(planned))
    assert OpeningView.model_validate_json(view.model_dump_json(), strict=False) == view


def test_a_rehearsal_of_an_update(desk: Desk) -> None:
    desk.open()
    desk.change()
    desk.body = "Words.\n"
    before = snapshot(desk.toy.queue)
    (would,), planned = desk.rehearse()
    assert snapshot(desk.toy.queue) == before
    assert (would.branch_was, would.pull_request_was) == ("moved", "updated")
    made = [one for one in desk.requests(desk.open) if one.method in WRITES]
    assert [(one.method, one.path) for one in planned] == [(one.method, one.path) for one in made]
    assert desk.branch() == would.head
    _, planned = desk.rehearse()
    assert planned == []


def test_a_rehearsal_of_a_stack(desk: Desk) -> None:
    desk.toy.put_patch(
        "unit", patch=desk.toy.format_patch({"UNIT": "1\n"}), files=("UNIT",), checks="",
        check_files={}, extra='depends_on = ["area"]\n',
    )  # fmt: skip
    desk.toy.put_queue(["area", "unit"])
    told, planned = desk.rehearse("area", "unit")
    assert [one.patch for one in told] == ["area", "unit"]
    assert sum(one.path.endswith("/pulls") for one in planned) == 2
