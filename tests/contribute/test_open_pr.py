from __future__ import annotations

import dataclasses
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from contribbot.cli.contribute import opened_lines
from contribbot.contribute.model import Body
from contribbot.contribute.open_pr import PushedCommit
from contribbot.errors import GitHubError, NotProvedError, OpeningError
from contribbot.queue import history
from contribbot.queue.history import PullRequestEvent, RetiredEvent
from contribbot.queue.load import Queue
from tests.contribute.place import Desk, make_desk
from tests.github.faults import EXISTS, FORBIDDEN, NOT_FOUND, Fault, moved
from tests.github.handle import GitHub
from tests.github.state import Repository as Kept
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
    # A second run with nothing new writes nothing.
    events = desk.events()
    assert desk.writes() == []
    assert desk.events() == events
    kinds = [(event.event, getattr(event, "what", "")) for event in events]
    # An intent is noted before each write.
    assert [kind for kind in kinds if kind[0] != "version"] == [
        ("intent", "branch"), ("done", "branch"), ("intent", "pull-request"), ("pull-request", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("fork", [False, True])
def test_one_patch_takes_few_requests_and_one_a_changed_file(
    toy: Toy, github: GitHub, *, moved: bool, fork: bool
) -> None:
    changed: dict[str, str | bytes] = {"src/toy/area.py": FIXED, "new": "1\n", "README": "Toy\n"}
    toy.put_area(patch=toy.format_patch(changed))
    desk = make_desk(toy, github, fork=fork)
    if moved:
        desk.push({"src/toy/area.py": AREA.replace("Areas.", "All areas.").encode()})
    made = desk.requests(desk.open)
    desk.assert_as_am()
    # 12 requests, 3 trees (the root, src, src/toy), and a blob for each changed file.
    assert len(made) <= 12 + 3 + len(changed)
    # Only a blob that the pin lacks is read.
    assert sum("/git/blobs/" in row.path for row in made) == moved
    assert sum(row.path.endswith("/git/blobs") for row in made) == len(changed)


def test_two_at_once_make_one_branch_and_one_pull_request(desk: Desk) -> None:
    for child in [desk.start(), desk.start()]:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors.decode()
    assert len(desk.pulls()) == 1
    assert desk.github.count("POST", "/git/refs") == desk.github.count("POST", "/pulls") == 1
    desk.assert_as_am()


@pytest.mark.parametrize("by_hand", [False, True])
def test_another_branch_gets_one_unless_a_person_opened_one_from_the_first(
    desk: Desk, *, by_hand: bool
) -> None:
    desk.open(handoff=True)
    desk.toy.put_patch(checks='[contribution]\nbranch = "other"\n', check_files={})
    if by_hand:
        desk.by_hand()
        assert "example/toy#1" in desk.refused("would open a second one").message
    else:
        (done,) = desk.open()
        assert done.branch == "other"
    assert len(desk.pulls()) == 1


def test_another_account_gets_no_fork_for_a_second_one(desk: Desk) -> None:
    desk.open()
    desk.me = desk.github.add_user("bob")
    desk.refused("is open from ada/toy:contribbot/area")


def test_one_that_goes_elsewhere_alone_is_not_noted(desk: Desk) -> None:
    desk.open(handoff=True)
    backport(desk)
    desk.refused(r"example/toy#1 goes to release, .* to main")


def test_a_base_that_somebody_changed_is_not_carried_past(desk: Desk) -> None:
    desk.open()
    desk.push({"other": b"1\n"}, "release")
    desk.pulls()[0].base_ref = "release"
    desk.change()
    before = desk.branch()
    desk.refused(r"example/toy#1 goes to release, .* to main")
    assert desk.branch() == before


def backport(desk: Desk) -> None:
    desk.upstream.git.set_ref("refs/heads/release", desk.upstream.git.ref("refs/heads/main") or "")
    desk.github.pull(desk.upstream, desk.fork, "contribbot/area", base_branch="release")


def test_a_backport_from_the_branch_is_left_alone(desk: Desk) -> None:
    desk.open()
    backport(desk)
    desk.change()
    (done,) = desk.open()
    assert done.pull_request == "example/toy#1"
    # A backport does not replace a pull request that has ended.
    desk.github.merge(desk.pulls()[0], "squash")
    desk.change(FIXED + "\n\nUNIT = 2\n")
    desk.refused("example/toy#1, .* was merged")


def rename(desk: Desk, repository: Kept, new: str) -> None:
    old, known = repository.full_name, desk.github.repositories
    known[new] = known.pop(old)
    repository.name = new.partition("/")[2]
    desk.faults.arm(moved(old, new), path=f"^/repos/{old}(/|$)", times=0)


@pytest.mark.parametrize("whose", ["upstream", "fork", "account"])
def test_who_or_what_is_renamed_keeps_its_pull_request(desk: Desk, whose: str) -> None:
    desk.open()
    fork, users = desk.fork, desk.github.users
    if whose == "upstream":
        rename(desk, desk.upstream, "example/new")
    elif whose == "fork":
        rename(desk, fork, "ada/new")
    else:
        rename(desk, fork, "lovelace/toy")
        users["lovelace"] = users.pop("ada")
        desk.me.login = "lovelace"
    desk.change()
    (done,) = desk.open()
    assert (done.pull_request, done.branch_was) == (f"{desk.upstream.full_name}#1", "moved")
    assert (done.fork, len(desk.pulls())) == (fork.full_name, 1)
    assert fork.git.ref("refs/heads/contribbot/area") == done.head
    assert desk.github.count("POST", "/forks") == 0


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
    # GitHub returns the existing fork, whose name nobody knew.
    fork = github.fork(desk.upstream, desk.me, "mine")
    theirs = github.commit(fork, "contribbot/area", {"theirs": b"1\n"})
    with pytest.raises(OpeningError, match="contribbot did not make"):
        desk.open()
    assert desk.branch() == theirs


def test_a_branch_in_the_way_of_the_name_is_said(desk: Desk) -> None:
    desk.github.commit(desk.fork, "contribbot", {"other": b"1\n"})
    with pytest.raises(OpeningError, match="branch contribbot/area cannot be made"):
        desk.open()


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
    github.forks_ready_after = polls
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


def test_a_fork_whose_trees_are_not_there_yet_is_waited_for_by_the_person(
    toy: Toy, github: GitHub
) -> None:
    desk = make_desk(toy, github, fork=False)
    desk.faults.arm(NOT_FOUND, path="/git/trees$", method="POST")
    with pytest.raises(OpeningError) as raised:
        desk.open()
    assert raised.value.hint.startswith("GitHub may still be making the fork: run it again in")
    desk.open()
    desk.assert_as_am()


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
    assert len(made) <= 11 + 3 + 1


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
    # With these scopes the branch is made, and the fork's main stays.
    desk.me.tokens[0] = dataclasses.replace(desk.me.tokens[0], scopes=("repo", "workflow"))
    desk.open()
    assert desk.fork.git.ref("refs/heads/main") == mine
    assert len(desk.pulls()) == 1


def test_ones_own_upstream_gets_the_branch_itself(area: Toy, github: GitHub) -> None:
    me = github.add_user("example")
    upstream = github.add_repository("example/toy", area.upstream)
    desk = Desk(area, github, upstream, me)
    (done,) = desk.open()
    assert done.fork == "example/toy"
    assert desk.upstream.git.ref("refs/heads/contribbot/area") == done.head
    assert len(desk.pulls()) == 1
    assert github.count("POST", "/forks") == 0


def test_a_merged_pull_request_is_neither_opened_again_nor_taken_for_anothers(desk: Desk) -> None:
    desk.open()
    desk.github.merge(desk.pulls()[0], "squash")
    error = desk.refused("area: example/toy#1, the pull request of this branch, was merged")
    assert error.hint.endswith("contribbot queue retire area")
    desk.note("reverted")
    error = desk.refused("was reverted")
    assert "retire" not in error.hint
    assert "name another branch in [contribution]" in error.hint
    desk.note("merged")
    gone = RetiredEvent(time=history.now(), summary="retired", why="merged")
    history.append(desk.toy.queue, "area", gone)
    squared = AREA.replace("return side * side", "return side**2")
    later = desk.toy.format_patch({"src/toy/area.py": squared})
    desk.toy.put_patch(patch=later)
    error = desk.refused(r"example/toy#1, .* was merged")
    assert "retire area" not in error.hint
    assert "name another branch in [contribution]" in error.hint
    desk.toy.put_patch(patch=later, checks='[contribution]\nbranch = "other"\n', check_files={})
    (done,) = desk.open()
    assert done.pull_request == "example/toy#2"


BETTER = FIXED.replace("area = width * height", "area = height * width")


def test_a_changed_patch_moves_the_branch_of_the_same_pull_request(desk: Desk) -> None:
    desk.open()
    first = desk.branch()
    desk.change(BETTER)
    desk.body = "## What\n\nAreas were sums, and are products.\n"
    before = len(desk.github.requests)
    (done,) = desk.open()
    # The branch is read again just before the move; 3 trees are read.
    assert len(desk.github.requests) - before <= 11 + 3 + 1
    desk.assert_as_am()
    (pull,) = desk.pulls()
    assert pull.head_sha == desk.branch() != first
    assert pull.issue.body == desk.body
    assert (done.branch_was, done.pull_request_was) == ("moved", "updated")
    assert done.pull_request == "example/toy#1"
    events = desk.events()
    kinds = [event.event for event in events]
    assert (kinds.count("version"), kinds.count("pull-request")) == (2, 1)
    assert desk.writes() == []
    assert desk.events() == events


def test_text_that_a_person_changed_on_github_stays(desk: Desk) -> None:
    desk.open()
    (pull,) = desk.pulls()
    # GitHub's line ends are no change of the text.
    pull.issue.body = (pull.issue.body or "").replace("\n", "\r\n").strip()
    desk.body = "New words.\n"
    (done,) = desk.open()
    assert (done.pull_request_was, pull.issue.body) == ("updated", "New words.\n")
    # Lines that a bot added below the text stay.
    added = "\n\n<!-- bot -->\nSummary by a bot"
    for words in ("Newer words.\n", "Newest words.\n"):
        pull.issue.body += "" if pull.issue.body.endswith(added) else added
        desk.body = words
        (done,) = desk.open()
        assert done.pull_request_was == "updated"
        assert pull.issue.body.startswith(words)
        assert pull.issue.body.endswith(added)
    pull.issue.body = "Better words.\n"
    desk.body = "Other words.\n"
    (done,) = desk.open()
    assert (done.pull_request_was, pull.issue.body) == ("edited", "Better words.\n")
    assert "a person changed its title or body" in " ".join(done.notes)
    assert desk.github.count("PATCH", "/pulls/") == 3


def test_a_base_that_moved_is_said_and_taken_on_request(desk: Desk) -> None:
    desk.open()
    first = desk.branch()
    tip = desk.push({"other": b"1\n"})
    (said,) = desk.open()
    assert (said.branch_was, desk.branch()) == ("kept", first)
    assert "--up-to-date" in " ".join(said.notes)
    (done,) = desk.open(up_to_date=True)
    assert (done.branch_was, done.base) == ("moved", tip)
    desk.assert_as_am()
    assert desk.writes() == []


@pytest.mark.parametrize("begun", [False, True], ids=["instead", "pushed"])
def test_commits_that_are_not_ours_are_never_overwritten(desk: Desk, begun: bool) -> None:
    if begun:
        desk.open()
    stranger = desk.github.add_user("stranger")
    theirs = desk.github.commit(
        desk.fork, "contribbot/area", {"theirs": b"1\n"}, "Theirs\n", who=stranger
    )
    desk.change(BETTER)
    error = desk.refused("did not make", up_to_date=True)
    assert theirs[:12] in error.message
    assert "Stranger" in error.message
    assert desk.branch() == theirs


def test_a_merge_of_main_by_a_maintainer_is_stepped_over(desk: Desk) -> None:
    desk.open()
    tip, ours = desk.push({"other": b"1\n"}), desk.branch()
    assert ours is not None
    git = desk.fork.git
    person = git.commit(tip).author
    theirs = git.add_commit(git.commit(ours).tree, [ours, tip], person, person, "Merge main\n")
    git.set_ref("refs/heads/contribbot/area", theirs)
    # The patch has not changed: the merge stays.
    (kept,) = desk.open()
    assert (kept.branch_was, desk.branch()) == ("kept", theirs)
    assert "a merge of main" in " ".join(kept.notes)
    desk.change(BETTER)
    (done,) = desk.open()
    assert done.branch_was == "moved"
    desk.assert_as_am()
    # A merge of another branch is somebody's work.
    other = desk.github.commit(desk.fork, "other", {"theirs": b"1\n"}, "Theirs\n")
    head = desk.branch()
    assert head is not None
    theirs = git.add_commit(git.commit(head).tree, [head, other], person, person, "Merge\n")
    git.set_ref("refs/heads/contribbot/area", theirs)
    desk.refused("did not make")


def test_a_closed_pull_request_is_said_with_the_next_step(desk: Desk) -> None:
    desk.open()
    (pull,) = desk.pulls()
    pull.issue.state, pull.issue.closed_at = "closed", desk.github.clock.now()
    desk.change(BETTER)
    before = desk.branch()
    assert "reopen it" in desk.refused(r"example/toy#1").hint
    assert (desk.branch(), len(desk.pulls())) == (before, 1)


def test_a_deleted_branch_is_made_again_for_a_patch_without_pull_request(desk: Desk) -> None:
    desk.open(handoff=True)
    desk.fork.git.git("update-ref", "-d", "refs/heads/contribbot/area")
    desk.open()
    desk.assert_as_am()
    assert len(desk.pulls()) == 1


def test_a_draft_is_made_ready_on_request_and_once(desk: Desk) -> None:
    desk.open()
    desk.faults.arm(FORBIDDEN, path="^/graphql$")
    (done,) = desk.open(ready=True)
    assert "mark it ready on its page" in " ".join(done.notes)
    assert (done.state, desk.pulls()[0].draft) == ("draft", True)
    (done,) = desk.open(ready=True)
    assert (done.state, desk.pulls()[0].draft) == ("open", False)
    assert "marked it ready for review" in " ".join(done.notes)
    last = desk.events()[-1]
    assert isinstance(last, PullRequestEvent)
    assert last.state == "open"
    assert desk.writes(ready=True) == []


def test_a_lost_journal_says_how_to_go_on(desk: Desk) -> None:
    desk.open()
    (desk.toy.queue / "history" / "area" / "journal.jsonl").unlink()
    error = desk.refused("contribbot did not make")
    assert "bring history/ back" in error.hint
    assert "delete the branch there" in error.hint
    # The hint's second way works.
    desk.fork.git.git("update-ref", "-d", "refs/heads/contribbot/area")
    desk.open()
    desk.assert_as_am()


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
    # A long body goes into a file.
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
    assert pull.issue.body == "Words.\n"
