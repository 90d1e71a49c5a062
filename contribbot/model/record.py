"""The details that each stage writes into a record, about the base and the patched tree."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, StringConstraints

from contribbot.model.base import Loose, Many, Model, ObjectId
from contribbot.model.checks import Expectation
from contribbot.model.failure import Blame, RunFailure
from contribbot.model.lifecycle import ConflictSide, Says

Finite = Annotated[float, Field(allow_inf_nan=False, strict=False)]
Count = Annotated[int, Field(ge=0)]
Counts = dict[str, Count]


def _is_the_machines(kind: RunFailure) -> RunFailure:
    if kind.blame is not Blame.MACHINE:
        raise ValueError(f"{kind}: no machine is to blame for that")
    return kind


class RunnerFault(Model):
    """A fault of the machine, because of which an outcome does not concern the patch."""

    kind: Annotated[Loose[RunFailure], AfterValidator(_is_the_machines)]
    said: Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class PreflightRecord(Model):
    """The run of a known-good kernel on a target."""

    target: str
    driver: str
    #: Why no kernel could be run; empty: a kernel ran.
    not_run: str = ""
    passed: bool = False
    seconds: Finite = 0.0
    torch: str = ""
    runtime: str = ""
    device: str = ""
    arch: str = ""
    devices: Count = 0
    #: Bytes of memory on the device; 0: unknown.
    memory_free: Count = 0
    memory_total: Count = 0
    #: A key of records up to release 0.2.0.
    visible: dict[str, str] = Field(default_factory=dict, exclude=True)


class StageDetails(Model):
    """The facts that a stage records in addition to its outcome."""

    @property
    def logs(self) -> tuple[str, ...]:
        """The digests of the log files of this stage."""
        return tuple(_logs(self))


def _logs(model: Model) -> Iterator[str]:
    for name, value in model:
        if isinstance(value, Model):
            yield from _logs(value)
        elif name in {"log_sha256", "log"}:
            yield str(value)


class SourceDetails(StageDetails):
    """The pinned tree, and the source that provided the tree."""

    kind: str
    commit: ObjectId
    tree: ObjectId
    origin: str
    #: A line for each source that failed before this source worked.
    failures: Many[str] = ()


class AppliedTrees(Model):
    """The commits and trees of the base and of the patched tree."""

    base_commit: ObjectId
    base_tree: ObjectId
    #: The base with the patch's changes to tests.
    tested_tree: ObjectId
    patched_commit: ObjectId
    patched_tree: ObjectId


class AppliedFile(Model):
    """A patch file and its commit."""

    file: str
    commit: ObjectId
    subject: str


class ApplyDetails(StageDetails):
    """The trees with and without the patch, or the conflicts."""

    trees: AppliedTrees | None = None
    commits: Many[AppliedFile] = ()
    #: Hunks that were applied at another line than stated.
    adjustments: Many[str] = ()
    conflicts: Many[ConflictSide] = ()


class StyleDetails(StageDetails):
    """The style problems that refute a patch, and the remarks that a reviewer may make."""

    problems: Many[str]
    minded: Many[str]


class FailureRecord(Model):
    """A failure of a test, a compile, a build or the hipify step on a tree."""

    test: str
    when: str
    message: str = ""
    kind: Loose[RunFailure] | None = None


class SideRecord(Model):
    """The tests that passed and failed on a tree; a compile or build counts as one test."""

    passed: Many[str] = ()
    failed: Many[FailureRecord] = ()
    #: The SHA-256 of the whole output or listing, a file in `.contribbot/logs`.
    log_sha256: str = ""


def step_failures(name: str, when: str, problems: Iterable[str]) -> tuple[FailureRecord, ...]:
    """Return a failure for each problem of a step; all failures name the same test."""
    return tuple(FailureRecord(test=name, when=when, message=problem) for problem in problems)


class StatedDetails(StageDetails):
    """An entry's results on the base and on the patched tree, and the stated expectation."""

    expect: Expectation
    stated_reason: str
    #: Whether the change from red to green proves the patch without other entries.
    proof: bool = False
    base: SideRecord
    patched: SideRecord


class HipifyRecord(SideRecord):
    """The hipify step's result on a tree."""

    outputs: dict[str, str]
    missing: dict[str, str]
    command: str
    log_tail: str
    transient: bool = False


class HipifyDetails(StatedDetails):
    """The outputs of the upstream's hipify step on both trees."""

    modules: dict[str, str]
    base: HipifyRecord
    patched: HipifyRecord


