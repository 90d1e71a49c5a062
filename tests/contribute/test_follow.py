from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta

import pytest

from contribbot.cli.show_contribute import follow_lines
from contribbot.contribute.model import FollowReport, ThreadCount
from contribbot.contribute.reviews import short_id
from contribbot.errors import ExitCode
from contribbot.github.auth import Secret
from contribbot.model.history import RetiredEvent, VersionEvent
from contribbot.queue import history
from contribbot.queue.toml_edit import remove_from_order
from tests.contribute.following import AREA, LINE, Post, make_post
from tests.github.faults import (
    NOT_FOUND,
    TRUNCATED,
    UNAUTHORIZED,
    WIRE_FAULTS,
    Fault,
    each,
    primary_limit,
)
from tests.github.handle import GitHub
from tests.github.server import Hook
from tests.github.state_social import (
    add_comment,
    add_event,
    add_reply,
    add_review,
    add_review_comment,
    add_status,
    set_labels,
)
from tests.github.wire import Answer, Request
from tests.toy import Toy, record

HOSTILE = "\x1b]0;owned\x07\x1b[2J\N{RIGHT-TO-LEFT OVERRIDE}evil\x00\N{ZERO WIDTH SPACE}\r\x9b31m"


def text_of(post: Post) -> str:
    """Run `follow` and return what a person reads."""
    return "\n".join(follow_lines(post.look().report))


def test_a_draft_says_what_github_says_of_it(post: Post) -> None:
    post.open(draft=True, title="[ROCm] Fix the area")
    post.run("MI300: kernels", "success")
    post.run("lint", "failure")
    found = post.one()
    assert (found.state, found.mergeable, found.behind) == ("draft", "yes", 0)
    assert found.reference == "example/toy#1"
    assert found.title == "[ROCm] Fix the area"
    assert {one.target: one.state for one in found.ci} == {
        "gfx942": "passed", "gfx950": "not started",
    }  # fmt: skip
    assert found.other is not None
    assert found.other.failed == ("lint (failure)",)
    assert found.start == "Someone entitled comments `/amd-ci run`."
    text = text_of(post)
    assert "gfx950 not started" in text
    assert "next, anyone entitled: start CI for gfx950: Someone entitled" in text
    assert "next, you: see why CI failed: other jobs" in text
    assert post.states() == ["draft"]


def test_a_job_that_was_skipped_is_no_pass_and_one_that_runs_has_not_passed(post: Post) -> None:
    post.open()
    post.run("MI300: kernels", "skipped")
    post.run("MI355: one", "success")
    post.run("MI355: two", None)
    found = post.one()
    assert [one.state for one in found.ci] == ["not run", "running"]
    # A failure is told at once, and the rest is still asked for.
    post.run("MI355: one", "failure")
    assert post.one().ci[1].state == "failed"
    post.run("MI355: two", "success")
    told = post.one().ci[1]
    assert (told.state, told.failed, told.running) == ("failed", ("MI355: one (failure)",), 0)


def test_statuses_count_like_check_runs(post: Post) -> None:
    pull = post.open()
    state, upstream = post.github.state, post.upstream
    add_status(state, upstream, pull.head_sha, "pending", context="ci/mi300-a")
    add_status(state, upstream, pull.head_sha, "error", context="ci/mi355-a")
    assert [one.state for one in post.one().ci] == ["running", "failed"]
    add_status(state, upstream, pull.head_sha, "success", context="ci/mi300-a")
    assert [one.state for one in post.one().ci] == ["passed", "failed"]


def test_a_failed_job_that_is_started_again_is_seen(post: Post) -> None:
    post.open()
    post.pass_ci()
    post.run("MI300: kernels", "failure")
    assert post.one().ci[0].state == "failed"
    # Nothing of the pull request itself tells of it.
    post.run("MI300: kernels", "success")
    assert post.one().ci[0].state == "passed"
    _, requests = post.asked()
    assert [one.path for one in requests] == ["/repos/example/toy/pulls/1"]


DAYS = timedelta(days=3)


def date_back(post: Post, key: str, at: datetime) -> None:
    """Let what is remembered of the patch be some days older."""
    file = post.toy.queue / ".contribbot/follow/area.json"
    kept = json.loads(file.read_text())
    kept["followed"][key] = (at - DAYS).isoformat()
    file.write_text(json.dumps(kept))


