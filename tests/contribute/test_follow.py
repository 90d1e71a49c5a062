from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest

from contribbot.cli.contribute import follow_lines
from contribbot.contribute.model import Followed, FollowReport, ThreadCount
from contribbot.errors import ExitCode
from contribbot.queue import history
from tests.contribute.following import AREA, LINE, Post, make_post
from tests.github.faults import (
    FORBIDDEN,
    NOT_FOUND,
    ODD,
    RESET_AFTER,
    RESET_BEFORE,
    SERVER_ERROR,
    TRUNCATED,
    UNAUTHORIZED,
    Fault,
    primary_limit,
    secondary_limit,
)  # fmt: skip
from tests.github.handle import GitHub
from tests.github.state import CheckSuite, Kind
from tests.github.wire import Answer, Request
from tests.toy import Toy

HOSTILE = "\x1b]0;owned\x07\x1b[2J\N{RIGHT-TO-LEFT OVERRIDE}evil\x00\N{ZERO WIDTH SPACE}\r\x9b31m"
THREE = ("first", "second", "third")
TWENTY = tuple(f"p{number:02}" for number in range(20))


def text_of(post: Post) -> str:
    return "\n".join(follow_lines(post.look().report))


def steps(post: Post, name: str = "area") -> list[str]:
    return [step.what for step in post.followed(name).next]


def test_a_draft_says_what_github_says_of_it(post: Post) -> None:
    post.open(draft=True, title="[ROCm] Fix the area")
    post.run("MI300: kernels", "success")
    post.run("lint", "failure")
    found = post.followed()
    assert (found.state, found.mergeable, found.behind) == ("draft", "yes", 0)
    assert (found.reference, found.title) == ("example/toy#1", "[ROCm] Fix the area")
    assert {row.target: row.state for row in found.ci} == {
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


def ci(post: Post) -> list[str]:
    return [str(row.state) for row in post.followed().ci]


def test_ci_is_what_jobs_and_statuses_of_the_head_say_now(post: Post) -> None:
    post.open()
    post.run("MI300: kernels", "skipped")
    post.run("MI355: one", "success")
    post.run("MI355: two", None)
    # A skipped job and a running job have not passed.
    assert ci(post) == ["not run", "running"]
    # A failure counts while other jobs still run.
    post.run("MI355: one", "failure")
    assert ci(post)[1] == "failed"
    post.run("MI355: two", "success")
    row = post.followed().ci[1]
    assert (row.state, row.failed, row.running) == ("failed", ("MI355: one (failure)",), 0)
    # A second run of a job replaces the first, without an event of the pull request.
    post.run("MI355: one", "success")
    post.run("MI300: kernels", "success")
    assert ci(post) == ["passed", "passed"]
    # A job that starts after all others have passed counts, too.
    post.run("MI300: late", "failure")
    row = post.followed().ci[0]
    assert (row.state, row.failed) == ("failed", ("MI300: late (failure)",))
    post.github.commit(post.fork, "contribbot/area", {"README": b"more\n"}, "More\n")
    post.github.add_check(post.pull, "ci/mi300-a", "pending", is_status=True)
    post.github.add_check(post.pull, "ci/mi355-a", "error", is_status=True)
    assert ci(post) == ["running", "failed"]
    post.github.add_check(post.pull, "ci/mi300-a", "success", is_status=True)
    assert ci(post) == ["passed", "failed"]


def jobs(*required: str) -> Callable[[Post], None]:
    """Return two jobs that pass, on a branch that requires some."""

    def act(post: Post) -> None:
        post.upstream.required[:] = required
        for name in ("lint", "docs"):
            post.run(name, "success")

    return act


def suite(app: str, conclusion: str | None) -> Callable[[Post], None]:
    """Return a suite without jobs, which wait or cannot start."""
    return lambda post: post.upstream.check_suites.append(
        CheckSuite(post.pull.head_sha, app, conclusion)
    )


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (jobs(), "CI: other: 2 jobs passed; which are required is not known"),
        (jobs("lint"), "CI: other passed (2 jobs)"),
        (jobs("lint", "unit"), "CI: other: required and not started: unit (2 jobs)"),
        (suite("GitHub Actions", "action_required"), "other waiting (1 job)"),
        (suite("GitHub Actions", None), "other running (1 job)"),
        (suite("GitHub Actions", "success"), "no jobs have started"),
        (suite("Dormant", None), "no jobs have started"),
        (suite("Dormant", "startup_failure"), "other failed: Dormant (suite) (startup failure)"),
    ],
)
def test_without_targets_what_is_required_and_waits_says_whether_ci_passed(
    post: Post, act: Callable[[Post], None], words: str
) -> None:
    rules = post.toy.queue / "upstreams/contributing/toy.toml"
    rules.write_text(rules.read_text().partition("[ci.targets]")[0])
    post.open()
    act(post)
    assert words in text_of(post)


