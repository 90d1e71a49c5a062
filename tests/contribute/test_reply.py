from __future__ import annotations

import contextlib

import pytest

from contribbot.contribute.model import GITHUB_LIMIT
from contribbot.contribute.publication import state
from contribbot.contribute.reviews import Replied, reply, short_id, text_from
from contribbot.errors import GitHubError, UncertainError, UsageError
from contribbot.model.history import DoneEvent, IntentEvent
from contribbot.queue import history
from tests.contribute.following import AREA, LINE, Post
from tests.github.faults import (
    NOT_FOUND,
    ODD,
    RESET_AFTER,
    RESET_BEFORE,
    WIRE_FAULTS,
    Fault,
    each,
    slow,
)  # fmt: skip
from tests.github.state import ReviewComment

pytestmark = pytest.mark.usefixtures("opened")

TEXT = "Because *areas* multiply.\n\n```python\narea = width * height\n```\n"


@pytest.fixture
def root(post: Post) -> ReviewComment:
    """Let the reviewer begin a thread."""
    return post.thread()


def answer(post: Post, root: ReviewComment, text: str = TEXT) -> Replied:
    """Answer, as the person."""
    with post.connect() as github:
        return reply(post.queue, github, "area", short_id(root.id), text)


def ours(post: Post) -> list[str]:
    """What the person said in threads."""
    return [row.body for row in post.pull.review_comments if row.user is post.me]


def nothing_open(post: Post) -> bool:
    """Say whether the journal knows of nothing that was begun and not ended."""
    known = state(post.events())
    return known is not None and known.open == ()


def test_the_persons_text_is_posted_in_the_thread_and_nothing_is_added(
    post: Post, root: ReviewComment
) -> None:
    done = answer(post, root)
    assert done.posted
    assert ours(post) == [TEXT]
    (written,) = (row for row in post.pull.review_comments if row.user is post.me)
    assert written.reply_to is root
    assert str(written.id) in done.url
    assert [event.event for event in post.events()[-2:]] == ["intent", "done"]
    assert nothing_open(post)


def test_the_same_again_is_posted_only_where_it_is_asked_anew_or_anothers(
    post: Post, root: ReviewComment
) -> None:
    post.answer(root, TEXT, post.reviewer)
    first = answer(post, root)
    assert first.posted
    events = post.events()
    again = answer(post, root, TEXT.replace("\n", "\r\n"))
    assert (again.posted, again.url) == (False, first.url)
    assert ours(post) == [TEXT]
    assert post.events() == events
    post.answer(root, "And now?", post.reviewer)
    assert answer(post, root).posted
    assert ours(post) == [TEXT, TEXT]


@pytest.mark.parametrize("fault", each((*WIRE_FAULTS, *ODD[:2])))
@pytest.mark.parametrize("number", [1, 2, 3])
def test_after_any_fault_it_is_there_once(
    post: Post, root: ReviewComment, fault: Fault, number: int
) -> None:
    post.faults.arm(fault, number=number)
    with contextlib.suppress(GitHubError):
        answer(post, root)
    assert post.faults.struck
    post.faults.clear()
    answer(post, root)
    assert ours(post) == [TEXT]
    kinds = [row.event for row in post.events() if isinstance(row, IntentEvent | DoneEvent)]
    assert kinds == ["intent", "done"]


def test_one_that_was_posted_is_known_again_behind_what_others_said_since(
    post: Post, root: ReviewComment
) -> None:
    post.faults.arm(RESET_AFTER, method="POST", path="/replies$")
    post.faults.arm(NOT_FOUND, method="GET", path="/pulls/1/comments$", number=2)
    with pytest.raises(GitHubError):
        answer(post, root)
    assert len(post.faults.struck) == 2
    post.answer(root, "Hello?", post.reviewer)
    assert not answer(post, root).posted
    assert ours(post) == [TEXT]
    assert nothing_open(post)


