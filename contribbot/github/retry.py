"""Sending a request again, where that is safe.

An answer that asks for a pause was not acted upon: any request is sent again after it. A
fault that may pass (no connection, 5xx, a body cut short) is tried again when repeating
changes nothing, or when the server cannot have got the request; else nobody knows.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot import process
from contribbot.errors import GitHubError, UncertainError
from contribbot.github.answer import Answer
from contribbot.github.limits import Waits, asked_pause

if TYPE_CHECKING:
    import tenacity

log: Final = logging.getLogger(__name__)

_SERVER_ERRORS: Final = range(500, 600)
_CONFLICT: Final = 409
#: Seconds of the longest pause between two attempts.
_LONGEST: Final = 20.0
#: What GitHub says of a fork whose objects it is still copying.
_COPYING: Final = "git repository is empty"
_LOOK: Final = "run it again: it looks first whether that happened"
_LATER: Final = "check the network and https://www.githubstatus.com, and run it again"


@dataclass(frozen=True)
class Kind:
    """What may be done about a request whose answer was lost.

    Attributes:
        repeat: Whether sending it twice is the same as once.
        waits_for_fork: Whether it writes to a fork that GitHub may still be copying.
    """

    repeat: bool
    waits_for_fork: bool = False


class PassingError(Exception):
    """A fault that may be gone next time.

    Attributes:
        why: What it was.
        acted: Whether the server may have acted.
    """

    def __init__(self, why: str, *, acted: bool) -> None:
        super().__init__(why)
        self.why = why
        self.acted = acted


def persist(what: str, send: Callable[[], Answer], kind: Kind, waits: Waits) -> Answer:
    """Send a request until there is an answer that repeating would not change."""
    import tenacity  # noqa: PLC0415  30 ms that only a network needs

    def again(error: BaseException) -> bool:
        return isinstance(error, PassingError) and (kind.repeat or not error.acted)

    def announce(state: tenacity.RetryCallState) -> None:
        process.check_stopping()
        error = state.outcome.exception() if state.outcome else None
        log.warning("%s: %s; trying again", what, error)

    def pause(state: tenacity.RetryCallState) -> float:
        # Ours: tenacity's own of this kind renamed its arguments in 9.2.
        grown = waits.first * 2.0 ** min(state.attempt_number - 1, 60)
        # Chance keeps several contribbots from coming back all at once.
        return min(grown + random.uniform(0, waits.first), _LONGEST)  # noqa: S311  no secret

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(again),
        stop=tenacity.stop_after_attempt(waits.attempts),
        wait=pause,
        sleep=waits.sleep,
        before_sleep=announce,
        reraise=True,
    )
    try:
        return retrying(_once, what, send, kind, waits)
    except PassingError as error:
        fault = error
    if fault.acted and not kind.repeat:
        raise UncertainError(f"{what}: {fault.why}: nobody knows whether it happened", hint=_LOOK)
    raise GitHubError(f"{what}: {fault.why}, {waits.attempts} times", hint=_LATER)


def _once(what: str, send: Callable[[], Answer], kind: Kind, waits: Waits) -> Answer:
    """Send it, and again for as long as GitHub only asks to wait."""
    spent, times = 0.0, 0
    while True:
        answer = send()
        pause = asked_pause(answer, times)
        if pause is None:
            break
        pause = max(pause, 1.0)
        waits.for_limit(pause, spent, what)
        spent, times = spent + pause, times + 1
    if answer.status in _SERVER_ERRORS:
        raise PassingError(f"HTTP {answer.status}", acted=True)
    if kind.waits_for_fork and answer.status == _CONFLICT and _COPYING in answer.said().lower():
        raise PassingError(answer.said(), acted=False)
    return answer
