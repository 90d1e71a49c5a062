"""What a run of a check came to, as data."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from contribbot.model.evidence import RunnerFault
from contribbot.numerics.records import CellRecord
from contribbot.verify.kernels import Kernels

#: Failures of one run that a record holds in full, and characters of the others.
_IN_FULL: Final = 20
_SHORT: Final = 200


class Trouble(enum.StrEnum):
    """Why a run as a whole shows nothing."""

    #: It did not end by itself.
    TIMED_OUT = "timed out"
    FLOODED = "flooded"
    #: The machine had no room.
    DISK_FULL = "disk full"
    NO_MEMORY = "no memory"
    #: It ended, and not as pytest does.
    CRASHED = "crashed"
    ENDED_EARLY = "ended early"
    #: The check is broken.
    UNCOLLECTED = "uncollected"
    STOPPED = "stopped"
    FIXTURE = "fixture"
    EMPTY = "empty"
    MEDDLED = "meddled"
    UNREADABLE = "unreadable"


#: What may be different the next time.
PASSING: Final = frozenset({
    Trouble.TIMED_OUT, Trouble.FLOODED, Trouble.DISK_FULL, Trouble.NO_MEMORY, Trouble.CRASHED,
    Trouble.ENDED_EARLY, Trouble.MEDDLED, Trouble.UNREADABLE, Trouble.UNCOLLECTED,
})  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """One test that did not pass: when, `ExceptionType: message`, and what it may be put down to.

    `broken`: something could not be imported, loaded or found. `fault`: what this machine
    could not do (`memory`, `device`), or empty.
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

    `partly` are tests of which a part was skipped. `trouble` says why the run as a whole shows
    nothing, `told` puts it into words. `executed` are the lines that ran under tests, by tree
    path, of those that the patch adds. `missing` are the modules that a broken check lacks.
    `suspicion` is what could be the runner's doing; `cleared`: a known-good kernel ran well after
    that, so that it is not.
    """

    passed: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    partly: list[str] = field(default_factory=list)
    status: int | None = None
    trouble: Trouble | None = None
    told: str = ""
    command: str = ""
    seconds: float = 0.0
    limit: float = 0.0
    log: str = ""
    tail: str = ""
    executed: dict[str, list[int]] = field(default_factory=dict)
    cells: list[CellRecord] = field(default_factory=list)
    kernels: Kernels = field(default_factory=Kernels)
    missing: tuple[str, ...] = ()
    suspicion: RunnerFault | None = None
    cleared: bool = False

    @property
    def transient(self) -> bool:
        """Whether it may be different the next time."""
        return self.trouble in PASSING or any(failure.fault for failure in self.failed)

    @property
    def starved(self) -> bool:
        """Whether it wanted more memory than there was."""
        return self.trouble is Trouble.NO_MEMORY or any(
            failure.fault == "memory" for failure in self.failed
        )

    @property
    def ran(self) -> set[str]:
        """The tests that were executed."""
        return {*self.passed, *(failure.test for failure in self.failed)}

    @property
    def outcomes(self) -> dict[str, str]:
        """What became of each test: what two runs on one tree must agree on."""
        found = dict.fromkeys(self.passed, "passed") | dict.fromkeys(self.skipped, "skipped")
        return found | {failure.test: "failed" for failure in self.failed}

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
            "trouble": self.told,
            "command": self.command,
            "seconds": round(self.seconds, 3),
            "log_sha256": self.log,
            "log_tail": self.tail,
            **({"missing": list(self.missing)} if self.missing else {}),
            **({"suspected": self.suspicion.model_dump()} if self.suspicion else {}),
        }
