"""What a record's details say, as far as texts and pages tell of them, typed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict

from contribbot.model.evidence import Details, StageResult
from contribbot.numerics.records import CellRecord
from contribbot.verify.evidence import Record


class _Read(BaseModel):
    """A part of a record's details: what else stands there is of no concern."""

    model_config = ConfigDict(extra="ignore", frozen=True)


#: How long a list is.
Length = Annotated[int, BeforeValidator(len)]


class Failure(_Read):
    """A test that failed."""

    test: str
    message: str = ""


class Side(_Read):
    """What one tree did: the base, or the patched one."""

    passed: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    skipped: Length = 0
    #: Of a compiled one.
    kernels: int = 0
    instructions: int = 0
    named: dict[str, dict[str, int]] = {}


class Seconds(_Read):
    """A time."""

    seconds: float


class Ratio(_Read):
    """Speed with the change as a multiple of that without it, with its interval."""

    median: float
    low: float
    high: float
    noise: bool = False


class RecordedCase(_Read):
    """A case of a benchmark, as a record keeps it."""

    case: str
    base: Seconds
    patched: Seconds
    ratio: Ratio
    #: Of calls as a program makes them, where those take longer than the GPU does.
    called_ratio: Ratio | None = None
    memory_ratio: float | None = None
    #: A yardstick, of which nothing is claimed.
    control: bool = False


class _Cells(_Read):
    base: tuple[CellRecord, ...] = ()
    patched: tuple[CellRecord, ...] = ()


class _Totals(_Read):
    cells: int = 0
    elements: int = 0
    mismatches: int = 0


class _AllTotals(_Read):
    base: _Totals = _Totals()
    patched: _Totals = _Totals()


class _Toolchain(_Read):
    name: str = ""
    headers: str = ""


class Facts(_Read):
    """The details of one outcome, as far as a text tells of them."""

    base: Side = Side()
    patched: Side = Side()
    stated_reason: str = ""
    laid_over_base: tuple[str, ...] = ()
    toolchain: _Toolchain = _Toolchain()
    cells: _Cells = _Cells()
    totals: _AllTotals = _AllTotals()
    cases: tuple[RecordedCase, ...] = ()
    threads: int = 0
    fudge: float = 0.0
    at_least: float = 0.0
    #: Whether what was timed or judged was compiled with torch.compile; of Emulated a name.
    compile: bool | str = False

    @property
    def claimed(self) -> tuple[RecordedCase, ...]:
        """The cases of a benchmark that its claim is about."""
        return tuple(case for case in self.cases if not case.control)


@dataclass(frozen=True)
class Source:
    """A fresh record: the label that a text gives it, and where it lies, seen from the queue."""

    label: str
    record: Record
    file: str
    details: Details
    #: The installed release that the tree's files ran over, where it is not the pin's.
    over: str

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """What it saw."""
        return self.details.stages

    @property
    def seal(self) -> str:
        """The record's seal."""
        return self.record.statement.seal if self.record.statement else ""

    @property
    def gpus(self) -> str:
        """Its GPUs by name, or nothing."""
        names = [gpu.name for gpu in self.details.machine.gpus]
        return ", ".join(
            f"{name} x{names.count(name)}" if len(names) > 1 else name
            for name in dict.fromkeys(names)
        )

    @property
    def packages(self) -> str:
        """The libraries that matter, with their versions."""
        machine = self.details.machine
        gpu_stages = (stage.details.get("accelerator") for stage in self.stages if machine.gpus)
        known = [fields for fields in gpu_stages if isinstance(fields, dict)]
        cuda = {str(f["CUDA_VERSION"]) for f in known if f.get("CUDA_VERSION")}
        versions = [
            *(("CUDA", version) for version in sorted(cuda)), ("ROCm", machine.rocm),
            *((name, machine.packages.get(name, "")) for name in ("torch", "triton")),
        ]  # fmt: skip
        return ", ".join([*(f"{name} {text}" for name, text in versions if text), machine.python])

    @property
    def day(self) -> date:
        """When it was finished."""
        return self.details.finished.date()

    def link(self, place: str) -> str:
        """Return the address of its file where the queue can be read; nothing elsewhere."""
        # A record that does not lie in the queue is not there either.
        inside = place and not self.file.startswith("/")
        return f"{place.rstrip('/')}/{quote(self.file)}" if inside else ""