class Numbers(NamedTuple):
    """The numbers of a kernel, in the order of a record (docs/compile.md)."""

    vgprs: int  # registers of a lane; in a unified file, with the accumulation registers
    agprs: int
    sgprs: int  # registers of a wavefront
    lds: int  # bytes of local data share
    scratch: int  # bytes
    spills: int
    wavefront: int
    occupancy: int | None  # wavefronts on a SIMD at once; None: the compiler does not say
    code: int  # bytes, with the padding for alignment
    instructions: int  # a pair of dual-issued instructions is counted as one


class ListingRow(NamedTuple):
    """The numbers of a kernel, or of several equal kernels, on the base and the patched tree."""

    title: str  # the kernel's name; for several kernels, without template arguments
    kernels: int
    base: Numbers | None  # None: the base lacks the kernel; `patched` likewise
    patched: Numbers | None

    @property
    def changed(self) -> bool:
        """Whether a count of the kernel (instructions, registers) differs between both trees."""
        return self.base != self.patched

    @property
    def emptied(self) -> bool:
        """Whether the kernels do work on the base, and nothing on the patched tree."""
        if self.base is None or self.patched is None:
            return False
        return self.base.instructions > 1 >= self.patched.instructions

    @property
    def badness(self) -> tuple[int, int, float]:
        """A sort key: how much worse the patched tree is in spills, occupancy and instructions."""
        before, after = self.base, self.patched
        if before is None or after is None:
            return (after.spills if after else 0, 0, 0.0)
        return (
            after.spills - before.spills,
            (before.occupancy or 0) - (after.occupancy or 0),
            after.instructions / max(1, before.instructions),
        )


class LeftOut(Model):
    """How many changed kernels, and how many unchanged kernels, a table leaves out."""

    changed: Count = 0
    unchanged: Count = 0


class ListingTable(Model):
    """The kernels of both trees, the worst change first."""

    columns: Many[str] = Numbers._fields
    rows: Many[ListingRow] = ()
    left_out: LeftOut = LeftOut()


class NamedCount(Model):
    """How many kernels have a named instruction, and how often it occurs."""

    kernels: Count
    times: Count


class CompileRecord(SideRecord):
    """The result of a compile on a tree; the counts are of the kernels that the entry names."""

    seconds: Finite
    #: Whether the result comes from the cache.
    remembered: bool
    #: Whether the tree lacks the source.
    absent: bool = False
    kernels: Count = 0
    listed: Count = 0
    instructions: Count = 0
    classes: Counts = Field(default_factory=dict)
    named: dict[str, NamedCount] = Field(default_factory=dict)
    not_inlined: Counts = Field(default_factory=dict)
    unresolved: Many[str] = ()


class ToolchainRecord(Model):
    """The compiler of a kernel, and the tools that assemble and disassemble the code."""

    kind: str = ""
    name: str = ""
    identity: str = ""
    assembler: str = ""
    headers: str = ""
    library: str = ""


class CompileDetails(StatedDetails):
    """The assembly listings of a compile entry on both trees, for one target."""

    kind: str
    source: str
    command: str
    base: CompileRecord
    patched: CompileRecord
    table: ListingTable
    toolchain: ToolchainRecord


class BuildRecord(SideRecord):
    """The result of a build on a tree."""

    trouble: str
    seconds: Finite
    #: Whether the product of an earlier build was used.
    reused: bool
    #: The key of the product in the cache; empty: no product.
    product: str
    sha256: str
    log_tail: str


class BuildDetails(StatedDetails):
    """The products of both trees."""

    way: str
    compilers: Many[str]
    #: A key of records up to release 0.2.0.
    compiler_cache: str = Field(default="", exclude=True)
    #: The time that the build takes, as the upstream's file states.
    takes: str = ""
    base: BuildRecord
    patched: BuildRecord


class RunRecord(SideRecord):
    """A run of a check on a tree."""

    skipped: Many[str] = ()
    #: Tests that were skipped in part, such as one subtest.
    partly: Many[str] = ()
    #: The exit status of pytest, if no test failed.
    status: int | None = None
    kind: Loose[RunFailure] | None = None
    trouble: str = ""
    #: Whether a known-good kernel passed after the run.
    cleared: bool = False
    #: The modules that are missing for the check.
    missing: Many[str] = ()
    suspected: RunnerFault | None = None
    command: str
    seconds: Finite
    log_tail: str


