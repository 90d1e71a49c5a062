"""Trying again what a network may have spoiled by chance."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from contribbot.errors import SourceError
from contribbot.sources.redact import one_line

if TYPE_CHECKING:
    import httpx2

log: Final = logging.getLogger(__name__)

#: Seconds to wait before each further attempt.
PAUSES: Final = [0.5, 1.5, 3.0]
_HINT: Final = "check the network, and the index and proxy in `pip config list`"

T = TypeVar("T")


def persist(what: str, action: Callable[[], T]) -> T:
    """Do something over the network, again when a passing fault stopped it.

    Args:
        what: The place, for messages; no credentials.
        action: What to do; started anew for each attempt.

    Raises:
        SourceError: It failed for good, or each time.
    """
    import httpx2  # noqa: PLC0415  comes with unearth; 0.1 s that only downloads pay

    pauses = iter(PAUSES)
    while True:
        try:
            return action()
        except (httpx2.TransportError, httpx2.HTTPStatusError) as error:
            reason, passing = _explain(error)
            pause = next(pauses, None)
            if pause is None or not passing:
                # The original may quote a URL with a password in its traceback.
                raise SourceError(f"{what}: {reason}", hint=_HINT) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise SourceError(f"{what}: {one_line(str(error))}", hint=_HINT) from None
        log.warning("%s: %s; trying again in %g s", what, reason, pause)
        time.sleep(pause)


def _explain(error: httpx2.TransportError | httpx2.HTTPStatusError) -> tuple[str, bool]:
    """Return what went wrong, and whether it may be gone next time."""
    import httpx2  # noqa: PLC0415  see persist

    words = one_line(str(error)) or type(error).__name__
    match error:
        case httpx2.HTTPStatusError():
            return words, True
        case httpx2.UnsupportedProtocol():
            return words, False
        case httpx2.TimeoutException():
            return "no answer in time", True
        case httpx2.ConnectError():
            return f"cannot be reached: {words}", "CERTIFICATE_VERIFY_FAILED" not in words
        case httpx2.RemoteProtocolError() if "complete message body" in words:
            return f"cut short: {words}", True
    return f"the connection broke: {words}", True
