"""Plan a run: its jobs, the cells without a runner, and the cells that a record answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

from pydantic import StringConstraints, model_validator

from contribbot.errors import QueueError
from contribbot.model.base import Many, Model, Name, Names, Sha256, Some, refuse_twins
from contribbot.model.checks import GfxTarget
from contribbot.model.evidence import Outcome
from contribbot.model.patch import PatchSpec
from contribbot.queue.load import Queue
from contribbot.runners.fleet import (
    Flags,
    Image,
    Kind,
    Labels,
    RocmVersion,
    Runners,
    is_version,
    load_fleet,
    restricted,
)
from contribbot.verify.evidence import Record, State, read_records

#: The largest number of jobs in one matrix (GitHub, "Actions limits").
MOST_JOBS: Final = 256
#: The largest number of patches in a job, unless the matrix would have too many jobs.
_PATCHES: Final = 8
#: The start of the names of contribbot's artifacts, and the artifact of the plan.
PREFIX: Final = "contribbot-"
PLAN_ARTIFACT: Final = "contribbot-plan"
#: A job's name, safe as a file's name and in an expression of Actions.
JobId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,79}$")]
#: Stages on targets, in the form of `verify --require`.
Require = Some[Annotated[str, StringConstraints(pattern=r"^[a-z]+:gfx[0-9a-f]{3,5}$")]]
#: The set of runners, ROCm version and demands that the patches of a job share.
_Group = tuple[str, str, tuple[str, ...]]


class CellName(Model):
    """A cell: a patch on a target under a ROCm version, to be compiled or to be run."""

    kind: Kind
    patch: Name
    target: GfxTarget
    #: Empty: no runner offers the target.
    rocm: RocmVersion | Literal[""] = ""

    @property
    def key(self) -> str:
        """The name of the cell in every plan, such as `gpu/rmsnorm/gfx942/rocm7.1`."""
        return f"{self.kind}/{self.patch}/{self.target}/rocm{self.rocm}"


class PlannedCell(CellName):
    """A cell that a job runs, with the stages that the job must prove."""

    rocm: RocmVersion
    require: Require


class OpenCell(CellName):
    """A cell without a runner, and the reason."""

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

    @model_validator(mode="after")
    def _sound(self) -> Plan:
        refuse_twins("jobs", [job.id for job in self.jobs])
        refuse_twins("cells", [cell.key for cell in self.cells])
        return self

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
        if answer := _answer(queue, cell, require, records[cell.patch]):
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
    queue: Queue, names: Sequence[str], runners: Runners, chosen: Runners
) -> tuple[list[PlannedCell], list[OpenCell]]:
    """Return the cells that the chosen runners can run, and the cells that no runner can run."""
    planned, lacking = [], []
    all_offers, offers = _offers(runners), _offers(chosen)
    for name in names:
        for (kind, target), require in demands(queue.specs[name]).items():
            versions = [rocm for rocm in runners.versions if (kind, target, rocm) in all_offers]
            planned += [
                PlannedCell(kind=kind, patch=name, target=target, rocm=rocm, require=require)
                for rocm in versions
                if (kind, target, rocm) in offers
            ]
            missing = [rocm for rocm in runners.versions if rocm not in versions]
            does = "compiles for" if kind == "compile" else "has"
            for rocm in missing if versions else [""]:
                reason = f"no runner {does} {target}" + (f" with ROCm {rocm}" if rocm else "")
                lacking.append(
                    OpenCell(kind=kind, patch=name, target=target, rocm=rocm, reason=reason)
                )
    return planned, lacking


def _offers(runners: Runners) -> set[tuple[Kind, str, str]]:
    return {(each.kind, *offer) for each in runners.sets for offer in each.offers}


def _answer(
    queue: Queue, cell: CellName, require: Sequence[str], records: Iterable[Record]
) -> FreshCell | None:
    """Return a cell as answered by a patch's records; a record of a failure goes first."""
    answers = [
        (outcome, record)
        for record in records
        if (outcome := record_outcome(record, require, cell.rocm))
    ]
    if not answers:
        return None
    outcome, record = min(answers, key=lambda answer: answer[0] is not Outcome.FAILED)
    return FreshCell(
        kind=cell.kind,
        patch=cell.patch,
        target=cell.target,
        rocm=cell.rocm,
        record=record.path.relative_to(queue.folder).as_posix(),
        passed=outcome is Outcome.PASSED,
    )


def record_outcome(record: Record, require: Iterable[str], rocm: str) -> Outcome | None:
    """Return the outcome that a record shows for stages under a ROCm version; None: no outcome."""
    if record.state is not State.FRESH or record.statement is None:
        return None
    details = record.statement.predicate.contribbot
    if rocm and not is_version(rocm, details.machine.rocm):
        return None
    outcomes = [
        {row.outcome for row in details.stages if f"{row.stage}:{row.target}" == need}
        for need in require
    ]
    if any(Outcome.FAILED in each for each in outcomes):
        return Outcome.FAILED
    return Outcome.PASSED if all(each == {Outcome.PASSED} for each in outcomes) else None


def _jobs(queue: Queue, chosen: Runners, cells: Sequence[PlannedCell]) -> list[CiJob]:
    """Give each cell to the first set of runners that offers the cell; pack patches into jobs."""
    groups: dict[_Group, list[list[PlannedCell]]] = {}
    own = {(each.kind, *offer): each for each in reversed(chosen.sets) for offer in each.offers}
    patches: dict[tuple[str, str, str], list[PlannedCell]] = {}
    for cell in cells:
        runners = own[cell.kind, cell.target, cell.rocm]
        patches.setdefault((runners.name, cell.rocm, cell.patch), []).append(cell)
    # Sort by pin: a runner fetches a pin once for all patches of a job.
    for (name, rocm, _), found in sorted(
        patches.items(), key=lambda item: queue.specs[item[0][2]].pin
    ):
        require = tuple(need for cell in found for need in cell.require)
        groups.setdefault((name, rocm, require), []).append(found)
    size = _PATCHES
    while (packs := _packed(groups, size)) and len(packs) > MOST_JOBS:
        size *= 2
        if size > len(queue.specs) * 2:
            raise QueueError(
                f"these are {len(packs)} jobs, and a run has at most {MOST_JOBS}",
                hint="name fewer patches, or plan some sets only (--on SET)",
            )
    sets = {each.name: each for each in chosen.sets}
    numbers = Counter[str]()
    jobs = []
    for (name, rocm, _), pack in packs:
        runners = sets[name]
        image = next(image for image in runners.rocm if image.version == rocm)
        stem = f"{runners.target}-{name}-rocm{rocm}" if runners.target else f"compile-rocm{rocm}"
        numbers[stem] += 1
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


def _packed(
    groups: dict[_Group, list[list[PlannedCell]]], size: int
) -> list[tuple[_Group, list[list[PlannedCell]]]]:
    """Cut each group of patches into packs of at most `size` patches."""
    return [
        (group, patches[start : start + size])
        for group, patches in groups.items()
        for start in range(0, len(patches), size)
    ]