def test_how_far_it_is_behind_is_told_with_the_time_of_the_comparison(post: Post) -> None:
    post.open()
    post.pass_ci()
    first = post.one()
    assert first.compared is not None
    date_back(post, "compared", first.compared)
    found = post.look()
    said = f"; up to date with it on {first.compared - DAYS:%Y-%m-%d %H:%M} UTC"
    assert any(one.endswith(said) for one in follow_lines(found.report))


def test_what_another_patch_stands_on_is_not_said_to_go(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github, "low", "high")
    content = (toy.queue / "patches/high/0001-change.patch").read_bytes()
    toy.put_patch("high", patch=content, extra='depends_on = ["low"]')
    github.merge(post.open("low"), "squash")
    (step,) = post.one("low").next
    assert step.what.startswith("move the pin to a release that has it")
    assert step.what.endswith("high stands on it")


def test_what_stands_on_another_is_to_be_merged_after_it(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github, "low", "high")
    content = (toy.queue / "patches/high/0001-change.patch").read_bytes()
    toy.put_patch("high", patch=content, extra='depends_on = ["low"]')
    for name in ("low", "high"):
        add_review(github.state, post.open(name), post.reviewer, "APPROVED")
        post.pass_ci(name)
    assert [one.what for one in post.one("high").next] == ["merge it; it stands on example/toy#1"]
    assert [one.what for one in post.one("low").next] == ["merge it"]
    github.merge(post.pulls["low"], "rebase")
    post.one("low")
    assert "stands" not in " ".join(one.what for one in post.one("high").next)


def test_a_conflict_and_commits_behind_are_the_persons_next_step(post: Post) -> None:
    post.open()
    post.pass_ci()
    post.one()
    post.github.commit(post.upstream, "main", {"README": b"other\n"}, "Other\n")
    found = post.one()
    assert (found.mergeable, found.behind) == ("yes", 1)
    assert "behind main" in found.next[0].what
    post.github.commit(post.upstream, "main", {AREA: b"gone = 1\n"}, "Gone\n")
    found = post.one()
    assert (found.mergeable, found.behind) == ("no", 2)
    assert found.next[0].who == "you"
    assert "conflicts" in found.next[0].what


def test_mergeability_that_github_works_out_is_asked_again_and_nothing_else_is(post: Post) -> None:
    post.github.state.mergeable_at_once = False
    post.open()
    post.pass_ci()
    assert post.one().mergeable == "not known"
    found, requests = post.asked()
    assert found.report.contributions[0].mergeable == "yes"
    assert [one.path for one in requests] == ["/repos/example/toy/pulls/1"]


def test_twenty_with_nothing_new_take_one_conditional_request_each(
    toy: Toy, github: GitHub
) -> None:
    names = [f"patch{number:02}" for number in range(20)]
    post = make_post(toy, github, *names)
    for name in names:
        post.open(name)
        post.pass_ci(name)
        add_comment(github.state, post.pulls[name].issue, post.reviewer, "Why?")
    first, requests = post.asked()
    assert len(requests) == 20 * 8
    assert all(len(one.new) == 1 for one in first.report.contributions)
    again, requests = post.asked()
    assert len(requests) == 20
    assert all(one.conditional and one.status == 304 for one in requests)
    assert {one.state for one in again.report.contributions} == {"open"}
    assert [one.model_copy(update={"new": ()}) for one in first.report.contributions] == list(
        again.report.contributions
    )
    # What happens to one is asked for there alone; a comment may have started CI again.
    add_comment(github.state, post.pulls["patch07"].issue, post.reviewer, "Well?")
    third, requests = post.asked()
    assert [one.text for found in third.report.contributions for one in found.new] == ["Well?"]
    assert len(requests) == 20 + 7


def test_merged_and_closed_ones_take_one_request_each_too(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github, "one", "two", "three")
    for name in ("one", "two", "three"):
        post.open(name)
    github.merge(post.pulls["one"], "squash")
    github.merge(post.pulls["two"], "bot")
    close_it(post, "three")
    first = {one.patch: one.state for one in post.look().report.contributions}
    assert first == {"one": "merged", "two": "landed", "three": "closed"}
    again, requests = post.asked()
    assert len(requests) == 3
    assert all(one.status == 304 for one in requests)
    assert {one.patch: one.state for one in again.report.contributions} == first
    assert [post.states(name)[-1] for name in first] == ["merged", "merged", "closed"]


