"""What came of launches and tests on the emulated GPU: its process writes, whoever asked reads."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

from pydantic import BeforeValidator

from contribbot.emulate.faults import Fault, KernelError, UnmodelledError
from contribbot.errors import ExitCode, MachineError
from contribbot.model.base import Many, Model

if TYPE_CHECKING:
    from contribbot.emulate.code_object import Kernel

#: What came of a test. A fault is the kernel's; what is not modelled says nothing of it.
TestOutcome = Literal["passed", "failed", "fault", "not modelled", "skipped"]
OUTCOMES: Final[tuple[TestOutcome, ...]] = get_args(TestOutcome)
#: Tells a program's processes where to write.
FOLDER: Final = "CONTRIBBOT_EMULATE_FOLDER"


def written(text: str) -> str:
    """Return text that UTF-8 can hold: names of files and messages may be none."""
    return text.encode("utf-8", "backslashreplace").decode()


Text = Annotated[str, BeforeValidator(written)]


class TestRow(Model):
    """What came of one test, or of a program without tests."""

    __test__ = False  # pytest would collect it

    test: Text
    outcome: TestOutcome
    seconds: float = 0.0
    kernel: str = ""
    line: str = ""  # of the kernel's source: `file.py:12`
    instruction: str = ""
    fault: Fault | Literal[""] = ""
    said: Text = ""  # the fault, or what is not modelled, or why it failed


class TargetRun(Model):
    """What came of a program on one target."""

    target: str
    exit_code: int = 0
    seconds: float = 0.0
    launches: int = 0  # processes that launched a kernel
    error: str = ""  # why the program could not run there
    tests: Many[TestRow] = ()

    @property
    def interrupted(self) -> bool:
        """Say whether a person, or what runs this, ended it."""
        return self.exit_code in {ExitCode.INTERRUPTED, 128 + signal.SIGTERM}

    def count(self) -> Counter[str]:
        """Return how many tests came to each outcome."""
        return Counter(row.outcome for row in self.tests)


class EmulationReport(Model):
    """What came of a program on each target."""

    program: Many[Text]
    targets: Many[TargetRun] = ()


def line_of(text: str) -> str:
    """Return a message as one line that is not too long for a report."""
    return " ".join(text.split())[:1000]


def row_of(test: str, error: KernelError | MachineError, seconds: float = 0.0) -> TestRow:
    """Return the row of a test that came upon a fault, or upon what is not modelled, or missing."""
    place = None if not isinstance(error, (KernelError, UnmodelledError)) else error.place
    return TestRow(
        test=test, seconds=seconds, said=line_of("; ".join(filter(None, [str(error), error.hint]))),
        outcome="fault" if isinstance(error, KernelError) else "not modelled",
        fault=error.fault if isinstance(error, KernelError) else "",
        kernel=place.kernel if place else "", line=place.line if place else "",
        instruction=place.instruction if place else "",
    )  # fmt: skip


def write(**facts: object) -> None:
    """Append a line for the parent, if there is one."""
    if folder := os.environ.get(FOLDER):
        number = os.open(Path(folder) / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(number, json.dumps(facts).encode() + b"\n")
        os.close(number)


def read(folder: Path, run: TargetRun, program: str) -> TargetRun:
    """Return the run with what the program's processes wrote."""
    events = folder / "events"
    text = events.read_text(encoding="utf-8") if events.is_file() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    kinds = Counter(line["kind"] for line in lines)
    tests = {line["row"]["test"]: line["row"] for line in lines if line["kind"] == "test"}
    untold = [line["row"] for line in lines if line["kind"] == "untold"]
    for row in untold:  # also in processes that a test started, whatever the test made of it
        before = tests.get(row["test"])
        if before and before["outcome"] not in {"fault", "not modelled"}:
            tests[row["test"]] = {**row, "seconds": before["seconds"]}
    if kinds["interrupted"]:
        run = run.model_copy(update={"exit_code": ExitCode.INTERRUPTED})
    error = next((line["error"] for line in lines if line["kind"] == "error"), "")
    error = error or _shortfall(kinds, run.exit_code)
    # Without tests: the program as a whole, whatever it made of what came up in it.
    if not tests and untold:
        tests = {program: {**untold[0], "test": program, "seconds": run.seconds}}
    elif not tests and not error and not kinds["session"]:
        outcome = "failed" if run.exit_code else "passed"
        said = f"exit status {run.exit_code}" if run.exit_code else ""
        row = {"test": program, "outcome": outcome, "said": said, "seconds": run.seconds}
        tests = {program: row}
    rows = tuple(map(TestRow.model_validate, tests.values()))
    return run.model_copy(update={"tests": rows, "launches": kinds["launched"], "error": error})


def _shortfall(kinds: Mapping[str, int], status: int) -> str:
    """Return why a run says nothing of the target, or not all, from its events and exit status."""
    killed = status - 128 in signal.valid_signals()
    ended = f"signal {status - 128} ended it" if killed else f"it ended with status {status}"
    if status == 128 + signal.SIGKILL:
        ended += ", as where memory runs out"
    part = ": not all of its tests have run" if kinds["session"] else ""
    if not kinds["started"]:
        return (
            f"{ended}, and no Python began that has the emulated GPU (-I, -S and -E leave it out)"
        )
    if not kinds["launched"]:
        return f"{ended} and launched no Triton kernel: nothing was emulated"
    whole = status in {0, 1} and kinds["finished"] == kinds["session"]
    return f"{ended}{part}" if killed or (kinds["session"] and not whole) else ""


def exit_code(runs: Sequence[TargetRun]) -> ExitCode:
    """Return 0 if all tests passed, 1 if one did not, 3 where nothing can be said."""
    counts = sum((run.count() for run in runs), Counter[str]())
    if any(run.interrupted for run in runs):
        return ExitCode.INTERRUPTED
    if counts["failed"] or counts["fault"]:
        return ExitCode.NO
    if counts["not modelled"] or any(run.error for run in runs):
        return ExitCode.MACHINE
    # Something that is no test: a warning that is an error, say, or coverage.
    return ExitCode.NO if any(run.exit_code for run in runs) else ExitCode.OK


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
            write(kind="launched")
        self.launches += 1

    def newly_ended(self) -> list[KernelError | MachineError]:
        """Return what has ended launches since it was asked last."""
        ended, self.untold[:] = [*self.untold], []
        return ended

    def ended(self, error: KernelError | MachineError) -> None:
        """Keep what ended a launch."""
        self.untold.append(error)
        # pytest tells the name to processes that a test starts, too.
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        write(kind="untold", row=row_of(test, error).model_dump())


RECORD: Final = LaunchRecord()