class RepeatRecord(Model):
    """The repeated runs of a check."""

    base: RunRecord | None = None
    patched: RunRecord | None = None
    without_change: RunRecord | None = None


class Placed(StageDetails):
    """The environment in which a check or bench ran."""

    file: str
    threads: Count = 0
    #: The environment variables that select and tune a GPU.
    accelerator: dict[str, str] = Field(default_factory=dict)
    #: The installed release onto which the tree's files are laid; empty: the tree runs alone.
    over: str = ""
    #: Files of the tree that were merged onto installed files of another release.
    merged: Many[str] = ()


class CheckDetails(StatedDetails, Placed):
    """The runs of a check on the base, on the patched tree, and without the change."""

    #: The cause of the outcome, as `verify/verdict.py` names it.
    cause: str
    sandbox: str
    modules: dict[str, str] = Field(default_factory=dict)
    base: RunRecord
    patched: RunRecord
    #: The run on the patched tree with the patch's added statements undone.
    without_change: RunRecord | None = None
    again: RepeatRecord = RepeatRecord()
    #: The patch's test files, which are laid over the base.
    laid_over_base: Many[str] = ()
    #: Whether the check loads a build that differs between the trees; None: it loads no build.
    built: bool | None = None


class Digests(Model):
    """Digests of a result's inputs and references, which must be equal on both trees."""

    seed: int
    result: str
    inputs: str  # a digest of each input that was drawn so far, before the computation
    references: str  # a digest of the references, or of the expected values
    written: Many[str] = ()  # the inputs that the computation overwrote


class OutputRecord(Model):
    """A result of a cell; the counts are over all seeds, all other values of the worst seed."""

    name: str
    kind: Literal["error", "exact"]  # judged by the error, or compared bit by bit
    dtype: str
    shape: Many[int]
    elements: Count  # compared elements
    mismatches: Count  # elements with a larger error than allowed, or that differ
    non_finite: Count
    worst_seed: int
    place: Many[int] | None = None  # the index of the worst element; None: no element is wrong
    max_abs: Finite  # the largest absolute error among finite elements
    max_rel: Finite | None = None  # over all seeds; None: each reference is 0
    reference_abs: Finite  # the largest absolute error of the same-precision reference
    floor: Finite = 0.0  # the least error that is assumed for the reference
    allowed: Finite
    largest: Finite  # the largest magnitude in the reference
    ratio: Finite | None = None  # `max_abs` over the larger of `reference_abs` and `floor`
    vacuous: int = 0  # the number of seeds that show nothing
    why_vacuous: str = ""  # why such a seed shows nothing, and which inputs would help
    complaint: str  # why the result fails, in one line; empty: the result passes

    @property
    def by_floor(self) -> bool:
        """Whether the floor is larger than the reference's error, and so sets the limit."""
        return self.floor > self.reference_abs

    @property
    def badness(self) -> tuple[bool, int, float, int, float]:
        """A sort key: the worst result has the largest key."""
        ratio = self.ratio or 0.0
        return bool(self.complaint), self.non_finite, ratio, self.mismatches, self.max_abs


class CellRecord(Model):
    """The results of a cell of a numerics grid."""

    test: str  # the test's name without the folder
    cell: str
    axes: dict[str, str]
    seeds: Many[int]
    digests: Many[Digests] = ()
    outputs: Many[OutputRecord]
    failed: str  # why the test fails, in one line; empty: it passes

    @property
    def ratio(self) -> float:
        """The largest `ratio` of the cell's results; 0: no result has a ratio."""
        return max((output.ratio or 0.0 for output in self.outputs), default=0.0)

    @property
    def non_finite(self) -> int:
        """The number of elements that are NaN or infinite."""
        return sum(output.non_finite for output in self.outputs)


class Totals(Model):
    """The totals over all numerics cells on a tree."""

    cells: Count
    failed: Count
    #: Cells without a result, cells with NaN or infinity, and results of another shape or dtype.
    silent: Count
    spoiled: Count
    odd: Count
    elements: Count
    mismatches: Count
    non_finite: Count
    #: The number of elements that are compared bit by bit, and of those that differ.
    exact: Count
    differing: Count
    #: The largest error as a multiple of the reference's error, or of the floor if it is larger.
    ratio: Finite | None = None
    floor_ratio: Finite | None = None


