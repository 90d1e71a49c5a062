"""The errors of the emulator: a kernel's faults, unmodelled features, and calls that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fault = Literal[
    "out of bounds", "misaligned", "unwritten", "race", "missing wait", "endless", "launch limits"
]


@dataclass(frozen=True)
class SourceLocation:
    """An instruction's place in a kernel: the text, the offset, and the source line."""

    kernel: str
    instruction: str
    offset: int  # bytes from the kernel's first instruction
    line: str  # `file.hip:12`; empty: the code object has no line table

    def __str__(self) -> str:
        where = f"{self.line}: " if self.line else ""
        return f"{where}{self.kernel}+{self.offset:#x}: {self.instruction}"


class EmulatorError(Exception):
    """The base class of the emulator's errors: `message` is one line, `hint` the next step."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class RequestError(EmulatorError):
    """A call does not fit: the target, an argument, or a source that does not compile."""


class NoResultError(EmulatorError):
    """No result follows: this machine lacks a compiler, a package or memory."""

    #: contribbot's runner of checks reads this attribute: the failure shows nothing of the tree.
    contribbot_broken: bool | str = True


class UnmodelledError(NoResultError):
    """No result follows: a kernel or program needs a feature that the emulator does not model."""

    contribbot_broken = "unmodelled"

    def __init__(self, message: str, place: SourceLocation | None = None) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place


class NotEmulatedError(UnmodelledError, NotImplementedError):
    """A program needs an operation of torch's GPU that the emulated GPU does not have."""


class KernelError(EmulatorError):
    """A kernel breaks a rule: `fault` names the rule, and `place` the instruction."""

    def __init__(self, fault: Fault, message: str, place: SourceLocation) -> None:
        super().__init__(f"{place}: {fault}: {message}")
        self.fault = fault
        self.place = place
