"""What a run of a check came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from contribbot.model.evidence import RunnerFault
from contribbot.numerics.records import CellRecord
from contribbot.verify.kernels import Kernels

#: How the trouble of a run begins that ended for want of room.
FULL: Final = "the disk is full"
STARVED: Final = "out of memory"
#: Failures of one run that a record holds in full, and characters of the others.
_IN_FULL: Final = 20
_SHORT: Final = 200


@dataclass(frozen=True)
class Failure:
    """One test that did not pass.

    Attributes:
        test: The test.
        when: `setup`, `call` or `teardown`.
        message: `ExceptionType: message`.
        broken: Whether something could not be imported or found.
        fault: What this machine could not do (`memory`, `device`), or empty.
    """

    test: str
    when: str
    message: str
    broken: bool
    fault: str = ""

    @property
    def first(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


@dataclass
class CheckRun:
    """What one run of one check on one tree came to.

    Attributes:
        passed: Tests that passed.
        failed: Tests that failed.
        skipped: Tests that were skipped.
        trouble: Why the run as a whole cannot be believed, or empty.
        transient: Whether that may be different the next time (crash, time-out).
        command: What was run, with `<run>` for the folder of the run.
        seconds: Wall-clock time of the child.
        log: SHA-256 of the whole output.
        tail: The end of the output.
        statements: The lines with statements among those that the patch adds, by tree path.
        executed: Those of them that ran.
        cells: The cells of grids that were judged.
        kernels: The kernels that ran, where that was asked for.
        suspicion: What could be the runner's doing and not the tree's; None: nothing.
        cleared: Whether a known-good kernel ran well after that, so that it is not.
    """

    passed: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    trouble: str = ""
    transient: bool = False
    command: str = ""
    seconds: float = 0.0
    log: str = ""
    tail: str = ""
    statements: dict[str, list[int]] = field(default_factory=dict)
    executed: dict[str, list[int]] = field(default_factory=dict)
    cells: list[CellRecord] = field(default_factory=list)
    kernels: Kernels = field(default_factory=Kernels)
    suspicion: RunnerFault | None = None
    cleared: bool = False

    @property
    def starved(self) -> bool:
        """Whether it wanted more memory than there was."""
        return self.trouble.startswith(STARVED) or any(
            failure.fault == "memory" for failure in self.failed
        )

    @property
    def ran(self) -> set[str]:
        """The tests that were executed."""
        return {*self.passed, *(failure.test for failure in self.failed)}

    def summary(self) -> dict[str, JsonValue]:
        """Return what the record keeps."""
        failures: list[JsonValue] = [
            {
                "test": one.test,
                "when": one.when,
                "message": one.message if place < _IN_FULL else one.first[:_SHORT],
            }
            for place, one in enumerate(self.failed)
        ]
        return {
            "passed": list(self.passed),
            "failed": failures,
            "skipped": list(self.skipped),
            "trouble": self.trouble,
            "command": self.command,
            "seconds": round(self.seconds, 3),
            "log_sha256": self.log,
            "log_tail": self.tail,
            **({"suspected": self.suspicion.model_dump()} if self.suspicion else {}),
        }
