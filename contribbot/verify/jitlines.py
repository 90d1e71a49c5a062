"""A part of the child: lines that a compiler takes over, so that no tracer sees them run.

torch.compile interprets a function instead of running it, and tells each line in a log of its
own (`TORCH_LOGS=trace_source`). A Triton kernel's body runs on the device: its lines count when
it is launched.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Final

_DYNAMO: Final = "torch._dynamo.symbolic_convert.__trace_source"
_STARTS: Final = re.compile(r"TRACE starts_line (.+):([0-9]+) in ")
_TRITON: Final = "triton.runtime.jit"

Saw = Callable[[str, int], None]


def watch(saw: Saw) -> None:
    """Call `saw` with the file and number of each line that is taken over from now on."""
    log = logging.getLogger(_DYNAMO)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(_Dynamo(saw))
    sys.meta_path.insert(0, _Triton(saw))


class _Dynamo(logging.Handler):
    def __init__(self, saw: Saw) -> None:
        super().__init__()
        self._saw = saw

    def emit(self, record: logging.LogRecord) -> None:
        if found := _STARTS.match(record.getMessage()):
            self._saw(found[1], int(found[2]))


class _Triton(importlib.abc.MetaPathFinder):
    """Waits for Triton to be imported, and wraps what launches a kernel."""

    def __init__(self, saw: Saw) -> None:
        self._saw = saw

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _TRITON:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._wrap(module.JITFunction)

            # Typeshed has it as a method; a loader is an object like others.
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _wrap(self, kernel: type) -> None:
        run = kernel.run  # type: ignore[attr-defined]  # Triton's; without it there is no launch

        def launch(self_: object, *arguments: object, **options: object) -> object:
            result: object = run(self_, *arguments, **options)
            if not options.get("warmup"):
                for code in _codes(self_, set()):
                    for _, _, line in code.co_lines():
                        if line is not None:
                            self._saw(code.co_filename, line)
            return result

        kernel.run = launch  # type: ignore[attr-defined]


def _codes(kernel: object, known: set[object]) -> Iterator[CodeType]:
    """Yield the code of a kernel and of what it calls."""
    function = getattr(kernel, "fn", None)
    if not isinstance(function, FunctionType) or function in known:
        return
    known.add(function)
    yield function.__code__
    for name in function.__code__.co_names:
        yield from _codes(function.__globals__.get(name), known)
