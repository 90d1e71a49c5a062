"""How long GitHub asks to wait, and the waiting.

Source: "Rate limits for the REST API" and "Best practices for using the REST API"
(https://docs.github.com/en/rest/using-the-rest-api): `Retry-After` first; with nothing left of
the hour's requests, until `X-RateLimit-Reset`; of a secondary limit that says nothing,
at least a minute, then longer.
"""

from __future__ import annotations

import email.utils
import logging
import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from contribbot import process
from contribbot.errors import RateLimitError
from contribbot.github.answer import Answer

log: Final = logging.getLogger(__name__)

_FORBIDDEN: Final = 403
_TOO_MANY: Final = 429
_OK: Final = 200
#: What GitHub asks for when it names no time.
_MINUTE: Final = 60.0
#: How GitHub words its limits where no header does.
_SAYS_LIMIT: Final = re.compile(
    r"rate limit|abuse detection|retry your request again later", re.IGNORECASE
)
#: GraphQL answers 200 and says it inside.
_GRAPHQL_LIMIT: Final = re.compile(rb'"type"\s*:\s*"RATE_LIMITED"')


def _sleep(seconds: float) -> None:
    """Sleep in short steps, so that this process can still be told to end."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        process.check_stopping()
        time.sleep(min(rest, 0.5))


def _say(line: str) -> None:
    log.warning("%s", line)


@dataclass
class Waits:
    """Waits, and says so: the bounds, and what tests replace.

    Attributes:
        say: Shows a line to a person before a wait for a limit.
        sleep: Waits so many seconds.
        longest: Seconds that are waited for limits in one request, in all.
        attempts: How often a request is sent before a passing fault is final.
        first: Seconds before the second attempt; about doubled for each further one.
    """

    say: Callable[[str], None] = _say
    sleep: Callable[[float], None] = _sleep
    longest: float = 900.0
    attempts: int = 5
    first: float = 1.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _until: float = field(default=0.0, repr=False)

    def for_limit(self, seconds: float, spent: float, what: str) -> None:
        """Wait until GitHub takes requests again; said once for all threads that wait."""
        end = time.time() + seconds
        clock = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        if spent + seconds > self.longest:
            raise RateLimitError(
                f"{what}: GitHub's rate limit is used up until {clock} ({_span(seconds)})",
                hint="run it again then; what is done stays done",
            )
        with self._lock:
            news = end > self._until + 1
            self._until = max(end, self._until)
        if news:
            self.say(f"GitHub's rate limit: waiting {_span(seconds)}, until {clock}")
        self.sleep(seconds)


def asked_pause(answer: Answer, times: int) -> float | None:
    """Return the seconds that GitHub asks to wait, or None where it is about something else."""
    graphql = answer.status == _OK and bool(_GRAPHQL_LIMIT.search(answer.body[:4096]))
    if answer.status not in {_FORBIDDEN, _TOO_MANY} and not graphql:
        return None
    after = _seconds(answer.headers.get("retry-after", ""), answer)
    if after is not None:
        return after
    if answer.headers.get("x-ratelimit-remaining", "").strip() == "0" and (
        graphql or answer.status == _TOO_MANY or _limit_is_why(answer)
    ):
        reset = _number(answer.headers.get("x-ratelimit-reset", ""))
        # One more second: GitHub's clock has whole ones.
        return _MINUTE if reset is None else max(reset - _now(answer), 0.0) + 1.0
    if graphql or answer.status == _TOO_MANY or _SAYS_LIMIT.search(answer.said()):
        return _MINUTE * 2.0 ** min(times, 10)
    return None


def _limit_is_why(answer: Answer) -> bool:
    """Return whether a 403 with nothing left is about that: the last request may lack a scope."""
    said = answer.said()
    return not said or bool(_SAYS_LIMIT.search(said))


def _now(answer: Answer) -> float:
    """Return the server's time: this machine's clock may be off."""
    try:
        return email.utils.parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except (ValueError, OverflowError):
        return time.time()


def _seconds(text: str, answer: Answer) -> float | None:
    """Read a `Retry-After`: seconds, or a date."""
    if not text.strip():
        return None
    number = _number(text)
    if number is not None:
        return max(number, 0.0)
    try:
        return max(email.utils.parsedate_to_datetime(text).timestamp() - _now(answer), 0.0)
    except (ValueError, OverflowError):
        return _MINUTE


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    # No date lies further off; it also keeps "nan" and "inf" out.
    return number if math.isfinite(number) and abs(number) < 1e11 else None  # noqa: PLR2004  see above


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE else f"{seconds / 60:.0f} min"
