"""From patches, runners and records to a plan."""

from __future__ import annotations

import heapq
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from contribbot.errors import QueueError
from contribbot.model.evidence import HOST_TARGETS, SEEN, Outcome
from contribbot.model.patch import Patch, PatchSpec, units_of
from contribbot.queue.load import Queue
from contribbot.runners.documents import (
    AGAIN,
    COMPILING,
    HOSTED,
    RUNNERS_FILE,
    Basis,
    CellName,
    CiJob,
    FreshCell,
    Hosted,
    Kind,
    Load,
    OpenCell,
    Plan,
    PlannedCell,
    Runners,
    RunnerSet,
    Subject,
    is_version,
    load_fleet,
    restricted,
)
from contribbot.verify.evidence import Record, State, read_records

#: Stages on targets, as `verify --require` takes them.
Require = tuple[str, ...]


def demands(spec: PatchSpec) -> dict[tuple[Kind, str], Require]:
    """Return what a patch states on AMD targets: the stages, by kind of cell and target.

    A build is part of the cell that runs: checks load its products.
    """
    stages: dict[tuple[Kind, str], dict[str, None]] = {}
    for stage, _, target in spec.units:
        if target.startswith("gfx"):
            kind: Kind = "compile" if stage == "compile" else "gpu"
            stages.setdefault((kind, target), {})[f"{stage}:{target}"] = None
    return {key: tuple(names) for key, names in stages.items()}


def asked_cells(
    queue: Queue, names: Sequence[str], runners: Runners, meant: Runners
) -> tuple[dict[CellName, Require], list[OpenCell]]:
    """Return the cells that the runners meant can run, with what each must prove, and the rest."""
    able, used = _offers(runners), _offers(meant)
    wanted: dict[CellName, Require] = {}
    lacking: list[OpenCell] = []
    for name in names:
        for (kind, target), require in demands(queue.specs[name]).items():
            offered = [rocm for rocm in runners.versions if (kind, target, rocm) in able]
            for rocm in offered:
                if (kind, target, rocm) in used:
                    wanted[CellName(kind=kind, patch=name, target=target, rocm=rocm)] = require
            missing = [rocm for rocm in runners.versions if rocm not in offered]
            lacking += [
                OpenCell(kind=kind, patch=name, target=target, rocm=rocm,
                         reason=_lack(runners, kind, target, rocm))
                for rocm in (missing if offered else [""])
            ]  # fmt: skip
    return wanted, lacking


def _offers(runners: Runners) -> set[tuple[Kind, str, str]]:
    return {(each.kind, *offer) for each in runners.sets for offer in each.offers}


def _lack(runners: Runners, kind: Kind, target: str, rocm: str) -> str:
    """Say why no runner can run a cell."""
    if kind == "gpu":
        return f"no runner with {target} has ROCm {rocm}" if rocm else f"no runner has {target}"
    if runners.hosted is None:
        return "no [hosted] runner compiles"
    with_rocm = f" with ROCm {rocm}" if rocm else ""
    return f"no [[hosted.rocm]] compiles for {target}{with_rocm}"


# What records say: whether they answer a cell, and how long its units took.


def record_says(
    record: Record, require: Iterable[str], rocm: str | None
) -> Literal["passed", "failed", ""]:
    """Return what a record says of a cell under a ROCm version (None: any), or nothing.

    What a job with a GPU compiled besides, in its own image, answers no cell: nobody asked it.
    """
    if record.state is not State.FRESH or record.statement is None:
        return ""
    details = record.statement.predicate.contribbot
    needs = [need.partition(":")[::2] for need in require]
    beside = details.run is not None and not details.run.job.startswith(f"{COMPILING}-")
    if beside and any(stage == "compile" for stage, _ in needs):
        return ""
    if rocm is not None and not is_version(rocm, details.machine.rocm):
        return ""
    outcomes = [
        {result.outcome for result in details.stages if (result.stage, result.target) == need}
        for need in needs
    ]
    if any(Outcome.FAILED in each for each in outcomes):
        return "failed"
    return "passed" if all(each == {Outcome.PASSED} for each in outcomes) else ""


_RELEASE: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}")


