"""Values that the tree gives a check while the check is imported; no torch here."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Final, TypeGuard

#: Python's profiler, as `sys.setprofile` takes it.
Profiler = Callable[[FrameType, str, object], object]
#: From here on float64 holds not every whole number.
_EXACT: Final = 2**53
_TENSOR: Final = ("torch", "Tensor")


class ImportWatch:
    """Notes functions of the tree that return a tensor or numbers to code of another place.

    Of the tree are the files that really lie in its folders: not those that an overlay links to.

    Attributes:
        gave: The first function that returned a tensor, and its file; empty: none did.
        numbers: Each number that functions returned, and the first such function.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self.gave = ""
        self.numbers: dict[float, str] = {}
        self.folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self._paths: dict[str, str] = {}

    @contextlib.contextmanager
    def importing(self) -> Iterator[None]:
        """Watch the import of a check."""
        with profiled(self._note_given):
            yield

    def _note_given(self, frame: FrameType, event: str, result: object) -> None:
        if event != "return" or not (path := self.path(frame.f_code.co_filename)):
            return
        outer = frame.f_back
        while outer is not None and not self.path(outer.f_code.co_filename):
            outer = outer.f_back
        # A value that the tree makes for itself is no reference.
        if outer is not None:
            return
        name = f"{path}: {frame.f_code.co_qualname}"
        for value in _flat(result):
            if is_telling(value):
                self.numbers.setdefault(value, f"{name} gave a number while the check was imported")
            elif any((kind.__module__, kind.__name__) == _TENSOR for kind in type(value).__mro__):
                self.gave = self.gave or f"{name} gave a tensor while the check was imported"

    def path(self, file: str) -> str:
        """Return the path in the tree of a file, or nothing."""
        if file not in self._paths:
            real = _real_path(file)
            roots = (root for root in self.folders if real.startswith(root))
            self._paths[file] = min(
                (real.removeprefix(root) for root in roots), key=len, default=""
            )
        return self._paths[file]


#: Each cell asks for the files of all modules: some 2,000, at 20 µs each.
_real_path: Final = functools.cache(os.path.realpath)


@contextlib.contextmanager
def profiled(note: Profiler | None) -> Iterator[None]:
    """Have Python's profiler call a function; None: nothing watches or slows what runs."""
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def _flat(value: object) -> Iterator[object]:
    """Yield a value, or the values in lists, tuples and mappings."""
    if isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _flat(item)
    else:
        yield value


def is_telling(value: object) -> TypeGuard[float]:
    """Say whether a value is a number that is not equal to others by chance, as 0 and 1 are."""
    return isinstance(value, int | float) and abs(value) < _EXACT and value not in {0, 1}
