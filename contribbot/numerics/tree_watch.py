"""Note the values that the tree under test gives to a numerics check, without torch."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Final, TypeGuard

#: A profile function as `sys.setprofile` takes one.
Profiler = Callable[[FrameType, str, object], object]
#: From this number on, float64 cannot represent every integer.
_EXACT: Final = 2**53
_TENSOR: Final = ("torch", "Tensor")


class TreeWatch:
    """A watch for tensors and numbers that a check may have from the tree under test.

    Python's profiler reports each Python function that starts or ends in this thread. A file
    belongs to the tree if its real path is in the tree, so not if an overlay links to the file.

    Attributes:
        folders: The folders of the tree, each with a separator at the end.
        gave: The function that returned the first tensor to the check's import, in words; or empty.
        ran: `gave`, or the first function of the tree that ran in the test itself; or empty.
        numbers: By number that a check has from the tree: the tree's function or name, in words.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self.folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self.gave = self.ran = ""
        self.numbers: dict[float, str] = {}
        self._paths: dict[str, str] = {}

    @contextlib.contextmanager
    def importing(self) -> Iterator[None]:
        """Note the tensors and numbers that the tree returns while the block imports a check."""
        with profiled(self._note_returned):
            yield

    @contextlib.contextmanager
    def testing(self) -> Iterator[None]:
        """Note the first function of the tree that runs in the block, the body of a test."""
        self.ran = self.gave
        with profiled(self._note_called if self.folders else None):
            yield

    def compare_names(self, names: Mapping[str, object]) -> None:
        """Note the numbers in a check's module that a module of the tree has as well."""
        own = {*filter(_is_telling, names.values())}
        for path, name, value in self.values():
            if _is_telling(value) and value in own:
                self.numbers.setdefault(value, f"{path}: {name} is the same number")

    def values(self) -> Iterator[tuple[str, str, object]]:
        """Yield the file, name and value of each variable of the tree's imported modules."""
        for module in [*sys.modules.values()] if self.folders else ():
            content = getattr(module, "__dict__", {})
            if path := self._path(str(content.get("__file__") or "")):
                yield from ((path, name, value) for name, value in [*content.items()])

    def _note_returned(self, frame: FrameType, event: str, result: object) -> None:
        if event != "return" or not (path := self._path(frame.f_code.co_filename)):
            return
        # A value that goes to other code of the tree is no reference.
        if any(self._path(outer.f_code.co_filename) for outer in _callers(frame.f_back)):
            return
        name = f"{path}: {frame.f_code.co_qualname}"
        for value in _flat(result):
            if _is_telling(value):
                self.numbers.setdefault(value, f"{name} gave a number while the check was imported")
            elif any((kind.__module__, kind.__name__) == _TENSOR for kind in type(value).__mro__):
                self.gave = self.gave or f"{name} gave a tensor while the check was imported"

    def _note_called(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.ran or event != "call" or not (path := self._path(frame.f_code.co_filename)):
            return
        # A function that runs during an import is no fault.
        codes = (caller.f_code for caller in _callers(frame))
        if not any(c.co_name == "<module>" and self._path(c.co_filename) for c in codes):
            self.ran = f"{path}: {frame.f_code.co_qualname} ran in the test itself"

    def _path(self, file: str) -> str:
        """Return a file's path inside the tree; empty: the file is not in the tree."""
        if file not in self._paths:
            real = _real_path(file)
            roots = (root for root in self.folders if real.startswith(root))
            paths = (real.removeprefix(root) for root in roots)
            self._paths[file] = min(paths, key=len, default="")
        return self._paths[file]


#: Cached, as each cell asks for the files of some 2,000 modules, at 20 µs each.
_real_path: Final = functools.cache(os.path.realpath)


@contextlib.contextmanager
def profiled(note: Profiler | None) -> Iterator[None]:
    """Set Python's profile function for a `with` block; None: run the block unprofiled."""
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, the frame of its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _flat(value: object) -> Iterator[object]:
    """Yield a value, or all values inside lists, tuples and dicts."""
    if isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _flat(item)
    else:
        yield value


def _is_telling(value: object) -> TypeGuard[float]:
    """Return whether a value is a number below 2**53, but not 0 or 1, which are equal by chance."""
    return isinstance(value, int | float) and abs(value) < _EXACT and value not in {0, 1}
