"""Seeing that a test itself runs nothing of the tree, of which a reference could come."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Final

import torch

_OPERATORS: Final = "torch._ops."
#: What the operators of torch itself are called, before a check loads any.
_TORCH: Final = {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}  # noqa: SLF001  nothing public lists them


class TreeWatch:
    """Notes the first function of the tree that a test runs beside the one that is judged.

    Python's profiler tells of each function that starts in this thread, compiled ones too. Of
    the tree are the files that really lie in its folders: not those that an overlay links to.
    What runs while a module is imported computes no reference.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self.ran = ""
        self._folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self._paths: dict[str, str] = {}

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

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if self.ran:
            return
        function = ""
        if event == "call" and (path := self._path(frame.f_code.co_filename)):
            function = f"{path}: {frame.f_code.co_qualname}"
        elif event == "c_call" and self._compiled(module := getattr(argument, "__module__", "")):
            function = f"{module}.{getattr(argument, '__name__', '')}"
        if function and not self._importing(frame):
            self.ran = function

    def _compiled(self, module: str | None) -> bool:
        """Say whether a module of compiled functions, or of torch's operators, is the tree's."""
        if not module:
            return False
        if not module.startswith(_OPERATORS):
            return self._is_library(getattr(sys.modules.get(module), "__file__", None))
        if module.removeprefix(_OPERATORS) in _TORCH:
            return False
        modules = [getattr(loaded, "__file__", None) for loaded in list(sys.modules.values())]
        return any(map(self._is_library, [*torch.ops.loaded_libraries, *modules]))

    def _is_library(self, file: str | None) -> bool:
        return bool(file) and not str(file).endswith(".py") and bool(self._path(str(file)))

    def _importing(self, frame: FrameType | None) -> bool:
        while frame is not None:
            code = frame.f_code
            if code.co_name == "<module>" and self._path(code.co_filename):
                return True
            frame = frame.f_back
        return False

    def _path(self, file: str) -> str:
        """Return the path in the tree of a file, or nothing."""
        if file not in self._paths:
            real = os.path.realpath(file)
            roots = (root for root in self._folders if real.startswith(root))
            self._paths[file] = min(
                (real.removeprefix(root) for root in roots), key=len, default=""
            )
        return self._paths[file]


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Let the tree run as it does anywhere: nothing watches or slows it."""
    before = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(before)
