from __future__ import annotations

import json

import pytest
from github.PullRequestComment import PullRequestComment

from contribbot.cli.show_contribute import reviews_lines
from contribbot.contribute.markdown import rows_of
from contribbot.contribute.model import ReviewsReport
from contribbot.contribute.reviews import contribution_of, read_reviews, short_id, threads_of
from contribbot.github.auth import Secret, Server, Token
from contribbot.github.requester import Requester
from contribbot.github.waits import Waits
from tests.contribute.following import AREA, LINE, Post
from tests.contribute.test_follow import HOSTILE
from tests.github.faults import FORBIDDEN
from tests.github.state import ReviewComment as Written
from tests.github.state_social import add_comment, add_reply, add_review, add_review_comment
from tests.toy import FIXED

pytestmark = pytest.mark.usefixtures("opened")


def ask(post: Post, text: str = "Why?", line: int = LINE) -> Written:
    """Let the reviewer begin a thread."""
    return add_review_comment(
        post.github.state, post.pulls["area"], post.reviewer, text, path=AREA, line=line
    )


def read(post: Post, *, everything: bool = False) -> ReviewsReport:
    """Read what is said."""
    with post.connect() as github:
        known = contribution_of(post.queue, "area")
        return read_reviews(github, "area", known, everything=everything)


def text_of(post: Post, *, everything: bool = False) -> str:
    """Return what a person reads."""
    return "\n".join(reviews_lines(read(post, everything=everything)))


def test_a_thread_is_shown_with_its_place_the_code_and_who_said_what(post: Post) -> None:
    root = ask(post, "Why a name?\n\nInline it.")
    add_reply(post.github.state, post.pulls["area"], post.me, root, "It is shorter.")
    (thread,) = read(post).threads
    assert (thread.id, thread.file, thread.line) == (short_id(root.id), AREA, LINE)
    assert (thread.resolved, thread.outdated, thread.answered) == (False, False, True)
    assert thread.code[0].startswith("@@ ")
    assert thread.code[-1] == "+    area = width * height"
    assert "-    return width + height" in thread.code
    assert [(one.author, one.text) for one in thread.comments] == [
        ("rev", "Why a name?\n\nInline it."), ("ada", "It is shorter."),
    ]  # fmt: skip
    text = text_of(post)
    assert f"{thread.id}  {AREA}:{LINE}  (answered)" in text
    assert "    | +    area = width * height" in text
    assert "rev, 2026-01-01 00:00" in text
    assert "      Inline it." in text


def test_resolved_threads_are_left_out_and_counted(post: Post) -> None:
    done, left = ask(post, "Done?"), ask(post, "Left?")
    post.pulls["area"].resolved.add(done.id)
    report = read(post)
    assert [one.id for one in report.threads] == [short_id(left.id)]
    assert report.hidden == 1
    assert "Done?" not in text_of(post)
    assert "resolved, and shown with --all: 1" in text_of(post)
    every = read(post, everything=True)
    assert [one.resolved for one in every.threads] == [True, False]
    assert "(resolved)" in text_of(post, everything=True)


def test_where_graphql_is_refused_all_are_listed_and_it_is_said(post: Post) -> None:
    done = ask(post, "Done?")
    post.pulls["area"].resolved.add(done.id)
    post.faults.arm(FORBIDDEN, path="/graphql", times=0)
    report = read(post)
    assert post.faults.struck
    assert not report.known
    assert [one.resolved for one in report.threads] == [None]
    assert "does not say which threads are resolved" in text_of(post)


def test_an_outdated_thread_shows_the_line_that_it_was_about(post: Post) -> None:
    root = ask(post)
    changed = FIXED.replace("area = width * height", "area = height * width")
    post.github.commit(post.fork, "contribbot/area", {AREA: changed.encode()}, "Turn\n")
    (thread,) = read(post).threads
    assert thread.id == short_id(root.id)
    assert (thread.line, thread.was) == (None, LINE)
    assert f"{AREA}:{LINE}  (outdated)" in text_of(post)


