"""The real tools that judge workflows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_BIN: Final = Path(sys.executable).parent


def zizmor(files: Sequence[Path]) -> list[str]:
    """Return what zizmor finds at its most pedantic, without asking GitHub."""
    done = subprocess.run(
        [_BIN / "zizmor", "--offline", "--no-progress", "--no-config", "--persona", "pedantic",
         "--format", "json-v1", *files],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    # 11 to 14: it looked, and found something.
    assert done.returncode in {0, 11, 12, 13, 14}, done.stderr
    return [f"{each['ident']}: {each['desc']}" for each in json.loads(done.stdout)]


def against_schema(files: Sequence[Path]) -> list[str]:
    """Return how files differ from the JSON schema of workflows."""
    done = subprocess.run(
        [_BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows",
         "--output-format", "json", *files],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    said = json.loads(done.stdout)
    return [each["message"] for each in (*said.get("errors", ()), *said.get("parse_errors", ()))]
