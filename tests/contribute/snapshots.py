"""Texts that are compared with those that were read and approved before."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"
#: With the value 1, tests write the snapshots: read the difference before you commit.
UPDATE = "CONTRIBBOT_UPDATE_SNAPSHOTS"


def assert_snapshot(name: str, text: str) -> None:
    """Compare a text with its snapshot; write the snapshot if the variable asks for that."""
    path = FOLDER / name
    if os.environ.get(UPDATE) == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no snapshot {name}: read the text, then run with {UPDATE}=1"
    assert text == path.read_text(encoding="utf-8"), f"{name} differs: {UPDATE}=1 rewrites it"
