"""Hooks behind an import for a `sitecustomize`, also where contribbot is not installed."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def run_hidden(folder: str) -> None:
    """Run the `sitecustomize` that the one in a folder has taken the name from, if any."""
    places = [place for place in sys.path if place != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


class AfterImport(importlib.abc.MetaPathFinder):
    """Waits for a module to be imported, and hands it over once it is."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name, self._act = name, act
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as without this finder, which goes then."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._act(module)

            # Typeshed has it as a method; a loader is an object like others.
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
