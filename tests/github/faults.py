"""Faults on the way to GitHub and back, made to happen at a chosen request.

    github.faults.arm(RESET_AFTER, number=3)    # the third request from now on
    ...
    assert github.faults.struck                 # else the test showed nothing

A fault that answers instead of the handler leaves everything as it was; one that strikes after
it loses the answer, and the change is there.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar
from urllib.parse import urlencode

from _pytest.mark import ParameterSet
from pydantic import JsonValue

from tests.github.wire import Answer, HangUpError, Request
from tests.tools import kinds

T = TypeVar("T")
R = TypeVar("R")

_PAGE: Final = b"<!DOCTYPE html><html><head><title>Unicorn! &middot; GitHub</title></head></html>"
#: Seconds for a test's client to start, before a fault kills the client.
_START: Final = 30.0


@dataclass(frozen=True)
class Fault:
    """A fault before the handler runs or after it; `passing`: another attempt may succeed."""

    name: str
    #: Returns an answer instead of the handler's; None: the handler runs.
    before: Callable[[Request], Answer | None] | None = None
    after: Callable[[Answer], Answer] | None = None
    passing: bool = False
    #: Whether the client is killed at this point.
    kills: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def acted(self) -> bool:
        """Whether the handler has run, so that its changes are made."""
        return self.after is not None


@dataclass
class Faults:
    """Makes armed faults happen; `struck`: those faults, with their requests."""

    struck: list[tuple[Fault, str]] = field(default_factory=list)
    #: Functions that return the fault for a request, or None.
    _armed: list[Callable[[Request], Fault | None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    started: threading.Event = field(default_factory=threading.Event)
    pid: int = 0

    def arm(
        self, fault: Fault, *, number: int = 1, method: str | None = None, path: str = "",
        times: int = 1,
    ) -> None:  # fmt: skip
        """Let a fault happen at the n-th matching request from now, `times` times; 0: for ever."""
        late = itertools.count(1 - number)

        def meet(request: Request) -> Fault | None:
            if method not in {None, request.method} or not re.search(path, request.path):
                return None
            now = next(late)
            return fault if now >= 0 and (times == 0 or now < times) else None

        self._armed.append(meet)

    def clear(self) -> None:
        self._armed.clear()

    def victim(self, pid: int) -> None:
        self.pid = pid
        self.started.set()

    def run(self, request: Request) -> Answer:
        """Return the answer to a request, of the handler or of an armed fault."""
        with self._lock:
            # Every armed fault counts the request, also if another fault happens.
            fault = next(filter(None, [meet(request) for meet in self._armed]), None)
            if fault is not None:
                self.struck.append((fault, f"{request.method} {request.path}"))
        if fault is None:
            return request.run()
        answer = self._strike(fault, fault.before, request) if fault.before else None
        answer = answer or request.run()
        return self._strike(fault, fault.after, answer) if fault.after else answer

    def _strike(self, fault: Fault, act: Callable[[T], R], what: T) -> R:
        if fault.kills:
            assert self.started.wait(_START), "nobody said which process a fault was to kill"
            os.kill(self.pid, signal.SIGKILL)
        return act(what)


def says(
    status: int, body: Mapping[str, JsonValue], headers: Callable[[], dict[str, str]] = dict, *,
    name: str = "", passing: bool = False,
) -> Fault:  # fmt: skip
    """Return a fault: an answer of GitHub's instead of the handler's."""
    name = name or str(status)
    return Fault(name, lambda _: Answer(status, {**body}, headers()), passing=passing)


def _answers(status: int, message: str) -> Fault:
    return says(status, {"message": message, "status": str(status)})


def _hang_up(_: object) -> Answer:
    raise HangUpError


def _exists(request: Request) -> Answer:
    """Answer that the pull request or the branch exists already."""
    if not request.path.endswith("/pulls"):
        return Answer(422, {"message": "Reference already exists"})
    words = "A pull request already exists for somebody:branch."
    error = {"resource": "PullRequest", "code": "custom", "message": words}
    return Answer(422, {"message": "Validation Failed", "errors": [{**error}]})


def _page(status: int) -> Answer:
    return Answer(status, raw=_PAGE, headers={"Content-Type": "text/html; charset=utf-8"})


def _truncate(answer: Answer) -> Answer:
    answer.cut = len(answer.body()) // 2
    return answer


def odd(name: str, spoil: Callable[[JsonValue], JsonValue]) -> Fault:
    """Return a fault: an answer with status 200 whose JSON was changed by `spoil`."""

    def after(answer: Answer) -> Answer:
        is_json = answer.raw is None and answer.body()
        said = json.loads(answer.body()) if is_json else None
        return replace(answer, raw=json.dumps(spoil(said)).encode(), headers={})

    return Fault(name, after=after)


def _each_leaf(said: JsonValue, spoil: Callable[[JsonValue], JsonValue]) -> JsonValue:
    """Return JSON with `spoil` applied to each value that is neither object nor list."""
    if isinstance(said, dict):
        return {key: _each_leaf(value, spoil) for key, value in said.items()}
    return [_each_leaf(row, spoil) for row in said] if isinstance(said, list) else spoil(said)


def _unfinished(answer: Answer) -> Answer:
    said = json.loads(answer.body())
    if not isinstance(said, dict) or "incomplete_results" not in said:
        return answer
    left = {"total_count": 0, "incomplete_results": True, "items": []}
    return replace(answer, raw=json.dumps(said | left).encode())


def _partly(answer: Answer) -> Answer:
    organisations = "partial-results; organizations=21955855"
    return replace(answer, headers=answer.headers | {"X-GitHub-SSO": organisations})


def primary_limit(seconds: int) -> Fault:
    """Return a fault: the primary rate limit, which ends after some seconds."""
    return says(403, {"message": "API rate limit exceeded for user ID 1."}, lambda: {
        "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + seconds),
    }, name=f"403-limit-{seconds}s", passing=True)  # fmt: skip


def secondary_limit(status: int, seconds: int) -> Fault:
    """Return a fault: a secondary rate limit, which ends after some seconds."""
    message, name = "You have exceeded a secondary rate limit.", f"{status}-secondary-{seconds}s"
    after = {"Retry-After": str(seconds)}
    return says(status, {"message": message}, lambda: {**after}, name=name, passing=True)


def moved(old: str, new: str) -> Fault:
    """Return a fault: a redirect to the new name of a renamed repository."""

    def before(request: Request) -> Answer:
        query = f"?{urlencode(request.query)}" if request.query else ""
        target = request.state.base + request.path.replace(f"/repos/{old}", f"/repos/{new}") + query
        return Answer(301, {"message": "Moved Permanently", "url": target}, {"Location": target})

    return Fault("moved", before=before)


RESET_BEFORE: Final = Fault("reset-before", before=_hang_up, passing=True)
RESET_AFTER: Final = Fault("reset-after", after=_hang_up, passing=True)
UNAUTHORIZED: Final = _answers(401, "Bad credentials")
FORBIDDEN: Final = _answers(403, "Resource not accessible by personal access token")
NOT_FOUND: Final = _answers(404, "Not Found")
CONFLICT: Final = _answers(409, "Git Repository is empty.")
EXISTS: Final = Fault("422-exists", before=_exists)
SERVER_ERROR: Final = replace(_answers(500, "Server Error"), passing=True)
BAD_GATEWAY: Final = Fault("502", before=lambda _: _page(502), passing=True)
BAD_GATEWAY_AFTER: Final = Fault("502-after", after=lambda _: _page(502), passing=True)
UNAVAILABLE: Final = Fault("503", before=lambda _: _page(503), passing=True)
#: PyGithub repeats a request without an answer, and not a request with half an answer.
TRUNCATED: Final = Fault("truncated", after=_truncate)
KILL_BEFORE: Final = Fault("kill-before", before=_hang_up, kills=True)
KILL_AFTER: Final = Fault("kill-after", after=_hang_up, kills=True)

#: Faults whose answers have another shape than GitHub's.
ODD: Final = (
    Fault("empty", after=lambda answer: replace(answer, raw=b"", headers={})),
    Fault("204", after=lambda _: Answer(204, raw=b"")), TRUNCATED, odd("null", lambda _said: None),
    odd("kind", lambda said: {} if isinstance(said, list) else []), odd("object", lambda _said: {}),
    odd("nulls", lambda said: _each_leaf(said, lambda _: None)),
    odd("types", lambda said: _each_leaf(said, lambda it: 7 if isinstance(it, str) else "x")),
)  # fmt: skip
#: A search that GitHub did not finish, or that left out organisations.
UNFINISHED: Final = Fault("unfinished", after=_unfinished)
PARTLY: Final = Fault("partly", after=_partly)
#: All faults that leave the client alive.
WIRE_FAULTS: Final = (
    RESET_BEFORE, RESET_AFTER, UNAUTHORIZED, FORBIDDEN, primary_limit(1), secondary_limit(403, 1),
    secondary_limit(429, 1), NOT_FOUND, CONFLICT, EXISTS, SERVER_ERROR, BAD_GATEWAY,
    BAD_GATEWAY_AFTER, UNAVAILABLE, TRUNCATED,
)  # fmt: skip
#: A fault of each kind, for users of the client; `tests/github` tests the differences.
_KINDS: Final = frozenset({
    "reset-after", "404", "422-exists", "truncated", "null", "types", "unfinished", "partly",
    "kill-after",
})  # fmt: skip


def each(faults: Iterable[Fault]) -> list[ParameterSet]:
    """Return faults as parameters of a test; a fault of the same kind as another is marked slow."""
    return kinds(faults, lambda fault: fault.name in _KINDS, str)