def close_it(post: Post, name: str) -> None:
    """Let the reviewer close a pull request."""
    add_event(post.github.state, post.pulls[name].issue, post.reviewer, "closed")


def test_four_are_looked_at_at_once(toy: Toy, github: GitHub) -> None:
    names = [f"patch{number}" for number in range(8)]
    post = make_post(toy, github, *names)
    for name in names:
        post.open(name)

    class Meeting(Hook):
        """Holds the first four pull requests until all four are asked for, or some seconds."""

        def __init__(self) -> None:
            self.barrier = threading.Barrier(4)
            self.met = 0

        def before(self, request: Request) -> Answer | None:
            if "/pulls/" in request.path and request.path.count("/") == 5 and self.met < 4:
                self.barrier.wait(20)
                self.met += 1
            return None

    meeting = Meeting()
    github.hooks.append(meeting)
    post.look()
    assert meeting.met >= 4


def test_what_others_say_is_new_once_and_what_the_author_says_never(post: Post) -> None:
    pull = post.open()
    post.pass_ci()
    state = post.github.state
    add_comment(state, pull.issue, post.reviewer, "Please explain.")
    add_comment(state, pull.issue, post.me, "I do.")
    root = add_review_comment(state, pull, post.reviewer, "Why?", path=AREA, line=LINE)
    add_review(state, pull, post.reviewer, "CHANGES_REQUESTED", body="Not yet.")
    found = post.one()
    assert [(one.kind, one.text) for one in found.new] == [
        ("comment", "Please explain."), ("thread", "Why?"), ("review", "Not yet."),
    ]  # fmt: skip
    assert found.new[1].thread == short_id(root.id)
    assert found.new[1].place == f"{AREA}:{LINE}"
    assert (found.decision, found.by) == ("changes requested", ("rev",))
    assert (found.threads.open, found.threads.answered) == (1, 0)
    assert post.one().new == ()
    add_reply(state, pull, post.me, root, "Because.")
    later = post.one()
    assert later.new == ()
    assert (later.threads.open, later.threads.answered) == (0, 1)
    # Only what comes after is asked for.
    asked = [one for one in post.github.requests if one.path.endswith("/issues/1/comments")]
    assert "since" not in asked[0].query
    assert asked[-1].query["since"] >= pull.issue.comments[-1].updated_at


def test_a_comment_that_was_changed_is_news(post: Post) -> None:
    pull = post.open()
    comment = add_comment(post.github.state, pull.issue, post.reviewer, "Nice.")
    assert [one.text for one in post.one().new] == ["Nice."]
    with post.github.state.lock:
        comment.body = "Not nice."
        comment.updated_at = pull.issue.updated_at = post.github.state.clock.now()
    (changed,) = post.one().new
    assert (changed.text, changed.changed) == ("Not nice.", True)
    assert changed.at == datetime.fromisoformat(comment.updated_at)
    assert post.one().new == ()


def test_without_its_local_state_it_asks_for_all_again(post: Post) -> None:
    pull = post.open()
    post.pass_ci()
    add_comment(post.github.state, pull.issue, post.reviewer, "Why?")
    first = post.one()
    for path in (post.toy.queue / ".contribbot" / "follow").iterdir():
        path.write_text("{}")
    again = post.one()
    # The clock goes on between the two.
    times = {"looked": None, "compared": None}
    assert again.model_copy(update=times) == first.model_copy(update=times)


def test_what_is_remembered_is_for_nobody_else_to_read(post: Post) -> None:
    post.open()
    for kind in ("follow", "github"):
        # Made before by something with other habits: a copy, an archive.
        (post.toy.queue / ".contribbot" / kind).mkdir(parents=True, mode=0o755)
    post.look()
    for kind in ("follow", "github"):
        assert (post.toy.queue / ".contribbot" / kind).stat().st_mode & 0o777 == 0o700


