"""The emulated GPU of this process, and the record of its launches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from contribbot.emulate.code_object import Kernel
from contribbot.emulate.outcomes import LaunchRecord, write_event

#: The version of ROCm that programs see: the version of torch 2.13's ROCm wheels.
HIP: Final = "7.2.0"


@dataclass
class EmulatedGpu:
    """The GPU that `device` emulates, with the record of its launches."""

    target: str
    record: LaunchRecord = field(default_factory=LaunchRecord)
    launches: int = 0
    kernels: list[Kernel] = field(default_factory=list)  # the kernels that were loaded
    calls: list[str] = field(default_factory=list)  # each in the form of a `[[compile]]`
    #: Runs each launch in place of `TritonLaunch.run`, and may look at memory before and after.
    observer: Callable[[object], None] | None = None

    def count_launch(self, call: str = "") -> None:
        """Count a launch, keep its call's text, and report the first to the parent process."""
        if call and call not in self.calls:
            self.calls.append(call)
        if not self.launches:
            write_event(kind="launched")
        self.launches += 1

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Make this GPU the GPU of this process during a `with` block."""
        _in_place.append(self)
        try:
            yield
        finally:
            _in_place.clear()

    @contextlib.contextmanager
    def observed(self, observer: Callable[[object], None]) -> Iterator[None]:
        """Run the launches of a `with` block by `observer`, in place of `TritonLaunch.run`."""
        before, self.observer = self.observer, observer
        try:
            yield
        finally:
            self.observer = before


_in_place: Final[list[EmulatedGpu]] = []


def active_gpu() -> EmulatedGpu | None:
    """Return the emulated GPU of this process; None: no GPU is emulated."""
    return _in_place[0] if _in_place else None
