"""Handing over to a person, and rehearsing: what is not done, and what is said about it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from contribbot.cli.pull_request import OpeningView, opened_lines, request_blocks, requests_of
from contribbot.cli.render import lines_of
from contribbot.contribute.open_pr import Opened
from contribbot.github.dry_run import Planned
from tests.contribute.opening import Desk, make_desk
from tests.contribute.place import WRITES
from tests.github.handle import GitHub
from tests.lifetoy import snapshot
from tests.toy import Toy


def test_a_token_for_the_fork_alone_is_enough(desk: Desk) -> None:
    desk.title = "Multiply & <divide> #1"
    desk.body = "## Ünïcode\n\n- 100 % + `a&b`\n"
    token = desk.github.add_token(desk.me, repositories=["ada/toy"], permissions=["contents"])
    with desk.connect(token) as client:
        (done,) = desk.open_with(client, handoff=True)
    desk.assert_as_am()
    assert desk.pulls() == []
    assert (done.pull_request_was, done.state, done.pull_request) == (
        "handed off", "to be opened", "",
    )  # fmt: skip
    url = urlsplit(done.url)
    assert (url.scheme, url.netloc) == ("https", "github.example")
    assert url.path == "/example/toy/compare/main...ada:contribbot/area"
    assert parse_qs(url.query, strict_parsing=True) == {
        "expand": ["1"], "title": [desk.title], "body": [desk.body],
    }  # fmt: skip
    assert "open it on https://" in "\n".join(opened_lines(done))


def test_a_long_body_goes_into_a_file(desk: Desk) -> None:
    desk.body = "Wörds.\n" * 2000
    (done,) = desk.open(handoff=True)
    assert len(done.url.encode()) <= 8000
    assert set(parse_qs(urlsplit(done.url).query)) == {"expand", "title"}
    assert Path(done.body_file).read_text(encoding="utf-8") == desk.body
    assert done.body_file in "\n".join(opened_lines(done))
    assert Path(done.body_file).parent.stat().st_mode & 0o777 == 0o700


def test_what_a_person_opened_is_found_and_not_opened_again(desk: Desk) -> None:
    desk.open(handoff=True)
    events = desk.events()
    assert desk.writes(handoff=True) == []
    assert desk.events() == events
    desk.by_hand()
    (done,) = desk.open(handoff=True)
    assert (done.pull_request, done.pull_request_was) == ("example/toy#1", "kept")
    desk.change()
    desk.body = "Words.\n"
    (done,) = desk.open()
    (pull,) = desk.pulls()
    assert (done.pull_request, done.pull_request_was) == ("example/toy#1", "updated")
    assert (pull.issue.body, len(pull.issue.comments)) == ("Words.\n", 1)


def rehearsed(desk: Desk) -> tuple[Opened, list[Planned]]:
    """Rehearse it, and see that nothing is written, and that what is said is what comes of it."""
    before = snapshot(desk.toy.queue)
    sent = len(desk.github.requests)
    (would,), planned = desk.rehearse()
    assert not any(row.method in WRITES for row in desk.github.requests[sent:])
    assert snapshot(desk.toy.queue) == before
    made = [(row.method, row.path) for row in desk.writes()]
    assert [(row.method, row.path) for row in planned] == made
    assert would.head == desk.branch()
    return would, planned


@pytest.mark.parametrize("fork", [True, False])
def test_a_rehearsal_names_every_write_and_makes_none(
    toy: Toy, github: GitHub, *, fork: bool
) -> None:
    desk = make_desk(toy, github, fork=fork)
    would, planned = rehearsed(desk)
    text = "\n".join(
        [*opened_lines(would, dry=True), *lines_of(request_blocks(requests_of(planned)))]
    )
    assert "would be opened at example/toy" in text
    view = OpeningView(dry_run=True, patches=(would,), requests=requests_of(planned))
    assert OpeningView.model_validate_json(view.model_dump_json(), strict=False) == view
    desk.change()
    desk.body = "Words.\n"
    would, _ = rehearsed(desk)
    assert (would.branch_was, would.pull_request_was) == ("moved", "updated")
    assert rehearsed(desk)[1] == []


def test_a_rehearsed_hand_off_speaks_of_what_would_be(desk: Desk) -> None:
    desk.body = "Words.\n" * 2000
    (would,), _ = desk.rehearse(handoff=True)
    text = "\n".join(opened_lines(would, dry=True))
    assert would.body_file
    assert not Path(would.body_file).exists()
    assert "no pull request would be opened: you would open it on https://" in text
    assert f"it would be in {would.body_file}" in text