def test_the_last_verdict_of_each_reviewer_counts(post: Post) -> None:
    pull = post.open()
    post.pass_ci()
    state = post.github.state
    other = post.github.add_user("eve")
    add_review(state, pull, post.reviewer, "CHANGES_REQUESTED")
    add_review(state, pull, other, "APPROVED")
    add_review(state, pull, post.reviewer, "COMMENTED", body="Hm.")
    assert post.one().by == ("rev",)
    add_review(state, pull, post.reviewer, "APPROVED")
    found = post.one()
    assert (found.decision, found.by) == ("approved", ("rev", "eve"))
    assert [(one.who, one.what) for one in found.next] == [("maintainers", "merge it")]


def test_a_refusal_of_graphql_is_remembered_for_the_run(toy: Toy, github: GitHub) -> None:
    names = ("one", "two", "three")
    post = make_post(toy, github, *names)
    for name in names:
        pull = post.open(name)
        add_review_comment(github.state, pull, post.reviewer, "Why?", path=AREA, line=LINE)
        post.pass_ci(name)
    post.faults.arm(NOT_FOUND, path="/graphql", times=0)
    found, requests = post.asked()
    assert [one.threads.known for one in found.report.contributions] == [False] * 3
    assert sum(one.path == "/graphql" for one in requests) == 1
    # With nothing new: one request each, and one question whether GraphQL answers by now.
    again, requests = post.asked()
    assert len(requests) == 3 + 1
    assert [one.threads.open for one in again.report.contributions] == [1] * 3
    post.faults.clear()
    assert post.one("two").threads == ThreadCount(open=1)


def test_one_that_cannot_be_read_keeps_nobody_from_the_others(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github, "one", "two", "three")
    for name in ("one", "two", "three"):
        post.open(name)
    post.look()
    post.faults.arm(NOT_FOUND, path="/pulls/2$", times=0)
    github.merge(post.pulls["three"])
    found = post.look()
    assert post.faults.struck
    assert found.exit_code == ExitCode.MACHINE
    told = {one.patch: one for one in found.report.contributions}
    assert [bool(told[name].error) for name in ("one", "two", "three")] == [False, True, False]
    # What was known of it is still told, as of then.
    assert (told["two"].state, told["two"].reference) == ("open", "example/toy#2")
    assert told["three"].state == "merged"
    text = "\n".join(follow_lines(found.report))
    assert "could not be looked at: GET /repos/example/toy/pulls/2" in text
    post.faults.clear()
    assert post.look().exit_code == ExitCode.OK


@pytest.mark.parametrize("fault", [primary_limit(3600), UNAUTHORIZED], ids=str)
def test_where_github_says_stop_the_others_are_not_asked_for(
    toy: Toy, github: GitHub, fault: Fault
) -> None:
    names = [f"p{number:02}" for number in range(20)]
    post = make_post(toy, github, *names)
    for name in names:
        post.open(name)
    post.faults.arm(fault, times=0)
    found, requests = post.asked()
    # Those that were begun when the first was refused: four are looked at at once.
    assert len(requests) <= 4
    errors = [one.error for one in found.report.contributions]
    assert all(errors)
    assert errors[-1].startswith("nothing more was asked after ")
    assert found.exit_code == ExitCode.MACHINE
    post.faults.clear()
    assert all(not one.error for one in post.look().report.contributions)


def test_a_token_that_one_upstream_refuses_may_do_for_another(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github, "low", "high")
    post.open("low")
    other = github.add_repository("another/toy", toy.upstream)
    fork = github.fork(other, post.me, "toy-of-another")
    github.commit(fork, "contribbot/high", {AREA: b"area = 1\n"}, "Fix high\n")
    post.upstream, post.fork = other, fork
    post.open("high")
    post.faults.arm(UNAUTHORIZED, path="/repos/example/toy", times=0)
    low, high = post.look().report.contributions
    assert low.error
    assert (high.error, high.state) == ("", "open")


def test_what_was_seen_is_shown_where_the_journal_cannot_be_written(post: Post) -> None:
    pull = post.open()
    post.look()
    blocked = post.toy.queue / ".contribbot" / "queue.lock"
    blocked.unlink(missing_ok=True)
    blocked.mkdir()
    # What is no news needs no journal.
    assert post.one().state == "open"
    commit = post.github.merge(pull, "squash")
    ran = post.program("follow")
    assert f"merged as {commit[:12]}" in ran.out
    assert ran.code == ExitCode.MACHINE
    assert str(blocked) in ran.err
    assert post.states() == ["open"]
    blocked.rmdir()
    assert post.one().change == "open"
    assert post.states() == ["open", "merged"]


