"""Requests that change nothing twice are sent again, no others; waits are shown and bounded."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from pydantic import JsonValue

from contribbot.errors import (
    GitHubError,
    NotFoundError,
    RateLimitError,
    RefusedError,
    TokenError,
    UncertainError,
)
from contribbot.github.client import GitHub as Client
from contribbot.github.client import Waits
from contribbot.github.pull_state import read_pull_state
from tests.github import faults as f
from tests.github.gitdata import blob_id
from tests.github.wire import HangUpError, Request
from tests.github.world import Patience, World, client


@contextlib.contextmanager
def ada(world: World, waits: Waits | None = None) -> Iterator[Client]:
    with client(world.github, world.ada.tokens[0].text, waits=waits) as ours:
        yield ours


def store(ours: Client) -> None:
    fork = ours.repository("ada/tool")
    encoded = base64.b64encode(b"\x00\xff new").decode()
    assert fork.create_git_blob(encoded, "base64").sha == blob_id(b"\x00\xff new")


def open_it(ours: Client) -> None:
    upstream = ours.repository("org/tool")
    upstream.create_pull("main", "ada:other", title="T", body="B", draft=True)


def move(ours: Client) -> None:
    ours.move_ref("R_1", "fix", old="1" * 40, new="2" * 40)


PASSING = [fault for fault in f.WIRE_FAULTS if fault.passing]
#: Faults after which a client cannot know whether the server acted: also a 503 that says when.
LOST = [
    f.RESET_BEFORE, f.RESET_AFTER, f.SERVER_ERROR, f.BAD_GATEWAY, f.BAD_GATEWAY_AFTER,
    f.UNAVAILABLE, f.says(503, {"message": "later"}, lambda: {"Retry-After": "1"}), f.TRUNCATED,
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
        assert len(world.faults.struck) == 2, fault


@pytest.mark.parametrize("fault", dict.fromkeys([*PASSING, *LOST]), ids=str)
def test_a_pull_request_is_never_opened_blindly(world: World, fault: f.Fault) -> None:
    world.github.commit(world.fork, "other", {"new.txt": b"new\n"})
    world.faults.arm(fault, method="POST", path="/pulls$")
    with ada(world) as ours:
        lost = pytest.raises(UncertainError, match="nobody knows whether it happened")
        with lost if fault in LOST else contextlib.nullcontext():
            open_it(ours)
        pulls = ours.pulls_from("org/tool", "ada", "other")
    # The request is sent again only if the server says that it has not acted.
    refused = fault not in LOST and not fault.acted
    assert world.github.count("POST", "/pulls") == (2 if refused else 1)
    assert len(pulls) == int(fault not in LOST or fault.acted)


def test_what_does_not_pass_is_not_repeated(world: World) -> None:
    for number, (fault, error) in enumerate(FINAL.items(), start=1):
        world.faults.clear()
        world.faults.arm(fault, times=0)
        with ada(world) as ours, pytest.raises(error) as caught:
            open_it(ours)
        assert type(caught.value) is error
        assert len(world.github.requests) == number
        assert caught.value.message.isprintable()


def test_a_fault_that_stays_is_final_and_pauses_grow(world: World) -> None:
    world.faults.arm(f.UNAVAILABLE, times=0)
    patience = Patience()
    with (
        ada(world, patience.waits(attempts=5)) as ours,
        pytest.raises(GitHubError, match="GET /user: HTTP 503"),
    ):
        assert ours.me
    assert len(world.github.requests) == 5
    assert patience.slept == sorted(patience.slept)
    assert 0 < sum(patience.slept) < 60


@pytest.mark.parametrize(
    ("fault", "times", "slept"),
    [
        (f.primary_limit(40), 1, [40]),
        (f.secondary_limit(403, 50), 1, [50]),
        (f.secondary_limit(429, 50), 1, [50]),
        (f.says(403, {"message": "You have exceeded a secondary rate limit."}), 1, [60]),
        # The sum of all pauses is limited; a longer pause is refused at once.
        (f.secondary_limit(429, 300), 0, [300, 300, 300]),
        (f.primary_limit(3000), 0, []),
    ],
    ids=str,
)
def test_limits_are_waited_for_and_shown(
    world: World, fault: f.Fault, times: int, slept: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    world.faults.arm(fault, method="POST", path="^/graphql$", times=times)
    patience = Patience()
    bound = pytest.raises(RateLimitError, match=r"until 20\d\d-.* UTC \(")
    with ada(world, patience.waits(attempts=9)) as ours:
        with contextlib.nullcontext() if times else bound:
            assert read_pull_state(ours, "org/tool", world.pull.number).threads == []
        assert patience.slept == pytest.approx(slept, abs=2)
        # After a refusal, the branch would be moved by REST; a rate limit is no refusal.
        world.faults.arm(f.primary_limit(3000), times=0)
        with pytest.raises(RateLimitError):
            move(ours)
        # The error before has not used up the limit of waiting.
        world.faults.clear()
        assert ours.me == "ada"
    said = [line for line in caplog.messages if "pause" in line]
    assert len(said) == len(slept)
    assert all(f"GitHub asks for a pause until {datetime.now(UTC):%Y-}" in line for line in said)


@pytest.mark.parametrize("kind", ["RATE_LIMITED", "RATE_LIMIT"])
def test_the_limit_of_graphql_is_no_refusal(world: World, kind: str) -> None:
    world.faults.arm(f.says(200, {"errors": [{"type": kind, "message": "No"}]}), path="graphql")
    with ada(world) as ours, pytest.raises(RateLimitError, match="POST /graphql: No"):
        move(ours)


def test_a_server_that_hangs_is_asked_no_more_once_the_time_is_over(world: World) -> None:
    now = [0.0]

    def hang(_: Request) -> None:
        now[0] += 60.0
        raise HangUpError

    world.faults.arm(f.Fault("hangs", before=hang), times=0)
    waits = Waits(sleep=lambda _: None, attempts=9, between_writes=0, clock=lambda: now[0])
    with ada(world, waits) as ours:
        for number in range(1, 9):
            with pytest.raises(GitHubError):
                ours.issue(f"org/tool#{number}").complete()
        with pytest.raises(RateLimitError, match=r"not asked: \d+ min went"):
            assert ours.me
    assert now[0] <= 900 + 9 * 60


def test_a_refusal_with_the_last_request_is_no_limit(world: World) -> None:
    words = "Resource not accessible by personal access token"
    world.faults.arm(f.says(403, {"message": words}, lambda: {"X-RateLimit-Remaining": "0"}))
    with ada(world) as ours, pytest.raises(TokenError):
        ours.repository("org/tool").complete()


@pytest.mark.parametrize("errors", [None, [None], [5], {"message": "No"}, 5, False, [{"type": 3}]])
def test_odd_errors_of_graphql_are_one_error(world: World, errors: JsonValue) -> None:
    world.faults.arm(f.says(200, {"data": None, "errors": errors}), path="graphql")
    number = world.pull.number
    with ada(world) as ours:
        assert read_pull_state(ours, "org/tool", number).unread
