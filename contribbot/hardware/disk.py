"""Whether a disk is full, seen by writing to it."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path
from typing import Final

#: Bytes that a disk must still take for it not to be full.
_ROOM: Final = 64 * 2**20


def is_full(folder: Path) -> bool:
    """Say whether the disk of a folder takes nothing any more."""
    probe = folder / uuid.uuid4().hex
    try:
        with probe.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM)
    except OSError as error:
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    finally:
        probe.unlink(missing_ok=True)
    return False
