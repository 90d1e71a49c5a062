"""What starts the audit in the program: Python's `sitecustomize` loads it, by its path.

The folder that it gets as `record` takes `places.jsonl`, a line for each new place or warning, and
`cells`, counts in shared memory: whatever ends the program, they are complete.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import mmap
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contribbot.fallback.audit import Audit
    from contribbot.fallback.ledger import Place


class Record:
    """The files that the parent reads."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "places.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        descriptor = os.open(folder / "cells", os.O_RDWR)
        self.cells = mmap.mmap(descriptor, 0)
        os.close(descriptor)

    def write(self, **facts: object) -> None:
        """Write a line."""
        os.write(self._file, json.dumps(facts).encode() + b"\n")

    def place(self, place: Place) -> None:
        """Write where something was found, with its line of code."""
        self.write(**place._asdict(), code=linecache.getline(place.file, place.line).strip())


class Arrival(importlib.abc.MetaPathFinder):
    """Calls a function when torch has been imported."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find torch as without this finder, and act behind its import."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._then()

            # Typeshed has it as a method; a loader is an object like others.
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Watch:
    """The audit of this process, from the import of torch to its end."""

    def __init__(self, record: Record, device: str) -> None:
        self._record, self._device = record, device
        self.audit: Audit | None = None

    def begin(self) -> None:
        """Watch this thread, and all that start later."""
        import torch  # noqa: PLC0415  the program has just done so
        import torch._tensor_str  # noqa: PLC0415  part of it

        ledger = _load("ledger").Ledger(self._record.cells, self._record.place)
        audit: Audit = _load("audit").Audit(ledger, self._device)
        self.audit = audit
        self._record.write(kind="torch", version=torch.__version__)
        os.register_at_fork(after_in_child=self.end)
        audit.push()
        # The one public way to act at the start of each thread, from within it.
        threading.setprofile(self._thread)
        as_text: Callable[..., str] = torch._tensor_str._str  # noqa: SLF001  what print and repr call

        @functools.wraps(as_text)
        def _str(tensor: torch.Tensor, **options: object) -> str:
            began = perf_counter_ns()
            text: str = as_text(tensor, **options)
            audit.printed(tensor, perf_counter_ns() - began)
            return text

        vars(torch._tensor_str)["_str"] = _str  # noqa: SLF001  see above

    def end(self) -> None:
        """Stop counting: a forked child shares the memory, and its work is not the program's."""
        if self.audit is not None:
            self.audit.active = False

    def _thread(self, _frame: FrameType, _event: str, _argument: object) -> None:
        sys.setprofile(None)
        if self.audit is not None:
            self.audit.push()


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
    record = Record(Path(folder))
    record.write(kind="python", argv=sys.orig_argv, pid=os.getpid())
    sys.meta_path.insert(0, Arrival(Watch(record, device).begin))
    # The name was taken from what this Python has under it, if anything.
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])
