"""Where what was built is kept: a folder in the cache for each set of inputs.

A product that nobody has used for 30 days is let go (`kept`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, JsonValue, ValidationError

from contribbot import process
from contribbot.files import write_atomically
from contribbot.locks import lock
from contribbot.model.base import Model
from contribbot.workspace import Kept, cache_folder, used

#: Written last: a folder without it is what an interrupted build left. Its time says
#: when the product was last used; it is none of the files that `Marker` counts.
_MARKER: Final = "product.json"


class Marker(Model):
    """What is known of a finished product.

    Attributes:
        extension: The shared library, relative to the product's folder; or empty.
        python: Folders for Python's path, relative to it.
        sha256: Digest of the shared library, or empty.
        seconds: How long it took to build.
        log: SHA-256 of what the build wrote.
        files: Size in bytes and time of change (ns) of each file that counts.
    """

    extension: str = ""
    python: Annotated[tuple[str, ...], Field(strict=False)] = ()
    sha256: str = ""
    seconds: float
    log: str = ""
    files: dict[str, Annotated[tuple[int, int], Field(strict=False)]]


@dataclass(frozen=True)
class Product:
    """Something built, and still as it was built.

    Attributes:
        key: The digest of what it was built from.
        folder: Where it lies.
        marker: What is known of it.
    """

    key: str
    folder: Path
    marker: Marker

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


@dataclass(frozen=True)
class Made:
    """What a builder has put into a product's folder.

    Attributes:
        extension: The shared library, relative to the folder; or empty.
        python: Folders for Python's path, relative to it.
        seconds: How long it took.
        log: SHA-256 of what the build wrote.
    """

    seconds: float
    log: str
    extension: str = ""
    python: tuple[str, ...] = ()


def key_of(inputs: JsonValue) -> str:
    """Return the name of what is built from some inputs."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def kept() -> Kept:
    """Return what a run looks through for products, and for locks of theirs, that nobody uses."""
    return Kept(_shelf(), marker=_MARKER)


def find(key: str) -> Product | None:
    """Return a product, or None where it is not there or not as it was built.

    Finding it is using it.
    """
    folder = _place(key)
    try:
        marker = Marker.model_validate_json((folder / _MARKER).read_bytes())
    except (OSError, ValidationError):
        return None
    for name, stamp in marker.files.items():
        try:
            if _stamp(folder / name) != stamp:
                return None
        except OSError:
            return None
    used(folder / _MARKER)
    return Product(key, folder, marker)


def make(key: str, build: Callable[[Path], Made | None]) -> Product | None:
    """Build a product unless it is there; of several who want it, one builds."""
    with lock(_place(key).with_suffix(".lock"), "a build"):
        there = find(key)
        if there is not None:
            return there
        folder = _place(key)
        process.remove_tree(folder)
        folder.mkdir()
        try:
            made = build(folder)
            if made is not None:
                _seal(folder, made)
        finally:
            if not (folder / _MARKER).is_file():
                process.remove_tree(folder)
        return find(key)


def _shelf() -> Path:
    return cache_folder() / "builds"


def _place(key: str) -> Path:
    return _shelf() / key


def _seal(folder: Path, made: Made) -> None:
    """Note what is there, and that it is all there."""
    digest = ""
    if made.extension:
        digest = hashlib.sha256((folder / made.extension).read_bytes()).hexdigest()
    counted = [folder / made.extension] if made.extension else []
    for root in made.python:
        counted += [
            Path(parent) / name
            for parent, _folders, names in os.walk(folder / root)
            for name in names
        ]
    marker = Marker(
        extension=made.extension,
        python=made.python,
        sha256=digest,
        seconds=round(made.seconds, 3),
        log=made.log,
        files={path.relative_to(folder).as_posix(): _stamp(path) for path in counted},
    )
    write_atomically(folder / _MARKER, marker.model_dump_json().encode())


def _stamp(path: Path) -> tuple[int, int]:
    """Return what tells that a file was changed. A link is looked at itself."""
    status = path.lstat()
    return status.st_size, status.st_mtime_ns
