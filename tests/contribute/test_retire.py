from __future__ import annotations

import functools
import re
import shutil

import pytest

from contribbot.cli.live import Lines
from contribbot.contribute.retire import ReleaseStatus, Retired, RetiringError, retire
from contribbot.errors import ExitCode, GitHubError, QueueError, UsageError
from contribbot.lifecycle.status import status_at_newest
from contribbot.model.lifecycle import Behaviour, Entry, PatchStatus, Says, Text
from contribbot.queue.history import RetiredEvent, VersionEvent
from contribbot.queue.load import Queue
from contribbot.verify.pipeline import Options
from tests.conftest import Program
from tests.contribute.following import AREA, Post, make_github
from tests.github.faults import SERVER_ERROR
from tests.github.handle import GitHub
from tests.github.state import How
from tests.life.conftest import history, releases
from tests.toy import AREA as BROKEN
from tests.toy import FIXED, Toy, git, record, snapshot

__all__ = ["history", "releases"]


def needed(
    text: Text = Text.CLEAN, why: str = "applies exactly", behaviour: Behaviour | None = None
) -> ReleaseStatus:
    """Return a stand-in for the status of a patch at the newest release."""

    def ask(queue: Queue, name: str) -> PatchStatus:
        del queue
        return PatchStatus(
            patch=name, upstream="toy", pin="v1.0", against="v9", text=text, text_why=why,
            behaviour=behaviour, evidence=(), contribution="", due=(), versions=0,
        )  # fmt: skip

    return ask


def take_out(
    post: Post, name: str = "area", *, why: str = "", status: ReleaseStatus | None = None
) -> Retired:
    return retire(post.queue, name, post.connect, status or needed(), why=why)


def assert_retired(post: Post, why: str, name: str = "area") -> None:
    """The patch is out of the queue, for that reason, and its history has all of it."""
    assert name not in post.queue.specs
    assert not (post.toy.queue / "patches" / name).exists()
    *before, last = post.events(name)
    assert isinstance(last, RetiredEvent)
    assert last.why == why
    assert not any(isinstance(event, RetiredEvent) for event in before)
    assert any(isinstance(event, VersionEvent) for event in before)
    for file in ("retired/patch.toml", "retired/checks/test_red.py",
                 "retired/checks/test_same.py"):  # fmt: skip
        assert (post.toy.queue / "history" / name / file).is_file()


def refused(
    post: Post, name: str = "area", *, status: ReleaseStatus | None = None
) -> RetiringError:
    """Check that a retirement is refused and changes nothing; return the error."""
    before = snapshot(post.toy.queue)
    with pytest.raises(RetiringError) as error:
        take_out(post, name, status=status)
    assert snapshot(post.toy.queue) == before
    assert error.value.exit_code == ExitCode.NO
    assert "--why" in error.value.hint
    return error.value


@pytest.mark.parametrize(("how", "words"), [("bot", "landed as"), ("squash", "merged as")])
def test_what_was_merged_is_taken_out_and_its_history_kept(
    post: Post, how: How, words: str
) -> None:
    # An earlier release wrote this file into each new patch.
    post.toy.put("patches/area/checks/.gitkeep", b"")
    sha = post.github.merge(post.open(), how)
    why = f"example/toy#1 {words} {sha[:12]}"
    assert take_out(post) == Retired(patch="area", why=why)
    assert_retired(post, why)
    assert {row.path for row in post.github.requests if row.method != "GET"} == {"/graphql"}


def test_an_open_one_stays_unless_a_person_says_why(post: Post) -> None:
    pull = post.open()
    assert "example/toy#1 is open" in refused(post).message
    done = take_out(post, why="We take another way.")
    assert_retired(post, "We take another way.")
    assert "example/toy#1 was open when it was last looked at; nothing was closed" in done.notes[0]
    assert pull.issue.state == "open"


def test_what_github_closed_without_merging_or_a_person_may_have_opened_stays(post: Post) -> None:
    post.hand_off()
    assert "contribbot follow" in refused(post).hint
    post.open()
    post.event("closed")
    error = refused(post)
    assert "example/toy#1 was closed" in error.message
    assert "still needs it" in error.message
    # The release has the text from another pull request.
    take_out(post, status=needed(Text.UPSTREAM, "the release has all of it"))
    assert_retired(post, "superseded by toy v9: the release has all of it")


def test_what_was_reverted_stays(post: Post) -> None:
    sha = post.github.merge(post.open(), "bot")
    message = f"Revert\n\nThis reverts commit {sha}.\n"
    back = post.github.commit(post.upstream, "main", {AREA: BROKEN.encode()}, message)
    post.event("referenced", commit=back)
    assert f"then reverted by {back[:12]}" in refused(post).message


# REST does not tell whether a commit has reverted the merge.
@pytest.mark.parametrize(("path", "merged"), [("", False), ("/graphql$", True)])
def test_a_github_that_cannot_be_asked_is_no_reason(post: Post, path: str, *, merged: bool) -> None:
    pull = post.open()
    if merged:
        post.github.merge(pull, "squash")
    before = snapshot(post.toy.queue)
    post.faults.arm(SERVER_ERROR, path=path, times=0)
    with pytest.raises(GitHubError):
        take_out(post)
    assert post.faults.struck
    assert snapshot(post.toy.queue) == before


