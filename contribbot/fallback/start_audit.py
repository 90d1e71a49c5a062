"""Start the audit in the watched program, once the program imports torch.

A `sitecustomize` loads this file by path, so the program's Python needs no contribbot.
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
    """Start the audit once torch is imported; undo the changes to the path and environment."""
    sys.path[:] = [place for place in sys.path if place != folder]
    os.environ.pop("PYTHONPATH")
    if path is not None:
        os.environ["PYTHONPATH"] = path
    report = Path(folder, "report.json")
    _write(report, unwatched="the first Python process did not import torch")
    AfterImport("torch", functools.partial(_watch, report=report, device=device))
    run_hidden(folder)


def _write(report: Path, **facts: object) -> None:
    report.write_text(json.dumps(facts), encoding="utf-8")


def _watch(torch: ModuleType, *, report: Path, device: str) -> None:
    """Watch this thread and all later threads, and write the counts when the program ends."""
    module, process = _load_audit(), os.getpid()
    audit: Audit = module.Audit(device)
    lost = "the program was ended by a signal or by os._exit, and its counts are lost"
    _write(report, torch=torch.__version__, unwatched=lost)
    audit.push()

    def in_thread(_frame: FrameType, _event: str, _argument: object) -> None:
        sys.setprofile(None)
        audit.push()

    def write() -> None:
        if os.getpid() != process:
            return  # a forked process must not write the report
        rows = [
            {
                **place._asdict(),
                "code": linecache.getline(place.file, place.line).strip(),
                "count": counts.count,
                "bytes": counts.bytes,
                "seconds": counts.nanoseconds / 1e9,
            }
            for place, counts in audit.places.items()
            if module.worth_a_line(place, counts)
        ]
        fault = f"the watch ended by a fault of its own: {audit.fault}" if audit.fault else ""
        facts = {"torch": torch.__version__, "gpu_operators": audit.gpu_operators}
        _write(report, **facts, unwatched=fault, findings=rows)

    # The only public way to run code at the start of each thread, in that thread.
    threading.setprofile(in_thread)
    atexit.register(write)


def _load_audit() -> ModuleType:
    """Import `audit.py` from this folder, whatever sys.path is."""
    file = Path(__file__).with_name("audit.py")
    spec = importlib.util.spec_from_file_location("_contribbot_audit", file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_hidden(folder: str) -> None:
    """Run the `sitecustomize` that this folder's `sitecustomize` hides, if any."""
    places = [place for place in sys.path if place != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module, once the module is imported."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name, self._act = name, act
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module without this finder, which is removed; add the call to its loader."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._act(module)

            # Typeshed declares a method; in Python, a loader's attribute can be replaced.
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
