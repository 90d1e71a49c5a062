"""Programs that some tests run beside git, and the Debian package that brings each."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

PACKAGES: Final = {
    "bwrap": "bubblewrap",
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "clang++-19": "clang-19",
    "curl": "curl",
    "g++": "g++",
    "jq": "jq",
    "node": "nodejs",
    "npm": "npm",
    "openssl": "openssl",
    "python3-dev": "python3-dev",
    "quilt": "quilt",
    "stg": "stgit",
}


def missing(tool: str) -> str:
    """Return the reason for a skip if a tool is not on this machine, else nothing."""
    if tool == "python3-dev":
        found = Path(sysconfig.get_path("include"), "Python.h").is_file()
    else:
        found = shutil.which(tool) is not None
    return "" if found else f"{tool} is not here: apt-get install {PACKAGES[tool]}"


def unpack(archive: Path, folder: Path) -> None:
    """Unpack with tar: Python 3.12 and later want a filter from tarfile, 3.11.2 knows none."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "--no-same-owner", "-xf", str(archive), "-C", str(folder)], check=True)
