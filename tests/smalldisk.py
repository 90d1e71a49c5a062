"""A disk of a stated size, to be filled."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """Give a folder that is a file system of its own, in memory; skip where none may be mounted."""
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("no mount here")
    folder.mkdir()
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", options, "tmpfs", folder],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
