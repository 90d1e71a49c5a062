"""What is refused before anything is written, and what is made good on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contribbot.contribute.opening.opened import Opened, Wanted
from contribbot.contribute.opening.opening import open_all
from contribbot.contribute.opening.updating import Text
from contribbot.errors import GitHubError, NotProvedError, OpeningError, TokenError
from contribbot.model.history import PullRequestEvent, RetiredEvent
from contribbot.model.patch import Patch
from contribbot.queue import journal
from tests.contribute.opening import WRITES, Desk, make_desk
from tests.github.handle import GitHub
from tests.github.state import User
from tests.toy import AREA, Toy


@pytest.fixture
def desk(toy: Toy, github: GitHub) -> Desk:
    toy.put_patch()
    toy.put_queue(["area"])
    return make_desk(toy, github)


def assert_nothing_done(desk: Desk) -> None:
    """GitHub and the journal are as they were."""
    assert not any(one.method in WRITES for one in desk.github.requests)
    assert desk.events() == []


def test_without_attestation_not_even_a_question_is_asked(desk: Desk) -> None:
    def refuse(patch: Patch, text: Text) -> None:
        assert text == desk.text(patch)
        raise NotProvedError("nobody stands for it")

    told: list[Opened] = []
    with desk.client() as client:
        tools = replace(desk.tools(client), attested=refuse)
        with pytest.raises(NotProvedError, match="nobody stands for it"):
            open_all(desk.queue, ["area"], tools, Wanted(), told=told.append)
    assert told == []
    assert desk.github.requests == []
    assert desk.events() == []


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("archived", True, "is archived"),
        ("has_pull_requests", False, "has pull requests switched off"),
        ("pull_request_creation_policy", "collaborators_only", "its collaborators alone"),
    ],
)
def test_an_upstream_that_takes_no_pull_requests(
    desk: Desk, option: str, value: object, words: str
) -> None:
    setattr(desk.upstream, option, value)
    with pytest.raises(OpeningError, match=f"example/toy .*{words}"):
        desk.open()
    assert_nothing_done(desk)


def test_an_archived_fork(desk: Desk) -> None:
    desk.fork.archived = True
    with pytest.raises(OpeningError, match="your fork is archived"):
        desk.open()
    assert_nothing_done(desk)


@pytest.mark.parametrize("polls", [0, 3])
def test_a_missing_fork_is_made_and_waited_for(
    toy: Toy, github: GitHub, polls: int, caplog: pytest.LogCaptureFixture
) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    desk = make_desk(toy, github, fork=False)
    github.state.forks_ready_after = polls
    desk.open()
    desk.assert_as_am()
    assert github.count("POST", "/forks") == 1
    assert desk.fork.parent is desk.upstream
    assert caplog.text.count("GitHub is making the fork ada/toy: waiting up to") == bool(polls)
    assert [event.event for event in desk.events()[:2]] == ["intent", "done"]


def test_a_fork_that_is_never_made_ends_with_a_word(toy: Toy, github: GitHub) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    desk = make_desk(toy, github, fork=False)
    github.state.forks_ready_after = 10_000
    with pytest.raises(GitHubError, match="still making the fork"):
        desk.open()
    assert 120 < sum(desk.waited) < 600


def test_a_fork_that_lags_behind_is_brought_up_to_date(toy: Toy, github: GitHub) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    github.state.lagging_forks = True
    desk = make_desk(toy, github)
    text = AREA.replace('"""Areas."""', '"""All areas."""')
    github.commit(desk.upstream, "main", {"src/toy/area.py": text.encode()})
    desk.open()
    desk.assert_as_am()
    assert github.count("POST", "/merge-upstream") == 1


def test_ones_own_upstream_gets_the_branch_itself(toy: Toy, github: GitHub) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    me = github.add_user("example")
    upstream = github.add_repository("example/toy", toy.upstream)
    desk = Desk(toy, github, upstream, me)
    (done,) = desk.open()
    assert done.fork == "example/toy"
    assert desk.upstream.git.ref("refs/heads/contribbot/area") == done.head
    assert len(desk.pulls()) == 1
    assert github.count("POST", "/forks") == 0


def test_a_token_that_nobody_has(desk: Desk) -> None:
    with desk.client("ghp_wrong") as client, pytest.raises(TokenError):
        desk.open(client=client)
    assert desk.events() == []


def test_truncated_trees_are_read_folder_by_folder(desk: Desk) -> None:
    desk.upstream.truncate_trees = True
    desk.open()
    desk.assert_as_am()


def test_a_merged_pull_request_names_the_patch_to_retire(desk: Desk) -> None:
    desk.open()
    desk.github.merge(desk.pulls()[0], "squash")
    with pytest.raises(OpeningError, match="area: example/toy#1 is merged already") as raised:
        desk.open()
    assert raised.value.hint.endswith("contribbot retire area")


def test_a_reverted_pull_request_is_not_to_be_retired(desk: Desk) -> None:
    desk.open()
    desk.github.merge(desk.pulls()[0], "squash")
    event = PullRequestEvent(
        time=journal.now(), summary="reverted", reference="example/toy#1", state="reverted"
    )
    journal.append(desk.toy.queue, "area", event)
    with pytest.raises(OpeningError, match="was merged and then reverted") as raised:
        desk.open()
    assert "retire" not in raised.value.hint
    assert "another branch" in raised.value.hint


def test_another_patch_under_a_retired_name_takes_another_branch(desk: Desk) -> None:
    desk.open()
    desk.github.merge(desk.pulls()[0], "squash")
    merged = PullRequestEvent(
        time=journal.now(), summary="merged", reference="example/toy#1", state="merged"
    )
    gone = RetiredEvent(time=journal.now(), summary="retired", why="merged")
    for event in (merged, gone):
        journal.append(desk.toy.queue, "area", event)
    squared = AREA.replace("return side * side", "return side**2")
    later = desk.toy.format_patch({"src/toy/area.py": squared})
    desk.toy.put_patch(patch=later)
    with pytest.raises(OpeningError, match=r"example/toy#1 .*before it was retired") as raised:
        desk.open()
    assert "retire area" not in raised.value.hint
    assert "name another branch in [contribution]" in raised.value.hint
    desk.toy.put_patch(patch=later, checks='[contribution]\nbranch = "other"\n', check_files={})
    (done,) = desk.open()
    assert done.reference == "example/toy#2"


def rename(github: GitHub, user: User, login: str) -> None:
    """Give an account another name, as its owner does on GitHub: what it owns comes along."""
    state = github.state
    with state.lock:
        del state.users[user.login.lower()]
        user.login = login
        state.users[login] = user
        everything = list(state.repositories.values())
        state.repositories.clear()
        state.repositories.update({one.full_name.lower(): one for one in everything})


def test_an_account_that_was_renamed_keeps_its_pull_request(desk: Desk) -> None:
    (first,) = desk.open()
    rename(desk.github, desk.me, "lovelace")
    desk.toy.put("patches/area/0001-change.patch", desk.toy.format_patch({"README": "Toys.\n"}))
    desk.toy.put_queue(["area"])
    (done,) = desk.open()
    assert done.notes[0] == "ada/toy is called lovelace/toy now: your account was renamed"
    assert (done.reference, done.fork) == (first.reference, "lovelace/toy")
    assert len(desk.pulls()) == 1
    assert desk.branch() == done.head != first.head
    # From then on the journal knows it.
    (again,) = desk.open()
    assert again.notes == ()
    assert any("from lovelace/toy:contribbot/area" in one.summary for one in desk.events())


def test_another_account_is_refused_and_no_word_is_said_of_a_name(desk: Desk) -> None:
    desk.open()
    desk.me = desk.github.add_user("eve")
    desk.github.fork(desk.upstream, desk.me)
    with pytest.raises(OpeningError, match="would open a second one") as raised:
        desk.open()
    assert "is called" not in raised.value.message
