"""The findings of a sweep: types, files, groups by kind, kernel and line, and comparisons."""

from __future__ import annotations

import io
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, ValidationError

from contribbot.emulate.outcomes import Text
from contribbot.errors import UsageError
from contribbot.model.base import Many, Model
from contribbot.model.checks import DtypeName, GfxTarget

#: `too long` and `crashed`: the test, or a process of the test, did not reach its end.
SweepOutcome = Literal[
    "passed", "failed", "fault", "not modelled", "skipped", "too long", "crashed"
]
SWEEP_OUTCOMES: Final[tuple[SweepOutcome, ...]] = get_args(SweepOutcome)
FindingKind = Literal[
    "memory fault",
    "race",
    "uninitialised read",
    "missing wait",
    "endless",
    "launch limits",
    "too much LDS",
    "does not compile",
    "wrong numbers",
    "skipped, passes here",
]
KIND_OF_FAULT: Final[dict[str, FindingKind]] = {
    "out of bounds": "memory fault",
    "misaligned": "memory fault",
    "race": "race",
    "unwritten": "uninitialised read",
    "missing wait": "missing wait",
    "endless": "endless",
    "launch limits": "launch limits",
}


class KernelUse(Model):
    """A kernel in a test: the number of launches, and a digest of the kernel's results."""

    kernel: str
    launches: int
    bits: str = ""


class SweepRow(Model):
    """The outcome of one test on one target."""

    target: str
    test: Text
    outcome: SweepOutcome
    seconds: float = 0.0
    kind: FindingKind | Literal[""] = ""
    kernel: Text = ""
    line: Text = ""  # the line of the kernel or of the test, such as `file.py:12`
    said: Text = ""
    skip: Text = ""  # the line of the skip, with the reason
    kernels: Many[KernelUse] = ()
    capture: str = ""  # the name of a file in `captures/`
    uncaptured: Text = ""  # why there is no capture


class KernelCode(Model):
    """The resources that a kernel needs on a target, for one set of constants and types."""

    target: str
    kernel: str
    variant: str  # a digest of constants, types and options
    registers: int
    spills: int
    lds: int
    scratch: int


class SweepFinding(Model):
    """A finding of a sweep: kind, kernel and source line, with the tests that show the finding."""

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
        """The identity of a finding across sweeps: without the line's number, which may change."""
        return self.kind, self.kernel, self.line.rpartition(":")[0] or self.line


class TargetSum(Model):
    """The counts of a sweep's tests and findings on one target."""

    target: str
    outcomes: dict[str, int]
    seconds: float
    unfinished: Text = ""  # why some tests have not run on the target


class Sweep(Model):
    """The document of `emulate --report --json`, which a sweep's folder has as `report.json`."""

    program: Many[Text]
    versions: dict[str, str]
    shard: str = "1/1"
    targets: Many[TargetSum]
    findings: Many[SweepFinding]
    code: Many[KernelCode]
    tests: Many[SweepRow]


def findings_of(rows: Iterable[SweepRow]) -> list[SweepFinding]:
    """Return the findings of rows, grouped by kind, kernel and line, in the order of the rows."""
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
        number=number,
        kind=first.kind,
        kernel=first.kernel,
        line=first.line,
        said=first.skip or first.said,
        targets=(*dict.fromkeys(row.target for row in rows),),
        tests=(*dict.fromkeys(row.test for row in rows),),
        captures=captures,
        uncaptured="" if captures else next((row.uncaptured for row in rows if row.uncaptured), ""),
    )


def outcomes_of(rows: Iterable[SweepRow]) -> dict[str, int]:
    """Return the number of tests with each outcome."""
    counts = Counter(row.outcome for row in rows)
    return {name: counts[name] for name in SWEEP_OUTCOMES}


# --- A captured launch -----------------------------------------------------------------------

#: A dotted Python name, such as `vllm.v1.ops`, which is safe in generated scripts.
DottedName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$")]


class CapturedStorage(Model):
    """A block of memory that a launch reached."""

    size: Annotated[int, Field(ge=0)]
    zero: bool = False  # whether all bytes are 0, and no file has the bytes
    unwritten: bool = False  # whether a mask marks the bytes that a write has set


class CapturedTensor(Model):
    """A tensor in a storage; storage -1: a tensor without elements."""

    dtype: DtypeName
    shape: Many[int]
    strides: Many[int]
    offset: int
    storage: int


