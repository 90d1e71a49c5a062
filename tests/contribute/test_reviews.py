from __future__ import annotations

import json

import pytest

from contribbot.cli.pull_request import reviews_lines
from contribbot.contribute.model import ReviewsReport
from contribbot.contribute.reviews import publication_of, read_reviews
from contribbot.markdown import rows_of
from tests.contribute.following import AREA, LINE, Post
from tests.contribute.test_follow import HOSTILE
from tests.github.faults import FORBIDDEN
from tests.toy import FIXED

pytestmark = pytest.mark.usefixtures("opened")


def read(post: Post, *, everything: bool = False) -> ReviewsReport:
    """Read what is said."""
    with post.connect() as github:
        known = publication_of(post.queue, "area")
        return read_reviews(github, "area", known, everything=everything)


def text_of(post: Post, *, everything: bool = False) -> str:
    """Return what a person reads."""
    return "\n".join(reviews_lines(read(post, everything=everything)))


def test_a_thread_is_shown_with_its_place_the_code_and_who_said_what(post: Post) -> None:
    root = post.thread("Why a name?\n\nInline it.")
    post.answer(root, "It is shorter.")
    (thread,) = read(post).threads
    assert (thread.id, thread.file, thread.line) == (str(root.id), AREA, LINE)
    assert (thread.resolved, thread.outdated, thread.answered) == (False, False, True)
    assert thread.code[0].startswith("@@ ")
    assert thread.code[-1] == "+    area = width * height"
    assert "-    return width + height" in thread.code
    assert [(row.author, row.text) for row in thread.comments] == [
        ("rev", "Why a name?\n\nInline it."), ("ada", "It is shorter."),
    ]  # fmt: skip
    text = text_of(post)
    assert f"{thread.id}  {AREA}:{LINE}  (answered)" in text
    assert "    | +    area = width * height" in text
    assert "rev, 2026-01-01 00:00" in text
    assert "      Inline it." in text


def test_resolved_threads_are_left_out_and_counted(post: Post) -> None:
    done, left = post.thread("Done?"), post.thread("Left?")
    post.pull.resolved.add(done.id)
    report = read(post)
    assert ([thread.id for thread in report.threads], report.hidden) == ([str(left.id)], 1)
    text = text_of(post)
    assert "Done?" not in text
    assert "resolved, and shown with --all: 1" in text
    assert [thread.resolved for thread in read(post, everything=True).threads] == [True, False]
    assert "(resolved)" in text_of(post, everything=True)
    post.faults.arm(FORBIDDEN, path="/graphql", times=0)
    report = read(post)
    assert post.faults.struck
    assert not report.known
    assert [thread.resolved for thread in report.threads] == [None, None]
    assert "does not say which threads are resolved" in text_of(post)


def test_an_outdated_thread_shows_the_line_that_it_was_about(post: Post) -> None:
    root = post.thread()
    changed = FIXED.replace("area = width * height", "area = height * width")
    post.github.commit(post.fork, "contribbot/area", {AREA: changed.encode()}, "Turn\n")
    (thread,) = read(post).threads
    assert thread.id == str(root.id)
    assert (thread.line, thread.was) == (None, LINE)
    assert f"{AREA}:{LINE}  (outdated)" in text_of(post)


def test_comments_and_reviews_are_shown_besides_and_of_many_the_latest(post: Post) -> None:
    post.comment("Thanks for this.")
    post.review("APPROVED")
    post.review("COMMENTED")
    post.thread()
    # A review that only holds a thread says nothing by itself.
    assert [(row.kind, row.text, row.verdict) for row in read(post).comments] == [
        ("comment", "Thanks for this.", ""), ("review", "", "approved"),
    ]  # fmt: skip
    assert "rev, 2026-01-01 00:00, approved" in text_of(post)
    for number in range(48):
        post.comment(f"No. {number}")
    report = read(post)
    assert (len(report.comments), report.earlier) == (20, 30)
    assert report.comments[-1].text == "No. 47"
    assert len(read(post, everything=True).comments) == 50


def test_hostile_text_is_clean_and_bounded(post: Post) -> None:
    root = post.thread(f"{HOSTILE}\n    indented {HOSTILE}\n" + "z" * 200_000)
    with post.github.state.lock:
        root.diff_hunk = f"@@ -1 +1 @@ {HOSTILE}\n" + f"+{HOSTILE}{'w' * 5000}\n" * 500 + "+end"
        root.path = f"src/{HOSTILE}.py"
    post.review("CHANGES_REQUESTED", "\n".join([HOSTILE] * 5000))
    text = text_of(post, everything=True)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(text) < 40_000
    assert "(more on its page)" in text
    document = read(post).model_dump_json()
    for bad in ("\\u001b", "\N{RIGHT-TO-LEFT OVERRIDE}", "\N{ZERO WIDTH SPACE}", "\\u0000"):
        assert bad not in document


def test_rows_keep_their_indentation_and_nothing_else() -> None:
    assert rows_of("if a:\r\n\tb\n\n  c\x0bd") == ["if a:", "    b", "", "  c d"]
    assert rows_of("") == [""]
    assert len(rows_of("\n" * 100 + "x\n" * 100)) == 61


def test_the_program_prints_one_document_of_a_patch_with_a_pull_request(post: Post) -> None:
    post.thread()
    ran = post.program("follow", "area", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["threads"][0]["file"] == AREA
    post.toy.put_patch("other", patch=post.toy.format_patch({AREA: FIXED}))
    post.toy.put_queue(["area", "other"])
    for name in ("other", "nothing"):
        ran = post.program("follow", name)
        assert (ran.code, ran.out) == (2, "")
    assert "no such patch: nothing" in ran.err
