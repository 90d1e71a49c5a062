"""Sharing this machine: checks and compiles work side by side, a bench works alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Slots:
    """Lets either any number of busy blocks run, or one quiet block.

    A quiet block waits until nobody is busy, and holds nobody back meanwhile: while the last
    of several busy ones ends, the other cores would have nothing to do. Of a run, which
    ends, benches so come last. Neither kind may be entered from within the other, nor a
    second time.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = 0
        self._quiet = False

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Work beside others."""
        with self._changed:
            self._changed.wait_for(lambda: not self._quiet)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Work alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._quiet and not self._busy)
            self._quiet = True
        try:
            yield
        finally:
            with self._changed:
                self._quiet = False
                self._changed.notify_all()