def test_ids_stay_whatever_else_is_said(post: Post) -> None:
    first = read_id(post, ask(post, "One?"))
    ask(post, "Two?", LINE + 1)
    root = ask(post, "Three?")
    add_reply(post.github.state, post.pulls["area"], post.me, root, "Yes.")
    ids = [one.id for one in read(post).threads]
    assert first in ids
    assert len(set(ids)) == len(ids) == 3
    assert all(len(one) <= 8 for one in ids)


def read_id(post: Post, root: Written) -> str:
    """Return the id of a thread as it is shown."""
    shown = [one.id for one in read(post).threads]
    assert short_id(root.id) in shown
    return short_id(root.id)


def test_comments_and_reviews_are_shown_besides(post: Post) -> None:
    state, pull = post.github.state, post.pulls["area"]
    add_comment(state, pull.issue, post.reviewer, "Thanks for this.")
    add_review(state, pull, post.reviewer, "APPROVED")
    add_review(state, pull, post.reviewer, "COMMENTED")
    ask(post)
    report = read(post)
    # A review that only holds a thread says nothing by itself.
    assert [(one.kind, one.text, one.verdict) for one in report.comments] == [
        ("comment", "Thanks for this.", ""), ("review", "", "approved"),
    ]  # fmt: skip
    assert "rev, 2026-01-01 00:00, approved" in text_of(post)


def test_of_many_comments_the_latest_are_shown(post: Post) -> None:
    for number in range(50):
        add_comment(post.github.state, post.pulls["area"].issue, post.reviewer, f"No. {number}")
    report = read(post)
    assert (len(report.comments), report.earlier) == (20, 30)
    assert report.comments[-1].text == "No. 49"
    assert len(read(post, everything=True).comments) == 50


def test_hostile_text_is_clean_and_bounded(post: Post) -> None:
    root = ask(post, f"{HOSTILE}\n    indented {HOSTILE}\n" + "z" * 200_000)
    with post.github.state.lock:
        root.diff_hunk = f"@@ -1 +1 @@ {HOSTILE}\n" + f"+{HOSTILE}{'w' * 5000}\n" * 500 + "+end"
        root.path = f"src/{HOSTILE}.py"
    add_review(
        post.github.state, post.pulls["area"], post.reviewer, "CHANGES_REQUESTED",
        body="\n".join([HOSTILE] * 5000),
    )  # fmt: skip
    text = text_of(post, everything=True)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(text) < 40_000
    assert "(more on its page)" in text
    said = read(post).model_dump_json()
    for bad in ("\\u001b", "\N{RIGHT-TO-LEFT OVERRIDE}", "\N{ZERO WIDTH SPACE}", "\\u0000"):
        assert bad not in said


def test_rows_keep_their_indentation_and_nothing_else() -> None:
    assert rows_of("if a:\r\n\tb\n\n  c\x0bd") == ["if a:", "    b", "", "  c d"]
    assert rows_of("") == [""]
    assert len(rows_of("\n" * 100 + "x\n" * 100)) == 61


def written(number: int, reply_to: int | None, at: int) -> PullRequestComment:
    """Return a review comment."""
    said = {
        "id": number, "html_url": "https://x", "path": "f", "in_reply_to_id": reply_to,
        "created_at": f"2026-01-01T00:00:{at:02}Z", "updated_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    requester = Requester(Server(), Token(Secret("x"), "a test"), Waits(), None)
    return PullRequestComment(requester, {}, said, completed=True)


def test_answers_stay_together_when_what_began_the_thread_is_gone() -> None:
    found = threads_of([written(12, 10, 2), written(11, 10, 1), written(20, None, 0)], None)
    assert [(one.root, [said.id for said in one.comments]) for one in found] == [
        (10, [11, 12]), (20, [20]),
    ]  # fmt: skip


def test_the_program_prints_one_document(post: Post) -> None:
    ask(post)
    ran = post.program("reviews", "area", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["threads"][0]["file"] == AREA


def test_a_patch_without_a_pull_request_is_wrong_usage(post: Post) -> None:
    content = post.toy.format_patch({AREA: FIXED})
    post.toy.put_patch("other", patch=content)
    post.toy.put_queue(["area", "other"])
    for name in ("other", "nothing"):
        ran = post.program("reviews", name)
        assert (ran.code, ran.out) == (2, "")
    assert "no such patch: nothing" in ran.err
