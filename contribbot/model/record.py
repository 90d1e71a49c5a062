"""The record of each stage: the facts that a stage reports of both trees, a type a stage."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, StringConstraints

from contribbot.model.base import Loose, Many, Model, ObjectId
from contribbot.model.checks import Expectation
from contribbot.model.failure import Blame, RunFailure
from contribbot.model.lifecycle import ConflictSide, Says

Finite = Annotated[float, Field(allow_inf_nan=False, strict=False)]
Integers = Annotated[tuple[int, ...], Field(strict=False)]
Count = Annotated[int, Field(ge=0)]
Counts = dict[str, Count]
Floats = Annotated[tuple[Finite, ...], Field(strict=False)]


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
    #: The reason why no kernel could be run; empty: a kernel ran.
    not_run: str = ""
    passed: bool = False
    seconds: Finite = 0.0
    torch: str = ""
    runtime: str = ""
    device: str = ""
    arch: str = ""
    devices: Count = 0
    #: Bytes on the device; 0: unknown.
    memory_free: Count = 0
    memory_total: Count = 0
    #: A key of records up to release 0.2.0.
    visible: dict[str, str] = Field(default_factory=dict, exclude=True)


class StageDetails(Model):
    """The facts that a stage records beside its outcome."""

    @property
    def logs(self) -> tuple[str, ...]:
        """The digests of the log files of this stage."""
        return ()


class SourceDetails(StageDetails):
    """The pinned tree, and the source that provided the tree."""

    kind: str
    commit: ObjectId
    tree: ObjectId
    origin: str
    #: The sources that failed earlier, each with the reason.
    failures: Many[str] = ()


class AppliedTrees(Model):
    """The commits and trees of the base and of the patched tree."""

    base_commit: ObjectId
    base_tree: ObjectId
    #: The base with the patch's own tests laid over.
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
    #: Hunks that did not apply exactly.
    adjustments: Many[str] = ()
    conflicts: Many[ConflictSide] = ()


class StyleDetails(StageDetails):
    """The style problems that refute a patch, and the remarks that a reviewer may make."""

    problems: Many[str]
    minded: Many[str]


class FailureRecord(Model):
    """A failure on one tree: of a test, a compile, a build or the hipify step."""

    test: str
    when: str
    message: str = ""
    kind: Loose[RunFailure] | None = None


class SideRecord(Model):
    """One tree: the tests that passed and failed; a step counts as one test."""

    passed: Many[str] = ()
    failed: Many[FailureRecord] = ()
    #: The SHA-256 of the whole output or listing, which `.contribbot/logs` keeps.
    log_sha256: str = ""


def step_failures(name: str, when: str, problems: Iterable[str]) -> tuple[FailureRecord, ...]:
    """Return the problems of a step as failures of a single test."""
    return tuple(FailureRecord(test=name, when=when, message=problem) for problem in problems)


class StatedDetails(StageDetails):
    """The base and the patched tree of an entry, and what the patch states of the entry."""

    expect: Expectation
    stated_reason: str
    #: Whether a pass from red to green proves the patch without further entries.
    proof: bool = False
    base: SideRecord
    patched: SideRecord

    @property
    def logs(self) -> tuple[str, ...]:
        """The digests of the logs of both sides."""
        return self.base.log_sha256, self.patched.log_sha256


class HipifyRecord(SideRecord):
    """The hipify step on one tree."""

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

    vgprs: int  # registers of a lane; in a unified register file with the accumulation registers
    agprs: int
    sgprs: int  # of a wavefront
    lds: int  # bytes, as are scratch and code
    scratch: int
    spills: int
    wavefront: int
    occupancy: int | None  # wavefronts that a SIMD can hold; None: the compiler does not say
    code: int  # bytes, with the padding for alignment
    instructions: int  # a pair of dual-issued instructions is counted as one


class ListingRow(NamedTuple):
    """The numbers of a kernel, or of several with equal numbers, on the base and patched tree."""

    title: str  # the kernel; without template arguments where there are several
    kernels: int
    base: Numbers | None  # None: the side lacks the kernel
    patched: Numbers | None

    @property
    def changed(self) -> bool:
        """Whether any number of the kernel differs between base and patched tree."""
        return self.base != self.patched

    @property
    def emptied(self) -> bool:
        """Whether the kernels work on the base, and only end on the patched tree."""
        if self.base is None or self.patched is None:
            return False
        return self.base.instructions > 1 >= self.patched.instructions

    @property
    def badness(self) -> tuple[int, int, float]:
        """The loss on the patched tree in spills, wavefronts and instructions."""
        before, after = self.base, self.patched
        if before is None or after is None:
            return (after.spills if after else 0, 0, 0.0)
        return (
            after.spills - before.spills,
            (before.occupancy or 0) - (after.occupancy or 0),
            after.instructions / max(1, before.instructions),
        )


class LeftOut(Model):
    """The numbers of changed and of unchanged kernels that a table leaves out."""

    changed: Count = 0
    unchanged: Count = 0


class ListingTable(Model):
    """The kernels of both trees, the worst change first."""

    columns: Many[str] = Numbers._fields
    rows: Many[ListingRow] = ()
    left_out: LeftOut = LeftOut()


class NamedCount(Model):
    """The number of kernels with a named instruction, and of the instruction's occurrences."""

    kernels: Count
    times: Count


