"""Packages that npm brings for tests; kept between runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.conftest import REAL_CACHE

#: The environment before a test changes HOME, where npm finds its registry and proxies.
_ENVIRONMENT: Final = dict(os.environ)


def brought(package: str) -> Path:
    """Return a folder with `node_modules/`, where a package is installed without its scripts."""
    kept = REAL_CACHE / "npm" / package.replace("/", "-").removeprefix("@")
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            subprocess.run(
                ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts",
                 f"--cache={folder}/npm", f"--prefix={folder}/made", package],
                env=_ENVIRONMENT, check=True, capture_output=True, timeout=300,
            )  # fmt: skip
            with contextlib.suppress(OSError):  # another worker may have been quicker
                Path(folder, "made").rename(kept)
    return kept
