"""Compiled results and builds, remembered by what was compiled, with what, and how."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from contribbot.compile.listing import Listing
from contribbot.files import cache_folder, lock, used, write_atomically
from contribbot.model.base import Model
from contribbot.process import remove_tree
from contribbot.run_folder import Kept

#: Where the preprocessor says which line of which file follows, and lines that it left
#: empty: another folder or another comment is no other content.
_MARKER = re.compile(rb"^(?:# ?(?:\d+|line) .*)?[ \t]*\n", re.MULTILINE)
_guards: dict[str, threading.Lock] = {}


class Compiled(Model):
    """What one compile came to; no text in it names a folder of this machine."""

    listing: Listing | None = None
    #: The SHA-256 of its text.
    log: str = ""
    #: The device library whose functions are in the code, in words; empty: none.
    library: str = ""
    error: str = ""
    #: The name in the error that HIP's headers may have and the stand-ins lack.
    undeclared: str = ""
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

    def __init__(self, **facts: str | bool) -> None:
        self.result = Compiled.model_validate(facts)
        super().__init__(self.result.error or self.result.missing or self.result.crashed)


@functools.cache
def _own_digest() -> str:
    """Return the digest of this package, which reads listings: its results depend on it too."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def json_digest(inputs: JsonValue) -> str:
    """Return the SHA-256 over some inputs as JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def key_of(preprocessed: bytes, command: Sequence[str], identity: str) -> str:
    """Return the name under which a compiled result is remembered."""
    content = hashlib.sha256(_MARKER.sub(b"", preprocessed)).hexdigest()
    return json_digest([content, *command, identity, _own_digest()])


def _path(key: str) -> Path:
    return cache_folder() / "compiles" / key[:2] / f"{key}.json"


def kept() -> Kept:
    """Return what a run looks through for results that nobody uses."""
    return Kept(cache_folder() / "compiles", "*/*")


def alone(key: str) -> threading.Lock:
    """Return what keeps two compiles of the same apart: the second finds the first's result."""
    return _guards.setdefault(key, threading.Lock())


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


#: Written last: a folder without it is what an interrupted build left. Its time says when the
#: product was last used; it is none of the files that it counts.
_SHELF_MARKER: Final = "product.json"


@dataclass(frozen=True)
class CachedBuild:
    """What a builder has put into a product's folder; the last two are known when it is sealed."""

    seconds: float
    log: str
    extension: str = ""  # the path of a shared library in the folder
    python: tuple[str, ...] = ()  # folders of it that Python looks for modules in
    sha256: str = ""  # of the library
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # their sizes and times


_MARKER_FORM: Final = TypeAdapter(CachedBuild)


@dataclass(frozen=True)
class Product:
    """Something built, and still as it was built."""

    key: str
    folder: Path
    marker: CachedBuild

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell a check where it is."""
        env = {}
        if self.marker.extension:
            env["CONTRIBBOT_EXTENSION"] = str(self.folder / self.marker.extension)
        if self.marker.python:
            roots = (str(self.folder / root) for root in self.marker.python)
            env["PYTHONPATH"] = os.pathsep.join(roots)
        return env


def kept_builds() -> Kept:
    """Return what a run looks through for products, and for locks of theirs, that nobody uses."""
    return Kept(cache_folder() / "builds", marker=_SHELF_MARKER)


def _place(key: str) -> Path:
    return cache_folder() / "builds" / key


def find(key: str) -> Product | None:
    """Return a product, which uses it, or None where it is not there or not as it was built."""
    folder = _place(key)
    try:
        marker = _MARKER_FORM.validate_json((folder / _SHELF_MARKER).read_bytes())
        if any(_stamp(folder / name) != stamp for name, stamp in marker.files.items()):
            return None
    except (OSError, ValidationError):
        return None
    used(folder / _SHELF_MARKER)
    return Product(key, folder, marker)


def make(key: str, build: Callable[[Path], CachedBuild | None]) -> Product | None:
    """Build a product unless it is there; of several who want it, one builds."""
    folder = _place(key)
    with lock(folder.with_suffix(".lock"), "a build"):
        if known := find(key):
            return known
        remove_tree(folder)
        folder.mkdir()
        try:
            if (built := build(folder)) is not None:
                _seal(folder, built)
        finally:
            if not (folder / _SHELF_MARKER).is_file():
                remove_tree(folder)
        return find(key)


def _seal(folder: Path, built: CachedBuild) -> None:
    """Note what is there, and that it is all there."""
    counted, digest = [], ""
    if built.extension:
        counted = [folder / built.extension]
        digest = hashlib.sha256(counted[0].read_bytes()).hexdigest()
    for root in built.python:
        for parent, _folders, names in os.walk(folder / root):
            counted += [Path(parent, name) for name in names]
    stamps = {path.relative_to(folder).as_posix(): _stamp(path) for path in counted}
    marker = replace(built, seconds=round(built.seconds, 3), sha256=digest, files=stamps)
    write_atomically(folder / _SHELF_MARKER, _MARKER_FORM.dump_json(marker))


def _stamp(path: Path) -> tuple[int, int]:
    """Return what tells that a file was changed. A link is looked at itself."""
    status = path.lstat()
    return status.st_size, status.st_mtime_ns