class CompileRecord(SideRecord):
    """The compile of one tree; the counts are of the kernels that the entry names."""

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
    """The compiler of a kernel, and the tools that assembled and disassembled its code."""

    kind: str = ""
    name: str = ""
    identity: str = ""
    assembler: str = ""
    headers: str = ""
    library: str = ""


class CompileDetails(StatedDetails):
    """The listings of both trees for one target."""

    kind: str
    source: str
    command: str
    base: CompileRecord
    patched: CompileRecord
    table: ListingTable
    toolchain: ToolchainRecord


class BuildRecord(SideRecord):
    """The build of one tree."""

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
    #: The time that a recipe takes, by the upstream's description.
    takes: str = ""
    base: BuildRecord
    patched: BuildRecord


class RunRecord(SideRecord):
    """One run of a check on one tree."""

    skipped: Many[str] = ()
    #: Tests of which a part was skipped.
    partly: Many[str] = ()
    #: The exit status of pytest, where no test failed.
    status: int | None = None
    kind: Loose[RunFailure] | None = None
    trouble: str = ""
    #: Whether a known-good kernel ran well after the run.
    cleared: bool = False
    #: The modules that a broken check lacks.
    missing: Many[str] = ()
    suspected: RunnerFault | None = None
    command: str
    seconds: Finite
    log_tail: str


class RepeatRecord(Model):
    """The second runs of a check."""

    base: RunRecord | None = None
    patched: RunRecord | None = None
    without_change: RunRecord | None = None


class Placed(StageDetails):
    """The environment of a check or bench that ran on this machine."""

    file: str
    threads: Count = 0
    #: The variables that choose and tune a GPU.
    accelerator: dict[str, str] = Field(default_factory=dict)
    #: The installed release below the tree's files; empty: the tree runs alone.
    over: str = ""
    #: Files of the tree that were merged onto installed files of another release.
    merged: Many[str] = ()


class CheckDetails(StatedDetails, Placed):
    """The runs of a check on the base, on the patched tree, and without the change."""

    #: The word of the judgement (`verify/verdict.py`).
    cause: str
    sandbox: str
    modules: dict[str, str] = Field(default_factory=dict)
    base: RunRecord
    patched: RunRecord
    #: The patched tree with the added statements undone.
    without_change: RunRecord | None = None
    again: RepeatRecord = RepeatRecord()
    #: The patch's own tests, which the base is given.
    laid_over_base: Many[str] = ()
    #: Whether the products of the build that the check loads differ.
    built: bool | None = None

    @property
    def logs(self) -> tuple[str, ...]:
        """The digests of the logs of all runs."""
        again = self.again.base, self.again.patched, self.again.without_change
        runs = self.base, self.patched, self.without_change, *again
        return tuple(run.log_sha256 for run in runs if run is not None)