def test_mergeability_that_github_works_out_is_asked_again(post: Post) -> None:
    post.github.mergeable_at_once = False
    pull = post.open()
    post.pass_ci()
    assert post.followed().mergeable == "not known"
    assert post.followed().mergeable == "yes"
    # A label is no remark.
    pull.issue.labels = ["rocm"]
    assert post.followed().new == ()


def test_of_a_stack_the_lower_one_is_merged_first_and_goes_last(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github, "low", "high", opened=True)
    content = (toy.queue / "patches/high/0001-change.patch").read_bytes()
    toy.put_patch("high", patch=content, extra='depends_on = ["low"]')
    for name in ("low", "high"):
        post.review("APPROVED", patch=name)
        post.pass_ci(name)
    assert steps(post, "high") == ["merge it; it stands on example/toy#1"]
    assert steps(post, "low") == ["merge it"]
    github.merge(post.opened["low"], "squash")
    (step,) = steps(post, "low")
    assert step.startswith("move the pin to a release that has it")
    assert step.endswith("high stands on it")
    assert "stands" not in " ".join(steps(post, "high"))


def test_a_conflict_and_commits_behind_are_the_persons_next_step(post: Post) -> None:
    post.open()
    post.pass_ci()
    post.followed()
    post.push({"README": b"other\n"})
    found = post.followed()
    assert (found.mergeable, found.behind) == ("yes", 1)
    assert "behind main" in found.next[0].what
    post.push({AREA: b"gone = 1\n"})
    found = post.followed()
    assert (found.mergeable, found.behind) == ("no", 2)
    assert found.next[0].who == "you"
    assert "conflicts" in found.next[0].what


def test_how_each_ended_is_known(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github, *THREE, opened=True)
    github.merge(post.opened["first"], "squash")
    github.merge(post.opened["second"], "bot")
    post.event("closed", patch="third")
    first = [row.state for row in post.look().report.contributions]
    assert first == ["merged", "landed", "closed"]
    again = post.look()
    assert [row.state for row in again.report.contributions] == first
    assert [post.states(name)[-1] for name in THREE] == ["merged", "merged", "closed"]


def test_what_others_say_is_new_once_and_what_the_author_says_never(post: Post) -> None:
    post.open()
    post.pass_ci()
    post.comment("Please explain.")
    post.comment("I do.", post.me)
    root = post.thread()
    post.review("CHANGES_REQUESTED", "Not yet.")
    found = post.followed()
    assert [(news.kind, news.text) for news in found.new] == [
        ("comment", "Please explain."), ("thread", "Why?"), ("review", "Not yet."),
    ]  # fmt: skip
    assert found.new[1].place == f"{AREA}:{LINE}"
    assert (found.decision, found.by) == ("changes requested", ("rev",))
    assert (found.threads.open, found.threads.answered) == (1, 0)
    assert post.followed().new == ()
    post.answer(root, "Because.")
    later = post.followed()
    assert later.new == ()
    assert (later.threads.open, later.threads.answered) == (0, 1)
    # A thread that nobody answered may be resolved, too.
    post.pull.resolved.update({root.id, post.thread("And this?").id})
    assert post.followed().threads == ThreadCount(open=0, answered=0, resolved=2)


