"""Plan a run of Actions by `runners.toml`: jobs, cells without a runner, cells with a record."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from contribbot.errors import QueueError, UsageError
from contribbot.model.base import Many, Model, Name, Names, Sha256, Some, form, refuse_twins
from contribbot.model.checks import GfxTarget
from contribbot.model.evidence import Outcome
from contribbot.model.patch import PatchSpec
from contribbot.queue.load import Queue, did_you_mean, read_model
from contribbot.verify.evidence import Record, State, read_records

RUNNERS_FILE: Final = "runners.toml"
HOSTED: Final = "hosted"
#: Container options that give a job access to the GPU.
GPU_FLAGS: Final = ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video")


def _by_digest(image: str) -> str:
    """Return a container image's name; ValueError: it has no digest, and a tag can move."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}", image):
        raise ValueError(
            "name the image by its digest, as REGISTRY/NAME@sha256:…; "
            "`docker buildx imagetools inspect IMAGE` shows it"
        )
    return image


RocmVersion = Annotated[str, form(r"^[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}$", "a release such as 7.1")]
#: The kind of a job: code is compiled for a target, or runs on the target's GPU.
Kind = Literal["compile", "gpu"]
Label = Annotated[
    str, form(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", "a label of letters, digits and . _ -")
]
Labels = Annotated[tuple[Label, ...], Field(strict=False, min_length=1, max_length=20)]
Image = Annotated[str, StringConstraints(max_length=500), AfterValidator(_by_digest)]
Flag = Annotated[str, form(r"^[A-Za-z0-9=:/._,-]{1,200}$", "a word of a container option")]
Flags = Annotated[tuple[Flag, ...], Field(strict=False, max_length=40)]


class RocmImage(Model):
    """A ROCm version, with the container image in which a set of GPU runners offers it."""

    version: RocmVersion
    image: Image
    flags: Flags = GPU_FLAGS


class HostedImage(Model):
    """A ROCm version, with the container image in which hosted runners compile for targets."""

    flags: ClassVar[tuple[str, ...]] = ()
    version: RocmVersion
    image: Image
    targets: Annotated[tuple[GfxTarget, ...], Field(strict=False, min_length=1)]


class RunnerSet(Model):
    """A set of runners with the same labels and the same GPU."""

    kind: ClassVar[Kind] = "gpu"
    name: Annotated[str, form(r"^[a-z0-9][a-z0-9.-]{0,39}$", "a short name without underscores")]
    target: GfxTarget
    labels: Labels
    minutes_limit: Annotated[int, Field(ge=5, le=7200)] = 120
    rocm: Annotated[tuple[RocmImage, ...], Field(strict=False, min_length=1)]

    @property
    def offers(self) -> tuple[tuple[str, str], ...]:
        """The targets and ROCm versions of the set."""
        return tuple((self.target, image.version) for image in self.rocm)

    @model_validator(mode="after")
    def _sound(self) -> RunnerSet:
        if self.name == HOSTED:
            raise ValueError(f"name: {HOSTED} is the set that compiles")
        refuse_twins("rocm", [image.version for image in self.rocm])
        return self


class Hosted(Model):
    """The set of runners that compile, without a GPU."""

    name: ClassVar[str] = HOSTED
    kind: ClassVar[Kind] = "compile"
    target: ClassVar[Literal[""]] = ""
    labels: Labels
    #: GitHub's own runners end a job after 360 minutes.
    minutes_limit: Annotated[int, Field(ge=5, le=360)] = 120
    rocm: Annotated[tuple[HostedImage, ...], Field(strict=False, min_length=1)]

    @property
    def offers(self) -> tuple[tuple[str, str], ...]:
        """The targets and ROCm versions of the set."""
        return tuple((target, image.version) for image in self.rocm for target in image.targets)

    @model_validator(mode="after")
    def _sound(self) -> Hosted:
        refuse_twins("rocm", [image.version for image in self.rocm])
        return self


class Runners(Model):
    """The content of `runners.toml`."""

    runners: Annotated[tuple[RunnerSet, ...], Field(strict=False, max_length=100)] = ()
    hosted: Hosted | None = None

    @model_validator(mode="after")
    def _sound(self) -> Runners:
        refuse_twins("runners", [each.name for each in self.runners])
        return self

    @property
    def sets(self) -> tuple[RunnerSet | Hosted, ...]:
        """All sets of runners: the hosted set first, then the sets with a GPU."""
        return (*((self.hosted,) if self.hosted else ()), *self.runners)

    @property
    def versions(self) -> tuple[str, ...]:
        """Every ROCm version of the file, oldest first."""
        versions = {version for each in self.sets for _, version in each.offers}
        return tuple(sorted(versions, key=lambda version: [*map(int, version.split("."))]))


class Fleet(NamedTuple):
    """The runners of a queue, and the digest of `runners.toml`."""

    path: Path
    runners: Runners
    sha256: str


def load_fleet(folder: Path, *, needed: bool = True) -> Fleet:
    """Read a queue's `runners.toml`; QueueError: it is missing or empty, and `needed` is set."""
    path = folder / RUNNERS_FILE
    content = path.read_bytes() if path.is_file() else b""
    runners = read_model(path, Runners) if path.is_file() else Runners()
    if needed and not runners.sets:
        what = "it names no runners" if path.is_file() else "no such file"
        raise QueueError(f"{path}: {what}", hint="write it as docs/runners.md shows")
    return Fleet(path, runners, hashlib.sha256(content).hexdigest())


def restricted(fleet: Fleet, names: Sequence[str]) -> Runners:
    """Return the runners that match any of the names: of a set, target or label; no names: all."""
    runners, wanted = fleet.runners, {name.casefold() for name in names}
    words = {
        each.name: {word.casefold() for word in (each.name, each.target, *each.labels)}
        for each in runners.sets
    }
    known = set[str]().union(*words.values())
    for name in sorted(wanted - known):
        near = did_you_mean(name, known)
        raise UsageError(
            f"--on {name}: no set of {fleet.path} has this name, target or label{near}",
            hint=f"it has {', '.join(words)}",
        )
    chosen = {name for name, own in words.items() if own & wanted or not wanted}
    return Runners(
        runners=tuple(each for each in runners.runners if each.name in chosen),
        hosted=runners.hosted if HOSTED in chosen else None,
    )


def is_version(wanted: str, machine: str) -> bool:
    """Return whether a machine's ROCm version, such as `7.1.0-5`, is of the release `wanted`."""
    return machine == wanted or machine.startswith((f"{wanted}.", f"{wanted}-"))


#: The largest number of patches in a job.
_PATCHES: Final = 8
#: The start of the names of contribbot's artifacts, and the artifact of the plan.
PREFIX: Final = "contribbot-"
PLAN_ARTIFACT: Final = "contribbot-plan"
#: A job's name, safe as a file's name and in an expression of Actions.
JobId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,79}$")]
#: Stages on targets, in the form of `verify --require`.
Require = Some[Annotated[str, StringConstraints(pattern=r"^[a-z]+:gfx[0-9a-f]{3,5}$")]]


