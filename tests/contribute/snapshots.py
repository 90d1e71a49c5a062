"""Texts that are compared with those that were read and approved before."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"
#: Set to 1, the snapshots are written afresh; read what changed before you commit it.
UPDATE = "CONTRIBBOT_UPDATE_SNAPSHOTS"


def assert_snapshot(name: str, text: str) -> None:
    """Compare a text with its snapshot, or write that where it is asked for."""
    path = FOLDER / name
    if os.environ.get(UPDATE) == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no snapshot {name}: read the text, then run with {UPDATE}=1"
    assert text == path.read_text(encoding="utf-8"), f"{name} differs: {UPDATE}=1 rewrites it"