def test_a_comment_that_was_changed_is_news(post: Post) -> None:
    post.open()
    comment = post.comment("Nice.")
    assert [news.text for news in post.followed().new] == ["Nice."]
    with post.github.lock:
        comment.body = "Not nice."
        comment.updated_at = post.github.clock.now()
    (changed,) = post.followed().new
    assert (changed.text, changed.changed) == ("Not nice.", True)
    assert changed.at == datetime.fromisoformat(comment.updated_at)
    assert post.followed().new == ()


def test_what_a_deleted_account_said_is_told(post: Post) -> None:
    post.open()
    post.comment("Why?", post.github.add_user("ghost"))
    found = post.followed()
    assert (found.unread, found.error) == ("", "")
    assert [(news.author, news.text) for news in found.new] == [
        ("(an account that is gone)", "Why?")
    ]


def test_hostile_text_is_clean_and_bounded(post: Post) -> None:
    post.open()
    root = post.thread(f"{HOSTILE}\n    indented {HOSTILE}\n" + "z" * 200_000)
    with post.github.lock:
        root.path = f"src/{HOSTILE}.py"
    post.review("CHANGES_REQUESTED", "\n".join([HOSTILE] * 5000))
    report = post.look().report
    text = "\n".join(follow_lines(report))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(text) < 5000
    document = report.model_dump_json()
    for bad in ("\\u001b", "\N{RIGHT-TO-LEFT OVERRIDE}", "\N{ZERO WIDTH SPACE}", "\\u0000"):
        assert bad not in document


def test_its_local_state_is_private_and_without_it_all_is_asked_again(post: Post) -> None:
    post.open()
    post.pass_ci()
    post.comment("Why?")
    folder = post.toy.queue / ".contribbot"
    # The folder exists with wider permissions, as from a copy or an archive.
    (folder / "follow").mkdir(parents=True, mode=0o755)
    first = post.followed()
    assert (folder / "follow").stat().st_mode & 0o777 == 0o700
    for path in (folder / "follow").iterdir():
        path.write_text("{}")
    assert post.followed() == first


def test_the_last_verdict_of_each_reviewer_who_may_write_counts(post: Post) -> None:
    post.open()
    post.pass_ci()
    eve = post.github.add_user("eve")
    post.upstream.members["eve"] = "write"
    post.review("CHANGES_REQUESTED")
    post.review("APPROVED", who=eve)
    post.review("COMMENTED", "Hm.")
    assert post.followed().by == ("rev",)
    post.review("APPROVED")
    found = post.followed()
    assert (found.decision, found.by) == ("approved", ("rev", "eve"))
    assert [(step.who, step.what) for step in found.next] == [("maintainers", "merge it")]


def removed(post: Post) -> None:
    post.event("removed_from_merge_queue")
    post.pull.issue.events[-1].reason = "failed checks"


def by(login: str, kind: Kind = "User") -> Callable[[Post], None]:
    """Return an approval by somebody who may not write."""
    return lambda post: post.review("APPROVED", who=post.github.add_user(login, kind=kind))


def word(name: str) -> Callable[[Post], None]:
    """Return a change of GitHub's word for the merge of a pull request."""
    return lambda post: setattr(post.pull, "merge_state", name.upper())


