"""Looks for duplicates that are remembered for an hour, in the queue's local folder."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from contribbot.contribute.gate import duplicates
from contribbot.contribute.gate.ours import Ours, ours_of
from contribbot.files import write_atomically
from contribbot.github.cache import make_private
from contribbot.model.attestation import json_digest
from contribbot.model.gate import Look
from contribbot.queue.load import Queue
from contribbot.verify.pipeline import tool_digest

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

_FRESH: Final = timedelta(hours=1)


def look_file(queue: Queue, name: str) -> Path:
    """Return the file that remembers the last look for a patch's duplicates."""
    return queue.local / "duplicates" / f"{name}.json"


def find(github: GitHub, queue: Queue, name: str, *, server: str, now: datetime) -> Look:
    """Look for a patch's duplicates, unless that was done within the hour."""
    ours = ours_of(queue, name)
    title = queue.specs[name].title
    key = _key(ours, title, server)
    known = _known(queue, name, key, now)
    if known is not None:
        return known
    found = duplicates.look(github, ours, title, key=key, now=now)
    make_private(look_file(queue, name).parent)
    # That it cannot be remembered costs requests only.
    with contextlib.suppress(OSError):
        write_atomically(look_file(queue, name), found.model_dump_json(indent=2).encode())
    return found


def remembered(queue: Queue, name: str, *, server: str, now: datetime) -> Look | None:
    """Return the look of the last hour; None: there was none, or of another question."""
    key = _key(ours_of(queue, name), queue.specs[name].title, server)
    return _known(queue, name, key, now)


def _known(queue: Queue, name: str, key: str, now: datetime) -> Look | None:
    with contextlib.suppress(OSError, ValidationError):
        known = Look.model_validate_json(look_file(queue, name).read_bytes())
        # A time in the future is a clock that was wrong once.
        if known.key == key and timedelta(0) <= now - known.time < _FRESH:
            return known
    return None


def _key(ours: Ours, title: str, server: str) -> str:
    """Return a digest of all that a look depends on, but GitHub's state."""
    return json_digest(
        {
            "tool": tool_digest(),
            "server": server,
            "repository": ours.repository,
            "patch": ours.digest,
            "title": title,
            "touched": {path: sorted(names) for path, names in ours.touched.items()},
            "whole": ours.ids.whole,
            "issue": ours.issue,
            "related": list(ours.related),
            "own": sorted(ours.own),
            "branches": sorted(ours.branches),
            "days": duplicates.DAYS,
        }
    )
