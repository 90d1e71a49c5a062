"""The same command again: the same branch, the same pull request, what changed told once."""

from __future__ import annotations

import pytest

from contribbot.contribute.open_pr import range_text
from contribbot.model.history import PullRequestEvent
from tests.contribute.opening import Desk
from tests.github.faults import FORBIDDEN, moved
from tests.toy import FIXED

BETTER = FIXED.replace("area = width * height", "area = height * width")


def test_a_changed_patch_moves_the_branch_of_the_same_pull_request(desk: Desk) -> None:
    desk.open()
    first = desk.branch()
    desk.change(BETTER)
    desk.body = "## What\n\nAreas were sums, and are products.\n"
    before = len(desk.github.requests)
    (done,) = desk.open()
    # The branch is looked at a second time just before it moves, and then there is the comment.
    assert len(desk.github.requests) - before <= 12 + 1 + 2
    desk.assert_as_am()
    (pull,) = desk.pulls()
    assert pull.head_sha == desk.branch() != first
    assert pull.issue.body == desk.body
    assert (done.branch_was, done.pull_request_was) == ("moved", "updated")
    assert done.pull_request == "example/toy#1"
    (comment,) = pull.issue.comments
    assert done.comment.endswith(f"#issuecomment-{comment.id}")
    assert "v1 to v2" in comment.body
    assert "+    area = height * width" in comment.body
    events = desk.events()
    kinds = [event.event for event in events]
    assert (kinds.count("version"), kinds.count("pull-request")) == (2, 1)
    # It is told once.
    assert desk.writes() == []
    assert desk.events() == events
    desk.change(BETTER.replace("return area", "return abs(area)"))
    desk.open()
    assert len(pull.issue.comments) == 2
    assert "v2 to v3" in pull.issue.comments[1].body


def test_text_that_a_person_changed_on_github_stays(desk: Desk) -> None:
    desk.open()
    (pull,) = desk.pulls()
    # GitHub's own line ends are no change.
    pull.issue.body = (pull.issue.body or "").replace("\n", "\r\n").strip()
    desk.body = "New words.\n"
    (done,) = desk.open()
    assert (done.pull_request_was, pull.issue.body) == ("updated", "New words.\n")
    pull.issue.body = "Better words.\n"
    desk.body = "Other words.\n"
    (done,) = desk.open()
    assert (done.pull_request_was, pull.issue.body) == ("edited", "Better words.\n")
    assert "a person changed its title or body" in " ".join(done.notes)
    assert desk.github.count("PATCH", "/pulls/") == 1


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
    assert desk.pulls()[0].issue.comments == []
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
    # Nothing changed in the patch: the merge stays.
    (kept,) = desk.open()
    assert (kept.branch_was, desk.branch()) == ("kept", theirs)
    assert "a merge of main" in " ".join(kept.notes)
    desk.change(BETTER)
    (done,) = desk.open()
    assert done.branch_was == "moved"
    desk.assert_as_am()
    # A merge of anything else is somebody's work.
    other = desk.github.commit(desk.fork, "other", {"theirs": b"1\n"}, "Theirs\n")
    head = desk.branch()
    assert head is not None
    theirs = git.add_commit(git.commit(head).tree, [head, other], person, person, "Merge\n")
    git.set_ref("refs/heads/contribbot/area", theirs)
    desk.refused("did not make")


def test_a_renamed_account_keeps_its_pull_request(desk: Desk) -> None:
    desk.open()
    state = desk.github.state
    with state.lock:
        state.users["lovelace"] = state.users.pop("ada")
        state.repositories["lovelace/toy"] = state.repositories.pop("ada/toy")
        desk.me.login = "lovelace"
    desk.faults.arm(moved("ada/toy", "lovelace/toy"), path="^/repos/ada/toy$", times=0)
    desk.change(BETTER)
    (done,) = desk.open()
    assert (done.fork, done.branch_was) == ("lovelace/toy", "moved")
    assert done.pull_request == "example/toy#1"


def test_lines_that_a_bot_added_below_the_text_stay(desk: Desk) -> None:
    desk.open()
    (pull,) = desk.pulls()
    added = "\n\n<!-- bot -->\nSummary by a bot"
    pull.issue.body = f"{pull.issue.body}{added}"
    desk.body = "New words.\n"
    (done,) = desk.open()
    assert done.pull_request_was == "updated"
    assert pull.issue.body.startswith("New words.\n")
    assert pull.issue.body.endswith(added)
    desk.body = "Newer words.\n"
    desk.open()
    assert pull.issue.body.startswith("Newer words.\n")


def test_a_locked_conversation_fails_nothing(desk: Desk) -> None:
    desk.open()
    desk.change(BETTER)
    desk.faults.arm(FORBIDDEN, path="/issues/1/comments$", method="POST")
    (done,) = desk.open()
    assert (done.branch_was, done.comment) == ("moved", "")
    assert "what changed was not told there" in " ".join(done.notes)
    (done,) = desk.open()
    assert done.comment


def test_a_closed_pull_request_is_said_with_the_next_step(desk: Desk) -> None:
    desk.open()
    (pull,) = desk.pulls()
    pull.issue.state, pull.issue.closed_at = "closed", desk.github.state.clock.now()
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
    assert desk.pulls()[0].draft
    (done,) = desk.open(ready=True)
    assert (done.state, desk.pulls()[0].draft) == ("open", False)
    assert "marked it ready for review" in " ".join(done.notes)
    last = desk.events()[-1]
    assert isinstance(last, PullRequestEvent)
    assert last.state == "open"
    assert desk.writes(ready=True) == []


def test_a_draft_that_github_keeps_a_draft_says_where_to_press(desk: Desk) -> None:
    desk.open()
    desk.faults.arm(FORBIDDEN, path="^/graphql$")
    (done,) = desk.open(ready=True)
    assert "mark it ready on its page" in " ".join(done.notes)
    assert (done.state, desk.pulls()[0].draft) == ("draft", True)


def test_a_lost_journal_says_how_to_go_on(desk: Desk) -> None:
    desk.open()
    (desk.toy.queue / "history" / "area" / "journal.jsonl").unlink()
    error = desk.refused("contribbot did not make")
    assert "bring history/ back" in error.hint
    assert "delete the branch there" in error.hint
    # And that is a way.
    desk.fork.git.git("update-ref", "-d", "refs/heads/contribbot/area")
    desk.open()
    desk.assert_as_am()


def test_a_range_diff_stays_in_its_fence_and_in_bounds() -> None:
    hostile = "1:  abc123 ! 1:  def456 Subject ``` </details> @somebody #12\n" + "    +```\n" * 3
    text = range_text("area", 1, 2, hostile)
    assert "abc123" not in text
    assert "@somebody" not in text
    fence = text.split("\n\n")[2].split("\n")[0].removesuffix("diff")
    assert text.count(fence) == 2
    assert text.index("</details>\n") > 0
    wide = range_text("area", 1, 2, "1:  abc ! 1:  def x\n" + "    +y\n" * 100_000)
    assert len(wide) < 60_000
    assert "more lines" in wide
    long = range_text("area", 1, 2, "+" + "y" * 200_000)
    assert len(long) < 60_000
