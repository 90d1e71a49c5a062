"""What is refused before anything is written, and what is made good on the way."""

from __future__ import annotations

import dataclasses

import pytest

from contribbot.contribute.model import Body
from contribbot.errors import GitHubError, NotProvedError, OpeningError, TokenError
from contribbot.model.history import RetiredEvent
from contribbot.queue import history
from contribbot.queue.load import Queue
from tests.contribute.opening import Desk, make_desk
from tests.github.faults import EXISTS, Fault
from tests.github.handle import GitHub
from tests.github.wire import Answer
from tests.toy import AREA, Toy


def test_without_attestation_not_even_a_question_is_asked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_desk: Desk, _queue: Queue, name: str) -> Body:
        raise NotProvedError(f"nobody stands for {name}")

    monkeypatch.setattr(Desk, "text", refuse)
    with pytest.raises(NotProvedError, match="nobody stands for area"):
        desk.open()
    assert desk.github.requests == []
    assert desk.events() == []


@pytest.mark.parametrize(
    ("where", "option", "value", "match"),
    [
        ("upstream", "archived", True, "example/toy .*is archived"),
        ("upstream", "has_pull_requests", False, "example/toy .*has pull requests switched off"),
        ("upstream", "pull_request_creation_policy", "collaborators_only",
         "example/toy .*its collaborators alone"),
        ("fork", "archived", True, "your fork is archived"),
    ],
)  # fmt: skip
def test_a_repository_that_takes_nothing(
    desk: Desk, where: str, option: str, value: object, match: str
) -> None:
    setattr(desk.upstream if where == "upstream" else desk.fork, option, value)
    desk.refused(match)
    assert desk.events() == []


@pytest.mark.parametrize("polls", [0, 20, 10_000])
def test_a_missing_fork_is_made_and_waited_for(
    toy: Toy, github: GitHub, polls: int, caplog: pytest.LogCaptureFixture
) -> None:
    desk = make_desk(toy, github, fork=False)
    github.state.forks_ready_after = polls
    if polls == 10_000:
        with pytest.raises(GitHubError, match="still making the fork"):
            desk.open()
        assert 120 < sum(desk.waited) < 600
        return
    desk.open()
    desk.assert_as_am()
    assert github.count("POST", "/forks") == 1
    assert desk.fork.parent is desk.upstream
    assert caplog.text.count("GitHub is making the fork ada/toy: waiting up to") == bool(polls)
    assert sum(desk.waited) > (120 if polls else -1)  # its git data may take minutes
    assert [event.event for event in desk.events()[:2]] == ["intent", "done"]


def lagging(toy: Toy, github: GitHub) -> Desk:
    """Let a fork lag behind on workflows, and its owner have a token that may not write those."""
    desk = make_desk(toy, github)
    desk.me.tokens[0] = dataclasses.replace(desk.me.tokens[0], scopes=("public_repo",))
    desk.push({".github/workflows/ci.yml": b"on: push\n"})
    return desk


def test_a_fork_that_lags_behind_is_brought_up_to_date_first(toy: Toy, github: GitHub) -> None:
    desk = lagging(toy, github)
    made = desk.requests(desk.open)
    desk.assert_as_am()
    writes = [row.path.rpartition("/")[2] for row in made if row.method == "POST"]
    assert writes == ["merge-upstream", "blobs", "trees", "commits", "refs", "pulls"]
    assert len(made) <= 12 + 1


def test_a_fork_that_must_not_be_brought_up_to_date_gets_its_branch(desk: Desk) -> None:
    desk.push({"other": b"1\n"})
    desk.faults.arm(EXISTS, path="/merge-upstream$")
    (done,) = desk.open()
    assert desk.faults.struck
    assert "main of ada/toy could not be brought up to date" in " ".join(done.notes)
    desk.assert_as_am()


def test_the_owners_commits_on_their_main_are_left_alone(toy: Toy, github: GitHub) -> None:
    desk = lagging(toy, github)
    mine = github.commit(desk.fork, "main", {"mine": b"1\n"})
    words = "main of ada/toy has 1 commit of your own and is 1 behind"
    with pytest.raises(OpeningError, match=words) as raised:
        desk.open()
    assert "scopes repo and workflow" in raised.value.hint
    assert desk.fork.git.ref("refs/heads/main") == mine
    assert github.count("POST", "/merge-upstream") == 0
    # With those scopes it goes through, and their main is as it was.
    desk.me.tokens[0] = dataclasses.replace(desk.me.tokens[0], scopes=("repo", "workflow"))
    desk.open()
    assert desk.fork.git.ref("refs/heads/main") == mine
    assert len(desk.pulls()) == 1


def test_an_organisation_that_forbids_a_kind_of_token_is_quoted(desk: Desk) -> None:
    words = (
        "`example` forbids access via a personal access token (classic). Please use a GitHub App,"
        " OAuth App, or a personal access token with fine-grained permissions."
    )
    forbids = Fault("forbids", before=lambda _faults, _request: Answer(403, {"message": words}))
    desk.faults.arm(forbids, path="^/repos/example/toy", times=0)
    with pytest.raises(TokenError, match="of a kind that the organisation does not take") as raised:
        desk.open()
    assert "forbids access via a personal access token (classic)" in raised.value.message
    assert "--handoff" in raised.value.hint


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


def test_truncated_trees_are_read_folder_by_folder(desk: Desk) -> None:
    desk.upstream.truncate_trees = True
    desk.open()
    desk.assert_as_am()


def test_a_merged_pull_request_is_neither_opened_again_nor_taken_for_anothers(desk: Desk) -> None:
    desk.open()
    desk.github.merge(desk.pulls()[0], "squash")
    error = desk.refused("area: example/toy#1 is merged already")
    assert error.hint.endswith("contribbot retire area")
    desk.note("reverted")
    error = desk.refused("was merged and then reverted")
    assert "retire" not in error.hint
    assert "another branch" in error.hint
    desk.note("merged")
    gone = RetiredEvent(time=history.now(), summary="retired", why="merged")
    history.append(desk.toy.queue, "area", gone)
    squared = AREA.replace("return side * side", "return side**2")
    later = desk.toy.format_patch({"src/toy/area.py": squared})
    desk.toy.put_patch(patch=later)
    error = desk.refused(r"example/toy#1 .*before it was retired")
    assert "retire area" not in error.hint
    assert "name another branch in [contribution]" in error.hint
    desk.toy.put_patch(patch=later, checks='[contribution]\nbranch = "other"\n', check_files={})
    (done,) = desk.open()
    assert done.pull_request == "example/toy#2"
