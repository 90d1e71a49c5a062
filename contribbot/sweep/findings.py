"""What a sweep has found: its rows, and their sum by kernel and source line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from contribbot.emulate.outcomes import Text
from contribbot.model.base import Many, Model
from contribbot.model.checks import DtypeName, GfxTarget

#: `too long` and `crashed`: the test, or what it started, did not come to its end.
SweepOutcome = Literal[
    "passed", "failed", "fault", "not modelled", "skipped", "too long", "crashed"
]
SWEEP_OUTCOMES: Final[tuple[SweepOutcome, ...]] = get_args(SweepOutcome)
FindingKind = Literal[
    "memory fault",
    "race",
    "uninitialised read",
    "endless",
    "too much LDS",
    "does not compile",
    "wrong numbers",
    "skipped, passes here",
]
#: What a fault of the emulator is called here.
KIND_OF_FAULT: Final[dict[str, FindingKind]] = {
    "out of bounds": "memory fault", "misaligned": "memory fault", "race": "race",
    "unwritten": "uninitialised read", "endless": "endless",
}  # fmt: skip


class KernelUse(Model):
    """A kernel that a test launched, how often, and a digest of what it left in tensors."""

    kernel: str
    launches: int
    bits: str = ""


class SweepRow(Model):
    """What came of one test on one target."""

    target: str
    test: Text
    outcome: SweepOutcome
    seconds: float = 0.0
    kind: FindingKind | Literal[""] = ""
    kernel: Text = ""
    line: Text = ""  # of the kernel, or of the test: `file.py:12`
    said: Text = ""
    skip: Text = ""  # the line that skips it, and why
    kernels: Many[KernelUse] = ()
    capture: str = ""  # a file in `captures/`
    uncaptured: Text = ""  # why there is none


class KernelCode(Model):
    """What a kernel needs on a target, with one set of constants and types."""

    target: str
    kernel: str
    variant: str  # a digest of constants, types and options
    registers: int
    spills: int
    lds: int
    scratch: int


class SweepFinding(Model):
    """What several tests came upon at one place."""

    number: int
    kind: FindingKind
    kernel: Text
    line: Text
    said: Text
    targets: Many[str]
    tests: Many[Text]
    captures: dict[str, str] = Field(default_factory=dict)  # by target
    uncaptured: Text = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is told by in another sweep, in which lines may have moved."""
        return self.kind, self.kernel, self.line.rpartition(":")[0] or self.line


class TargetSum(Model):
    """What came of a sweep on a target."""

    target: str
    outcomes: dict[str, int]
    seconds: float
    unfinished: Text = ""  # why not all of its tests have run


class Sweep(Model):
    """What `emulate --report --json` prints, and `report.json` holds."""

    program: Many[Text]
    versions: dict[str, str]
    shard: str = "1/1"
    targets: Many[TargetSum]
    findings: Many[SweepFinding]
    code: Many[KernelCode]
    tests: Many[SweepRow]


def findings_of(rows: Iterable[SweepRow]) -> list[SweepFinding]:
    """Sum rows up by what happened, kernel and line, in the order in which they came up."""
    found = dict[tuple[str, str, str], list[SweepRow]]()
    for row in rows:
        if row.kind:
            found.setdefault((row.kind, row.kernel, row.line), []).append(row)
    return [_finding(number, same) for number, same in enumerate(found.values(), start=1)]


def _finding(number: int, rows: Sequence[SweepRow]) -> SweepFinding:
    first = rows[0]
    assert first.kind  # noqa: S101  for mypy
    captures = {row.target: row.capture for row in reversed(rows) if row.capture}
    return SweepFinding(
        number=number, kind=first.kind, kernel=first.kernel, line=first.line,
        said=first.skip or first.said, targets=(*dict.fromkeys(row.target for row in rows),),
        tests=(*dict.fromkeys(row.test for row in rows),), captures=captures,
        uncaptured="" if captures else next((row.uncaptured for row in rows if row.uncaptured), ""),
    )  # fmt: skip


def outcomes_of(rows: Iterable[SweepRow]) -> dict[str, int]:
    """Return how many tests came to each outcome."""
    counts = Counter(row.outcome for row in rows)
    return {name: counts[name] for name in SWEEP_OUTCOMES}


# --- A captured launch -----------------------------------------------------------------------

#: A name of Python's, such as `vllm.v1.ops`: scripts are made of it.
DottedName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$")]


class CapturedStorage(Model):
    """Bytes that a launch reached."""

    size: Annotated[int, Field(ge=0)]
    zero: bool = False  # nothing else is in it, and no file holds it
    unwritten: bool = False  # whether a mask says which bytes somebody wrote


class CapturedTensor(Model):
    """A tensor that lies in a storage; -1: it has no elements."""

    dtype: DtypeName
    shape: Many[int]
    strides: Many[int]
    offset: int
    storage: int


class CapturedArgument(Model):
    """An argument: a tensor, a type of Triton's, or a literal of Python's."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
    tensor: CapturedTensor | None = None
    dtype: str = ""
    literal: str = ""


class ExpectedTensor(Model):
    """What a test expected of a tensor that the launch wrote."""

    tensor: CapturedTensor
    dtype: DtypeName
    rtol: float
    atol: float


class Capture(Model):
    """A launch: the kernel, its grid and options, and what each argument was."""

    target: GfxTarget
    file: Text
    module: DottedName
    kernel: DottedName
    grid: tuple[int, int, int] = Field(strict=False)
    options: dict[DottedName, int]
    arguments: Many[CapturedArgument]
    storages: Many[CapturedStorage]
    expected: ExpectedTensor | None = None
    said: Text
    line: Text
