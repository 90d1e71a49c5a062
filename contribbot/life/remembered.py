"""What was said of patches' texts, so that asking again starts no git.

One file in the queue's local folder, by what decides: tool, pin and patch files. It can be
deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from contribbot.files import write_atomically
from contribbot.model.status import Says
from contribbot.queue.load import Queue
from contribbot.verify.cache import tool_digest

_SAID: TypeAdapter[dict[str, Says]] = TypeAdapter(dict[str, Says])


class Remembered:
    """What was said, and what is said now."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._path: Path = queue.local / "texts.json"
        self._before: dict[str, Says] = {}
        with contextlib.suppress(OSError, ValidationError):
            self._before = _SAID.validate_json(self._path.read_bytes())
        self._now: dict[str, Says] = {}

    def key(self, name: str, commit: str) -> str:
        """Return what an answer about a patch depends on."""
        stack = [self._queue.patch(one).digest for one in (*self._queue.below(name), name)]
        text = json.dumps([tool_digest(), commit, *stack])
        return hashlib.sha256(text.encode()).hexdigest()

    def get(self, key: str) -> Says | None:
        """Return what was said, and keep it."""
        known = self._before.get(key)
        if known is not None:
            self._now[key] = known
        return known

    def put(self, key: str, says: Says) -> None:
        """Remember what is said now."""
        self._now[key] = says

    def save(self) -> None:
        """Write it, where it is news. That it cannot be written is no error: it costs time only."""
        if self._now.keys() <= self._before.keys():
            return
        with contextlib.suppress(OSError):
            write_atomically(self._path, _SAID.dump_json(self._now))
