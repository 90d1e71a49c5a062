"""Find a program's work and copies on the CPU although the data is on a GPU (docs/fallback.md).

A `sitecustomize` loads this file by path, so the program's Python needs no contribbot: import
nothing but the standard library here.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType


def start(folder: str, path: str | None, device: str) -> None:
    """Audit operators from torch's import on; undo the changes to `sys.path` and PYTHONPATH."""
    sys.path[:] = [place for place in sys.path if place != folder]
    os.environ.pop("PYTHONPATH")
    if path is not None:
        os.environ["PYTHONPATH"] = path
    report, audit = Path(folder, "report.json"), f"{__name__}.audit"
    unwatched = {"unwatched": "the first Python process did not import torch"}
    report.write_text(json.dumps(unwatched), encoding="utf-8")
    AfterImport("torch", lambda _: importlib.import_module(audit).watch_process(report, device))
    run_hidden(folder)


def run_hidden(folder: str) -> None:
    """Run the `sitecustomize` that this folder's `sitecustomize` hides, if any."""
    places = [place for place in sys.path if place != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


class AfterImport(importlib.abc.MetaPathFinder):
    """An import hook that calls a function with a module, once the module is imported."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name, self._act = name, act
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Remove this finder, find the module without it, and add the call to the loader."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                # The objects of an import stay alive: a search for garbage only takes time.
                enabled = gc.isenabled()
                gc.disable()
                try:
                    load(module)
                finally:
                    if enabled:
                        gc.enable()
                self._act(module)

            # Typeshed declares a method; in Python, a loader's attribute can be replaced.
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
