"""Exchanging folders where the file system cannot: two renames, and how to undo the first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from contribbot.files import write_atomically
from contribbot.queue.exchange import discard, sync

#: Where the folder in place waits, beside it, while another takes its name.
_ASIDE: Final = ".contribbot-old"


def torn_file(queue: Path) -> Path:
    """Return the file that is there while a folder has lost its name."""
    return queue / ".contribbot" / "queue.torn"


def is_torn(queue: Path) -> bool:
    """Say whether a change without an exchange is going on, or was cut short."""
    return torn_file(queue).exists()


def rename_twice(queue: Path, new: Path, target: Path) -> None:
    """Let a folder take the place of another in two steps; `put_back` undoes the first."""
    old = target.parent / _ASIDE / target.name
    discard(old.parent)
    old.parent.mkdir()
    write_atomically(torn_file(queue), json.dumps({"folder": str(target)}).encode() + b"\n")
    sync(torn_file(queue).parent)
    try:
        target.rename(old)
        new.rename(target)
        sync(target.parent)
    finally:
        put_back(queue)


def put_back(queue: Path) -> None:
    """Give a folder its name back, where a change without an exchange was cut short."""
    torn = torn_file(queue)
    try:
        said = json.loads(torn.read_bytes())
    except FileNotFoundError:
        return
    except ValueError:
        said = {}
    if isinstance(said, dict) and isinstance(said.get("folder"), str):
        target = Path(said["folder"])
        old = target.parent / _ASIDE / target.name
        if old.is_dir() and not os.path.lexists(target):
            old.rename(target)
            sync(target.parent)
        discard(old.parent)
    torn.unlink(missing_ok=True)
