"""Folders that hold what GitHub told one token: it may be of what is not public."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

log: Final = logging.getLogger(__name__)


def make_private(folder: Path) -> None:
    """Make a folder, for nobody else to read: also one that something else made before.

    That it cannot be is no error here: whoever writes into it says what is wrong.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        log.debug("%s cannot be made private: %s", folder, error)