def test_a_commit_on_the_branch_that_contribbot_did_not_make_is_told_first(
    post: Post,
) -> None:
    post.hand_off()
    pull = post.github.pull(post.upstream, post.fork, "contribbot/area", title="A fix")
    post.pulls["area"] = pull
    add_review(post.github.state, pull, post.reviewer, "APPROVED")
    post.pass_ci()
    assert not any("did not make" in one.what for one in post.one().next)
    files: dict[str, bytes | None] = {"README": b"theirs\n"}
    theirs = post.github.commit(post.fork, "contribbot/area", files, "More\n", who=post.reviewer)
    post.pass_ci()
    for _ in range(2):
        first = post.one().next[0]
        assert first.who == "you"
        assert first.what == (
            f"look at {theirs[:12]} on contribbot/area, which contribbot did not make:"
            " nothing here proves it"
        )
        assert not any(one.who == "maintainers" for one in post.one().next)


def test_how_old_the_count_of_threads_is_is_said(post: Post) -> None:
    pull = post.open()
    post.pass_ci()
    said = add_review_comment(post.github.state, pull, post.reviewer, "Why?", path=AREA, line=LINE)
    first = post.one()
    assert first.looked is not None
    # GitHub does not say by the pull request that a thread was resolved.
    pull.resolved.add(said.id)
    date_back(post, "looked", first.looked)
    assert f"0 resolved on {first.looked - DAYS:%Y-%m-%d %H:%M} UTC" in text_of(post)


def test_a_person_who_opened_it_after_a_hand_off_is_found(post: Post) -> None:
    post.hand_off()
    assert post.one().state == "not opened"
    pull = post.github.pull(post.upstream, post.fork, "contribbot/area", title="Mine")
    post.pulls["area"] = pull
    found = post.one()
    assert (found.state, found.reference, found.change) == ("open", "example/toy#1", "not opened")
    assert post.events()[-1].summary == "example/toy#1 was opened by a person; it is open"
    assert post.states() == ["open"]
    assert post.one().change == ""
    assert post.states() == ["open"]


def test_one_whose_opening_was_cut_off_is_found(post: Post) -> None:
    post.intend()
    post.github.pull(post.upstream, post.fork, "contribbot/area", title="Mine")
    assert post.one().reference == "example/toy#1"
    assert post.states() == ["open"]
    # contribbot opened it, and lost the answer.
    assert post.events()[-1].summary == "example/toy#1 was opened; it is open"


def test_a_change_of_state_goes_into_the_journal_once(post: Post) -> None:
    pull = post.open(draft=True)
    post.look()
    pull.draft = False
    pull.issue.updated_at = post.github.state.clock.now()
    assert post.one().change == "draft"
    assert post.one().change == ""
    close_it(post, "area")
    assert post.one().state == "closed"
    post.look()
    add_event(post.github.state, pull.issue, post.me, "reopened")
    assert post.one().state == "open"
    post.github.merge(pull)
    assert post.one().state == "merged"
    post.look()
    assert post.states() == ["draft", "open", "closed", "open", "merged"]
    said = [one.summary.partition(" ")[2] for one in post.events()[-4:]]
    commit = post.one().commit[:12]
    assert said == [
        "is open", "was closed without being merged", "is open again", f"was merged as {commit}"
    ]  # fmt: skip


def test_open_ones_of_patches_that_left_the_queue_are_followed_until_they_end(
    post: Post,
) -> None:
    pull = post.open()
    queue = post.queue
    record(queue, queue.patch("area"), why="test")
    assert any(isinstance(one, VersionEvent) for one in post.events())
    folder = post.toy.queue / "patches"
    stated = (folder / "queue.toml").read_bytes()
    (folder / "queue.toml").write_bytes(remove_from_order(stated, "area"))
    (folder / "area").rename(post.toy.root / "away")
    history.append(
        post.toy.queue, "area", RetiredEvent(time=history.now(), summary="retired", why="no more")
    )
    found = post.one()
    assert (found.queued, found.state) == (False, "open")
    assert [one.what for one in found.next] == ["close it on its page, or see it through there"]
    # Its upstream's rules still say what CI is.
    assert [one.target for one in found.ci] == ["gfx942", "gfx950"]
    post.github.merge(pull)
    assert post.one().state == "merged"
    assert post.look().report == FollowReport(contributions=(), without=())