def test_others_that_depend_on_it_keep_it(post: Post) -> None:
    post.toy.put_patch(
        "readme",
        patch=post.toy.format_patch({"README": "toys\n"}, "Say that they are many"),
        files=("README",),
        extra='depends_on = ["area"]',
    )
    post.toy.put_queue(["area", "readme"])
    before = snapshot(post.toy.queue)
    with pytest.raises(UsageError, match="readme depends on it") as error:
        take_out(post, why="No more.")
    assert "retire readme first" in error.value.hint
    assert snapshot(post.toy.queue) == before
    take_out(post, "readme", why="No more.")
    take_out(post, why="No more.")
    assert post.queue.specs == {}


@pytest.mark.parametrize("why", [" ", "a\nb", "a\x1b[31m", "x" * 1001])
def test_a_reason_is_a_line(post: Post, why: str) -> None:
    with pytest.raises(UsageError, match="--why"):
        take_out(post, why=why)
    assert "area" in post.queue.specs


def test_one_that_is_not_there_or_left_before_is_said(post: Post) -> None:
    with pytest.raises(UsageError, match="no such patch: other"):
        take_out(post, "other")
    take_out(post, why="No more.")
    with pytest.raises(UsageError, match=re.escape("area has left the queue already: No more.")):
        take_out(post, why="Again.")
    assert_retired(post, "No more.")


def test_what_is_not_contribbots_and_an_open_work_tree_are_told_of_and_stay(post: Post) -> None:
    notes = post.toy.put("patches/area/notes.txt", "mine\n")
    assert post.program("edit", "area").code == 0
    tree = post.toy.queue / ".contribbot/edit/area"
    told = take_out(post, why="No more.").notes
    assert f"its work tree {tree} stays open: contribbot edit --abort area" in told
    assert any("stays" in note and "area" in note for note in told if str(tree) not in note)
    assert notes.read_text() == "mine\n"
    assert tree.is_dir()
    assert post.program("edit", "--abort", "area").code == 0
    assert not tree.exists()


def test_a_queue_that_changes_meanwhile_is_left_alone(post: Post) -> None:
    def change(queue: Queue, name: str) -> PatchStatus:
        post.toy.put("patches/area/checks/test_red.py", "# other\n")
        return needed(Text.UPSTREAM)(queue, name)

    with pytest.raises(QueueError, match="changed meanwhile"):
        take_out(post, status=change)
    assert "area" in post.queue.specs
    assert not (post.toy.queue / "history").exists()


@pytest.mark.parametrize(
    ("tag", "why"),
    [("v1.5", "superseded by toy v1.5"), ("v1.4", "superseded by toy v1.4"), ("v1.3", "")],
    ids=["by its text", "by behaviour", "needed"],
)
def test_what_the_newest_release_has_is_taken_out(
    releases: Toy, github: GitHub, tag: str, why: str
) -> None:
    post = make_github(releases, github)
    for newer in git(releases.upstream, "tag").decode().split():
        if newer > tag:
            git(releases.upstream, "tag", "-d", newer)
    status = functools.partial(status_at_newest, options=Options(jobs=1), watcher=Lines())
    if why:
        assert take_out(post, status=status).why.startswith(why)
    else:
        with pytest.raises(RetiringError, match=r"toy v1\.3 still needs it"):
            take_out(post, status=status)
    assert ("area" in post.queue.specs) is (not why)
    assert github.requests == []


def test_a_new_patch_of_that_name_does_not_go_for_the_old_ones_pull_request(post: Post) -> None:
    post.github.merge(post.open(), "squash")
    take_out(post)
    content = post.toy.format_patch({AREA: FIXED.replace("area = ", "it = ")})
    post.toy.put_patch(patch=content)
    post.toy.put_queue(["area"])
    for _ in range(2):
        assert "still needs it" in refused(post).message
        report = post.look().report
        assert (report.contributions, report.without) == ((), ("area",))
        record(post.queue, post.queue.patch("area"), why="refresh")


@pytest.mark.parametrize("merged", [True, False])
def test_the_same_patch_put_back_still_has_its_pull_request(post: Post, merged: bool) -> None:
    pull = post.open()
    if merged:
        post.github.merge(pull)
    kept = snapshot(post.toy.queue / "patches")
    why = take_out(post, why="" if merged else "We take another way.").why
    for path, content in kept.items():
        post.toy.put(f"patches/{path}", content)
    if merged:
        assert take_out(post).why == why
    else:
        assert post.followed().reference == "example/toy#1"


def test_what_the_release_does_is_told_where_its_text_says_nothing(post: Post) -> None:
    red = Entry(label="check red", target="cpu", says=Says.FAILS, reason="AssertionError: 5")
    does = Behaviour(patch="area", pin="v9", entries=(red,))
    said = refused(post, status=needed(why="", behaviour=does)).message
    assert said.endswith("still needs it, as far as can be seen (check red still fails as stated:"
                         " AssertionError: 5)")  # fmt: skip
    assert "(" not in refused(post, status=needed(why="")).message


@pytest.mark.usefixtures("outcome_cache")
def test_records_of_what_left_the_queue_are_no_fault(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_patch("other")
    toy.put_queue(["area", "other"])
    assert program("verify", "--all").code == 0
    assert program("queue", "retire", "area", "--why", "no longer wanted").code == 0
    ran = program("evidence", "check")
    assert ran.code == 0, ran.out
    assert "retired  evidence/area/" in ran.out
    assert "about area, which left the queue" in ran.out
    # A record of a patch that never existed stays foreign.
    kept = next((toy.queue / "evidence" / "area").iterdir())
    shutil.rmtree(toy.queue / "history" / "area")
    ran = program("evidence", "check")
    assert (ran.code, f"foreign  evidence/area/{kept.name}" in ran.out) == (1, True)