ACTS: dict[str, Callable[[Post], None]] = {
    "approved": lambda post: post.review("APPROVED"),
    "by-stranger": by("eve"),
    "by-bot": by("bot", "Bot"),
    "job-required": lambda post: post.upstream.required.append("unit"),
    "review-required": lambda post: setattr(post.upstream, "requires_review", True),
    "queued": lambda post: post.event("added_to_merge_queue"),
    "removed": removed,
    "workflows-wait": suite("GitHub Actions", "action_required"),
    "archived": lambda post: setattr(post.upstream, "archived", True),
    **{name: word(name) for name in ("blocked", "behind", "unknown", "unstable")},
}
#: The next step after such acts. Class L of the defects: most were "merge it".
NEXT = {
    "": "reviewers: review it",
    "approved": "maintainers: merge it",
    "by-stranger": "reviewers: review it",
    "by-bot": "reviewers: review it",
    "approved job-required blocked": "CI: run the jobs that are required: unit",
    "review-required blocked": "reviewers: review it",
    "approved blocked": "maintainers: see on its page what blocks it: a review, a job or a rule of"
    " main",
    "approved behind": "you: bring it up to date with main, as its rules ask",
    "approved unknown": "you: follow it again: GitHub works out whether it merges",
    "approved unstable": "maintainers: merge it",
    "approved queued": "the merge queue: merge it",
    "approved removed": "maintainers: queue it again; the merge queue took it out: failed checks",
    "approved workflows-wait": "maintainers: approve the workflows, which wait for it",
    "approved archived": "you: nobody can merge it: example/toy is archived; look where the project"
    " went",
}


@pytest.mark.parametrize(("acts", "step"), NEXT.items())
def test_the_next_step_is_true(post: Post, acts: str, step: str) -> None:
    post.open()
    post.pass_ci()
    for act in acts.split():
        ACTS[act](post)
    assert [f"{each.who}: {each.what}" for each in post.followed().next] == [step]


def forbid(answer: Answer) -> Answer:
    said = json.loads(answer.body()) | {"errors": [{"message": "No access to reviews"}]}
    return replace(answer, raw=json.dumps(said).encode())


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("partly", after=forbid), "No access to reviews"),
        # Without GraphQL, REST gives the state of an open pull request.
        (FORBIDDEN, "jobs, reviews, threads and comments: POST /graphql"),
    ],
    ids=str,
)
def test_parts_that_github_leaves_out_are_named(post: Post, fault: Fault, words: str) -> None:
    pull = post.open()
    post.pass_ci()
    post.faults.arm(fault, path="/graphql$", times=0)
    found = post.look()
    (row,) = found.report.contributions
    assert (row.state, row.mergeable, row.next) == ("open", "yes", ())
    assert found.exit_code == ExitCode.MACHINE
    text = "\n".join(follow_lines(found.report))
    assert f"not read: {words}" in text
    assert "CI:" not in text
    post.github.merge(pull, "squash")
    assert bool(post.followed().error) is (fault is FORBIDDEN)


@pytest.mark.parametrize("fault", [NOT_FOUND, *ODD], ids=str)
def test_one_that_cannot_be_read_keeps_nobody_from_the_others(
    toy: Toy, github: GitHub, fault: Fault
) -> None:
    post = make_post(toy, github, *THREE, opened=True)
    post.look()
    post.faults.arm(fault, path="/graphql$", number=2)
    github.merge(post.opened["third"])
    found = post.look()
    assert post.faults.struck
    assert found.exit_code == ExitCode.MACHINE
    first, second, third = found.report.contributions
    read = [not (row.error or row.unread) for row in (first, second, third)]
    assert read == [True, False, True]
    assert (second.reference, third.state) == ("example/toy#2", "merged")
    text = "\n".join(follow_lines(found.report))
    assert "could not be looked at: " in text or "not read: " in text
    post.faults.clear()
    assert post.look().exit_code == ExitCode.OK


