"""Programs that some tests run beside git, a disk to be filled, and which tests are slow."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import pytest
from _pytest.mark import ParameterSet

Case = TypeVar("Case")

#: Packages that are not called as their program is.
PACKAGES: Final = {
    "bwrap": "bubblewrap", "chromedriver": "chromium-driver", "ninja": "ninja-build",
    "node": "nodejs",
}  # fmt: skip


def missing(tool: str) -> str:
    """Return the reason for a skip if a tool is not on this machine, else nothing."""
    if tool == "python3-dev":
        found = Path(sysconfig.get_path("include"), "Python.h").is_file()
    else:
        found = shutil.which(tool) is not None
    return "" if found else f"{tool} is not here: apt-get install {PACKAGES.get(tool, tool)}"


def kinds(
    cases: Iterable[Case], kept: Callable[[Case], bool],
    name: Callable[[Case], str | None] = lambda _: None,
) -> list[ParameterSet]:  # fmt: skip
    """Return cases to parametrize a test with: what is kept of each kind, and slow ones."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)),
            id=name(case), marks=() if kept(case) else pytest.mark.slow,
        )
        for case in cases
    ]  # fmt: skip


def unpack(archive: Path, folder: Path) -> None:
    """Unpack with tar: Python 3.12 and later want a filter from tarfile, 3.11.2 knows none."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "--no-same-owner", "-xf", str(archive), "-C", str(folder)], check=True)


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
