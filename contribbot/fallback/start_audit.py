"""Starts the audit: loaded by `sitecustomize`, it writes `places.jsonl` and counts in `cells`."""

from __future__ import annotations

import contextlib
import functools
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
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from contribbot.fallback.audit import Audit
    from contribbot.fallback.ledger import CallSite, Ledger

#: vLLM, SGLang, transformers and torch call so what they put into an lru_cache to say it once.
_ONCE: Final = re.compile(r"warn\w*_once$")


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
        audit.see_texts()

        def in_thread(_frame: FrameType, _event: str, _argument: object) -> None:
            sys.setprofile(None)
            audit.push()

        # The one public way to act at the start of each thread, from within it.
        threading.setprofile(in_thread)
        # A forked child shares the memory, and its work is not the program's.
        os.register_at_fork(after_in_child=functools.partial(setattr, audit, "active", False))  # noqa: FBT003  setattr's
        # What torch's C++ code says once is to be counted as often as it is reached.
        torch.set_warn_always(True)


def count_warnings(ledger: Ledger) -> None:
    """Count each warning as often as it is reached, and show it as often as without."""
    show = warnings.showwarning
    shown: set[tuple[str, type[Warning], str, int]] = set()

    def showwarning(  # noqa: PLR0917  as warnings calls it
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        text = str(message)
        ledger.add("warning", f"{category.__name__}: {text}", filename, lineno)
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
    """Count what goes through helpers such as `warning_once`, which remember what they said."""
    lru_cache = functools.lru_cache

    def counting(maxsize: int | Callable[..., object] | None = 128, typed: bool = False) -> object:  # noqa: FBT001, FBT002  as Python has it
        if callable(maxsize):
            return decorated(maxsize, lru_cache(maxsize))
        return lambda function: decorated(function, lru_cache(maxsize, typed)(function))

    def decorated(function: Callable[..., object], said: Callable[..., object]) -> object:
        if not _ONCE.search(getattr(function, "__name__", "")):
            return said
        own = function.__code__.co_filename

        @functools.wraps(said)
        def reached(*args: object, **kwargs: object) -> object:
            caller = frame = sys._getframe(1)  # noqa: SLF001  what logging itself uses
            # A method of the helper's own module may stand between.
            while frame.f_back is not None and frame.f_code.co_filename == own:
                frame = frame.f_back
            if frame.f_code.co_filename != own:
                caller = frame
            texts = [number for number, value in enumerate(args) if isinstance(value, str)]
            text, rest = (args[texts[0]], args[texts[0] + 1 :]) if texts else ("", ())
            with contextlib.suppress(TypeError, ValueError):
                text = str(text) % rest
            ledger.add("warning", str(text), caller.f_code.co_filename, caller.f_lineno)
            return said(*args, **kwargs)

        for name in ("cache_info", "cache_clear", "cache_parameters"):
            setattr(reached, name, getattr(said, name))
        return reached

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
    watch = Watch(Path(folder), device)
    count_warnings(watch.ledger)
    count_helpers(watch.ledger)
    after_import = _load("after_import")
    after_import.AfterImport("torch", watch.begin)
    after_import.run_hidden(folder)