#: The fields that name a cell.
CELL: Final = {"kind", "patch", "target", "rocm"}


class CellName(Model):
    """A cell: a patch on a target under a ROCm version, to be compiled or to be run."""

    kind: Kind
    patch: Name
    target: GfxTarget
    #: Empty: no runner offers the target.
    rocm: RocmVersion | Literal[""] = ""

    @property
    def title(self) -> str:
        """The target, or `compile:TARGET` for a cell to compile, as in `verify --require`."""
        return f"compile:{self.target}" if self.kind == "compile" else self.target

    @property
    def key(self) -> str:
        """The name of the cell in every plan, such as `gpu/rmsnorm/gfx942/rocm7.1`."""
        return f"{self.kind}/{self.patch}/{self.target}/rocm{self.rocm}"


class PlannedCell(CellName):
    """A cell that a job runs, with the stages that the job must prove."""

    rocm: RocmVersion
    require: Require


class OpenCell(CellName):
    """A cell without a runner, and the reason why no runner has the cell."""

    reason: str


class FreshCell(CellName):
    """A cell that a fresh record of the queue answers already."""

    record: str
    passed: bool


class CiJob(Model):
    """A job of CI: patches that run one after the other on one set of runners, in one image."""

    id: JobId
    kind: Kind
    runners: Name
    labels: Labels
    target: GfxTarget | Literal[""] = ""
    rocm: RocmVersion
    image: Image
    flags: Flags = ()
    minutes: int
    cells: Some[PlannedCell]

    @property
    def patches(self) -> tuple[str, ...]:
        """The patches of the job, each once."""
        return tuple(dict.fromkeys(cell.patch for cell in self.cells))

    @property
    def require(self) -> tuple[str, ...]:
        """The stages on targets that the job must prove for each patch."""
        return tuple(dict.fromkeys(need for cell in self.cells for need in cell.require))

    @property
    def artifact(self) -> str:
        """The name of the artifact that the job uploads."""
        return f"{PREFIX}{self.id}"