def _answer(
    queue: Queue, cell: CellName, require: Require, records: Iterable[Record]
) -> FreshCell | None:
    """Return what the records of a patch say of a cell: one that failed goes before others."""
    says = {(record_says(record, require, cell.rocm or None), record.path): record
            for record in records}  # fmt: skip
    for (answer, path), record in sorted(says.items(), key=lambda item: item[0]):
        if answer and record.statement is not None:
            # Distributions write it as 7.1.0-84.
            release = _RELEASE.match(record.statement.predicate.contribbot.machine.rocm)
            return FreshCell(
                kind=cell.kind, patch=cell.patch, target=cell.target,
                rocm=cell.rocm or (release[0] if release else ""),
                record=path.relative_to(queue.folder).as_posix(), says=answer,
            )  # fmt: skip
    return None


#: Seconds of a unit of a stage of which no record tells. Of the order that this
#: project's own records show on CPU and on one NVIDIA GPU; half of the 5 to 10 minutes
#: that vLLM's AMD CI builds, twice (base and patched), for a full build.
DEFAULTS: Final[Mapping[str, float]] = {
    "source": 30.0, "apply": 1.0, "style": 1.0, "hipify": 8.0, "compile": 20.0, "build": 60.0,
    "reproduce": 20.0, "numerics": 20.0, "emulate": 60.0, "bench": 30.0,
}  # fmt: skip
FULL_BUILD: Final = 900.0
#: No unit of work takes a day: what says so was not measured.
_LONGEST: Final = 24 * 3600.0
#: From the best to the worst.
_BASES: Final[tuple[Basis, ...]] = ("records", "other records", "default")