@pytest.mark.parametrize("fault", [primary_limit(3600), UNAUTHORIZED], ids=str)
def test_where_github_says_stop_the_others_are_not_asked_for(
    toy: Toy, github: GitHub, fault: Fault
) -> None:
    post = make_post(toy, github, *TWENTY, opened=True)
    post.faults.arm(fault, times=0)
    found, requests = post.asked()
    # The first contribution takes a request to GraphQL and a request by REST.
    assert len(requests) <= 2
    errors = [row.error for row in found.report.contributions]
    assert all(errors)
    assert errors[-1].startswith("nothing more was asked after ")
    assert found.exit_code == ExitCode.MACHINE
    post.faults.clear()
    assert all(not row.error for row in post.look().report.contributions)


def test_a_token_that_one_upstream_refuses_may_do_for_another(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github, "low", "high")
    post.open("low")
    post.upstream = github.add_repository("another/toy", toy.upstream)
    fork = github.fork(post.upstream, post.me, "toy-of-another")
    github.commit(fork, "contribbot/high", {AREA: b"area = 1\n"}, "Fix high\n")
    post.open("high")

    def refuse(request: Request) -> Answer | None:
        asked = json.loads(request.body)["variables"]["owner"]
        return Answer(401, {"message": "Bad credentials"}) if asked == "example" else None

    post.faults.arm(Fault("401", before=refuse), path="/graphql", times=0)
    post.faults.arm(UNAUTHORIZED, path="/repos/example/toy", times=0)
    low, high = post.look().report.contributions
    assert low.error
    assert (high.error, high.unread, high.state) == ("", "", "open")


def by_hand(post: Post) -> None:
    pull = post.github.pull(post.upstream, post.fork, "contribbot/area", title="Mine")
    post.opened["area"] = pull


def test_a_commit_on_the_branch_that_contribbot_did_not_make_is_told_first(post: Post) -> None:
    post.hand_off()
    by_hand(post)
    post.review("APPROVED")
    post.pass_ci()
    assert not any("did not make" in step for step in steps(post))
    files: dict[str, bytes | None] = {"README": b"theirs\n"}
    theirs = post.github.commit(post.fork, "contribbot/area", files, "More\n", who=post.reviewer)
    # A new head commit has its own CI jobs.
    assert ci(post) == ["not started", "not started"]
    post.pass_ci()
    for _ in range(2):
        first, *rest = post.followed().next
        assert (first.who, first.what) == (
            "you",
            (
                f"look at {theirs[:12]} on contribbot/area, which contribbot did not make:"
                " nothing here proves it"
            ),
        )
        assert not any(step.who == "maintainers" for step in rest)


@pytest.mark.parametrize("cut", [False, True], ids=["handed off", "cut off"])
def test_a_pull_request_that_the_journal_lacks_is_found(post: Post, cut: bool) -> None:
    if cut:
        post.intend()  # contribbot opened it, and lost the answer
    else:
        post.hand_off()
        assert post.followed().state == "not opened"
    by_hand(post)
    found = post.followed()
    assert (found.state, found.reference) == ("open", "example/toy#1")
    assert cut or found.change == "not opened"
    who = "" if cut else " by a person"
    assert post.events()[-1].summary == f"example/toy#1 was opened{who}; it is open"
    assert post.followed().change == ""
    assert post.states() == ["open"]


def test_a_backport_from_the_branch_is_not_the_patchs_own(post: Post) -> None:
    post.hand_off()
    post.push({"README": b"2.9\n"}, "release")
    theirs = post.github.pull(
        post.upstream, post.fork, "contribbot/area", title="Backport", base_branch="release"
    )
    found = post.followed()
    assert (found.state, found.reference) == ("not opened", "")
    by_hand(post)
    assert post.followed().reference == "example/toy#2"
    post.github.merge(theirs)
    assert post.followed().state == "open"
    assert post.states() == ["open"]


