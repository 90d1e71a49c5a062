"""Note the values that the tree gives a check during the check's import, without torch."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Final, TypeGuard

#: A profile function as `sys.setprofile` takes one.
Profiler = Callable[[FrameType, str, object], object]
#: From this number on, float64 cannot represent every integer.
_EXACT: Final = 2**53
_TENSOR: Final = ("torch", "Tensor")


class ImportWatch:
    """A watch for functions of the tree that return a tensor or number to code outside the tree.

    A file belongs to the tree if its real path is in the tree, so not if an overlay links to it.

    Attributes:
        gave: The first function that returned a tensor, and its file; empty: no function did.
        numbers: Each returned number, and the first function that returned the number.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self.gave = ""
        self.numbers: dict[float, str] = {}
        self.folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self._paths: dict[str, str] = {}

    @contextlib.contextmanager
    def importing(self) -> Iterator[None]:
        """Record the modules that a check imports in a block."""
        with profiled(self._note_given):
            yield

    def _note_given(self, frame: FrameType, event: str, result: object) -> None:
        if event != "return" or not (path := self.path(frame.f_code.co_filename)):
            return
        outer = frame.f_back
        while outer is not None and not self.path(outer.f_code.co_filename):
            outer = outer.f_back
        # A value that goes to other code of the tree is no reference.
        if outer is not None:
            return
        name = f"{path}: {frame.f_code.co_qualname}"
        for value in _flat(result):
            if is_telling(value):
                self.numbers.setdefault(value, f"{name} gave a number while the check was imported")
            elif any((kind.__module__, kind.__name__) == _TENSOR for kind in type(value).__mro__):
                self.gave = self.gave or f"{name} gave a tensor while the check was imported"

    def path(self, file: str) -> str:
        """Return a file's path inside the tree; empty: the file is not in the tree."""
        if file not in self._paths:
            real = _real_path(file)
            roots = (root for root in self.folders if real.startswith(root))
            self._paths[file] = min(
                (real.removeprefix(root) for root in roots), key=len, default=""
            )
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


def _flat(value: object) -> Iterator[object]:
    """Yield a value, or all values inside lists, tuples and dicts."""
    if isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _flat(item)
    else:
        yield value


def is_telling(value: object) -> TypeGuard[float]:
    """Return whether a value is a number that is rarely equal by chance (not 0 or 1)."""
    return isinstance(value, int | float) and abs(value) < _EXACT and value not in {0, 1}
