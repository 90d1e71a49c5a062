"""Starts the audit: loaded by `sitecustomize`, it writes `places.jsonl` and counts in `cells`."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import json
import linecache
import mmap
import os
import sys
import threading
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contribbot.fallback.audit import Audit
    from contribbot.fallback.ledger import CallSite, Ledger


class Watch:
    """The audit of this process, from the import of torch to its end."""

    def __init__(self, folder: Path, device: str) -> None:
        self._device = device
        self._file = os.open(folder / "places.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.write(kind="python")
        with (folder / "cells").open("r+b") as cells:
            self.ledger: Ledger = _load("ledger").Ledger(mmap.mmap(cells.fileno(), 0), self._place)

    def write(self, **facts: object) -> None:
        """Write a line for the parent."""
        os.write(self._file, json.dumps(facts).encode() + b"\n")

    def _place(self, place: CallSite) -> None:
        self.write(**place._asdict(), code=linecache.getline(place.file, place.line).strip())

    def begin(self, torch: ModuleType) -> None:
        """Watch this thread, and all that start later."""
        audit: Audit = _load("audit").Audit(self.ledger, self._device)
        self.write(kind="torch", version=torch.__version__)
        audit.push()

        def in_thread(_frame: FrameType, _event: str, _argument: object) -> None:
            sys.setprofile(None)
            audit.push()

        # The one public way to act at the start of each thread, from within it.
        threading.setprofile(in_thread)
        # A forked child shares the memory, and its work is not the program's.
        os.register_at_fork(after_in_child=functools.partial(setattr, audit, "active", False))  # noqa: FBT003  setattr's


def _load(name: str) -> ModuleType:
    """Import a module beside this one, wherever Python looks for others."""
    spec = importlib.util.spec_from_file_location(
        f"_contribbot_{name}", Path(__file__).with_name(f"{name}.py")
    )
    assert spec is not None  # noqa: S101  it ends with .py
    assert spec.loader is not None  # noqa: S101  the same
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(folder: str, path: str | None, device: str) -> None:
    """Wait for torch, and leave this process otherwise as it would be."""
    sys.path[:] = [place for place in sys.path if place != folder]
    os.environ.pop("PYTHONPATH")
    if path is not None:
        os.environ["PYTHONPATH"] = path
    watch = Watch(Path(folder), device)
    after_import = _load("after_import")
    after_import.AfterImport("torch", watch.begin)
    after_import.run_hidden(folder)
