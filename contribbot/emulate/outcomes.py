"""The outcome of each test on the emulated GPU, and the errors that ended launches."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from contribbot.emulate.errors import Fault, KernelError, NoResultError, UnmodelledError

#: A fault is the kernel's; after `not modelled` and `too long` there is no result.
TestOutcome = Literal["passed", "failed", "fault", "not modelled", "skipped", "too long"]
OUTCOMES: Final[tuple[TestOutcome, ...]] = get_args(TestOutcome)
#: The variable that names the folder for the events of a program's processes.
FOLDER: Final = "CONTRIBBOT_EMULATE_FOLDER"
T = TypeVar("T")
#: A tuple, which is a list in JSON.
Sequenced = Annotated[tuple[T, ...], Field(strict=False)]


class ReportModel(BaseModel):
    """A part of a report, whose values are checked at construction and never change."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


def as_utf8(text: str) -> str:
    """Return a text with backslash escapes for characters that UTF-8 cannot encode (surrogates)."""
    return text.encode("utf-8", "backslashreplace").decode()


Text = Annotated[str, BeforeValidator(as_utf8)]


class TestRow(ReportModel):
    """The outcome of one test, or of a program without tests."""

    __test__ = False  # pytest must not collect the class

    test: Text
    outcome: TestOutcome
    seconds: float = 0.0
    kernel: str = ""
    line: str = ""  # the line of the kernel's source: `file.py:12`
    instruction: str = ""
    fault: Fault | Literal[""] = ""
    said: Text = ""  # the message of the fault, the gap of the model, or the failure


def line_of(text: str) -> str:
    """Return a message as one line of at most 1,000 characters."""
    return " ".join(text.split())[:1000]


def row_of(test: str, error: KernelError | NoResultError, seconds: float = 0.0) -> TestRow:
    """Return the row of a test that ended in a kernel's fault, or that could not be emulated."""
    place = error.place if isinstance(error, KernelError | UnmodelledError) else None
    return TestRow(
        test=test,
        seconds=seconds,
        said=line_of("; ".join(filter(None, [str(error), error.hint]))),
        outcome="fault" if isinstance(error, KernelError) else "not modelled",
        fault=error.fault if isinstance(error, KernelError) else "",
        kernel=place.kernel if place else "",
        line=place.line if place else "",
        instruction=place.instruction if place else "",
    )


def write_event(**facts: object) -> None:
    """Append a JSON line to the parent process's file `events`; do nothing without a parent."""
    if folder := os.environ.get(FOLDER):
        number = os.open(Path(folder) / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(number, json.dumps(facts).encode() + b"\n")
        os.close(number)


@dataclass
class LaunchRecord:
    """A record of launches: the errors that ended a launch, and whether any launch stored."""

    stored: bool = False  # whether a launch wrote to a tensor
    errors: list[KernelError | NoResultError] = field(default_factory=list)

    def add(self, error: KernelError | NoResultError) -> None:
        """Record the error that ended a launch, here and for the parent process."""
        self.errors.append(error)
        # pytest sets this variable also for processes that a test starts.
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        write_event(kind="untold", row=row_of(test, error).model_dump())

    def drain(self) -> list[KernelError | NoResultError]:
        """Return the errors since the last call, and clear `errors`."""
        errors, self.errors[:] = [*self.errors], []
        return errors
