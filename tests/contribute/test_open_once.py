"""Never a second pull request, and nothing made for one that cannot be: what is looked at first."""

from __future__ import annotations

import pytest
from github.Repository import Repository

from contribbot.errors import OpeningError
from tests.contribute.opening import Desk, make_desk
from tests.github.faults import EXISTS, FORBIDDEN, Fault, moved
from tests.github.handle import GitHub
from tests.github.state import Repository as Kept
from tests.toy import Toy

ELSEWHERE = '[contribution]\nbranch = "other"\n'


def assert_not_opened_again(desk: Desk) -> None:
    """With another branch nothing is written, and the one that is open is named."""
    desk.toy.put_patch(checks=ELSEWHERE, check_files={})
    assert "example/toy#1" in desk.refused("would open a second one").message
    assert len(desk.pulls()) == 1


def test_one_that_nobody_noted_is_not_opened_again_from_another_branch(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Repository.create_pull

    def interrupted(
        self: Repository, base: str, head: str, *, title: str, body: str, draft: bool
    ) -> None:
        """Ctrl-C, just after it was opened."""
        create(self, base, head, title=title, body=body, draft=draft)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "create_pull", interrupted)
        with pytest.raises(KeyboardInterrupt):
            desk.open()
    assert_not_opened_again(desk)


def test_one_that_a_person_opened_is_not_opened_again_from_another_branch(desk: Desk) -> None:
    desk.open(handoff=True)
    desk.by_hand()
    assert_not_opened_again(desk)


def test_a_branch_that_never_had_one_may_be_left_for_another(desk: Desk) -> None:
    desk.open(handoff=True)
    desk.toy.put_patch(checks=ELSEWHERE, check_files={})
    (done,) = desk.open()
    assert (done.branch, len(desk.pulls())) == ("other", 1)


def test_another_account_gets_no_fork_for_a_second_one(desk: Desk) -> None:
    desk.open()
    desk.me = desk.github.add_user("bob")
    desk.refused("is open from ada/toy:contribbot/area")


def test_a_base_that_somebody_changed_is_not_carried_past(desk: Desk) -> None:
    desk.open()
    desk.push({"other": b"1\n"}, "release")
    desk.pulls()[0].base_ref = "release"
    desk.change()
    before = desk.branch()
    desk.refused(r"example/toy#1 goes to release, .* to main")
    assert desk.branch() == before


def rename(desk: Desk, repository: Kept) -> None:
    """Rename a repository to `new`; GitHub follows its old name."""
    known, owner = desk.github.state.repositories, repository.owner.login
    known[f"{owner}/new"] = known.pop(f"{owner}/toy")
    repository.name = "new"
    desk.faults.arm(
        moved(f"{owner}/toy", f"{owner}/new"), path=f"^/repos/{owner}/toy(/|$)", times=0
    )


@pytest.mark.parametrize("whose", ["upstream", "fork"])
def test_a_renamed_repository_keeps_its_pull_request(desk: Desk, whose: str) -> None:
    desk.open()
    fork = desk.fork
    rename(desk, desk.upstream if whose == "upstream" else fork)
    desk.change()
    (done,) = desk.open()
    assert (done.pull_request, done.branch_was) == (f"{desk.upstream.full_name}#1", "moved")
    assert len(desk.pulls()) == 1
    assert fork.git.ref("refs/heads/contribbot/area") == done.head
    assert desk.github.count("POST", "/forks") == 0


def test_no_fork_is_made_for_what_does_not_apply(toy: Toy, github: GitHub) -> None:
    desk = make_desk(toy, github, fork=False)
    desk.push({"src/toy/area.py": b"nothing\n"})
    desk.refused("no longer applies")
    assert desk.events() == []


@pytest.mark.parametrize("kind", ["another name", "unrelated", "fork of another"])
def test_a_fork_may_have_another_name(toy: Toy, github: GitHub, kind: str) -> None:
    desk = make_desk(toy, github, fork=False)
    name = "ada/toy-1"  # as GitHub calls it where ada/toy is something else
    if kind == "another name":
        name = github.fork(desk.upstream, desk.me, "mine").full_name
    elif kind == "unrelated":
        github.add_repository("ada/toy", toy.upstream)
    else:
        github.fork(github.add_repository("another/toy", toy.upstream), desk.me)
    (done,) = desk.open()
    (again,) = desk.open()
    assert (done.fork, again.fork, again.branch_was) == (name, name, "kept")
    assert desk.branch() == done.head
    assert github.count("POST", "/forks") == len(desk.pulls()) == 1


def test_a_new_fork_with_such_a_branch_is_not_overwritten(toy: Toy, github: GitHub) -> None:
    desk = make_desk(toy, github, fork=False)
    # One of another name was there, of which nobody knew.
    fork = github.fork(desk.upstream, desk.me, "mine")
    theirs = github.commit(fork, "contribbot/area", {"theirs": b"1\n"})
    with pytest.raises(OpeningError, match="contribbot did not make"):
        desk.open()
    assert desk.branch() == theirs


def test_a_branch_in_the_way_of_the_name_is_said(desk: Desk) -> None:
    desk.github.commit(desk.fork, "contribbot", {"other": b"1\n"})
    with pytest.raises(OpeningError, match="branch contribbot/area cannot be made") as raised:
        desk.open()
    assert "a branch contribbot there leaves no room for it" in raised.value.hint


@pytest.mark.parametrize("fault", [FORBIDDEN, EXISTS], ids=str)
def test_a_branch_moves_without_graphql_as_well(desk: Desk, fault: Fault) -> None:
    desk.open()
    desk.change()
    desk.faults.arm(fault, path="^/graphql$")
    (done,) = desk.open()
    assert desk.faults.struck
    assert (done.branch_was, desk.branch()) == ("moved", done.head)
    assert desk.github.count("PATCH", "/git/refs/") == 1


def test_a_push_between_the_last_look_and_the_move_is_not_overwritten(desk: Desk) -> None:
    desk.open()
    desk.change()
    theirs = desk.meddle("^/graphql$")
    with pytest.raises(OpeningError, match="contribbot did not make"):
        desk.open()
    assert [desk.branch()] == theirs
