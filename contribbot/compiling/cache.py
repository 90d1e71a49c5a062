"""Compiled results remembered by what was compiled, with what, and how.

One that nobody has asked for in 30 days is let go (`kept`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

import contribbot
from contribbot.compiling.listing import Listing
from contribbot.files import write_atomically
from contribbot.model.base import Model
from contribbot.workspace import Kept, cache_folder, used

#: Where the preprocessor says which line of which file follows, and lines that it left
#: empty: another folder or another comment is no other content.
_MARKER = re.compile(rb"^(?:# ?(?:\d+|line) .*)?[ \t]*\n", re.MULTILINE)
_guards: dict[str, threading.Lock] = {}
_guards_lock = threading.Lock()


class Compiled(Model):
    """What one compile came to; no text in it names a folder of this machine."""

    listing: Listing | None = None
    #: The compiler's first error.
    error: str = ""
    #: Whether the tree has no such source.
    absent: bool = False
    #: What this machine lacks for it, and whether that is memory.
    missing: str = ""
    starved: bool = False
    #: How the compiler failed where that says nothing of the source.
    crashed: str = ""
    command: str = ""
    seconds: float = Field(default=0.0, ge=0)
    cached: bool = False


class CompileError(Exception):
    """A compiler that came to no code."""

    def __init__(self, result: Compiled) -> None:
        super().__init__(result.error or result.missing or result.crashed)
        self.result = result


@functools.cache
def _own_digest() -> str:
    """Return the digest of what reads listings: its results depend on it too."""
    total = hashlib.sha256()
    root = Path(contribbot.__file__).parent
    for path in sorted([*(root / "compiling").glob("*.py"), root / "hardware" / "targets.py"]):
        total.update(path.read_bytes())
    return total.hexdigest()


def key_of(preprocessed: bytes, command: Sequence[str], identity: str) -> str:
    """Return the name under which a result is remembered."""
    content = hashlib.sha256(_MARKER.sub(b"", preprocessed)).hexdigest()
    told = json.dumps([content, *command, identity, _own_digest()])
    return hashlib.sha256(told.encode()).hexdigest()


def _folder() -> Path:
    return cache_folder() / "compiles"


def _path(key: str) -> Path:
    return _folder() / key[:2] / f"{key}.json"


def kept() -> Kept:
    """Return what a run looks through for results that nobody uses."""
    return Kept(_folder(), "*/*")


@contextlib.contextmanager
def alone(key: str) -> Iterator[None]:
    """Keep two compiles of the same apart: the second finds the result of the first."""
    with _guards_lock:
        guard = _guards.setdefault(key, threading.Lock())
    with guard:
        yield


def recall(key: str) -> Compiled | None:
    """Return a remembered result, or None; a damaged one counts as none."""
    try:
        known = Compiled.model_validate_json(_path(key).read_bytes())
    except (OSError, ValidationError):
        return None
    used(_path(key))
    return known.model_copy(update={"cached": True})


def remember(key: str, result: Compiled) -> None:
    """Remember a result."""
    write_atomically(_path(key), result.model_dump_json().encode())