def test_a_change_of_state_goes_into_the_journal_once(post: Post) -> None:
    pull = post.open(draft=True)
    post.look()
    pull.draft = False
    assert post.followed().change == "draft"
    assert post.followed().change == ""
    post.event("closed")
    assert post.followed().state == "closed"
    post.look()
    post.event("reopened")
    assert post.followed().state == "open"
    post.github.merge(pull)
    found = post.followed()
    assert found.state == "merged"
    post.look()
    assert post.states() == ["draft", "open", "closed", "open", "merged"]
    assert [event.summary.partition(" ")[2] for event in post.events()[-4:]] == [
        "is open", "was closed without being merged", "is open again",
        f"was merged as {found.commit[:12]}",
    ]  # fmt: skip


@pytest.mark.parametrize("fault", [NOT_FOUND, UNAUTHORIZED, TRUNCATED], ids=str)
def test_news_is_not_lost_by_a_fault_at_a_later_look(post: Post, fault: Fault) -> None:
    post.open()
    post.pass_ci()
    post.look()
    post.comment("Look.")
    post.faults.arm(fault)
    first = post.followed()
    post.faults.clear()
    assert post.faults.struck
    assert [part.text for part in (*first.new, *post.followed().new)] == ["Look."]
    assert post.states() == ["open"]


def test_the_program_prints_one_document_and_says_what_failed_by_its_exit_code(post: Post) -> None:
    post.open()
    ran = post.program("follow", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert FollowReport.model_validate_json(ran.out).contributions[0].state == "open"
    assert json.loads(ran.out)["contributions"][0]["ci"][0]["state"] == "not started"
    for path in ("/pulls/1$", "/graphql$"):
        post.faults.arm(NOT_FOUND, path=path, times=0)
    ran = post.program("follow")
    assert ran.code == ExitCode.MACHINE
    assert "could not be looked at" in ran.out
    assert post.token not in ran.out + ran.err


def test_an_error_after_the_document_prints_no_second_one(post: Post) -> None:
    post.open()
    post.comment("Look.")
    # A file in place of the folder: the shown remarks cannot be remembered.
    post.queue.local.mkdir(exist_ok=True)
    (post.queue.local / "follow").touch()
    ran = post.program("follow", "--json")
    assert (ran.code, ran.err.count("\n")) == (ExitCode.MACHINE, 1)
    assert ran.err.startswith("contribbot: ")
    assert FollowReport.model_validate_json(ran.out).contributions[0].state == "open"


#: Faults that stay, so that no attempt gets an answer.
WAYS = (
    SERVER_ERROR, NOT_FOUND, FORBIDDEN, RESET_BEFORE, RESET_AFTER, secondary_limit(429, 400), *ODD,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", WAYS, ids=str)
@pytest.mark.parametrize("ended", ["", "bot", "squash"])
def test_nothing_untrue_is_told_without_an_answer(post: Post, fault: Fault, ended: str) -> None:
    pull = post.open(draft=True)
    post.comment("Why?")
    post.review("CHANGES_REQUESTED", "Not yet.")
    post.pass_ci()
    pull.draft = False
    if ended:
        post.github.merge(pull, "bot" if ended == "bot" else "squash")
    journal = history.journal_file(post.toy.queue, "area")
    opened = journal.read_bytes()

    def follow() -> Followed:
        journal.write_bytes(opened)
        for path in (post.toy.queue / ".contribbot/follow").glob("*"):
            path.unlink()
        return post.followed()

    truth = follow()
    for path in {row.path for row in post.requests(follow)} | {"/repos/example/toy/pulls/1"}:
        if path != "/graphql":
            # These requests by REST come only if GraphQL fails.
            post.faults.arm(NOT_FOUND, path="^/graphql$", times=0)
        post.waited.clear()
        post.faults.arm(fault, path=f"^{re.escape(path)}$", times=0)
        found = follow()
        post.faults.clear()
        assert sum(post.waited) <= 900
        assert post.states() in (["draft"], ["draft", "merged" if ended else "open"])
        assert found.error or found.unread or found == truth, path
