"""Counts by place, in memory that may be a file's: then whatever ends the program loses nothing."""
# Loaded by its path in the program that is watched: nothing but the standard library here.

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

#: Cells of a place. A round is an upload after which the GPU did other work before the next.
_COUNT, _BYTES, _NANOSECONDS, _ROUNDS, _RETURNED, _WIDTH = range(6)
#: The first is nobody's: it counts the operators that ran on the GPU.
#: The last takes what comes when all others are taken.
_PLACES: Final = 10_000
SIZE: Final = _PLACES * _WIDTH * 8
#: Uploads of one line in as many rounds are in a loop; fewer are how a program begins.
LOOP: Final = 3


class CallSite(NamedTuple):
    """A line of the program, and what happened there."""

    kind: str
    operator: str
    file: str
    line: int


class Counts(NamedTuple):
    """How often it happened, and what it cost."""

    times: int
    size: int
    nanoseconds: int
    rounds: int
    returned: int


class Ledger:
    """The cells, and which place has which of them."""

    def __init__(self, buffer: object, announce: Callable[[CallSite], None]) -> None:
        self.cells = memoryview(buffer).cast("B").cast("Q")  # type: ignore[arg-type]  # 3.12 names it
        self._announce = announce
        self._slots: dict[CallSite, int] = {}
        self._work_at: dict[int, int] = {}
        self._lock = threading.Lock()

    def add(  # noqa: PLR0917  a place, and what is added there
        self, kind: str, operator: str, file: str, line: int, size: int = 0, nanoseconds: int = 0
    ) -> int:
        """Count what happened at a place, and return where its cells begin."""
        place = CallSite(kind, operator, file, line)
        with self._lock:
            slot = self._slots.get(place)
            if slot is None:
                slot = min(len(self._slots) + 1, _PLACES - 1) * _WIDTH
                self._slots[place] = slot
                self._announce(place)
            self.cells[slot + _COUNT] += 1
            self.cells[slot + _BYTES] += size
            self.cells[slot + _NANOSECONDS] += nanoseconds
            if self._work_at.get(slot) != self.cells[0]:
                self._work_at[slot] = self.cells[0]
                self.cells[slot + _ROUNDS] += 1
        return slot

    def returned(self, slot: int) -> None:
        """Note that what came of a place went back to the GPU."""
        self.cells[slot + _RETURNED] += 1

    def counts(self, index: int) -> Counts:
        """Return the counts of the place that was announced as the index-th, from 0."""
        slot = min(index + 1, _PLACES - 1) * _WIDTH
        return Counts(*self.cells[slot : slot + _WIDTH])
