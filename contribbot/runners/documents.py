"""What runners are, what a plan gives them, what a job says of itself, and what became of it.

A cell is a patch on a target under a ROCm version; a job is cells that run one after the
other on one set of runners in one container image.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    model_validator,
)

from contribbot.errors import QueueError, UsageError
from contribbot.model.base import Model, Name, Names, Sha256, form
from contribbot.model.checks import RUNNER_TARGET, GfxTarget, RunnerTarget, Simulator, is_simulated
from contribbot.model.evidence import Container, RunnerFault, RunOf
from contribbot.queue.load import did_you_mean, read_model

RUNNERS_FILE: Final = "runners.toml"
HOSTED: Final = "hosted"
#: What a container is given that is to reach a GPU.
GPU_FLAGS: Final = ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video")
_GITHUBS: Final = re.compile(r"^(?:ubuntu|windows|macos)-", re.IGNORECASE)
_SIZE: Final = (r"[0-9]{1,15}(?:[bkmgBKMG])?", "bytes, or a number with k, m or g")
_NUMBERS: Final = (r"[0-9,-]{1,100}", "numbers, as in 0-7,16")
#: Options of a container that Actions takes and that open nothing of the host but its GPUs: what
#: each value may be, and how that is said; None: it has none. All others are refused, not only
#: those known to be bad: a word that is no option takes the place of the image, and short options
#: can be written together.
_OPTIONS: Final[Mapping[str, tuple[str, str] | None]] = {
    "--cap-add": ("SYS_PTRACE", "SYS_PTRACE"),
    "--cpus": (r"[0-9]{1,4}(?:\.[0-9]{1,3})?", "a number"),
    "--cpuset-cpus": _NUMBERS,
    "--cpuset-mems": _NUMBERS,
    "--device": (r"/dev/(?:kfd|dri(?:/(?:card|renderD)[0-9]{1,4})?)",
                 "/dev/kfd, /dev/dri, /dev/dri/cardN or /dev/dri/renderDN"),
    "--group-add": (r"video|render|[1-9][0-9]{0,9}", "video, render, or the number of a group"),
    "--init": None,
    "--ipc": ("none|private|shareable",
              "none, private or shareable; for more shared memory there is --shm-size"),
    "--memory": _SIZE,
    "--security-opt": ("seccomp=unconfined|no-new-privileges",
                       "seccomp=unconfined or no-new-privileges"),
    "--shm-size": _SIZE,
    "--ulimit": (r"[a-z]{1,20}=-?[0-9]{1,19}(?::-?[0-9]{1,19})?", "NAME=SOFT or NAME=SOFT:HARD"),
    "--user": (r"root|[0-9]{1,10}(?::[0-9]{1,10})?", "root, or numbers as in 1000:1000"),
}  # fmt: skip

#: Labels of GitHub's that no runner with Linux has: its Ubuntu releases are those of even years
#: with long support, from 22.04 on. Larger runners have names that their organisation gives them.
_NO_LINUX: Final = re.compile(
    r"(?:windows|macos)(?:-.*)?|ubuntu-(?!(?:2[2468]|[3-9][02468])\.04(?:-|$))\d\d\.\d\d(?:-arm)?",
    re.IGNORECASE,
)


def _has_linux(label: str) -> str:
    """Refuse a label of GitHub's that no runner with Linux has: its jobs would wait for a day."""
    if _NO_LINUX.fullmatch(label):
        raise ValueError(f"{label} is a label that no runner with Linux has")
    return label


def _by_digest(image: str) -> str:
    """Refuse an image that another may take the place of."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}", image):
        raise ValueError(
            "name the image by its digest, as REGISTRY/NAME@sha256:…; "
            "`docker buildx imagetools inspect IMAGE` shows it"
        )
    return image


def _harmless(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse all but a container's known options; a value may be the next word."""
    words = iter(flags)
    for word in words:
        option, joined, value = word.partition("=")
        if option not in _OPTIONS:
            raise ValueError(f"{option} is not one of {', '.join(_OPTIONS)}")
        takes = _OPTIONS[option]
        if takes is None:
            if joined:
                raise ValueError(f"{option} takes no value")
            continue
        value = value if joined else next(words, "")
        pattern, meant = takes
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{option} {value or 'without a value'}: it takes {meant}")
    return flags