class Digests(Model):
    """Digests of inputs and references of one result: alike on both trees, or nothing is judged."""

    seed: int
    result: str
    inputs: str  # of each input drawn before the result, with its value before the computation
    references: str  # of the references, or of the expected values
    written: Many[str] = ()  # the inputs that the computation overwrote


class OutputRecord(Model):
    """One result of a cell; counts are over all seeds, all else is of the worst seed."""

    name: str
    kind: Literal["error", "exact"]  # judged by its error, or compared bit by bit
    dtype: str
    shape: Integers
    elements: Count  # that were compared
    mismatches: Count  # elements that err by more than is allowed, or differ
    non_finite: Count
    worst_seed: int
    place: Integers | None = None  # of the worst element; none where nothing was wrong or compared
    max_abs: Finite  # the largest absolute error among finite elements
    max_rel: Finite | None = None  # over all seeds; none where every reference is 0
    reference_abs: Finite  # the same-precision reference's own largest absolute error
    floor: Finite = 0.0  # the absolute error that stands in for a smaller one of the reference
    allowed: Finite
    largest: Finite  # the largest magnitude in the reference
    ratio: Finite | None = None  # `max_abs` over the larger of `reference_abs` and `floor`
    vacuous: int = 0  # seeds that show nothing
    why_vacuous: str = ""  # why a vacuous seed shows nothing, and which inputs would
    complaint: str  # why the result does not pass, in one line; empty: it passes

    @property
    def by_floor(self) -> bool:
        """Whether the floor decides, not the reference's own error."""
        return self.floor > self.reference_abs

    @property
    def badness(self) -> tuple[bool, int, float, int, float]:
        """The key by which results are ordered: the worst result has the largest key."""
        ratio = self.ratio or 0.0
        return bool(self.complaint), self.non_finite, ratio, self.mismatches, self.max_abs


class CellRecord(Model):
    """The verdict on one cell of a numerics grid."""

    test: str  # without its folder
    cell: str
    axes: dict[str, str]
    seeds: Integers
    digests: Many[Digests] = ()
    outputs: Many[OutputRecord]
    failed: str  # why the test fails, in one line; empty if it passes

    @property
    def ratio(self) -> float:
        """The largest `ratio` among the cell's results; 0: no result has a ratio."""
        return max((output.ratio or 0.0 for output in self.outputs), default=0.0)

    @property
    def non_finite(self) -> int:
        """Elements that are NaN or infinite."""
        return sum(output.non_finite for output in self.outputs)


class Totals(Model):
    """The totals over all numerics cells of one side."""

    cells: Count
    failed: Count
    #: Cells without a result, cells with NaN or infinity, and results of another shape or dtype.
    silent: Count
    spoiled: Count
    odd: Count
    elements: Count
    mismatches: Count
    non_finite: Count
    #: Elements that are compared bit by bit, and the number of differing elements.
    exact: Count
    differing: Count
    #: The largest error as a multiple of the reference's, and of the floor where that decides.
    ratio: Finite | None = None
    floor_ratio: Finite | None = None


class CellsRecord(Model):
    """The cells of both trees: all, or the worst."""

    base: Many[CellRecord]
    patched: Many[CellRecord]


class TotalsRecord(Model):
    """The totals of both trees."""

    base: Totals
    patched: Totals


class NumericsRecord(Model):
    """The cells of a check, and the limits by which they are judged."""

    fudge: Finite
    floor: Finite | dict[str, Finite]
    why: str
    #: The SHA-256 over the digests of all inputs and references.
    judged_by_sha256: str
    cells: CellsRecord
    totals: TotalsRecord


