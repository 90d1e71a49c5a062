"""What may be sent again is, what may not is not, and waits are shown and bounded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from contribbot.errors import (
    GitHubError,
    NotFoundError,
    RateLimitError,
    RefusedError,
    TokenError,
    UncertainError,
)
from contribbot.github.client import Client
from contribbot.github.limits import Waits
from contribbot.github.objects import blob_id
from tests.github import faults as f
from tests.github.handle import GitHub
from tests.github.ours import Patience, client
from tests.github.scene import Scene, make_scene
from tests.github.validate import Validation


@pytest.fixture
def scene(github: GitHub) -> Scene:
    github.hooks.append(Validation())
    return make_scene(github)


@contextlib.contextmanager
def author(scene: Scene, waits: Waits | None = None) -> Iterator[Client]:
    with client(scene.github, scene.author.tokens[0].text, waits=waits) as made:
        yield made


PASSING = [one for one in f.WIRE_FAULTS if one.passing]
#: Faults after which a client cannot know whether the server acted.
LOST = (
    f.RESET_BEFORE, f.RESET_AFTER, f.SERVER_ERROR, f.BAD_GATEWAY, f.BAD_GATEWAY_AFTER,
    f.UNAVAILABLE, f.TRUNCATED,
)  # fmt: skip
FINAL = [
    (f.UNAUTHORIZED, TokenError), (f.FORBIDDEN, TokenError), (f.NOT_FOUND, NotFoundError),
    (f.CONFLICT, RefusedError), (f.EXISTS, RefusedError),
]  # fmt: skip


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_reads_outlive_what_passes(scene: Scene, fault: f.Fault) -> None:
    scene.faults.arm(fault, times=2)
    with author(scene) as ours:
        assert ours.me().login == "author"
    assert len(scene.faults.struck) == (1 if fault.name.startswith("slow") else 2)


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_what_follows_from_its_content_is_stored_again(scene: Scene, fault: f.Fault) -> None:
    scene.faults.arm(fault, method="POST", path="git/blobs")
    with author(scene) as ours:
        made = ours.create_blob(scene.fork.full_name, b"\x00\xff new")
    assert made == blob_id(b"\x00\xff new")
    assert scene.fork.git.blob(made) == b"\x00\xff new"
    assert len(scene.faults.struck) == 1


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_a_branch_is_made_once(scene: Scene, fault: f.Fault) -> None:
    sha = scene.pull.head_sha
    scene.faults.arm(fault, method="POST", path="git/refs")
    with author(scene) as ours:
        ours.create_ref(scene.fork.full_name, "again", sha)
        scene.faults.arm(fault, method="PATCH", path="git/refs")
        ours.update_ref(scene.fork.full_name, "again", scene.pull.base_sha, force=True)
    assert scene.fork.git.ref("refs/heads/again") == scene.pull.base_sha
    assert len(scene.faults.struck) == 2


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_a_pull_request_is_never_opened_blindly(scene: Scene, fault: f.Fault) -> None:
    scene.github.commit(scene.fork, "other", {"new.txt": b"new\n"})
    scene.faults.arm(fault, method="POST", path="/pulls$")

    def open_it(ours: Client) -> None:
        ours.create_pull(
            scene.upstream.full_name, title="T", body="B", head="author:other", base="main",
            draft=True,
        )  # fmt: skip

    with author(scene) as ours:
        if fault in LOST:
            with pytest.raises(UncertainError, match="nobody knows whether it happened"):
                open_it(ours)
        else:
            open_it(ours)
        there = ours.pulls_from(scene.upstream.full_name, "author", "other").value
    # Sent once where nobody knows; again only after the server said that it had not acted.
    said_no = fault not in LOST and not fault.acted
    assert scene.github.count("POST", "/pulls") == (2 if said_no else 1)
    assert len(there) == int(fault not in LOST or fault.acted)


@pytest.mark.parametrize(("fault", "error"), FINAL, ids=str)
def test_what_does_not_pass_is_not_repeated(
    scene: Scene, fault: f.Fault, error: type[GitHubError]
) -> None:
    scene.faults.arm(fault, times=0)
    with author(scene) as ours, pytest.raises(error) as caught:
        ours.create_comment(scene.upstream.full_name, scene.pull.number, "Hello")
    assert type(caught.value) is error
    assert len(scene.github.requests) == 1
    assert caught.value.message.isprintable()


def test_a_fault_that_stays_is_final(scene: Scene) -> None:
    scene.faults.arm(f.UNAVAILABLE, times=0)
    patience = Patience()
    with (
        author(scene, patience.waits(attempts=4)) as ours,
        pytest.raises(GitHubError, match="GET /user: HTTP 503, 4 times"),
    ):
        ours.me()
    assert len(scene.github.requests) == 4
    assert len(patience.slept) == 3
    assert patience.slept[0] < patience.slept[1] < patience.slept[2] < 40


def test_pauses_grow_from_the_first_and_are_bounded(scene: Scene) -> None:
    scene.faults.arm(f.UNAVAILABLE, times=0)
    patience = Patience()
    with author(scene, patience.waits(attempts=9, first=0.25)) as ours, pytest.raises(GitHubError):
        ours.me()
    for number, pause in enumerate(patience.slept):
        assert min(0.25 * 2**number, 20) <= pause <= min(0.25 * 2**number + 0.25, 20)


def test_a_fork_that_is_being_copied_is_waited_for(scene: Scene) -> None:
    scene.faults.arm(f.CONFLICT, path="git/blobs", times=2)
    with author(scene) as ours:
        assert ours.create_blob(scene.fork.full_name, b"x") == blob_id(b"x")


@pytest.mark.parametrize(
    ("fault", "low", "high"),
    [
        (f.primary_limit(40), 38, 42),
        (f.secondary_limit(403, 50), 50, 50),
        (f.secondary_limit(429, 50), 50, 50),
    ],
    ids=str,
)
def test_limits_are_waited_for_and_shown(
    scene: Scene, fault: f.Fault, low: float, high: float
) -> None:
    scene.faults.arm(fault, method="POST")
    patience = Patience()
    with author(scene, patience.waits()) as ours:
        ours.create_comment(scene.upstream.full_name, scene.pull.number, "Hello")
    assert low <= sum(patience.slept) <= high
    assert len(patience.said) == 1
    assert patience.said[0].startswith("GitHub's rate limit: waiting ")
    assert f"{datetime.now(UTC):%Y-}" in patience.said[0]
    assert scene.github.count("POST") == 2


def test_a_wait_beyond_the_bound_is_an_error_that_says_when(scene: Scene) -> None:
    scene.faults.arm(f.primary_limit(3000))
    patience = Patience()
    with (
        author(scene, patience.waits(longest=900)) as ours,
        pytest.raises(RateLimitError, match=r"until 20\d\d-.* UTC \(50 min\)"),
    ):
        ours.me()
    assert patience.slept == []


def test_limits_that_come_again_and_again_are_bounded_in_all(scene: Scene) -> None:
    scene.faults.arm(f.secondary_limit(429, 0), times=0)
    patience = Patience()
    with author(scene, patience.waits(longest=20)) as ours, pytest.raises(RateLimitError):
        ours.me()
    assert sum(patience.slept) == 20


def test_a_refusal_with_the_last_request_is_no_limit(scene: Scene) -> None:
    scene.github.state.rate_limits["core"] = 2
    scene.faults.arm(f.FORBIDDEN, number=2)
    with author(scene) as ours:
        ours.me()
        with pytest.raises(TokenError):
            ours.me()


def test_threads_wait_for_one_limit_with_one_word() -> None:
    patience = Patience()
    waits = patience.waits()
    threads = [
        threading.Thread(target=waits.for_limit, args=(30.0, 0.0, "POST /x")) for _ in range(8)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(patience.said) == 1
    assert patience.slept == [30.0] * 8