class Times:
    """Estimates from records: the longest that a unit took, else what others took."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._seconds: dict[tuple[str, ...], list[float]] = {}
        for record in records:
            if record.statement is None or record.state not in {State.FRESH, State.STALE}:
                continue
            details = record.statement.predicate.contribbot
            for unit in details.stages:
                if unit.outcome in SEEN and unit.seconds <= _LONGEST:
                    key = (details.patch, *unit.unit)
                    for part in (key, key[:2], key[1:2]):
                        self._seconds.setdefault(part, []).append(unit.seconds)

    def of(self, patch: str, unit: tuple[str, str, str], *, full: bool) -> tuple[float, Basis]:
        """Return the seconds of a unit (stage, label, target), and where they are from."""
        stage = unit[0]
        if exact := self._seconds.get((patch, *unit)):
            return max(exact), "records"
        others = self._seconds.get((patch, stage)) or self._seconds.get((stage,))
        if others and not full:
            return statistics.median(others), "other records"
        return FULL_BUILD if full else DEFAULTS[stage], "default"


# Packing: which cells run one after the other in one job.

#: Seconds that a job takes before and after its cells: to be handed out, to start the
#: container, to install contribbot, to upload. Assumed, not measured.
START: Final = 90.0
#: Actions makes at most 256 jobs of a matrix (GitHub, "Actions limits"): a fifth is left.
MOST_JOBS: Final = 200
#: Actions cancels a job that has waited for a self-hosted runner for 24 hours (the same).
WAIT_HOURS: Final = 24
#: Minutes that a job should take at most, so that trying it again costs little.
RETRIED: Final = 90
#: The part of a job's limit that is planned with, as estimates are wrong by a factor; and where
#: all jobs that a set may have are needed.
_HEADROOM: Final = 0.5
_HARD: Final = 0.9


@dataclass(frozen=True)
class Piece:
    """Cells that one verification answers: a patch under one ROCm version.

    `shared` are the seconds that all pieces on one tree (an upstream's pin) need once in a job.
    """

    cells: tuple[PlannedCell, ...]
    seconds: float
    tree: str
    shared: float

    @property
    def rocm(self) -> str:
        """The ROCm version."""
        return self.cells[0].rocm

    @property
    def alone(self) -> float:
        """Seconds of a job that does nothing else."""
        return START + self.shared + self.seconds

    @property
    def order(self) -> tuple[float, str]:
        """What puts the longest first."""
        return -self.seconds, self.cells[0].key


@dataclass
class PackedJob:
    """The pieces of a job, all of one image, and the seconds that it takes."""

    pieces: list[Piece] = field(default_factory=list)
    seconds: float = START
    _trees: dict[str, float] = field(default_factory=dict)

    def with_piece(self, piece: Piece) -> float:
        """Return the seconds that it takes with one more."""
        return self.seconds + piece.seconds + max(piece.shared - self._trees.get(piece.tree, 0), 0)

    def add(self, piece: Piece) -> None:
        """Take one more, beside those on the same tree."""
        self.seconds = self.with_piece(piece)
        self._trees[piece.tree] = max(piece.shared, self._trees.get(piece.tree, 0))
        self.pieces = sorted([*self.pieces, piece], key=lambda each: each.tree)


def _work(pieces: Sequence[Piece]) -> float:
    """Return the seconds that pieces take where each tree is brought (and built) once an image."""
    once: dict[tuple[str, str], float] = {}
    for piece in pieces:
        key = (piece.rocm, piece.tree)
        once[key] = max(piece.shared, once.get(key, 0.0))
    return sum(once.values()) + sum(piece.seconds for piece in pieces)


def bound(pieces: Sequence[Piece], count: int) -> float:
    """Return the seconds before which no order on so many runners ends."""
    longest = max((piece.alone - START for piece in pieces), default=0.0)
    return max(_work(pieces) / count, longest)


def makespan(jobs: Sequence[PackedJob], count: int) -> tuple[float, float]:
    """Return when the last job ends and when the last one starts, in seconds."""
    free, start = [0.0] * count, 0.0
    for job in jobs:
        start = heapq.heappop(free)
        heapq.heappush(free, start + job.seconds)
    return max(free), start


def pack(
    runners: RunnerSet | Hosted, pieces: Sequence[Piece], most: int = MOST_JOBS
) -> list[PackedJob]:
    """Give each piece, the longest first, to the job of its image that ends soonest with it.

    There are whole rounds of jobs for the runners, each job short enough to try again.
    """
    if not pieces:
        return []
    limit, count = runners.minutes_limit * 60, runners.count
    long = max(pieces, key=lambda piece: piece.alone)
    if long.alone > limit:
        raise QueueError(
            f"{RUNNERS_FILE}: {runners.name}: {long.cells[0].key} takes about "
            f"{math.ceil(long.alone / 60)} minutes, and minutes_limit is {runners.minutes_limit}",
            hint="raise minutes_limit, or split the patch's checks",
        )
    short = max(long.alone, min(limit * _HEADROOM, RETRIED * 60.0))
    # A little less, as pieces cannot be cut.
    rounds = math.ceil(bound(pieces, count) / max(0.95 * short - START, START))
    rounds = max(1, min(rounds, runners.jobs_limit, most // count))
    groups: dict[str, list[Piece]] = {}
    for piece in sorted(pieces, key=lambda piece: piece.order):
        groups.setdefault(piece.rocm, []).append(piece)
    # One job at least for each image, the others by what there is to do.
    shares, seconds = dict.fromkeys(groups, 1), {rocm: _work(groups[rocm]) for rocm in groups}
    for _ in range(rounds * count - len(shares)):
        shares[max(shares, key=lambda rocm: seconds[rocm] / shares[rocm])] += 1
    jobs: list[PackedJob] = []
    for rocm, group in groups.items():
        own = [PackedJob() for _ in group[: shares[rocm]]]
        for piece in group:
            min(own, key=lambda job: job.with_piece(piece)).add(piece)
        jobs += own
    jobs.sort(key=lambda job: (-job.seconds, job.pieces[0].cells[0].key))
    _, start = makespan(jobs, count)
    if jobs[0].seconds > max(long.alone, limit * _HARD) or start > WAIT_HOURS * 3600:
        table, more = (
            ("runners", ", count or jobs_limit") if runners.target else (HOSTED, " or count")
        )
        raise QueueError(
            f"{RUNNERS_FILE}: {runners.name}: {len(pieces)} cells do not fit into {len(jobs)} jobs "
            f"of {runners.minutes_limit} minutes on {count} runners: the longest would take "
            f"{math.ceil(jobs[0].seconds / 60)}, the last would wait {start / 3600:.0f} hours, of "
            f"{WAIT_HOURS} that GitHub lets a job wait; a run has at most {MOST_JOBS} jobs",
            hint=f"name fewer patches, take away a [[{table}.rocm]], or raise minutes_limit{more}",
        )
    return jobs


# The plan.


def make_plan(
    queue: Queue,
    names: Sequence[str],
    *,
    everything: bool = False,
    on: Sequence[str] = (),
    for_a_run: bool = False,
) -> Plan:
    """Make the plan of a run. The same queue, runners and records give the same plan.

    Without a `runners.toml` it says what waits for which target; a run needs one.
    """
    fleet = load_fleet(queue.folder, needed=for_a_run or bool(on))
    meant = restricted(fleet, on)
    wanted, lacking = asked_cells(queue, names, fleet.runners, meant)
    records = {name: read_records(queue, queue.evidence, name) for name in names}
    answers: dict[CellName, FreshCell] = {}
    if not everything:
        needs: dict[CellName, Require] = wanted
        if not fleet.runners.sets:
            # Without runners, a record under any ROCm version answers what waits.
            needs = {cell: demands(queue.specs[cell.patch])[cell.kind, cell.target]
                     for cell in lacking}  # fmt: skip
        for cell, require in needs.items():
            if answer := _answer(queue, cell, require, records[cell.patch]):
                answers[cell] = answer
    due = {cell: require for cell, require in wanted.items() if cell not in answers}
    patches = {name: queue.patch(name) for name in dict.fromkeys(cell.patch for cell in due)}
    times = Times(record for those in records.values() for record in those)
    given = _given(meant, _pieces(due, patches, times))
    share = MOST_JOBS // max(1, sum(map(bool, given.values())))
    packed = {each.name: pack(each, given[each.name], share) for each in meant.sets}
    if (number := sum(map(len, packed.values()))) > MOST_JOBS:
        raise QueueError(
            f"these are {number} jobs, and a run has at most {MOST_JOBS}",
            hint="name fewer patches, plan some sets only (--on SET), or take away a "
            "[[runners.rocm]]: each ROCm version of each set needs a job of its own",
        )
    return Plan(
        runners_sha256=fleet.sha256,
        subjects=tuple(
            Subject(patch=name, patch_sha256=patch.digest, checks_sha256=patch.checks_digest)
            for name, patch in patches.items()
        ),
        jobs=tuple(_jobs(meant, packed)),
        open=tuple(cell for cell in lacking if cell not in answers),
        fresh=tuple(answers.values()),
        without=tuple(name for name in names if not demands(queue.specs[name])),
        loads=tuple(
            Load(runners=each.name, count=each.count, jobs=len(packed[each.name]),
                 seconds=round(makespan(packed[each.name], each.count)[0], 3),
                 bound=round(bound(given[each.name], each.count), 3))
            for each in meant.sets
        ),
    )  # fmt: skip


def _pieces(
    due: Mapping[CellName, Require], patches: Mapping[str, Patch], times: Times
) -> list[Piece]:
    """Put cells that one verification answers together: all compiles of a patch."""
    groups: dict[tuple[str, str, str], dict[CellName, Require]] = {}
    for cell, require in due.items():
        gpu = cell.target if cell.kind == "gpu" else ""
        groups.setdefault((cell.patch, cell.rocm, gpu), {})[cell] = require
    return [_piece(cells, gpu, patches[name], times) for (name, _, gpu), cells in groups.items()]


def _piece(group: Mapping[CellName, Require], gpu: str, patch: Patch, times: Times) -> Piece:
    """Estimate a verification: it does all that its machine can do, whatever was asked of it."""
    fulls = {build.name for build in patch.spec.build if build.way == "full"}
    seconds = shared = 0.0
    worst = Counter[str]()
    for stage, label, target in units_of(patch):
        full = stage == "build" and label in fulls
        spent, basis = times.of(patch.name, (stage, label, target), full=full)
        if stage == "source":
            # A store that is there already says nothing of a job's empty one.
            shared += max(DEFAULTS["source"], spent)
        elif stage in {"compile", "emulate"} or target in {gpu, *HOST_TARGETS}:
            # Patches on the bare base share its build in a job.
            base = spent / 2 if full and not patch.spec.depends_on else 0.0
            shared, seconds = shared + base, seconds + spent - base
            if (stage == "compile") is not bool(gpu):
                worst[target] = max(worst[target], _BASES.index(basis))
    tree = patch.pin.title
    cells = tuple(
        PlannedCell(kind=cell.kind, patch=cell.patch, target=cell.target, rocm=cell.rocm,
                    require=require, tree=tree, seconds=round(seconds / len(group), 3),
                    estimate=_BASES[worst[cell.target]])
        for cell, require in group.items()
    )  # fmt: skip
    return Piece(cells, seconds, tree, shared)


def _given(meant: Runners, pieces: Sequence[Piece]) -> dict[str, list[Piece]]:
    """Give each piece to the cheapest set that can run it in time, of several to the idlest."""
    given: dict[str, list[Piece]] = {each.name: [] for each in meant.sets}
    loads = dict.fromkeys(given, 0.0)
    for piece in sorted(pieces, key=lambda piece: piece.order):
        cell = piece.cells[0]
        able = [each for each in meant.sets
                if each.kind == cell.kind and (cell.target, cell.rocm) in each.offers]  # fmt: skip
        # Where it is too long for all of them, `pack` says so.
        able = [each for each in able if piece.alone <= each.minutes_limit * 60] or able
        ends = {each.name: loads[each.name] + piece.seconds / each.count for each in able}
        best = min(able, key=lambda each: (each.cost, ends[each.name]))
        given[best.name].append(piece)
        loads[best.name] = ends[best.name]
    return given


def _jobs(meant: Runners, packed: Mapping[str, Sequence[PackedJob]]) -> list[CiJob]:
    """Write the jobs of all sets, numbered by ROCm version; those that compile come first."""
    jobs: list[CiJob] = []
    compiled: dict[tuple[str, str, str], str] = {}
    for own in meant.sets:
        # A set is called by its target, where that names no other.
        twins = [each for each in meant.runners if each.target == own.target]
        stem = own.target or COMPILING
        stem = f"{stem}-{own.name}" if len(twins) > 1 else stem
        images, numbers = {image.version: image for image in own.rocm}, Counter[str]()
        for job in packed[own.name]:
            image = images[job.pieces[0].rocm]
            numbers[image.version] += 1
            name = f"{stem}-rocm{image.version}-{numbers[image.version]}"
            cells = tuple(cell for piece in job.pieces for cell in piece.cells)
            keys = [(cell.patch, cell.target, cell.rocm) for cell in cells]
            after = dict.fromkeys(compiled[key] for key in keys if key in compiled)
            if own.kind == "compile":
                compiled |= dict.fromkeys(keys, name)
            jobs.append(CiJob(
                id=name, kind=own.kind, runners=own.name, labels=own.labels, target=own.target,
                rocm=image.version, image=image.image, flags=image.flags,
                minutes=own.minutes_limit, seconds=round(job.seconds, 3), cells=cells,
                after=tuple(after),
            ))  # fmt: skip
    return jobs


def second_try(plan: Plan, job: CiJob, cells: Iterable[str], runners: Runners) -> CiJob | None:
    """Return what tries cells of a job once more: on another set where one can, else on the same.

    `jobs_limit` is for what is planned: second tries come on top of it, one at most for each
    job. Else a set that is full could not take what another one's runners failed.
    """
    wanted = frozenset(cells)
    left = tuple(cell for cell in job.cells if cell.key in wanted)
    if not left:
        return None
    # The sets that were meant: somebody may have chosen among those of the queue.
    meant = {load.runners for load in plan.loads} - {job.runners}
    able = [
        (other.cost, other, image)
        for other in runners.runners
        for image in other.rocm
        if other.name in meant
        and (other.target, image.version) == (job.target, job.rocm)
        and job.seconds <= other.minutes_limit * 60
    ]
    changed: dict[str, object] = {"id": f"{job.id}{AGAIN}", "cells": left, "after": ()}
    if able:
        _, other, image = min(able, key=lambda way: way[0])
        changed |= {"runners": other.name, "labels": other.labels, "image": image.image,
                    "flags": image.flags, "minutes": other.minutes_limit}  # fmt: skip
    return job.model_copy(update=changed)
