"""Start of the audit in the watched program, behind an import, for a `sitecustomize`.

The `sitecustomize` loads this file by its path: contribbot need not be installed there.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contribbot.fallback.audit import Audit


def start(folder: str, path: str | None, device: str) -> None:
    """Wait for torch, and leave this process otherwise as it would be."""
    sys.path[:] = [place for place in sys.path if place != folder]
    os.environ.pop("PYTHONPATH")
    if path is not None:
        os.environ["PYTHONPATH"] = path
    report = Path(folder, "report.json")
    report.write_text("{}", encoding="utf-8")
    AfterImport("torch", functools.partial(_watch, report=report, device=device))
    run_hidden(folder)


def _watch(torch: ModuleType, *, report: Path, device: str) -> None:
    """Watch this thread and all that start later, and write the counts when the program ends."""
    module, process = _load_audit(), os.getpid()
    audit: Audit = module.Audit(device)
    facts: dict[str, object] = {"torch": torch.__version__}
    report.write_text(json.dumps(facts), encoding="utf-8")
    audit.push()

    def in_thread(_frame: FrameType, _event: str, _argument: object) -> None:
        sys.setprofile(None)
        audit.push()

    def write() -> None:
        if os.getpid() != process:
            return  # the work of a forked child is not the program's
        rows = [
            {
                **place._asdict(),
                "code": linecache.getline(place.file, place.line).strip(),
                "count": counts.count,
                "bytes": counts.bytes,
                "seconds": counts.nanoseconds / 1e9,
                "returned": counts.returned,
            }
            for place, counts in audit.places.items()
            if module.worth_a_line(place, counts)
        ]
        facts.update(gpu_operators=audit.gpu_operators, fault=audit.fault, rows=rows)
        report.write_text(json.dumps(facts), encoding="utf-8")

    # The one public way to act at the start of each thread, from within it.
    threading.setprofile(in_thread)
    atexit.register(write)


def _load_audit() -> ModuleType:
    """Import the module beside this one, wherever Python looks for others."""
    file = Path(__file__).with_name("audit.py")
    spec = importlib.util.spec_from_file_location("_contribbot_audit", file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
