"""What may be sent again is, what may not is not, and waits are shown and bounded."""

from __future__ import annotations

import base64
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from contribbot.github.client import GitHub as Client
from contribbot.github.git_data import blob_id
from contribbot.github.waits import Waits
from tests.github import faults as f
from tests.github.ours import Patience, client
from tests.github.server import Hook
from tests.github.wire import Answer, HangUpError, Request
from tests.github.world import World


@contextlib.contextmanager
def ada(world: World, waits: Waits | None = None) -> Iterator[Client]:
    with client(world.github, world.ada.tokens[0].text, waits=waits) as ours:
        yield ours


def store(ours: Client) -> None:
    fork = ours.repository("ada/tool")
    encoded = base64.b64encode(b"\x00\xff new").decode()
    assert fork.create_git_blob(encoded, "base64").sha == blob_id(b"\x00\xff new")


def comment(ours: Client) -> None:
    ours.pull("org/tool", 1).create_issue_comment("Hello")


def open_it(ours: Client) -> None:
    upstream = ours.repository("org/tool")
    upstream.create_pull("main", "ada:other", title="T", body="B", draft=True)


def move(ours: Client) -> None:
    ours.move_ref("R_1", "fix", old="1" * 40, new="2" * 40)


def says(status: int, body: dict[str, object], **headers: str) -> f.Fault:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return f.Fault(str(status), before=lambda _faults, _request: Answer(status, body, named))  # type: ignore[arg-type]  # JSON


PASSING = [fault for fault in f.WIRE_FAULTS if fault.passing]
#: Faults after which a client cannot know whether the server acted: also a 503 that says when.
LOST = [
    f.RESET_BEFORE, f.RESET_AFTER, f.SERVER_ERROR, f.BAD_GATEWAY, f.BAD_GATEWAY_AFTER,
    f.UNAVAILABLE, says(503, {"message": "later"}, Retry_After="1"), *f.ODD,
]  # fmt: skip
FINAL: dict[f.Fault, type[GitHubError]] = {
    f.UNAUTHORIZED: TokenError, f.FORBIDDEN: TokenError, f.NOT_FOUND: NotFoundError,
    f.CONFLICT: RefusedError, f.EXISTS: RefusedError,
}  # fmt: skip
REPEATED: dict[str, tuple[str, str, Callable[[Client], object]]] = {
    "a read": ("GET", "/user$", lambda ours: ours.me),
    "git's objects": ("POST", "git/blobs$", store),
    "a move": ("PATCH", "git/refs", lambda ours: ours.ref("ada/tool", "fix").edit("1" * 40)),
}


@pytest.mark.parametrize("what", REPEATED)
def test_what_changes_nothing_twice_is_sent_again(world: World, what: str) -> None:
    method, path, act = REPEATED[what]
    for fault in PASSING:
        world.faults.clear()
        world.faults.struck.clear()
        world.faults.arm(fault, method=method, path=path, times=2)
        with ada(world) as ours, contextlib.suppress(RefusedError):  # of a commit that is none
            act(ours)
        assert len(world.faults.struck) == (1 if fault.name.startswith("slow") else 2), fault


@pytest.mark.parametrize("fault", dict.fromkeys([*PASSING, *LOST]), ids=str)
def test_a_pull_request_is_never_opened_blindly(world: World, fault: f.Fault) -> None:
    world.github.commit(world.fork, "other", {"new.txt": b"new\n"})
    world.faults.arm(fault, method="POST", path="/pulls$")
    with ada(world) as ours:
        lost = pytest.raises(UncertainError, match="nobody knows whether it happened")
        with lost if fault in LOST else contextlib.nullcontext():
            open_it(ours)
        pulls = ours.pulls_from("org/tool", "ada", "other")
    # Sent once where nobody knows; again only after the server said that it had not acted.
    refused = fault not in LOST and not fault.acted
    assert world.github.count("POST", "/pulls") == (2 if refused else 1)
    assert len(pulls) == int(fault not in LOST or fault.acted)


def test_what_does_not_pass_is_not_repeated(world: World) -> None:
    for number, (fault, error) in enumerate(FINAL.items(), start=1):
        world.faults.clear()
        world.faults.arm(fault, times=0)
        with ada(world) as ours, pytest.raises(error) as caught:
            comment(ours)
        assert type(caught.value) is error
        assert len(world.github.requests) == number
        assert caught.value.message.isprintable()


def test_a_fault_that_stays_is_final_and_pauses_grow(world: World) -> None:
    world.faults.arm(f.UNAVAILABLE, times=0)
    patience = Patience()
    with (
        ada(world, patience.waits(attempts=5, first=0.25)) as ours,
        pytest.raises(GitHubError, match="GET /user: HTTP 503, 5 times"),
    ):
        assert ours.me
    assert len(world.github.requests) == 5
    assert patience.slept[0] == 0
    assert patience.slept == sorted(patience.slept)
    assert patience.slept[-1] <= 0.25 * 2**3 + 0.25


def test_without_a_network_it_is_told_soon() -> None:
    patience = Patience()
    with (
        client("http://127.0.0.1:9", "x", waits=patience.waits(attempts=9)) as ours,
        pytest.raises(GitHubError, match=r"127.0.0.1:9 cannot be reached, 3 times"),
    ):
        assert ours.me
    assert sum(patience.slept) < 4


