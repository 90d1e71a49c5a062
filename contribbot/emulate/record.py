"""What was launched on the emulated GPU of this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from contribbot.emulate import outcomes
from contribbot.emulate.code_object import Kernel
from contribbot.emulate.faults import KernelError
from contribbot.errors import MachineError


@dataclass
class LaunchRecord:
    """The kernels that were loaded, how often one was launched, and what ended launches."""

    launches: int = 0
    stored: bool = False  # whether any launch wrote to a tensor
    untold: list[KernelError | MachineError] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)  # what a `[[compile]]` of each states
    #: Runs each `TritonLaunch`, and may look at what is there before and after.
    observer: Callable[[object], None] | None = None

    def launched(self, call: str = "") -> None:
        """Count a launch; the first one is told."""
        if call and call not in self.calls:
            self.calls.append(call)
        if not self.launches:
            outcomes.write(kind="launched")
        self.launches += 1

    def ended(self, error: KernelError | MachineError) -> None:
        """Keep what ended a launch."""
        self.untold.append(error)
        # pytest tells the name to processes that a test starts, too.
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        outcomes.write(kind="untold", row=outcomes.row_of(test, error).model_dump())


RECORD: Final = LaunchRecord()
