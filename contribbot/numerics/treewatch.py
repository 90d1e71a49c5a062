"""Seeing that a test itself runs nothing of the tree, of which a reference could come."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Final

_MODULE: Final = "<module>"


class TreeWatch:
    """Notes the first function of the tree that a test runs beside the one that is judged.

    Python's profiler tells of each function that starts in this thread. Of the tree are the
    files that really lie in its folders: not those that an overlay links to. What runs while
    a module is imported computes no reference.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self.ran = ""
        self._folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self._inside: dict[str, str] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the body of a test, for one seed."""
        self.ran = ""
        before = sys.getprofile()
        if self._folders:
            sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and not self.ran and (path := self._of_tree(frame)):
            caller: FrameType | None = frame
            while caller is not None:
                if caller.f_code.co_name == _MODULE and self._of_tree(caller):
                    return
                caller = caller.f_back
            self.ran = f"{path}: {frame.f_code.co_qualname}"

    def _of_tree(self, frame: FrameType) -> str:
        """Return the path in the tree of the file that a frame runs, or nothing."""
        file = frame.f_code.co_filename
        if file not in self._inside:
            real = os.path.realpath(file)
            inside = (real.removeprefix(one) for one in self._folders if real.startswith(one))
            self._inside[file] = min(inside, key=len, default="")
        return self._inside[file]


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Let the tree run, as it does anywhere: nothing watches or slows it."""
    before = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(before)
