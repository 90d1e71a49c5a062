"""How long contribbot waits for GitHub: announced, bounded, interruptible."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from contribbot.errors import RateLimitError, check_stopping

log: Final = logging.getLogger(__name__)

_MINUTE: Final = 60.0
_LATER: Final = "run it again later; what is done stays done"


def sleep(seconds: float) -> None:
    """Sleep in short steps, so that this process can still be told to end."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        check_stopping()
        time.sleep(min(rest, 0.5))


@dataclass
class Waits:
    """The limits of waiting for GitHub, and the seconds that this command has lost."""

    say: Callable[[str], None] = log.warning
    sleep: Callable[[float], None] = sleep
    #: Seconds that a command may lose in all, by pauses and by attempts that fail.
    longest: float = 900.0
    #: How often a request is sent before a passing fault is final.
    attempts: int = 5
    between_writes: float = 1.0
    clock: Callable[[], float] = time.monotonic
    lost: float = 0.0

    def take(self, seconds: float) -> bool:
        """Add a pause to the lost seconds if the limit has room; return whether the pause fits."""
        fits = self.lost + seconds <= self.longest
        self.lost += seconds if fits else 0.0
        return fits

    def check(self) -> None:
        """Fail if pauses and failed attempts have used up the limit."""
        if self.lost > self.longest:
            spent = f"{self.lost / _MINUTE:.0f} min went into pauses and attempts that failed"
            raise RateLimitError(f"GitHub was not asked: {spent}", hint=_LATER)

    def pause(self, seconds: float, *, limited: bool) -> None:
        """Wait before the next attempt; `limited`: for the rate limit, not after a failure."""
        end = time.time() + min(seconds, 1e9)
        clock = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        short = seconds < 2 * _MINUTE
        span = f"{seconds:.0f} s" if short else f"{min(seconds, 1e9) / _MINUTE:.0f} min"
        if not self.take(seconds):
            waited = f", and {self.lost / _MINUTE:.0f} min were waited already" if self.lost else ""
            why = f"GitHub's rate limit is used up until {clock}" if limited else "no more attempts"
            raise RateLimitError(f"{why} ({span}{waited})", hint=_LATER)
        if limited:
            self.say(f"GitHub's rate limit: waiting {span}, until {clock}")
        self.sleep(seconds)
