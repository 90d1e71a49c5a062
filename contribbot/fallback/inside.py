"""What starts the audit in the program: Python's `sitecustomize` loads it, by its path.

The folder that it gets as `record` takes `places.jsonl`, a line for each new place or warning, and
`cells`, counts in shared memory: whatever ends the program, they are complete.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import mmap
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from contribbot.fallback.audit import Audit
    from contribbot.fallback.ledger import Ledger, Place


_ONCE: Final = re.compile(r"warn\w*_once$")


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

    def __init__(self, record: Record, ledger: Ledger, device: str) -> None:
        self._record, self._ledger, self._device = record, ledger, device
        self.audit: Audit | None = None

    def begin(self) -> None:
        """Watch this thread, and all that start later."""
        import torch  # noqa: PLC0415  the program has just done so

        audit: Audit = _load("audit").Audit(self._ledger, self._device)
        self.audit = audit
        self._record.write(kind="torch", version=torch.__version__)
        os.register_at_fork(after_in_child=self.end)
        audit.push()
        # The one public way to act at the start of each thread, from within it.
        threading.setprofile(self._thread)
        audit.see_texts()
        # What torch's C++ code says once is to be counted as often as it is reached.
        torch.set_warn_always(True)

    def end(self) -> None:
        """Stop counting: a forked child shares the memory, and its work is not the program's."""
        if self.audit is not None:
            self.audit.active = False

    def _thread(self, _frame: FrameType, _event: str, _argument: object) -> None:
        sys.setprofile(None)
        if self.audit is not None:
            self.audit.push()


def count_warnings(ledger: Ledger) -> None:
    """Count each warning as often as it is reached, and show it as often as without.

    Python forgets at once that it has shown one, and so calls again what shows it.
    """
    show = warnings.showwarning
    shown: set[tuple[str, type[Warning], str, int]] = set()

    def showwarning(  # noqa: PLR0917  as warnings calls it
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        text = str(message)
        ledger.add(ledger.place("warning", f"{category.__name__}: {text}", filename, lineno), 0, 0)
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  what warnings itself uses
        while frame is not None:
            registry = frame.f_globals.get("__warningregistry__", {})
            for number in (lineno, 0):
                registry.pop((text, category, number), None)
            frame = frame.f_back if frame.f_code.co_filename != filename else None
        if (text, category, filename, lineno) not in shown:
            shown.add((text, category, filename, lineno))
            show(message, category, filename, lineno, file, line)

    warnings.showwarning = showwarning


def count_helpers(ledger: Ledger) -> None:
    """Count what goes through helpers such as `warning_once`, which remember what they said.

    vLLM, SGLang, transformers and torch make them with `functools.lru_cache`.
    """
    lru_cache = functools.lru_cache

    def counting(maxsize: int | Callable[..., object] | None = 128, typed: bool = False) -> object:  # noqa: FBT001, FBT002  as Python has it
        if callable(maxsize):
            return counting()(maxsize)  # type: ignore[operator]  # a decorator, with a number
        cached = lru_cache(maxsize, typed)

        def decorate(function: Callable[..., object]) -> Callable[..., object]:
            said = cached(function)
            if not _ONCE.search(getattr(function, "__name__", "")):
                return said

            @functools.wraps(said)
            def reached(*args: object, **kwargs: object) -> object:
                caller = frame = sys._getframe(1)  # noqa: SLF001  what logging itself uses
                # A method of the helper's own module may stand between.
                own = function.__code__.co_filename
                while frame.f_back is not None and frame.f_code.co_filename == own:
                    frame = frame.f_back
                if frame.f_code.co_filename != own:
                    caller = frame
                texts = [number for number, value in enumerate(args) if isinstance(value, str)]
                text, rest = (args[texts[0]], args[texts[0] + 1 :]) if texts else ("", ())
                with contextlib.suppress(TypeError, ValueError):
                    text = str(text) % rest
                place = caller.f_code.co_filename, caller.f_lineno
                ledger.add(ledger.place("warning", str(text), *place), 0, 0)
                return said(*args, **kwargs)

            for name in ("cache_info", "cache_clear", "cache_parameters"):
                setattr(reached, name, getattr(said, name))
            return reached

        return decorate

    vars(functools)["lru_cache"] = counting


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
    ledger: Ledger = _load("ledger").Ledger(record.cells, record.place)
    count_warnings(ledger)
    count_helpers(ledger)
    sys.meta_path.insert(0, Arrival(Watch(record, ledger, device).begin))
    # The name was taken from what this Python has under it, if anything.
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])