class Plan(Model):
    """The plan of a run: the jobs, and the cells that no job covers."""

    type: Literal["contribbot/plan/v3"] = "contribbot/plan/v3"
    runners_sha256: Sha256
    jobs: Many[CiJob] = ()
    open: Many[OpenCell] = ()
    fresh: Many[FreshCell] = ()
    #: Patches without an AMD target.
    without: Names = ()
    #: The names of the sets of runners that the plan may use.
    runners: Names = ()

    @property
    def cells(self) -> tuple[PlannedCell, ...]:
        """The cells of all jobs."""
        return tuple(cell for job in self.jobs for cell in job.cells)

    def of_kind(self, kind: Kind) -> tuple[CiJob, ...]:
        """Return the jobs of one kind, in order."""
        return tuple(job for job in self.jobs if job.kind == kind)


def demands(spec: PatchSpec) -> dict[tuple[Kind, str], tuple[str, ...]]:
    """Return the stages that a patch states for AMD targets, by kind of job and target."""
    stages: dict[tuple[Kind, str], dict[str, None]] = {}
    for stage, _, target in spec.units:
        if target.startswith("gfx"):
            kind: Kind = "compile" if stage == "compile" else "gpu"
            stages.setdefault((kind, target), {})[f"{stage}:{target}"] = None
    return {key: tuple(names) for key, names in stages.items()}


def make_plan(
    queue: Queue,
    names: Sequence[str],
    *,
    everything: bool = False,
    on: Sequence[str] = (),
    for_a_run: bool = False,
) -> Plan:
    """Make the plan of a run; `everything`: plan also the cells that fresh records answer."""
    fleet = load_fleet(queue.folder, needed=for_a_run or bool(on))
    chosen = restricted(fleet, on)
    planned, lacking = _cells(queue, names, fleet.runners, chosen)
    records = {name: read_records(queue, queue.evidence, name) for name in names}
    fresh: dict[str, FreshCell] = {}
    answerable: list[CellName] = [*planned, *([] if fleet.runners.sets else lacking)]
    for cell in [] if everything else answerable:
        require = demands(queue.specs[cell.patch])[cell.kind, cell.target]
        if answer := answer_of(queue, cell, require, records[cell.patch]):
            fresh[cell.key] = answer
    return Plan(
        runners_sha256=fleet.sha256,
        jobs=tuple(_jobs(queue, chosen, [cell for cell in planned if cell.key not in fresh])),
        open=tuple(cell for cell in lacking if cell.key not in fresh),
        fresh=tuple(fresh.values()),
        without=tuple(name for name in names if not demands(queue.specs[name])),
        runners=tuple(each.name for each in chosen.sets),
    )


