"""Running an installed package with a tree's files over its own.

For an upstream of which the tree holds the Python files alone (PyTorch, whose
wheel is its only release): what is compiled comes from the installed package,
what the patch touches from the tree. The package is not copied: a folder of
links stands before it on Python's path, with real files where they differ.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.git.patch_format import Change, changes
from contribbot.git.repository import Store

#: `git merge-file` says how many conflicts there are, up to this number.
_CONFLICTS: Final = range(128)


@dataclass(frozen=True)
class Overlay:
    """A folder for Python's path."""

    folder: Path
    release: str  # what lies below, such as `torch 2.13.0+cpu`
    #: Files of the tree whose change was merged onto an installed file that is not the pin's.
    merged: tuple[str, ...]


class OverlayError(Exception):
    """The tree's files cannot be put over what is installed; says why."""


def missing_package(packages: Iterable[str]) -> str:
    """Say which package is not installed, or nothing."""
    for package in packages:
        if _installed(package) is None:
            return f"the Python package {package} is not installed"
    return ""


def release_of(packages: Iterable[str]) -> str:
    """Return the installed releases behind some packages as text."""
    return ", ".join(f"{name} {version}" for name, version in releases(packages).items())


def releases(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed release of the distribution behind each package."""
    return {
        package: importlib.metadata.version(owner)
        for package in packages
        for owner in owners().get(package, ())[:1]
    }


@functools.cache
def owners() -> Mapping[str, list[str]]:
    """Return the distributions behind each package; read once, as it reads every RECORD."""
    return importlib.metadata.packages_distributions()


def lay_over(
    store: Store, packages: Iterable[str], *, pin: str, trees: tuple[str, ...], tree: str,
    folder: Path,
) -> Overlay:  # fmt: skip
    """Make the folder that puts one tree over the installed packages."""
    packages = tuple(packages)
    touched = {
        change.path
        for other in trees
        for change in changes(store, pin, other)
        if change.path.partition("/")[0] in packages
    }
    now = {change.path: change for change in changes(store, pin, tree)}
    merged = []
    for package in packages:
        root = _installed(package)
        if root is None:
            raise OverlayError(missing_package((package,)))
        inside = {path for path in touched if path.startswith(f"{package}/")}
        _link(root, folder / package, package, inside)
        for path in sorted(inside):
            source = root.parent / path
            if _place(store, source, folder / path, path, pin=pin, change=now.get(path)):
                merged.append(path)
    return Overlay(folder, release_of(packages), tuple(merged))


def _installed(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _link(installed: Path, folder: Path, prefix: str, touched: set[str]) -> None:
    """Link a package's entries; folders on the way to a touched file are real ones."""
    folder.mkdir(parents=True)
    on_the_way = {path.removeprefix(f"{prefix}/").partition("/")[0] for path in touched}
    for entry in installed.iterdir():
        name = f"{prefix}/{entry.name}"
        if entry.name not in on_the_way:
            (folder / entry.name).symlink_to(entry)
        elif entry.is_dir():
            below = {path for path in touched if path.startswith(f"{name}/")}
            _link(entry, folder / entry.name, name, below)


def _place(
    store: Store, installed: Path, target: Path, path: str, *, pin: str, change: Change | None
) -> bool:
    """Write one touched file as the tree has it, and say whether it had to be merged."""
    original = store.file(f"{pin}:{path}")
    there = installed.read_bytes() if installed.is_file() else None
    wanted = original if change is None else store.file(change.blob)
    if there != original and change is None:
        wanted = there
    elif there != original:
        wanted = _merge(store, target, path, installed=there, pin=original, tree=wanted)
    if wanted is None:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(wanted)
    return there != original and change is not None


def _merge(
    store: Store, target: Path, path: str, *,
    installed: bytes | None, pin: bytes | None, tree: bytes | None,
) -> bytes:  # fmt: skip
    """Carry the change from the pin's file over to the installed one."""
    if installed is None or pin is None or tree is None:
        raise OverlayError(f"{path}: the installed package and the pin do not both have it")
    target.parent.mkdir(parents=True, exist_ok=True)
    sides = [target.with_name(f"{target.name}.{number}") for number in range(3)]
    for side, content in zip(sides, (installed, pin, tree), strict=True):
        side.write_bytes(content)
    done = store.git("merge-file", "-p", *map(str, sides), accept=(*_CONFLICTS, 255))
    for side in sides:
        side.unlink()
    if done.returncode:
        raise OverlayError(f"{path}: the installed file is not the pin's, and the change conflicts")
    return done.stdout
