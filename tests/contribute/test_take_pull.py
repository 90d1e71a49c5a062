"""`contribbot new NAME OWNER/REPO#N`: somebody else's pull request, as a patch to prove."""

from __future__ import annotations

import pytest

from contribbot.queue.exchange import pull_in
from contribbot.queue.load import load_queue
from tests.contribute.following import AREA, Post
from tests.github.faults import NOT_FOUND, Fault
from tests.github.wire import Answer
from tests.toy import FIXED

ESCAPE = "\x1b[31mred\x1b[0m"


@pytest.mark.parametrize(
    ("source", "pull"),
    [
        ("vllm-project/vllm#54296", ("vllm-project/vllm", 54296)),
        ("https://github.com/vllm-project/vllm/pull/54296", ("vllm-project/vllm", 54296)),
        ("vllm-project/vllm#0", None),
        ("vllm#1", None),
        ("a/b.patch", None),
        ("../a/b#1", None),
    ],
)
def test_how_a_pull_request_is_named(source: str, pull: tuple[str, int] | None) -> None:
    assert pull_in([source]) == pull
    assert pull_in([source, "x"]) is None


def test_it_keeps_its_author_and_nothing_is_sent(post: Post) -> None:
    post.github.commit(post.fork, "theirs", {AREA: FIXED.encode()},
                       f"Multiply the sides {ESCAPE}\n\nA sum is no area.\n",
                       who=post.reviewer)  # fmt: skip
    theirs = post.github.pull(post.upstream, post.fork, "theirs", user=post.reviewer)
    name = f"{post.upstream.full_name}#{theirs.number}"
    post.program.ok("new", "theirs", name, "--json")
    patch = load_queue(post.toy.queue).patch("theirs")
    assert patch.spec.pull == name
    assert patch.spec.problem == "A sum is no area.\n"
    assert "\x1b" not in patch.spec.title
    (mail,) = patch.files
    assert f"From: {post.reviewer.name} <{post.reviewer.email}>".encode() in mail.content
    assert {each.method for each in post.github.requests} == {"GET"}


def answering(body: bytes) -> Fault:
    return Fault("another text", after=lambda _: Answer(raw=body))


def test_one_with_a_binary_file_is_taken_whole(post: Post) -> None:
    content = bytes(range(256))
    post.github.commit(post.fork, "binary", {"blob.bin": content}, "A binary file\n")
    pull = post.github.pull(post.upstream, post.fork, "binary", title="Binary")
    post.program.ok("new", "theirs", f"{post.upstream.full_name}#{pull.number}")
    (mail,) = load_queue(post.toy.queue).patch("theirs").files
    assert b"GIT binary patch" in mail.content


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (NOT_FOUND, 3, "/pulls/1: Not Found; check the name; what is private or gone looks "),
        (answering(b"<html>\n"), 2, "#1: no author in its header"),
        (answering(b""), 2, "#1: empty"),
    ],
)
def test_what_cannot_be_taken_is_one_line(post: Post, fault: Fault, code: int, said: str) -> None:
    post.open()
    post.faults.arm(fault, path="/pulls/1$", times=0)
    ran = post.program.refused("new", "theirs", f"{post.upstream.full_name}#1", code=code)
    assert (ran.out, ran.err.count("\n")) == ("", 1)
    assert said in ran.err