def _in_names_of_jobs(name: str) -> str:
    """Refuse a name that the name of a job, and of its artifact, cannot hold."""
    if "_" in name:
        raise ValueError("no underscore: the name becomes part of names of jobs; write a dash")
    return name


RocmVersion = Annotated[str, form(r"^[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}$", "a release such as 7.1")]
#: What a job shows: compiled for a target, or run on it.
Kind = Literal["compile", "gpu"]
Label = Annotated[
    str,
    form(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", "a label of letters, digits and . _ -"),
    AfterValidator(_has_linux),
]
Labels = Annotated[tuple[Label, ...], Field(strict=False, min_length=1, max_length=20)]
Minutes = Annotated[int, Field(ge=5, le=7200)]
Count = Annotated[int, Field(ge=1, le=1000)]
Image = Annotated[str, StringConstraints(max_length=500), AfterValidator(_by_digest)]
Flags = Annotated[tuple[str, ...], Field(strict=False, max_length=40), AfterValidator(_harmless)]


class RocmImage(Model):
    """A ROCm version that runners of a set offer."""

    version: RocmVersion
    image: Image
    flags: Flags = GPU_FLAGS


class HostedImage(Model):
    """A ROCm version that hosted runners compile with."""

    flags: ClassVar[tuple[str, ...]] = ()
    version: RocmVersion
    image: Image
    targets: Annotated[tuple[GfxTarget, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _sound(self) -> HostedImage:
        differ("targets", self.targets)
        return self


class RunnerSet(Simulator):
    """Runners with the same labels and the same GPU, or a program that stands in for it."""

    model_config = ConfigDict(extra="forbid")

    kind: ClassVar[Kind] = "gpu"
    name: Annotated[Name, StringConstraints(max_length=40), AfterValidator(_in_names_of_jobs)]
    labels: Labels
    count: Count = 1
    minutes_limit: Minutes = 120
    #: What an hour costs, in any unit; where several sets can run a cell, the cheapest gets it.
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)] = 1.0
    rocm: Annotated[tuple[RocmImage, ...], Field(strict=False, min_length=1)]

    @property
    def offers(self) -> tuple[tuple[str, str], ...]:
        """The targets and ROCm versions that it can run."""
        return tuple((self.target, image.version) for image in self.rocm)

    @model_validator(mode="after")
    def _sound(self) -> RunnerSet:
        if self.name == HOSTED:
            raise ValueError(f"name: {HOSTED} is the set that compiles")
        if self.under and any(image.flags == GPU_FLAGS for image in self.rocm):
            raise ValueError(f"rocm: there is no GPU to hand to a container of {self.target}: "
                             "write flags = []")  # fmt: skip
        githubs = [label for label in self.labels if _GITHUBS.match(label)]
        if githubs and not self.under:
            raise ValueError(
                f"labels: {githubs[0]} is a label of GitHub's runners, which have no GPU"
            )
        differ("rocm", [image.version for image in self.rocm])
        return self


class Hosted(Model):
    """The runners that compile; they have no GPU."""

    # As a set of runners with a GPU has them.
    name: ClassVar[str] = HOSTED
    kind: ClassVar[Kind] = "compile"
    target: ClassVar[Literal[""]] = ""
    cost: ClassVar[float] = 0.0
    labels: Labels
    #: Jobs that run at the same time (GitHub's free plan: 20).
    count: Count = 20
    #: Minutes that one job may take (GitHub's own runners: at most 360).
    minutes_limit: Annotated[int, Field(ge=5, le=360)] = 120
    rocm: Annotated[tuple[HostedImage, ...], Field(strict=False, min_length=1)]

    @property
    def offers(self) -> tuple[tuple[str, str], ...]:
        """The targets and ROCm versions that it can compile for."""
        return tuple((target, image.version) for image in self.rocm for target in image.targets)

    @model_validator(mode="after")
    def _sound(self) -> Hosted:
        githubs = sorted(_folded(label for label in self.labels if _GITHUBS.match(label)))
        if len(githubs) > 1:
            raise ValueError(
                f"labels: no runner has all of {', '.join(githubs)}: each is another of GitHub's"
            )
        differ("rocm", [image.version for image in self.rocm])
        return self


class Runners(Model):
    """The content of `runners.toml`."""

    runners: Annotated[tuple[RunnerSet, ...], Field(strict=False, max_length=100)] = ()
    hosted: Hosted | None = None

    @model_validator(mode="after")
    def _sound(self) -> Runners:
        differ("runners", [each.name for each in self.runners])
        # A runner takes every job whose labels it has all of.
        for small, large in permutations(self.sets, 2):
            if not any(isinstance(each, RunnerSet) and not each.under for each in (small, large)):
                continue  # neither has a GPU: each can do the other's work
            labels, more = _folded(small.labels), _folded(large.labels)
            if labels == more:
                raise ValueError(f"runners: {small.name} and {large.name} have the same labels")
            if labels < more and small.target != large.target:
                raise ValueError(
                    f"runners: {large.name} has all labels of {small.name}, so that a job for "
                    f"{small.target or 'no GPU'} could run on {large.target or 'no GPU'}: give "
                    "each a label of its own"
                )
        return self

    @property
    def sets(self) -> tuple[RunnerSet | Hosted, ...]:
        """All sets: the one that compiles, and then those with a GPU."""
        return (*((self.hosted,) if self.hosted else ()), *self.runners)

    @property
    def versions(self) -> tuple[str, ...]:
        """Every ROCm version that is named, oldest first."""
        named = {version for each in self.sets for _, version in each.offers}
        return tuple(sorted(named, key=lambda version: [int(part) for part in version.split(".")]))


def _folded(labels: Iterable[str]) -> frozenset[str]:
    return frozenset(label.casefold() for label in labels)


def is_version(wanted: str, seen: str) -> bool:
    """Return whether what a machine calls its ROCm is a version that was asked for."""
    return seen == wanted or seen.startswith((f"{wanted}.", f"{wanted}-"))


def differ(what: str, names: Sequence[str]) -> None:
    """Refuse a list in which a name stands twice."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise ValueError(f"{what}: {twice[0]} is there twice")


@dataclass(frozen=True)
class Fleet:
    """The runners of a queue."""

    path: Path
    runners: Runners
    sha256: str


def load_fleet(folder: Path, *, needed: bool = True) -> Fleet:
    """Read the runners of a queue; where there is no such file, and none is needed: no runners."""
    path = folder / RUNNERS_FILE
    there = path.exists() or path.is_symlink()
    if not needed and not there:
        return Fleet(path, Runners(), hashlib.sha256(b"").hexdigest())
    if not path.is_file():
        raise QueueError(
            f"{path}: {'not a' if there else 'no such'} file, and nothing else says which runners "
            "there are",
            hint="describe them as docs/runners.md shows",
        )
    try:
        runners = read_model(path, Runners)
    except QueueError as error:
        hint = "correct the file; docs/runners.md lists every key"
        raise QueueError(error.message, hint=hint) from error
    if needed and not runners.sets:
        raise QueueError(
            f"{path}: it names no runners", hint="add a [[runners]] or a [hosted] table"
        )
    return Fleet(path, runners, hashlib.sha256(path.read_bytes()).hexdigest())


def restricted(fleet: Fleet, wanted: Sequence[str]) -> Runners:
    """Return the runners of a fleet that a user means, by name of the set, target or label."""
    runners = fleet.runners
    if not wanted:
        return runners
    words = {each.name: {each.name.casefold(), each.target, *map(str.casefold, each.labels)} - {""}
             for each in runners.sets}  # fmt: skip
    meant: set[str] = set()
    for item in wanted:
        names = {name for name, known in words.items() if item.casefold() in known}
        if not names:
            near = did_you_mean(item.casefold(), set[str]().union(*words.values()))
            raise UsageError(
                f"--on {item}: no set of {fleet.path} has this name, target or label{near}",
                hint=f"it has {', '.join(words)}",
            )
        meant |= names
    return Runners(
        runners=tuple(each for each in runners.runners if each.name in meant),
        hosted=runners.hosted if HOSTED in meant else None,
    )


#: What the ids of jobs that compile begin with; others begin with their target.
COMPILING: Final = "compile"
AGAIN: Final = "-again"
#: The artifact that holds the plan, and the start of the names of all of contribbot's.
PLAN_ARTIFACT: Final = "contribbot-plan"
PREFIX: Final = "contribbot-"
#: A job's name: safe as a file's name and in an expression of Actions.
JobId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,79}$")]
#: Stages on targets, as `verify --require` takes them.
Demands = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=rf"^[a-z]+:{RUNNER_TARGET}$")], ...],
    Field(strict=False, min_length=1),
]


class CellName(Model):
    """A patch on a target under a ROCm version, compiled or run."""

    kind: Kind
    patch: Name
    target: RunnerTarget
    #: Empty where there is no runner under any.
    rocm: RocmVersion | Literal[""] = ""

    @property
    def key(self) -> str:
        """Its name in every plan, such as `gpu/rmsnorm/gfx942/rocm7.1`."""
        return f"{self.kind}/{self.patch}/{self.target}/rocm{self.rocm}"

    @property
    def good(self) -> CellState:
        """What became of it where all passed."""
        return CellState.SIMULATED if is_simulated(self.target) else CellState.PROVED

    def ended(self, state: CellState, why: str, *, job: str = "", fresh: bool = False) -> CellEnd:
        """Return what became of it."""
        return CellEnd(kind=self.kind, patch=self.patch, target=self.target, rocm=self.rocm,
                       state=state, why=why, job=job, fresh=fresh)  # fmt: skip


class PlannedCell(CellName):
    """A cell of a job."""

    rocm: RocmVersion
    #: What `verify` must prove, as `STAGE:TARGET`.
    require: Demands


class OpenCell(CellName):
    """A cell that nothing can run."""

    reason: str


class FreshCell(CellName):
    """A cell that a kept record answers already; that it failed is an answer as well."""

    record: str
    says: Literal["passed", "failed"]


class CiJob(Model):
    """Cells that run one after the other on one set of runners in one image."""

    id: JobId
    kind: Kind
    runners: Name
    labels: Labels
    target: RunnerTarget | Literal[""] = ""
    rocm: RocmVersion
    image: Image
    flags: Flags = ()
    minutes: Minutes
    cells: Annotated[tuple[PlannedCell, ...], Field(strict=False, min_length=1)]
    after: Annotated[tuple[JobId, ...], Field(strict=False)] = ()

    @property
    def asks(self) -> dict[str, tuple[str, ...]]:
        """What `verify` must prove of each patch, in the order in which they run."""
        asked: dict[str, tuple[str, ...]] = {}
        for cell in self.cells:
            asked[cell.patch] = (*asked.get(cell.patch, ()), *cell.require)
        return asked

    @property
    def patches(self) -> tuple[str, ...]:
        """Its patches, each once, in that order."""
        return tuple(self.asks)

    @property
    def artifact(self) -> str:
        """The name of the artifact that it leaves."""
        return f"{PREFIX}{self.id}"


class Subject(Model):
    """What a patch was when the plan was made."""

    patch: Name
    patch_sha256: Sha256
    checks_sha256: Sha256


class Plan(Model):
    """What is run where, what cannot be, and what need not be."""

    type: Literal["contribbot/plan/v2"] = "contribbot/plan/v2"
    runners_sha256: Sha256
    subjects: Annotated[tuple[Subject, ...], Field(strict=False)] = ()
    jobs: Annotated[tuple[CiJob, ...], Field(strict=False)] = ()
    open: Annotated[tuple[OpenCell, ...], Field(strict=False)] = ()
    fresh: Annotated[tuple[FreshCell, ...], Field(strict=False)] = ()
    without: Names = ()
    #: The sets that it was made for.
    runners: Names = ()

    @model_validator(mode="after")
    def _sound(self) -> Plan:
        differ("jobs", [job.id for job in self.jobs])
        differ("cells", [cell.key for cell in self.cells])
        return self

    @property
    def cells(self) -> tuple[PlannedCell, ...]:
        """All cells that some job runs."""
        return tuple(cell for job in self.jobs for cell in job.cells)

    def of_kind(self, kind: Kind) -> tuple[CiJob, ...]:
        """Return the jobs of one kind, in order."""
        return tuple(job for job in self.jobs if job.kind == kind)


#: What `verify --require` takes.
_Requirement = Annotated[str, StringConstraints(pattern=rf"^[a-z]+:(?:{RUNNER_TARGET}|cpu|cuda)$")]
_ExitCode = Annotated[int, Field(ge=0, le=255)]


class Asked(Model):
    """What a job is asked to prove of a patch."""

    patch: Name
    require: Annotated[tuple[_Requirement, ...], Field(strict=False, min_length=1, max_length=100)]


ASKS: Final = TypeAdapter(Annotated[tuple[Asked, ...], Field(min_length=1, max_length=2000)])


class FaultAt(Model):
    """A fault of the runner, and what it kept from being shown."""

    stage: Annotated[str, StringConstraints(max_length=40)]
    target: Annotated[str, StringConstraints(max_length=40)]
    fault: RunnerFault


class PatchDone(Model):
    """How the proof of one patch ended; `exit_code` is what `verify` would tell a shell."""

    patch: Name
    exit_code: _ExitCode
    error: Annotated[str, StringConstraints(max_length=2000)] = ""
    faults: Annotated[tuple[FaultAt, ...], Field(strict=False, max_length=1000)] = ()


class JobDone(Model):
    """What a job says of itself. Whoever reads it knows no more than that."""

    type: Literal["contribbot/job/v1"] = "contribbot/job/v1"
    job: JobId
    run: RunOf | None
    container: Container | None
    asked: Annotated[tuple[Asked, ...], Field(strict=False)]
    patches: Annotated[tuple[PatchDone, ...], Field(strict=False)] = ()
    exit_code: _ExitCode


class CellState(enum.StrEnum):
    """What became of a cell."""

    PROVED = "proved"
    #: It passed under a program that stands in for a GPU, which proves nothing alone.
    SIMULATED = "simulated"
    REFUTED = "refuted"
    #: Its record has no answer to all that was asked.
    INCOMPLETE = "incomplete"
    #: Its runner, or none that there is, could run it.
    OPEN = "open"
    #: Nothing came, and no job says why.
    MISSING = "missing"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    #: The machine was at fault: nothing is known of the patch.
    FAULT = "runner fault"
    #: Something came that is not what was asked for, or not as it was sent.
    REFUSED = "refused"
    RUNNING = "running"


class CellEnd(CellName):
    """What became of a cell; `why` holds text that a job sent."""

    state: Annotated[CellState, Field(strict=False)]
    why: str
    #: Empty: no job had it.
    job: str = ""
    #: Whether a record that was there before answers it.
    fresh: bool = False


class RecordEnd(Model):
    """What became of a record that came."""

    path: str
    job: str
    #: `new` and `replaced` were written; `kept`: the one that is there stays.
    merged: Literal["new", "replaced", "unchanged", "kept", "refused"]
    why: str


class ArtifactEnd(Model):
    """An artifact, and what is to be said of it."""

    name: str
    sha256: Annotated[str, StringConstraints(pattern=r"^(?:[0-9a-f]{64})?$")] = ""
    #: Why nothing of it was taken; empty: it was.
    refused: str = ""
    attested: str = ""
    #: What is in it, by name; nothing where it was not opened, or is refused.
    files: Mapping[str, bytes] = Field(default_factory=dict, exclude=True, repr=False)
    #: Whether it came before its job was started again: it is left alone.
    early: bool = Field(default=False, exclude=True)


class Collected(Model):
    """What `runners collect --json` prints."""

    type: Literal["contribbot/collected/v1"] = "contribbot/collected/v1"
    repository: str = ""
    run: int = 0
    commit: str = ""
    cells: Annotated[tuple[CellEnd, ...], Field(strict=False)] = ()
    records: Annotated[tuple[RecordEnd, ...], Field(strict=False)] = ()
    artifacts: Annotated[tuple[ArtifactEnd, ...], Field(strict=False)] = ()
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    #: Whether all that was planned came and passed.
    complete: bool
    #: Whether runners alone kept it from that: nothing failed or is in doubt, and nothing is
    #: known of the cells that they had.
    runners_failed: bool = False


class Again(Model):
    """What `runners collect --again` prints."""

    type: Literal["contribbot/again/v1"] = "contribbot/again/v1"
    run: int = 0
    cells: Annotated[tuple[CellEnd, ...], Field(strict=False)] = ()
    jobs: Annotated[tuple[CiJob, ...], Field(strict=False)] = ()
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
