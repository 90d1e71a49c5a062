"""Cache the results of compiles and builds on disk, by digests of their inputs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from contribbot.compile.listing import Listing
from contribbot.files import DiskCache, cache_folder, lock, used, write_atomically
from contribbot.model.base import Model
from contribbot.process import remove_tree


class Compiled(Model):
    """The result of a compile, without paths of this machine."""

    listing: Listing | None = None
    #: The SHA-256 of the listing, in hexadecimal.
    log: str = ""
    #: The name of the device library that is linked into the code; empty: none.
    library: str = ""
    error: str = ""
    #: Whether the tree lacks the source file.
    absent: bool = False
    #: What this machine lacks for the compile; `starved`: whether that is memory.
    missing: str = ""
    starved: bool = False
    #: How the compiler crashed, which says nothing about the source.
    crashed: str = ""
    command: str = ""
    seconds: float = Field(default=0.0, ge=0)
    cached: bool = False


class CompileError(Exception):
    """A compile that ended with an error instead of a listing."""

    def __init__(self, **facts: str | bool) -> None:
        self.result = Compiled.model_validate(facts)
        super().__init__(self.result.error or self.result.missing or self.result.crashed)


def json_digest(inputs: JsonValue) -> str:
    """Return the SHA-256 of JSON data, in hexadecimal."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def compile_cache() -> DiskCache:
    """Return the cache folder of compile results; a run removes results unused for 30 days."""
    return DiskCache(cache_folder() / "compiles", "*/*")


def kernel_cache() -> DiskCache:
    """Return the cache folder of the kernels that emulated checks compile, by patch."""
    return DiskCache(cache_folder() / "kernels")


def open_kernels() -> Path:
    """Return the cache folder of kernels that are compiled by processes outside a sandbox."""
    return kernel_cache().folder / "_open"


#: A product's marker file, written last: a folder without a marker is of an interrupted
#: build. The file's time is the time of the product's last use.
_SEAL: Final = "product.json"


@dataclass(frozen=True)
class CachedBuild:
    """The marker file's content of a product (a cached build); `_seal` sets the last two fields."""

    seconds: float
    log: str
    extension: str = ""  # the path of a shared library in the product's folder
    python: tuple[str, ...] = ()  # the product's folders for PYTHONPATH
    sha256: str = ""  # digest of the library
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # size and time by path


_MARKER_FORM: Final = TypeAdapter(CachedBuild)


@dataclass(frozen=True)
class Product:
    """A product, which is the result of a cached build: cache key, folder and marker."""

    key: str
    folder: Path
    marker: CachedBuild

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which a check finds the product."""
        env = {}
        if self.marker.extension:
            env["CONTRIBBOT_EXTENSION"] = str(self.folder / self.marker.extension)
        if self.marker.python:
            roots = (str(self.folder / root) for root in self.marker.python)
            env["PYTHONPATH"] = os.pathsep.join(roots)
        return env


def product_cache() -> DiskCache:
    """Return the cache folder of products; a run removes products unused for 30 days."""
    return DiskCache(cache_folder() / "builds", marker=_SEAL)


def _place(key: str) -> Path:
    return cache_folder() / "builds" / key


def find_product(key: str) -> Product | None:
    """Return a product, and renew the time of its last use; None: no product, or changed files."""
    folder = _place(key)
    try:
        marker = _MARKER_FORM.validate_json((folder / _SEAL).read_bytes())
        if any(_stamp(folder / name) != stamp for name, stamp in marker.files.items()):
            return None
    except (OSError, ValidationError):
        return None
    used(folder / _SEAL)
    return Product(key, folder, marker)


def make_product(key: str, build: Callable[[Path], CachedBuild | None]) -> Product | None:
    """Return a product; build a missing product under a lock; None: the build failed."""
    folder = _place(key)
    with lock(folder.with_suffix(".lock"), "a build"):
        if known := find_product(key):
            return known
        remove_tree(folder)
        folder.mkdir()
        try:
            if (built := build(folder)) is not None:
                _seal(folder, built)
        finally:
            if not (folder / _SEAL).is_file():
                remove_tree(folder)
        return find_product(key)


def _seal(folder: Path, built: CachedBuild) -> None:
    """Write the marker file of a complete product, with the files' sizes and times."""
    counted, digest = [], ""
    if built.extension:
        counted = [folder / built.extension]
        digest = hashlib.sha256(counted[0].read_bytes()).hexdigest()
    for root in built.python:
        for parent, _folders, names in os.walk(folder / root):
            counted += [Path(parent, name) for name in names]
    stamps = {path.relative_to(folder).as_posix(): _stamp(path) for path in counted}
    marker = replace(built, seconds=round(built.seconds, 3), sha256=digest, files=stamps)
    write_atomically(folder / _SEAL, _MARKER_FORM.dump_json(marker))


def _stamp(path: Path) -> tuple[int, int]:
    """Return size and modification time of a file or link; a changed file has other values."""
    status = path.lstat()
    return status.st_size, status.st_mtime_ns