class CapturedArgument(Model):
    """An argument of a kernel: a tensor, a type of Triton, or a literal of Python."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
    tensor: CapturedTensor | None = None
    dtype: str = ""
    literal: str = ""


class ExpectedTensor(Model):
    """The values that a test expected in a tensor that the launch wrote."""

    tensor: CapturedTensor
    dtype: DtypeName
    rtol: float
    atol: float


class Capture(Model):
    """A captured launch: the kernel, the grid, the options, the arguments and the memory."""

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


SESSION: Final = "CONTRIBBOT_SWEEP"
#: pytest's exit status if an outcome cannot be written (sysexits.h: EX_IOERR).
UNWRITABLE: Final = 74


class SweepSession(Model):
    """The task of one pytest process of a sweep; the tests in `done` do not run again."""

    folder: str
    target: str
    shard: tuple[int, int]
    done: Many[Text] = ()
    done_files: Many[Text] = ()

    @classmethod
    def current(cls) -> SweepSession | None:
        """Return the session of this process; None: the process is in no sweep."""
        path = os.environ.get(SESSION)
        return cls.model_validate_json(Path(path).read_bytes()) if path else None


class SweepEvent(Model):
    """An event, which is a line of `TARGET.jsonl`; fields with their default are left out."""

    begun: Text = ""  # the name of a test
    row: SweepRow | None = None
    code: KernelCode | None = None
    file: Text = ""  # a collected file, which has `count` tests
    count: int = 0
    versions: dict[str, str] | None = None
    finished: bool = False


def events_file(folder: Path, target: str) -> Path:
    """Return the file of a target's events in a sweep's folder."""
    return folder / f"{target}.jsonl"


def write_event(path: Path, event: SweepEvent) -> None:
    """Append an event to a file as a whole line, or append nothing."""
    line = event.model_dump_json(exclude_defaults=True).encode() + b"\n"
    number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    size = os.fstat(number).st_size
    try:
        if os.write(number, line) < len(line):
            os.write(number, line)  # the second write raises the reason
    except OSError as error:
        os.ftruncate(number, size)
        error.filename = str(path)
        raise
    finally:
        os.close(number)


def read_events(path: Path) -> Iterator[SweepEvent]:
    """Yield the events of a file, without lines that a killed process left unfinished."""
    if not path.is_file():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            yield SweepEvent.model_validate_json(line)
        except ValidationError:
            continue


def read_launch(path: Path) -> tuple[Capture, tuple[bytes, ...]]:
    """Return a capture and the contents of its storages from a zip file; UsageError: damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            told = Capture.model_validate_json(archive.read("launch.json"))
            count = 2 * len(told.storages) + (told.expected is not None)
            return told, tuple(archive.read(f"{number}.bin") for number in range(count))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{path}: no captured launch: {error}", hint="sweep again into a new folder"
        ) from error


def packed_launch(told: Capture, blobs: Sequence[bytes]) -> bytes:
    """Return the bytes of a capture's zip file; equal captures give equal bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.writestr(zipfile.ZipInfo("launch.json"), told.model_dump_json(indent=1))
        for number, blob in enumerate(blobs):
            entry = zipfile.ZipInfo(f"{number}.bin")
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, blob)
    return made.getvalue()


_NEEDS: Final = ("registers", "spills", "lds", "scratch")


class GrownKernel(Model):
    """A kernel that needs more of a resource than before, with the same constants and types."""

    target: str
    kernel: str
    variant: str
    needs: str  # the resource: registers, spills, lds or scratch
    before: int
    now: int


class ChangedTest(Model):
    """A test with another outcome than before, or whose kernels' results have other bits."""

    target: str
    test: Text
    before: str = ""  # the outcomes, if they differ
    now: str = ""
    kernels: Many[str] = ()  # the kernels whose results have other bits


class SweepComparison(Model):
    """A later sweep's new and gone findings, and changed resources, outcomes and results."""

    versions: dict[str, tuple[str, str]]
    new: Many[SweepFinding]
    gone: Many[SweepFinding]  # of tests that the later sweep has run, too
    grown: Many[GrownKernel]
    outcomes: Many[ChangedTest]
    bits: Many[ChangedTest]
    alike: int  # the number of tests whose kernels' results have the same bits in both sweeps
    uncompared: int  # the number of tests that have a digest in one sweep only


def compare(before: Sweep, now: Sweep) -> SweepComparison:
    """Return the comparison of an earlier sweep (`before`) with a later sweep (`now`)."""
    keys = [{finding.key for finding in sweep.findings} for sweep in (before, now)]
    old, new = ({(row.target, row.test): row for row in sweep.tests} for sweep in (before, now))
    both = [(old[key], new[key]) for key in old if key in new]
    digests = [(a, b) for a, b in both if _bits(a) and _bits(b)]
    names = {*before.versions, *now.versions}
    pairs = {name: (before.versions.get(name, ""), now.versions.get(name, "")) for name in names}
    changed = [each for each in (_changed_bits(a, b) for a, b in digests) if each]
    return SweepComparison(
        versions={name: pair for name, pair in sorted(pairs.items()) if pair[0] != pair[1]},
        new=tuple(each for each in now.findings if each.key not in keys[0]),
        gone=tuple(
            each
            for each in before.findings
            if each.key not in keys[1]
            and any((target, test) in new for target in each.targets for test in each.tests)
        ),
        grown=tuple(_grown(before, now)),
        outcomes=tuple(
            ChangedTest(target=a.target, test=a.test, before=a.outcome, now=b.outcome)
            for a, b in both
            if a.outcome != b.outcome
        ),
        bits=tuple(changed),
        alike=len(digests) - len(changed),
        uncompared=len(old) + len(new) - len(both) - len(digests),
    )


def _bits(row: SweepRow) -> dict[str, str]:
    return {use.kernel: use.bits for use in row.kernels if use.bits}


def _changed_bits(before: SweepRow, now: SweepRow) -> ChangedTest | None:
    old, new = _bits(before), _bits(now)
    kernels = tuple(name for name in old if name in new and old[name] != new[name])
    return ChangedTest(target=now.target, test=now.test, kernels=kernels) if kernels else None


def _grown(before: Sweep, now: Sweep) -> Iterator[GrownKernel]:
    def key(code: KernelCode) -> tuple[str, str, str]:
        return code.target, code.kernel, code.variant

    old = {key(code): code for code in before.code}
    for code in now.code:
        if was := old.get(key(code)):
            for needs in _NEEDS:
                a, b = int(getattr(was, needs)), int(getattr(code, needs))
                if b > a:
                    yield GrownKernel(
                        target=code.target,
                        kernel=code.kernel,
                        needs=needs,
                        variant=code.variant,
                        before=a,
                        now=b,
                    )
