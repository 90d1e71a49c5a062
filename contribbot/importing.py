"""Importing one file of the tree under test; `stand_in` has what stands in for its imports."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from contribbot import stand_in


class UnwrittenCheckError(Exception):
    """A check that `contribbot new` has begun, and that is not written yet."""

    contribbot_broken = True


def unwritten(what: str) -> NoReturn:
    """Fail a check that is yet to be written; `contribbot verify` calls it *unavailable*.

    Args:
        what: What to do, for whoever reads the failure.

    Raises:
        UnwrittenCheckError: Always.
    """
    __tracebackhide__ = True
    raise UnwrittenCheckError(f"write the check: {what}")


def tree() -> Path:
    """Return the folder of the tree under test.

    Raises:
        FileNotFoundError: `CONTRIBBOT_TREE` does not name it. contribbot sets it; to run a check
            by yourself, use `contribbot check`.
    """
    root = os.environ.get("CONTRIBBOT_TREE", "")
    if not root or not Path(root).is_dir():
        raise FileNotFoundError(f"CONTRIBBOT_TREE={root}: no folder; run `contribbot check NAME`")
    return Path(root)


def answers(*names: str, answer: object) -> dict[str, Callable[..., object]]:
    """Return functions that give one answer whatever they are asked, by name, for `given`.

    Args:
        *names: What the functions are called, such as `is_hip`.
        answer: What each returns.
    """
    return {name: lambda *_args, **_kwargs: answer for name in names}


def import_file(
    path: str,
    *,
    real: Iterable[str] = (),
    given: Mapping[str, Mapping[str, object] | ModuleType | None] | None = None,
) -> ModuleType:
    """Import a Python file of the tree under test, without what it does not need.

    Args:
        path: Its path in the tree: `python/sglang/srt/layers/layernorm.py`. A file that no
            Python root holds (a script, a test) is imported by its own name.
        real: Modules of the tree that are imported for real too, with what lies below them:
            `sglang.srt.layers.utils`. All others are stand-ins; for a file that no Python root
            holds, only those of the packages that `real` and `given` name.
        given: What stands for modules, of the tree or of anybody, by name: a module; the
            attributes of one, all others being stand-ins; None for one that cannot be imported.

    Returns:
        The module. The file is executed once a process.

    Raises:
        FileNotFoundError: The tree has no such file.
        StandInError: The import itself depends on a stand-in.
        ValueError: A module is to be real or given that was imported otherwise before.
    """
    file, real = tree() / path, [*real]
    if not file.is_file():
        top = path.partition("/")[0]
        if (tree() / top).exists():
            raise FileNotFoundError(f"{path}: the tree has no such file")
        raise FileNotFoundError(
            f"{path}: the tree has no {top} at all; a git source has it (docs/recipes.md)"
        )
    name, found = _module(path)
    if found is not None and not found.is_relative_to(tree()):
        # With an overlay, the package is installed, with the tree's files over the package.
        return importlib.import_module(name)
    stand_in.tested.add(name.partition(".")[0])
    # A script, or a test of the upstream's, that imports the package.
    stand_in.tested.update(
        module.partition(".")[0] for module in (*real, *(given or {})) if _of_tree(module)
    )
    stand_in.install()
    for module, content in (given or {}).items():
        _give(module, content)
    for module in (*real, name):
        if isinstance(sys.modules.get(module), stand_in.StandInModule):
            raise ValueError(  # noqa: TRY004  no wrong type, a wrong order
                f"{module} is a stand-in since an earlier import: name it there"
            )
        stand_in.real.add(module)
    if found is None:
        return _script(name, file)
    imported = importlib.import_module(name)
    if not Path(str(imported.__file__)).samefile(file):
        raise ValueError(f"{name} is {imported.__file__}, and not {file}")
    return imported


def _module(path: str) -> tuple[str, Path | None]:
    """Return the name of a file's module, and the path at which Python finds the file, or None."""
    parts = Path(path).with_suffix("").parts
    for start in range(len(parts)):
        for folder in filter(None, sys.path):
            place = Path(folder, *Path(path).parts[start:])
            if place.is_file() and all(map(str.isidentifier, parts[start:])):
                return ".".join(parts[start:]).removesuffix(".__init__"), place
    return parts[-1], None


def _of_tree(module: str) -> bool:
    """Return whether a module's package is the tree's own, and not an overlay."""
    package = module.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(package)
    places = [*(spec.submodule_search_locations or []), spec.origin] if spec else []
    return any(place and Path(place).is_relative_to(tree()) for place in places)


def _script(name: str, file: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None  # noqa: S101  it ends with .py
        assert spec.loader is not None  # noqa: S101  the same
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _give(name: str, content: Mapping[str, object] | ModuleType | None) -> None:
    there = sys.modules.get(name)
    if content is None or isinstance(content, ModuleType):
        if name in sys.modules and there is not content:
            raise ValueError(f"{name} was imported before: give it with the first import_file")
        sys.modules[name] = content  # type: ignore[assignment]  # None: it cannot be imported
        return
    if name in sys.modules and not isinstance(there, stand_in.StandInModule):
        raise ValueError(f"{name} was imported before: give it with the first import_file")
    stand_in.given[name] = {**stand_in.given.get(name, {}), **content}
    vars(there or ModuleType(name)).update(content)
