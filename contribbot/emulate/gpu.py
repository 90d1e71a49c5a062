"""The emulated GPU of this process, and the record of the launches on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from contribbot.emulate.code_object import Kernel
from contribbot.emulate.outcomes import LaunchRecord, write_event

#: The version of ROCm that is told: the one of torch 2.13's ROCm wheels.
HIP: Final = "7.2.0"


@dataclass
class EmulatedGpu:
    """A GPU that `device` has put in place, with the record of the launches on it."""

    target: str
    record: LaunchRecord = field(default_factory=LaunchRecord)
    launches: int = 0
    kernels: list[Kernel] = field(default_factory=list)  # that were loaded
    calls: list[str] = field(default_factory=list)  # as a `[[compile]]` states each
    #: Runs each launch in the place of `TritonLaunch.run`, and may look at memory around it.
    observer: Callable[[object], None] | None = None

    def count_launch(self, call: str = "") -> None:
        """Count a launch; report the first launch to the parent process."""
        if call and call not in self.calls:
            self.calls.append(call)
        if not self.launches:
            write_event(kind="launched")
        self.launches += 1

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Be the GPU of this process for a `with` block."""
        _in_place.append(self)
        try:
            yield
        finally:
            _in_place.clear()

    @contextlib.contextmanager
    def observed(self, observer: Callable[[object], None]) -> Iterator[None]:
        """Have an observer run the launches of a `with` block."""
        before, self.observer = self.observer, observer
        try:
            yield
        finally:
            self.observer = before


_in_place: Final[list[EmulatedGpu]] = []


def active_gpu() -> EmulatedGpu | None:
    """Return the active emulated GPU of this process, or None."""
    return _in_place[0] if _in_place else None
