"""Waiting as GitHub asks it: announced, bounded, interruptible. `requester` reads how long."""

# Source: "Rate limits" and "Best practices", https://docs.github.com/en/rest/using-the-rest-api.

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from contribbot.errors import RateLimitError, check_stopping

log: Final = logging.getLogger(__name__)

MINUTE: Final = 60.0


def sleep(seconds: float) -> None:
    """Sleep in short steps, so that this process can still be told to end."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        check_stopping()
        time.sleep(min(rest, 0.5))


@dataclass
class Waits:
    """Waits, and says so: the bounds, and what tests replace."""

    say: Callable[[str], None] = log.warning
    sleep: Callable[[float], None] = sleep
    #: Seconds that are lost by waiting, in all: for limits, and with attempts that fail.
    longest: float = 900.0
    #: How often a request is sent before a passing fault is final.
    attempts: int = 5
    #: Seconds from which the pauses between attempts grow.
    first: float = 1.0
    between_writes: float = 1.0
    #: The same where no connection was ever made: there is most likely no network.
    unreached_attempts: int = 3
    clock: Callable[[], float] = time.monotonic
    #: Whether all of it was lost with attempts that failed: nothing more is to be tried.
    over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _until: float = field(default=0.0, repr=False)
    _lost: float = field(default=0.0, repr=False)
    _waiting: float = field(default=-math.inf, repr=False)
    _writer: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _written: float = field(default=-math.inf, repr=False)

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """Let one write be sent: alone, and not right after another."""
        with self._writer:
            rest = self._written + self.between_writes - time.monotonic()
            if rest > 0:
                self.sleep(rest)
            try:
                yield
            finally:
                self._written = time.monotonic()

    def lose(self, seconds: float, since: float) -> bool:
        """Count a wait from then on, once for all threads; return whether there is as much time."""
        with self._lock:
            end = self.clock() + seconds
            more = max(0.0, end - max(since, self._waiting))
            if self._lost + more > self.longest:
                self.over = self.over or self.clock() > since
                return False
            self._lost, self._waiting = self._lost + more, max(end, self._waiting)
            return True

    def for_limit(self, seconds: float, what: str) -> None:
        """Wait until GitHub takes requests again; said once for all threads that wait."""
        end = time.time() + min(seconds, 1e9)
        clock = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        short = seconds < 2 * MINUTE
        span = f"{seconds:.0f} s" if short else f"{min(seconds, 1e9) / 60:.0f} min"
        if not self.lose(seconds, self.clock()):
            waited = f", and {self._lost / 60:.0f} min were waited already" if self._lost else ""
            raise RateLimitError(
                f"{what}: GitHub's rate limit is used up until {clock} ({span}{waited})",
                hint="run it again then; what is done stays done",
            )
        with self._lock:
            news = end > self._until + 1
            self._until = max(end, self._until)
        if news:
            self.say(f"GitHub's rate limit: waiting {span}, until {clock}, for {what}")
        self.sleep(seconds)