def test_a_label_or_a_push_is_no_news_of_people(post: Post) -> None:
    pull = post.open()
    post.pass_ci()
    post.look()
    set_labels(post.github.state, pull.issue, post.reviewer, ["rocm"])
    assert post.one().new == ()
    # A new head has a CI of its own.
    post.github.commit(post.fork, "contribbot/area", {"README": b"more\n"}, "More\n")
    assert [one.state for one in post.one().ci] == ["not started", "not started"]


def full_scene(post: Post) -> None:
    """Make one that `follow` has to ask everything about: merged since, with talk."""
    pull = post.open(draft=True)
    add_comment(post.github.state, pull.issue, post.reviewer, "Why?")
    add_review_comment(post.github.state, pull, post.reviewer, "Why?", path=AREA, line=LINE)
    pull.draft = False


#: Requests of a look at an open pull request, and at one that a bot landed.
OPEN_REQUESTS, LANDED_REQUESTS = 8, 9


@pytest.mark.parametrize("landed", [False, True], ids=["open", "landed"])
@pytest.mark.parametrize("fault", each(WIRE_FAULTS))
def test_after_any_fault_at_any_request_one_run_completes(
    post: Post, fault: Fault, landed: bool
) -> None:
    full_scene(post)
    if landed:
        post.github.merge(post.pulls["area"], "bot")
    # Each time as if it were the first: nothing is remembered, nothing is noted.
    opened = history.journal_file(post.toy.queue, "area").read_bytes()
    requests = LANDED_REQUESTS if landed else OPEN_REQUESTS
    for number in range(1, requests + 1):
        history.journal_file(post.toy.queue, "area").write_bytes(opened)
        for kind in ("follow", "github"):
            for path in (post.toy.queue / ".contribbot" / kind).glob("*"):
                path.unlink()
        post.faults.struck.clear()
        post.faults.arm(fault, number=number)
        post.look()
        post.faults.clear()
        assert post.faults.struck, f"there is no request {number}"
        found = post.look()
        assert found.exit_code == ExitCode.OK
        one = found.report.contributions[0]
        assert one.state == ("landed" if landed else "open")
        assert one.threads.open == 1
        assert one.threads.known or landed
        states = post.states()
        # GitHub said for a moment that it lacks the commit; that is noted, and what is right.
        if fault.name == "404" and "closed" in states:
            states.remove("closed")
        assert states == ["draft", "merged" if landed else "open"]


@pytest.mark.parametrize("fault", [NOT_FOUND, UNAUTHORIZED, TRUNCATED], ids=str)
def test_news_is_not_lost_by_a_fault_at_a_later_look(post: Post, fault: Fault) -> None:
    pull = post.open()
    post.pass_ci()
    post.look()
    for number in range(1, OPEN_REQUESTS + 1):
        add_comment(post.github.state, pull.issue, post.reviewer, f"No. {number}")
        post.faults.struck.clear()
        post.faults.arm(fault, number=number)
        first = post.one()
        post.faults.clear()
        assert post.faults.struck
        told = [*first.new, *post.one().new]
        assert [one.text for one in told] == [f"No. {number}"]
    assert post.states() == ["open"]


def test_the_program_prints_one_document_and_says_what_failed_by_its_exit_code(
    post: Post,
) -> None:
    post.open()
    ran = post.program("follow", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert FollowReport.model_validate_json(ran.out).contributions[0].state == "open"
    assert json.loads(ran.out)["contributions"][0]["ci"][0]["state"] == "not started"
    post.faults.arm(NOT_FOUND, path="/pulls/1$", times=0)
    ran = post.program("follow")
    assert ran.code == ExitCode.MACHINE
    assert "could not be looked at" in ran.out
    assert post.token not in ran.out + ran.err + str(Secret(post.token))
