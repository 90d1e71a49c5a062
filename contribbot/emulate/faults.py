"""What ends a run: what is not modelled, and what a kernel does wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contribbot.errors import MachineError, UsageError

Fault = Literal["out of bounds", "misaligned", "unwritten", "race", "endless"]


@dataclass(frozen=True)
class SourceLocation:
    """Where in a kernel something is: the instruction, its offset, and its source line."""

    kernel: str
    instruction: str
    offset: int  # bytes from the kernel's first instruction
    line: str  # `file.hip:12`; empty: the code object has no line table

    def __str__(self) -> str:
        where = f"{self.line}: " if self.line else ""
        return f"{where}{self.kernel}+{self.offset:#x}: {self.instruction}"


class UnmodelledError(MachineError):
    """A kernel needs what is not modelled: its result cannot be told; `place` may be None."""

    contribbot_broken = "unmodelled"

    def __init__(self, message: str, place: SourceLocation | None = None) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place


class NotEmulatedError(UnmodelledError, NotImplementedError):
    """A program asks the emulated GPU for what it does not have."""


class KernelError(UsageError):
    """A kernel does what it must not: its `fault`, and the `place` of the instruction."""

    def __init__(self, fault: Fault, message: str, place: SourceLocation) -> None:
        super().__init__(f"{place}: {fault}: {message}")
        self.fault = fault
        self.place = place
