"""Values that are made once, by whichever thread asks first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """Makes each value once; different ones side by side.

    When making one fails, everybody who asks tries again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._values: dict[str, Value] = {}

    def get(self, key: str, make: Callable[[], Value]) -> Value:
        """Return the value of a key, making it the first time."""
        with self._lock:
            guard = self._locks.setdefault(key, threading.Lock())
        with guard:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def known(self, key: str) -> Value | None:
        """Return the value of a key where it has been made."""
        return self._values.get(key)
