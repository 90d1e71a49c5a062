"""Outcomes remembered by what they depend on, so that a second run repeats nothing.

One that nobody has asked for in 30 days is let go, and so are the logs that no such
outcome names any more (`OutcomeCache.kept`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import JsonValue, ValidationError

import contribbot
from contribbot.files import write_atomically
from contribbot.model.machine import Machine
from contribbot.model.outcome import StageResult
from contribbot.workspace import Kept, used

#: How a remembered outcome names the logs of what it saw.
_LOG: Final = re.compile(rb'"log(?:_sha256)?":"([0-9a-f]{64})"')


@functools.cache
def tool_digest() -> str:
    """Return the SHA-256 over contribbot's own source, in hexadecimal.

    The version alone would keep outcomes of a development tree that has changed.
    """
    root = Path(contribbot.__file__).parent
    total = hashlib.sha256(contribbot.__version__.encode())
    for path in sorted(root.rglob("*")):
        if path.suffix in {".py", ".toml"}:
            total.update(path.relative_to(root).as_posix().encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


class OutcomeCache:
    """Remembered outcomes, one file each."""

    def __init__(self, folder: Path, machine: Machine, *, logs: Path) -> None:
        self._folder = folder
        self._machine = machine
        self._logs = logs

    @property
    def kept(self) -> tuple[Kept, ...]:
        """What a run looks through for outcomes and logs that nobody uses."""
        return Kept(self._folder), Kept(self._logs)

    def key(self, stage: str, target: str, inputs: Mapping[str, JsonValue]) -> str:
        """Return the name under which an outcome is remembered."""
        everything = {
            "stage": stage,
            "target": target,
            "inputs": inputs,
            "tool": tool_digest(),
            "machine": self._machine.fingerprint,
        }
        return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()

    def get(self, key: str) -> StageResult | None:
        """Return a remembered outcome, or None; a damaged one counts as none."""
        path = self._folder / f"{key}.json"
        try:
            content = path.read_bytes()
            stored = StageResult.model_validate_json(content)
        except (OSError, ValidationError):
            return None
        used(path)
        # Why a check failed must be there to read as long as it is said that it failed.
        for digest in _LOG.findall(content):
            used(self._logs / f"{digest.decode()}.log")
        return stored.model_copy(update={"cached": True})

    def put(self, key: str, result: StageResult) -> None:
        """Remember an outcome."""
        write_atomically(self._folder / f"{key}.json", result.model_dump_json().encode())
