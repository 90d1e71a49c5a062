"""Handing over to a person: what is not done, and what is said about it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from contribbot.cli.pull_request import opened_lines
from tests.contribute.opening import Desk


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
