"""The same command again: the same branch, the same pull request, what changed told once."""

from __future__ import annotations

import pytest

from contribbot.contribute.open_pr import range_text
from contribbot.model.history import PullRequestEvent
from tests.contribute.opening import Desk
from tests.github.faults import FORBIDDEN
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


@pytest.mark.parametrize("kind", ["pushed", "merged", "instead"])
def test_commits_that_are_not_ours_are_never_overwritten(desk: Desk, kind: str) -> None:
    if kind != "instead":
        desk.open()
    stranger = desk.github.add_user("stranger")
    if kind == "merged":
        # GitHub's button "Update branch".
        tip = desk.push({"other": b"1\n"})
        ours = desk.branch()
        assert ours is not None
        git = desk.fork.git
        tree, person = git.commit(ours).tree, git.commit(tip).author
        theirs = git.add_commit(tree, [ours, tip], person, person, "Merge branch 'main'\n")
        git.set_ref("refs/heads/contribbot/area", theirs)
        name = person.name
    else:
        theirs = desk.github.commit(
            desk.fork, "contribbot/area", {"theirs": b"1\n"}, "Theirs\n", who=stranger
        )
        name = "Stranger"
    desk.change(BETTER)
    error = desk.refused("did not make", up_to_date=True)
    assert theirs[:12] in error.message
    assert name in error.message
    assert desk.branch() == theirs


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
    (would,), planned = desk.rehearse(ready=True)
    assert [row.summary for row in planned] == ["mark example/toy#1 ready for review"]
    assert "would be marked ready" in " ".join(would.notes)
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
