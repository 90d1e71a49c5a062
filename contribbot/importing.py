"""Import one file of the tree under test; the module `stand_in` replaces what the file imports."""

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
    """A check that `contribbot new` has begun, and that nobody has written yet."""

    contribbot_broken = True


def unwritten(what: str) -> NoReturn:
    """Fail a check that is not written yet; `contribbot verify` calls the check *unavailable*.

    Args:
        what: The next step, for whoever reads the failure.

    Raises:
        UnwrittenCheckError: Always.
    """
    __tracebackhide__ = True
    raise UnwrittenCheckError(f"write the check: {what}")


def tree() -> Path:
    """Return the folder of the tree under test.

    Raises:
        FileNotFoundError: `CONTRIBBOT_TREE` does not name a folder. contribbot sets the variable;
            to run a check by yourself, use `contribbot check`.
    """
    root = os.environ.get("CONTRIBBOT_TREE", "")
    if not root or not Path(root).is_dir():
        raise FileNotFoundError(f"CONTRIBBOT_TREE={root}: no folder; run `contribbot check NAME`")
    return Path(root)


def answers(*names: str, answer: object) -> dict[str, Callable[..., object]]:
    """Return functions that give one answer for all arguments, by name, for `given`.

    Args:
        *names: The names of the functions, such as `is_hip`.
        answer: The value that each function returns.
    """
    return {name: lambda *_args, **_kwargs: answer for name in names}


def import_file(
    path: str,
    *,
    real: Iterable[str] = (),
    given: Mapping[str, Mapping[str, object] | ModuleType | None] | None = None,
) -> ModuleType:
    """Import a Python file of the tree under test, with stand-ins for other modules of the tree.

    Args:
        path: The file's path in the tree: `python/sglang/srt/layers/layernorm.py`. A file outside
            the tree's Python roots (a script, a test) is imported by the file's bare name.
        real: Modules of the tree that are imported for real too, with their submodules:
            `sglang.srt.layers.utils`. All other modules of the package are stand-ins; for a file
            outside the Python roots, only those of the packages that `real` and `given` name.
        given: Replacements for modules of the tree or of other packages, by name: a module; some
            attributes of a module, whose other attributes are stand-ins; or None for a module
            whose import fails.

    Returns:
        The module. The file is executed once in a process.

    Raises:
        FileNotFoundError: The tree has no such file.
        StandInError: The import itself depends on the value of a stand-in.
        ValueError: An earlier import has loaded a module of `real` or `given` in another way.
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
        # With an overlay, Python imports the installed package with the tree's files laid over.
        return importlib.import_module(name)
    stand_in.tested.add(name.partition(".")[0])
    # A script or test may import packages of the tree.
    stand_in.tested.update(
        module.partition(".")[0] for module in (*real, *(given or {})) if _of_tree(module)
    )
    stand_in.install()
    for module, content in (given or {}).items():
        _give(module, content)
    for module in (*real, name):
        if isinstance(sys.modules.get(module), stand_in.StandInModule):
            raise ValueError(  # noqa: TRY004  a wrong order of imports, not a wrong type
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
    """Return whether a module's package lies in the tree, and not in an overlay."""
    package = module.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(package)
    places = [*(spec.submodule_search_locations or []), spec.origin] if spec else []
    return any(place and Path(place).is_relative_to(tree()) for place in places)


def _script(name: str, file: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None  # noqa: S101  the file's name ends with .py
        assert spec.loader is not None  # noqa: S101  as above
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
        sys.modules[name] = content  # type: ignore[assignment]  # None: the import fails
        return
    if name in sys.modules and not isinstance(there, stand_in.StandInModule):
        raise ValueError(f"{name} was imported before: give it with the first import_file")
    stand_in.given[name] = {**stand_in.given.get(name, {}), **content}
    vars(there or ModuleType(name)).update(content)