@pytest.mark.parametrize("text", [TEXT, "In other words."])
def test_an_answer_that_may_not_have_been_posted_is_not_guessed_and_no_hindrance(
    post: Post, root: ReviewComment, text: str
) -> None:
    post.faults.arm(RESET_BEFORE, method="POST", path="/replies$")
    with pytest.raises(UncertainError):
        answer(post, root)
    assert ours(post) == []
    assert answer(post, root, text).posted
    assert ours(post) == [text]
    keys = {event.key for event in post.events() if isinstance(event, IntentEvent)}
    assert len(keys) == (1 if text == TEXT else 2)
    assert all("areas" not in key for key in keys)


def test_two_at_once_post_it_once(post: Post, root: ReviewComment) -> None:
    file = post.toy.root / "answer.md"
    file.write_text(TEXT)
    post.faults.arm(slow(1.0), path="/pulls/1/comments", times=0)
    children = [
        post.program.start("reply", "area", short_id(root.id), "--text-file", str(file))
        for _ in range(2)
    ]
    try:
        told = [child.communicate(timeout=120)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0]
    assert ours(post) == [TEXT]
    assert sum("was answered so already" in text for text in told) == 1


def test_an_unknown_thread_names_the_known_ones(post: Post) -> None:
    with post.connect() as github, pytest.raises(UsageError) as error:
        reply(post.queue, github, "area", "abc", TEXT)
    assert "nobody has begun one" in error.value.hint
    root = post.thread()
    with post.connect() as github, pytest.raises(UsageError, match="no thread nosuch") as error:
        reply(post.queue, github, "area", "nosuch", TEXT)
    assert f"{short_id(root.id)} ({AREA}:{LINE})" in error.value.hint
    assert post.github.count("POST") == 0
    assert not any(isinstance(event, IntentEvent) for event in post.events())


def test_a_thread_whose_beginning_was_deleted_is_answered_on_its_page(
    post: Post, root: ReviewComment
) -> None:
    left = post.answer(root, "Still: why?", post.reviewer)
    post.pull.review_comments.remove(root)
    before = post.events()
    with pytest.raises(UsageError, match="the comment that began it is gone") as error:
        answer(post, root)
    assert str(left.id) in error.value.hint
    assert post.events() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "nothing is written"),
        (b" \n\t\n", "nothing is written"),
        (b"x" * (GITHUB_LIMIT + 1), "characters that GitHub takes"),
        (b"\xff" * (5 * GITHUB_LIMIT), "characters that GitHub takes"),
        (b"gr\xfc\xdfe", "not UTF-8 at byte 2"),
        (b"a\x00b", "control character U+0000"),
        (b"a\x1b[31m", "control character U+001B"),
    ],
)
def test_a_text_that_github_would_not_take_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(UsageError) as error:
        text_from(content, "answer.md")
    assert error.value.message.startswith("answer.md: ")
    assert said in error.value.message
    assert error.value.hint
    # What it takes stays as it is.
    assert text_from("Grüße\r\n\tja\n".encode(), "f") == "Grüße\r\n\tja\n"
    assert len(text_from(b"x" * GITHUB_LIMIT, "f")) == GITHUB_LIMIT


def test_the_program_reads_standard_input_and_says_what_is_not_there(
    post: Post, root: ReviewComment
) -> None:
    ran = post.program("reply", "area", short_id(root.id), "--text-file", "missing.md")
    assert ran.code == 2
    assert "missing.md: No such file" in ran.err
    ran = post.program("reply", "area", short_id(root.id), "--text-file", "-", stdin=TEXT.encode())
    assert ran.code == 0
    assert ours(post) == [TEXT]


def test_a_patch_that_left_the_queue_can_still_be_answered_for(
    post: Post, root: ReviewComment
) -> None:
    (post.toy.queue / "patches" / "area").rename(post.toy.root / "away")
    post.toy.put_queue([])
    assert history.past_name(post.queue, "area") == "area"
    assert answer(post, root).posted