def _cells(
    queue: Queue, names: Iterable[str], runners: Runners, chosen: Runners
) -> tuple[list[PlannedCell], list[OpenCell]]:
    """Return the cells that the chosen runners can run, and the cells that no runner can run."""
    planned, lacking = [], []
    offers = {(each.kind, *offer) for each in runners.sets for offer in each.offers}
    own = {(each.kind, *offer) for each in chosen.sets for offer in each.offers}
    for name in names:
        for (kind, target), require in demands(queue.specs[name]).items():
            versions = [rocm for rocm in runners.versions if (kind, target, rocm) in offers]
            planned += [
                PlannedCell(kind=kind, patch=name, target=target, rocm=rocm, require=require)
                for rocm in versions
                if (kind, target, rocm) in own
            ]
            missing = [rocm for rocm in runners.versions if rocm not in versions]
            does = "compiles for" if kind == "compile" else "has"
            for rocm in missing if versions else [""]:
                reason = f"no runner {does} {target}" + (f" with ROCm {rocm}" if rocm else "")
                cell = OpenCell(kind=kind, patch=name, target=target, rocm=rocm, reason=reason)
                lacking.append(cell)
    return planned, lacking


def answer_of(
    queue: Queue, cell: CellName, require: Sequence[str], records: Iterable[Record]
) -> FreshCell | None:
    """Return the FreshCell of a record that answers a cell, a failure first; None: no record."""
    answers: list[FreshCell] = []
    for record in records:
        if outcome := _outcome(record, require, cell.rocm):
            path = record.path.relative_to(queue.folder).as_posix()
            passed = outcome is Outcome.PASSED
            names = cell.model_dump(include=CELL)
            answers.append(FreshCell(**names, record=path, passed=passed))
    return min(answers, key=lambda answer: answer.passed, default=None)


def _outcome(record: Record, require: Iterable[str], rocm: str) -> Outcome | None:
    """Return the outcome that a record shows for stages under a ROCm version; None: no outcome."""
    details = record.details
    if record.state is not State.FRESH or details is None:
        return None
    if rocm and not is_version(rocm, details.machine.rocm):
        return None
    outcomes = [
        {row.outcome for row in details.stages if f"{row.stage}:{row.target}" == need}
        for need in require
    ]
    if any(Outcome.FAILED in each for each in outcomes):
        return Outcome.FAILED
    return Outcome.PASSED if all(each == {Outcome.PASSED} for each in outcomes) else None


def _jobs(queue: Queue, chosen: Runners, cells: Iterable[PlannedCell]) -> list[CiJob]:
    """Give each cell to the first set of runners that offers the cell; pack patches into jobs."""
    own = {(each.kind, *offer): each for each in reversed(chosen.sets) for offer in each.offers}
    patches: dict[tuple[str, str, str], list[PlannedCell]] = {}
    # Sort by pin: a runner fetches a pin once for all patches of a job.
    for cell in sorted(cells, key=lambda cell: queue.specs[cell.patch].pin):
        runners = own[cell.kind, cell.target, cell.rocm]
        patches.setdefault((runners.name, cell.rocm, cell.patch), []).append(cell)
    #: The patches of a set of runners and a ROCm version that have the same demands.
    groups: dict[tuple[str, str, tuple[str, ...]], list[list[PlannedCell]]] = {}
    for (name, rocm, _), found in patches.items():
        require = tuple(need for cell in found for need in cell.require)
        groups.setdefault((name, rocm, require), []).append(found)
    sets = {each.name: each for each in chosen.sets}
    numbers = Counter[str]()
    jobs = []
    for (name, rocm, _), group in groups.items():
        runners = sets[name]
        image = next(image for image in runners.rocm if image.version == rocm)
        stem = f"{runners.target}-{name}-rocm{rocm}" if runners.target else f"compile-rocm{rocm}"
        for start in range(0, len(group), _PATCHES):
            numbers[stem] += 1
            pack = group[start : start + _PATCHES]
            jobs.append(
                CiJob(
                    id=f"{stem}-{numbers[stem]}",
                    kind=runners.kind,
                    runners=name,
                    labels=runners.labels,
                    target=runners.target,
                    rocm=rocm,
                    image=image.image,
                    flags=image.flags,
                    minutes=runners.minutes_limit,
                    cells=tuple(cell for patch in pack for cell in patch),
                )
            )
    return sorted(jobs, key=lambda job: job.kind)
