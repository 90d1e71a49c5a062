"""Trying again what a network may have spoiled by chance."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from contribbot import process
from contribbot.errors import SourceError
from contribbot.sources.redact import one_line

log: Final = logging.getLogger(__name__)

ATTEMPTS: Final = 4
#: Seconds before the second attempt; doubled for each further one.
PAUSE = 0.5
_HINT: Final = "check the network, and the index and proxy in `pip config list`"

T = TypeVar("T")


def persist(what: str, action: Callable[[], T]) -> T:
    """Do something over the network, again when a passing fault stopped it."""
    import httpx2  # noqa: PLC0415  comes with unearth; 0.1 s that only downloads pay
    import tenacity  # noqa: PLC0415  the same

    def announce(state: tenacity.RetryCallState) -> None:
        process.check_stopping()
        error = state.outcome.exception() if state.outcome else None
        log.warning("%s: %s; trying again", what, _explain(error)[0])

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: _explain(error)[1]),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=PAUSE),
        before_sleep=announce,
        reraise=True,
    )
    try:
        return retrying(action)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        # The original may quote a URL with a password in its traceback.
        raise SourceError(f"{what}: {_explain(error)[0]}", hint=_HINT) from None


def _explain(error: BaseException | None) -> tuple[str, bool]:
    """Return what went wrong, and whether it may be gone next time."""
    import httpx2  # noqa: PLC0415  see persist

    words = one_line(str(error)) or type(error).__name__
    match error:
        case httpx2.HTTPStatusError():
            return words, True
        case httpx2.TimeoutException():
            return "no answer in time", True
        case httpx2.ConnectError():
            return f"cannot be reached: {words}", "CERTIFICATE_VERIFY_FAILED" not in words
        case httpx2.RemoteProtocolError() if "complete message body" in words:
            return f"cut short: {words}", True
        case httpx2.TransportError() if not isinstance(error, httpx2.UnsupportedProtocol):
            return f"the connection broke: {words}", True
    return words, False
