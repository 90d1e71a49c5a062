"""Writing files so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import glob
import os
import time
import uuid
from pathlib import Path
from typing import Final

_PARTIAL: Final = ".partial"
#: Seconds after which a partial file can only be one that a killed process left.
_ABANDONED: Final = 3600.0


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content in one step.

    A link is followed, and what is no regular file (a terminal, a pipe) is
    written to as it is.

    Args:
        path: The file; its folder is made when it is not there.
        content: What it shall hold.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{_PARTIAL}")
    # The kernel applies the umask, which no thread can read without setting it.
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _sweep(path: Path) -> None:
    """Remove the partial files that killed processes left beside a file."""
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*{_PARTIAL}"):
        try:
            if time.time() - partial.stat().st_mtime > _ABANDONED:
                partial.unlink(missing_ok=True)
        except FileNotFoundError:
            continue  # its writer was quicker