class NumericsDetails(CheckDetails):
    """The runs of a check that judges numbers."""

    numerics: NumericsRecord
    #: A key of records up to release 0.2.0.
    compile: bool = Field(default=False, exclude=True)


class CodeRecord(Model):
    """The compiled code that a check is given in place of a tree."""

    #: The name of the patch's compile entry.
    entry: str
    toolchain: ToolchainRecord
    #: The SHA-256 of the base's and the patched tree's code object.
    sha256: Many[str]


class EmulateDetails(CheckDetails):
    """The runs of a check on an emulated GPU."""

    emulator: str
    triton: str = ""
    code: CodeRecord | None = None
    #: Of an entry that judges numbers.
    numerics: NumericsRecord | None = None


class CaseVerdict(enum.StrEnum):
    """The measurements of one case against the claim."""

    PASSED = "passed"
    FAILED = "failed"
    #: The claim lies inside the interval, or the measurements are too few for an interval.
    UNDECIDED = "undecided"
    #: This machine could not measure the case.
    UNAVAILABLE = "unavailable"


class Ratio(Model):
    """The base's time over the patched tree's: the median, and the interval that holds it."""

    median: Finite
    low: Finite
    high: Finite
    confidence: Finite
    #: Whether the difference from 1 lies inside the interval.
    noise: bool


class CaseSide(Model):
    """The measurements of one tree in a bench case."""

    #: The peak memory of a call without the call's inputs; None: not measured.
    peak_bytes: Count | None = None
    #: The number of input sets among which the calls alternate.
    input_sets: Count


class MeasuredSide(CaseSide):
    """The times of a call on one tree in a bench case, process by process."""

    seconds: Finite
    low: Finite
    high: Finite
    rounds: Floats
    samples: Count
    called_seconds: Finite | None = None
    bytes_per_second: Finite | None = None
    flops_per_second: Finite | None = None


class BenchCase(Model):
    """A case of a benchmark."""

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
    """A case of a benchmark with its times."""

    base: MeasuredSide
    patched: MeasuredSide
    rounds: Count
    pairs: Floats
    ratio: Ratio
    #: The ratio of whole calls, where the host's part takes longer than the GPU's.
    called_ratio: Ratio | None = None
    memory_ratio: Finite | None = None


class OutputLog(Model):
    """The output of one side of a benchmark."""

    command: str
    log_sha256: str
    log_tail: str


class BenchDetails(Placed):
    """The cases of a benchmark, and the claim."""

    at_least: Finite
    memory_at_most: Finite | None = None
    #: As of `NumericsDetails`.
    compile: bool = Field(default=False, exclude=True)
    too_noisy: bool
    #: Whether the bench proves the patch: it claims a gain, and compared results are alike.
    proof: bool = False
    cases: Annotated[
        tuple[Annotated[MeasuredCase | BenchCase, Field(union_mode="left_to_right")], ...],
        Field(strict=False),
    ]
    base: OutputLog
    patched: OutputLog

    @property
    def logs(self) -> tuple[str, ...]:
        """The digests of the logs of both sides."""
        return self.base.log_sha256, self.patched.log_sha256

    @property
    def measured(self) -> tuple[MeasuredCase, ...]:
        """The cases with times."""
        return tuple(case for case in self.cases if isinstance(case, MeasuredCase))


class BehaviourDetails(StageDetails):
    """The answer of an entry on a release without the patch."""

    says: Loose[Says]
    why: str
    log: str
    #: The reason why the release has no tree to ask.
    trouble: str = ""
    #: Files that the patch names and the release has elsewhere, old to new.
    moved: dict[str, str] = Field(default_factory=dict)

    @property
    def logs(self) -> tuple[str, ...]:
        """The digest of the log."""
        return (self.log,)
