"""Starts the audit in the program that is watched; `sitecustomize` loads this file by its path."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import linecache
import os
import sys
import threading
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
    after_import = _load("after_import")
    after_import.AfterImport("torch", functools.partial(_watch, report=report, device=device))
    after_import.run_hidden(folder)


def _watch(torch: ModuleType, *, report: Path, device: str) -> None:
    """Watch this thread and all that start later, and write the counts when the program ends."""
    module, process = _load("audit"), os.getpid()
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


def _load(name: str) -> ModuleType:
    """Import a module beside this one, wherever Python looks for others."""
    file = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"_contribbot_{name}", file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