@pytest.mark.parametrize(
    ("fault", "times", "slept"),
    [
        (f.primary_limit(40), 1, [40]),
        (f.secondary_limit(403, 50), 1, [50]),
        (f.secondary_limit(429, 50), 1, [50]),
        # One that names no time is at least a minute.
        (says(429, {"message": "Too many"}), 2, [60, 120]),
        # GraphQL says it inside, in two ways.
        (says(200, {"errors": [{"type": "RATE_LIMITED", "message": "No"}]}), 2, [60, 120]),
        (says(200, {"errors": [{"type": "RATE_LIMIT", "message": "No"}]}), 2, [60, 120]),
        # What is asked for again and again is bounded in all, and a long wait is none at all.
        (f.secondary_limit(429, 300), 0, [300, 300, 300]),
        (f.primary_limit(3000), 0, []),
    ],
    ids=str,
)
def test_limits_are_waited_for_and_shown(
    world: World, fault: f.Fault, times: int, slept: list[float]
) -> None:
    world.faults.arm(fault, method="POST", path="^/graphql$", times=times)
    patience = Patience()
    bound = pytest.raises(RateLimitError, match=r"until 20\d\d-.* UTC \(")
    with ada(world, patience.waits(attempts=9)) as ours:
        with contextlib.nullcontext() if times else bound:
            assert ours.review_threads("org/tool", world.pull.number) == ()
        assert patience.slept == pytest.approx(slept, abs=2)
        # It is no refusal, after which a branch would be moved by force.
        world.faults.arm(f.primary_limit(3000), times=0)
        with pytest.raises(RateLimitError):
            move(ours)
    for line in patience.said:
        assert line.startswith("GitHub's rate limit: waiting ")
        assert f"{datetime.now(UTC):%Y-}" in line
    assert bool(patience.said) == bool(slept)


def test_no_more_is_waited_in_all_than_is_allowed_whatever_it_is_for(world: World) -> None:
    now = [0.0]
    slept: list[float] = []
    said: list[str] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    waits = Waits(said.append, sleep, attempts=9, between_writes=0, clock=lambda: now[0])
    with ada(world, waits) as ours:
        # Of one request after the other.
        for number in (71, 72, 73):
            world.faults.arm(f.secondary_limit(429, 300), path=f"/issues/{number}$")
            with contextlib.suppress(NotFoundError):
                ours.issue("org/tool", number).complete()
        world.faults.arm(f.secondary_limit(429, 300), times=0)
        with pytest.raises(RateLimitError, match="5 min, and 15 min were waited already"):
            assert ours.me
        world.faults.clear()
        # Attempts that fail and the pauses after them are no different.
        world.faults.arm(f.UNAVAILABLE, times=0)
        with pytest.raises(GitHubError, match=r"HTTP 503, [12] times"):
            assert ours.me
    assert sum(slept) == 900
    assert said[0].endswith(", for GET /repos/org/tool/issues/71")


def test_a_server_that_hangs_is_asked_no_more_once_the_time_is_over(world: World) -> None:
    now = [0.0]

    def hang(_faults: f.Faults, _request: Request) -> None:
        now[0] += 60.0
        raise HangUpError

    world.faults.arm(f.Fault("hangs", before=hang), times=0)
    waits = Waits(sleep=lambda _: None, attempts=9, between_writes=0, clock=lambda: now[0])
    with ada(world, waits) as ours:
        for number in range(1, 9):
            with pytest.raises(GitHubError):
                ours.issue("org/tool", number).complete()
        with pytest.raises(RateLimitError, match="not asked: 15 min were lost"):
            assert ours.me
    assert now[0] <= 900 + 60


@pytest.mark.parametrize(("starts", "enough"), [((0, 0, 0, 0), True), ((0, 400, 800, 1200), False)])
def test_what_threads_wait_for_at_once_counts_once(starts: tuple[int, ...], enough: bool) -> None:
    now = [0.0]
    waits = Waits(clock=lambda: now[0])

    def lose(start: float) -> bool:
        now[0] = start
        return waits.lose(300, start)

    assert all(lose(start) for start in starts) is enough


def test_a_refusal_with_the_last_request_is_no_limit(world: World) -> None:
    world.github.state.rate_limits["core"] = 2
    world.faults.arm(f.FORBIDDEN, number=2)
    with ada(world) as ours:
        assert ours.me
        with pytest.raises(TokenError):
            ours.repository("org/tool").complete()


def test_writes_are_sent_one_after_the_other_with_a_pause(world: World) -> None:
    """Also where threads send them, and GraphQL's; reads are not held up, nor GraphQL's."""
    patience = Patience()
    sent: list[tuple[float, float]] = []

    class Watches(Hook):
        def before(self, request: Request) -> None:
            if request.method != "GET" and b"reviewThreads" not in request.body:
                sent.append((time.monotonic(), sum(patience.slept)))
                time.sleep(0.02)

    world.github.hooks.append(Watches())
    with ada(world, replace(patience.waits(), between_writes=30)) as ours:
        writers = [threading.Thread(target=act, args=(ours,)) for act in (store, move, store)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        for _ in range(3):
            assert ours.review_threads("org/tool", world.pull.number) == ()
            ours.repository("org/tool").complete()
    assert len(sent) == 3
    assert all(later - earlier >= 0.02 for (earlier, _), (later, _) in itertools.pairwise(sent))
    # Before each but the first, what is left of the pause; before a read nothing.
    assert [round(waited) for _, waited in sent] == [0, 30, 60]
    assert len(patience.slept) == 2


def test_threads_wait_for_one_limit_with_one_word() -> None:
    patience = Patience()
    waits = patience.waits()
    threads = [threading.Thread(target=waits.for_limit, args=(30.0, "POST /x")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(patience.said) == 1
    assert patience.slept == [30.0] * 8
