"""The Python packages that are installed here: their versions, and a digest over all of them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

#: Folders of a source tree that Python does not look into.
_NOT_IMPORTED: Final = frozenset({"__pycache__", "node_modules"})


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


def versions(modules: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of the distributions that provide some modules."""
    return {
        owner: importlib.metadata.version(owner)
        for module in modules
        for owner in owners().get(module.partition(".")[0], ())
    }


@functools.cache
def installed_digest() -> str:
    """Return the SHA-256 over all that can be imported beside the trees."""
    # Of a distribution its name and version count, read from its folder's name, as pip writes it
    # (PEP 627); of an editable install and of PYTHONPATH each Python file, by path, size and time.
    total = hashlib.sha256()
    for folder in dict.fromkeys(map(Path, filter(None, sys.path))):
        if not os.path.isdir(folder):  # noqa: PTH112  what is no path is passed over
            continue
        for entry in sorted(folder.iterdir()):
            if entry.suffix in {".dist-info", ".egg-info", ".egg-link"}:
                total.update(f"{entry.name}\n".encode())
            if entry.suffix == ".dist-info" and (root := _editable_root(entry)):
                _add_sources(total, root)
    for named in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        _add_sources(total, Path(named))
    return total.hexdigest()


def _editable_root(info: Path) -> Path | None:
    """Return the folder that a distribution was installed from as it lies there (PEP 610)."""
    try:
        origin = json.loads((info / "direct_url.json").read_bytes())
        editable = origin["dir_info"]["editable"] is True
        return Path(unquote(urlsplit(origin["url"]).path)) if editable else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _add_sources(total: hashlib._Hash, root: Path) -> None:
    """Add paths, sizes and times of the Python files below a folder, in no hidden folder."""
    if root in Path(__file__).parents:
        return  # contribbot's own source is in the key of every outcome
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n[0] != "." and n not in _NOT_IMPORTED)
        for name in sorted(files):
            if name.endswith((".py", ".so", ".pth")):
                path = os.path.join(folder, name)  # noqa: PTH118  twice as fast on thousands
                with contextlib.suppress(OSError):
                    stat = os.stat(path)  # noqa: PTH116  as above
                    total.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
