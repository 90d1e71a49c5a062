"""The plan that is made from `runners.toml`: cells, jobs, and what has no runner.

A cell is a patch on a target under a ROCm version; a job is cells that run one after the
other on one set of runners in one container image.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from contribbot.model.base import Model, Name, Names, Sha256
from contribbot.model.checks import GfxTarget
from contribbot.model.runnersfile import (
    GPU_FLAGS,
    HOSTED,
    RUNNERS_FILE,
    Count,
    Flags,
    Hosted,
    HostedImage,
    Image,
    Labels,
    Minutes,
    RocmImage,
    RocmVersion,
    Runners,
    RunnerSet,
    Seconds,
    differ,
    is_version,
    version_key,
)

__all__ = [
    "COMPILING", "GPU_FLAGS", "HOSTED", "PLAN", "RUNNERS_FILE", "Cell", "FreshCell", "Hosted",
    "HostedImage", "Image", "Job", "JobId", "Kind", "Load", "OpenCell", "Plan", "RocmImage",
    "RocmVersion", "RunnerSet", "Runners", "Subject", "cell_key", "is_version", "version_key",
]  # fmt: skip

PLAN: Final = "contribbot/plan/v1"
#: What the ids of jobs that compile begin with; others begin with their target.
COMPILING: Final = "compile"
#: A job's name: safe as a file's name and in an expression of Actions.
JobId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,79}$")]
JobIds = Annotated[tuple[JobId, ...], Field(strict=False)]
#: What a job shows: compiled for a target, or run on it.
Kind = Literal["compile", "gpu"]
#: A stage on a target, as `verify --require` takes it.
Demand = Annotated[str, StringConstraints(pattern=r"^[a-z]+:gfx[0-9a-f]{3,5}$")]
Demands = Annotated[tuple[Demand, ...], Field(strict=False, min_length=1)]


class Cell(Model):
    """A patch on a target under a ROCm version.

    Attributes:
        kind: Whether it is compiled or run.
        patch: The patch.
        target: The target.
        rocm: The ROCm version.
        require: What `verify` must prove, as `STAGE:TARGET`.
        tree: The upstream and the pin whose tree it works on.
        seconds: How long it takes, as far as can be told.
        estimate: Where that is from.
    """

    kind: Kind
    patch: Name
    target: GfxTarget
    rocm: RocmVersion
    require: Demands
    tree: str
    seconds: Seconds
    estimate: Literal["records", "other records", "default"]

    @property
    def key(self) -> str:
        """Its name: the same in every plan."""
        return cell_key(self.kind, self.patch, self.target, self.rocm)


class OpenCell(Model):
    """A cell that nothing can run.

    Attributes:
        kind: Whether it would be compiled or run.
        patch: The patch.
        target: The target.
        rocm: The ROCm version; empty where there is no runner under any.
        reason: Why.
    """

    kind: Kind
    patch: Name
    target: GfxTarget
    rocm: RocmVersion | Literal[""] = ""
    reason: str


class FreshCell(Model):
    """A cell that a kept record answers already.

    Attributes:
        kind: Whether it was compiled or run.
        patch: The patch.
        target: The target.
        rocm: The ROCm version.
        record: The record, seen from the queue's folder.
        says: What it says; `failed` is an answer as well.
    """

    kind: Kind
    patch: Name
    target: GfxTarget
    rocm: RocmVersion
    record: str
    says: Literal["passed", "failed"]


class Job(Model):
    """Cells that run one after the other on one set of runners in one image.

    Attributes:
        id: Its name, such as `gfx942-rocm7.1-1`.
        kind: Whether it compiles or runs.
        runners: The set.
        labels: Its labels.
        target: The GPU; empty where it compiles, for several targets.
        rocm: The ROCm version.
        image: The container image.
        flags: Options of the container.
        minutes: When Actions ends it.
        seconds: How long it takes, as far as can be told.
        cells: In the order in which they run; those of a patch stand together.
        after: The jobs that compile what this one runs.
    """

    id: JobId
    kind: Kind
    runners: Name
    labels: Labels
    target: GfxTarget | Literal[""] = ""
    rocm: RocmVersion
    image: Image
    flags: Flags = ()
    minutes: Minutes
    seconds: Seconds
    cells: Annotated[tuple[Cell, ...], Field(strict=False, min_length=1)]
    after: JobIds = ()

    @property
    def patches(self) -> tuple[str, ...]:
        """Its patches, each once, in the order in which they run."""
        return tuple(dict.fromkeys(cell.patch for cell in self.cells))

    @property
    def asks(self) -> dict[str, tuple[str, ...]]:
        """What `verify` must prove of each patch, in the order in which they run."""
        asked: dict[str, tuple[str, ...]] = {}
        for cell in self.cells:
            asked[cell.patch] = (*asked.get(cell.patch, ()), *cell.require)
        return asked

    @property
    def artifact(self) -> str:
        """The name of the artifact that it leaves."""
        return f"contribbot-{self.id}"


class Subject(Model):
    """What a patch was when the plan was made.

    Attributes:
        patch: Its name.
        patch_sha256: Digest of its patch files.
        checks_sha256: Digest of its checks.
    """

    patch: Name
    patch_sha256: Sha256
    checks_sha256: Sha256


class Load(Model):
    """How busy a set of runners is.

    Attributes:
        runners: The set.
        count: How many runners.
        jobs: How many jobs.
        seconds: When the last job ends, as far as can be told.
        bound: No order of the cells on so many runners ends sooner.
    """

    runners: Name
    count: Count
    jobs: int
    seconds: Seconds
    bound: Seconds


class Plan(Model):
    """What is run where, what cannot be, and what need not be.

    Attributes:
        type: What it is.
        runners_sha256: Digest of `runners.toml`.
        subjects: The patches that jobs are about.
        jobs: Those that compile first, then the cheapest set; in a set the longest first.
        open: Cells without a runner.
        fresh: Cells that a record answers.
        without: Patches that ask for no AMD target.
        loads: How busy each set is.
    """

    type: Literal["contribbot/plan/v1"] = PLAN
    runners_sha256: Sha256
    subjects: Annotated[tuple[Subject, ...], Field(strict=False)] = ()
    jobs: Annotated[tuple[Job, ...], Field(strict=False)] = ()
    open: Annotated[tuple[OpenCell, ...], Field(strict=False)] = ()
    fresh: Annotated[tuple[FreshCell, ...], Field(strict=False)] = ()
    without: Names = ()
    loads: Annotated[tuple[Load, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _idsdiffer(self) -> Plan:
        differ("jobs", [job.id for job in self.jobs])
        differ("cells", [cell.key for cell in self.cells])
        return self

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells that some job runs."""
        return tuple(cell for job in self.jobs for cell in job.cells)

    def of_kind(self, kind: Kind) -> tuple[Job, ...]:
        """Return the jobs of one kind, in order."""
        return tuple(job for job in self.jobs if job.kind == kind)


def cell_key(kind: str, patch: str, target: str, rocm: str) -> str:
    """Return the name of a cell, such as `gpu/rmsnorm/gfx942/rocm7.1`."""
    return f"{kind}/{patch}/{target}/rocm{rocm}"