class CellsRecord(Model):
    """The numerics cells on both trees: all cells, or the worst."""

    base: Many[CellRecord]
    patched: Many[CellRecord]


class TotalsRecord(Model):
    """The counts of numerics cells (one input each) that pass and fail on both trees."""

    base: Totals
    patched: Totals


class NumericsRecord(Model):
    """The cells of a check, and the limits by which they are judged."""

    fudge: Finite
    floor: Finite | dict[str, Finite]
    why: str
    #: The SHA-256 of the digests of all inputs and references.
    judged_by_sha256: str
    cells: CellsRecord
    totals: TotalsRecord


class NumericsDetails(CheckDetails):
    """The runs of a check that judges numbers."""

    numerics: NumericsRecord
    #: A key of records up to release 0.2.0.
    compile: bool = Field(default=False, exclude=True)


class CodeRecord(Model):
    """The compiled code that an emulated check runs instead of a tree."""

    #: The name of the patch's compile entry.
    entry: str
    toolchain: ToolchainRecord
    #: The SHA-256 of the base's code object, and of the patched tree's.
    sha256: Many[str]


class EmulateDetails(CheckDetails):
    """The runs of a check on an emulated GPU."""

    emulator: str
    triton: str = ""
    code: CodeRecord | None = None
    #: The cells of an entry that judges numbers; None: another entry.
    numerics: NumericsRecord | None = None


class CaseVerdict(enum.StrEnum):
    """The verdict on a bench case by the patch's claim."""

    PASSED = "passed"
    FAILED = "failed"
    #: The claim lies inside the interval, or there are too few measurements.
    UNDECIDED = "undecided"
    #: This machine could not measure the case.
    UNAVAILABLE = "unavailable"


class Ratio(Model):
    """The base's time divided by the patched tree's: the median and its confidence interval."""

    median: Finite
    low: Finite
    high: Finite
    confidence: Finite
    #: Whether the difference from 1 lies inside the interval.
    noise: bool


class CaseSide(Model):
    """The measurements of a bench case on a tree."""

    #: A call's peak memory in bytes without inputs; None: not measured.
    peak_bytes: Count | None = None
    #: The number of sets of inputs, which calls use in turns.
    input_sets: Count


class MeasuredSide(CaseSide):
    """The times of a call in a bench case on a tree, for each process."""

    seconds: Finite
    low: Finite
    high: Finite
    rounds: Many[Finite]
    samples: Count
    called_seconds: Finite | None = None
    bytes_per_second: Finite | None = None
    flops_per_second: Finite | None = None


class BenchCase(Model):
    """A case of a bench, with its verdict."""

    case: str
    verdict: Loose[CaseVerdict]
    text: str
    bytes_moved: Count | None = None
    flops: Count | None = None
    #: A key of records up to release 0.2.0.
    control: bool = Field(default=False, exclude=True)
    graph: bool = False
    base: CaseSide
    patched: CaseSide


class MeasuredCase(BenchCase):
    """A case of a bench that was measured, with the times."""

    base: MeasuredSide
    patched: MeasuredSide
    rounds: Count
    pairs: Many[Finite]
    ratio: Ratio
    #: The ratio of calls with host time, if host time slows a tree down; else None.
    called_ratio: Ratio | None = None
    memory_ratio: Finite | None = None


class OutputLog(Model):
    """The output of a bench on a tree."""

    command: str
    log_sha256: str
    log_tail: str


class BenchDetails(Placed):
    """The cases of a bench, and the patch's claim."""

    at_least: Finite
    memory_at_most: Finite | None = None
    #: A key of records up to release 0.2.0.
    compile: bool = Field(default=False, exclude=True)
    too_noisy: bool
    #: Whether the bench proves the patch: a gain is claimed, and the results are alike.
    proof: bool = False
    cases: Many[Annotated[MeasuredCase | BenchCase, Field(union_mode="left_to_right")]]
    base: OutputLog
    patched: OutputLog

    @property
    def measured(self) -> tuple[MeasuredCase, ...]:
        """The cases that have times."""
        return tuple(case for case in self.cases if isinstance(case, MeasuredCase))


class BehaviourDetails(StageDetails):
    """The result of an entry on a release without the patch."""

    says: Loose[Says]
    why: str
    log: str
    #: Why there is no tree of the release to run the entry on; empty: there is a tree.
    trouble: str = ""
    #: The release's new path of each file that the patch names by the old path.
    moved: dict[str, str] = Field(default_factory=dict)
