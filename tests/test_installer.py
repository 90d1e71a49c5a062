"""`.ci/install.py`, by which make installs: what is wrong is one line with its cure."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "install.py"


def installed(folder: Path, before: str = "") -> tuple[int, str]:
    """Run the script after a line that changes what it meets; return its code and its error."""
    code = f"import runpy, sys; {before}\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    start = f"import sys; sys.argv = [{str(SCRIPT)!r}, {str(folder)!r}]\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("before", "cure"),
    [
        ("sys.version_info = (3, 9, 2)", "name one with PYTHON="),
        ("sys.modules['ensurepip'] = None", "apt-get install python3-venv"),
        ("import os; os.environ['PATH'] = '/nonexistent'", "apt-get install git"),
        ("import os; os.access = lambda path, mode, _is=os.access: mode != 2 and _is(path, mode)",
         "use a clone of your own"),
        ("import shutil; shutil.disk_usage = lambda _: type('', (), {'free': 9})()",
         "the disk is full"),
    ],
)  # fmt: skip
def test_what_a_machine_lacks(tmp_path: Path, before: str, cure: str) -> None:
    code, error = installed(tmp_path / "with space" / "venv", before)
    assert (code, error.count("\n")) == (3, 1)
    assert cure in error
    assert not (tmp_path / "with space").exists()


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
         "the disk is full: free some space"),
        ("WARNING: Retrying: Name or service not known\n"  # noqa: ISC004  two lines of one text
         "ERROR: No matching distribution found for typer", "no package index can be reached"),
        ("ERROR: Something\nERROR: No matching distribution found for typer>=0.15\n",
         "the package index has no typer>=0.15"),
        ("ERROR: Could not install: [Errno 30] Read-only file system: '/x'",
         "a folder cannot be written"),
        ("ERROR: something new\nmore of it\n", "ERROR: something new"),
        ("", "pip said nothing"),
    ],
)  # fmt: skip
def test_what_pip_says(tmp_path: Path, said: str, cure: str) -> None:
    bin_folder = tmp_path / "venv/bin"
    bin_folder.mkdir(parents=True)
    (tmp_path / "said").write_text(said)
    python = bin_folder / "python"
    # As a virtual environment that is whole, with torch; its pip fails.
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\ncat "{tmp_path}/said" >&2\nexit 1\n')
    python.chmod(0o755)
    code, error = installed(tmp_path / "venv")
    assert code == 3
    assert error.splitlines()[-1].startswith(f"install: {cure}")
    assert [line for line in error.splitlines() if line.startswith("ERROR")] == []


def test_an_old_python_can_read_it() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
