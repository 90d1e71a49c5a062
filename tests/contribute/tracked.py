"""The repository's own queue with the files that git tracks: no record of a user's own runs."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_PARTS: Final = ("evidence", "history", "patches", "upstreams")


@cache
def tracked_queue() -> Path:
    """Return a copy of the queue; where there is no git repository, the queue itself."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *_PARTS], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        return _ROOT
    folder = Path(tempfile.mkdtemp(prefix="tracked-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (_ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_ROOT / name, folder / name)
    return folder
