"""The repository's own queue as git has it: no record that a user's own run wrote or changed."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_PARTS: Final = ("README.md", "evidence", "history", "patches", "upstreams")


@cache
def tracked_queue() -> Path:
    """Return a copy of the queue; where there is no git repository, the queue itself."""
    # The index, which is the last commit until somebody adds to it: what is to be
    # committed can be tested before it is.
    listed = subprocess.run(
        ["git", "ls-files", "-z", *_PARTS], cwd=_ROOT, capture_output=True, check=False
    )
    if listed.returncode:
        return _ROOT
    folder = Path(tempfile.mkdtemp(prefix="tracked-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run(
        ["git", "checkout-index", "-z", "--stdin", f"--prefix={folder}/"],
        cwd=_ROOT, input=listed.stdout, check=True,
    )  # fmt: skip
    return folder
