"""From patches, runners and records to a plan."""

from __future__ import annotations

import functools
import hashlib
import heapq
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, ValidationError

from contribbot.errors import ContribbotError, QueueError
from contribbot.files import write_atomically
from contribbot.model.base import Model
from contribbot.model.evidence import HOST_TARGETS, SEEN, Details, Outcome, pin_digest
from contribbot.model.patch import Patch, PatchSpec, units_of
from contribbot.queue.load import Queue
from contribbot.runners.config import Fleet, load_fleet, restricted
from contribbot.runners.model import (
    COMPILING,
    HOSTED,
    Cell,
    FreshCell,
    Job,
    Kind,
    Load,
    OpenCell,
    Plan,
    Runners,
    RunnerSet,
    Subject,
    cell_key,
    is_version,
    version_key,
)
from contribbot.verify.evidence import State, judge_record
from contribbot.verify.pipeline import tool_digest


@dataclass(frozen=True)
class Wanted:
    """A cell that some runner can run.

    Attributes:
        kind: Whether it is compiled or run.
        patch: The patch.
        target: The target.
        rocm: The ROCm version.
        require: What must be proved, as `STAGE:TARGET`.
    """

    kind: Kind
    patch: str
    target: str
    rocm: str
    require: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its name: the same in every plan."""
        return cell_key(self.kind, self.patch, self.target, self.rocm)


@dataclass(frozen=True)
class Asked:
    """What the patches ask for.

    Attributes:
        wanted: What some runner can run; by patch in the queue's order.
        open: What none can.
        without: Patches that ask for no AMD target.
    """

    wanted: tuple[Wanted, ...]
    open: tuple[OpenCell, ...]
    without: tuple[str, ...]


def demands(spec: PatchSpec) -> dict[tuple[Kind, str], tuple[str, ...]]:
    """Return what a patch states on AMD targets: the stages, by kind of cell and target.

    A build is part of the cell that runs: checks load its products.
    """
    stated: list[tuple[Kind, str, str]] = [
        *(("compile", "compile", target) for one in spec.compile for target in one.targets),
        *(("gpu", "build", target) for one in spec.build for target in one.targets),
        *(("gpu", "reproduce", check.target) for check in spec.checks),
        *(("gpu", "numerics", check.target) for check in spec.numerics),
        *(("gpu", "bench", bench.target) for bench in spec.bench),
    ]
    found: dict[tuple[Kind, str], dict[str, None]] = {}
    for kind, stage, target in stated:
        if target.startswith("gfx"):
            found.setdefault((kind, target), {})[f"{stage}:{target}"] = None
    return {key: tuple(stages) for key, stages in found.items()}


def asked_cells(queue: Queue, names: Sequence[str], runners: Runners, meant: Runners) -> Asked:
    """Return the cells of patches: those that some runner can run, and the others."""
    offers, used, versions = _offers(runners), _offers(meant), runners.versions
    wanted: list[Wanted] = []
    lacking: list[OpenCell] = []
    without = []
    for name in names:
        stated = demands(queue.specs[name])
        if not stated:
            without.append(name)
        for (kind, target), require in stated.items():
            offered = offers.get((kind, target), ())
            wanted += [
                Wanted(kind, name, target, rocm, require) for rocm in used.get((kind, target), ())
            ]
            missing = [rocm for rocm in versions if rocm not in offered]
            if not offered:
                missing = [""]
            lacking += [
                OpenCell(kind=kind, patch=name, target=target, rocm=rocm,
                         reason=_lack(runners, kind, target, rocm))
                for rocm in missing
            ]  # fmt: skip
    return Asked(tuple(wanted), tuple(lacking), tuple(without))


def _offers(runners: Runners) -> dict[tuple[Kind, str], tuple[str, ...]]:
    """Return the ROCm versions for each kind of cell and target, oldest first."""
    found: dict[tuple[Kind, str], set[str]] = {}
    for one in runners.runners:
        found.setdefault(("gpu", one.target), set()).update(image.version for image in one.rocm)
    for image in runners.hosted.rocm if runners.hosted else ():
        for target in image.targets:
            found.setdefault(("compile", target), set()).add(image.version)
    return {key: tuple(sorted(versions, key=version_key)) for key, versions in found.items()}


def _lack(runners: Runners, kind: Kind, target: str, rocm: str) -> str:
    """Say why no runner can run a cell."""
    if kind == "gpu":
        return f"no runner with {target} has ROCm {rocm}" if rocm else f"no runner has {target}"
    if runners.hosted is None:
        return "no [hosted] runner compiles"
    if rocm:
        return f"no [[hosted.rocm]] compiles for {target} with ROCm {rocm}"
    return f"no [[hosted.rocm]] compiles for {target}"


_MEMORY: Final = "matrix.json"

Stamp = Annotated[tuple[int, int, int, int], Field(strict=False)]


class Seen(NamedTuple):
    """An outcome of a record that a plan asks about: thousands are read for one plan.

    Attributes:
        stage: The stage.
        label: What people call the unit; empty where the stage has one.
        target: The target.
        outcome: `passed` or `failed`, or that nothing was seen.
        seconds: How long it took.
    """

    stage: str
    label: str
    target: str
    outcome: str
    seconds: float


class Facts(Model):
    """What a plan needs to know of a record.

    Attributes:
        path: The record, seen from the queue's folder.
        patch: The patch that it is about.
        fresh: Whether it is about what the queue has now.
        asked: The kind of the job that sent it; empty: it was made by hand.
        rocm: The ROCm version of its machine, as that calls it.
        seen: Its outcomes.
    """

    path: str
    patch: str
    fresh: bool
    asked: Kind | Literal[""]
    rocm: str
    seen: Annotated[tuple[Seen, ...], Field(strict=False)]

    def says(self, require: Iterable[str], rocm: str) -> Literal["passed", "failed", ""]:
        """Return what it says of a cell, or nothing.

        What a job with a GPU compiled besides, in its own image, answers no cell: nobody asked it.
        """
        needs = [need.partition(":") for need in require]
        if not self.fresh or not is_version(rocm, self.rocm):
            return ""
        if self.asked == "gpu" and any(stage == "compile" for stage, _, _ in needs):
            return ""
        outcomes: list[set[str]] = [
            {one.outcome for one in self.seen if (one.stage, one.target) == (stage, target)}
            for stage, _, target in needs
        ]
        if any(Outcome.FAILED in each for each in outcomes):
            return "failed"
        return "passed" if all(each == {Outcome.PASSED} for each in outcomes) else ""


class _Remembered(Model):
    """A record as it was, what it was judged against, and what was found; None: nothing."""

    stamp: Stamp
    against: str
    facts: Facts | None


class _Memory(Model):
    """What `.contribbot/matrix.json` holds."""

    tool: str
    records: dict[str, _Remembered] = Field(default_factory=dict)


class _Steady(Queue):
    """A queue whose patches are read once: hundreds of records are about each."""

    def patch(self, name: str) -> Patch:
        kept: dict[str, Patch] = self.__dict__.setdefault("_read", {})
        if name not in kept:
            kept[name] = super().patch(name)
        return kept[name]


def read_facts(queue: Queue, names: Sequence[str]) -> dict[str, tuple[Facts, ...]]:
    """Return what the records in a queue say, by patch.

    A record that was changed after it was written, or is no record of this queue, says
    nothing.
    """
    steady = _Steady(queue.folder, queue.spec, queue.specs, queue.upstreams)
    memory = _recall(queue)
    kept: dict[str, _Remembered] = {}
    found: dict[str, tuple[Facts, ...]] = {}
    for name in names:
        against = _basis(steady, name)
        facts = []
        for path in sorted((queue.evidence / name).glob("*.json")):
            inside = path.relative_to(queue.folder).as_posix()
            known = memory.records.get(inside)
            stamp = _stamp(path)
            if known is None or (known.stamp, known.against) != (stamp, against):
                known = _Remembered(
                    stamp=stamp, against=against, facts=_facts(steady, path, inside)
                )
            kept[inside] = known
            if known.facts is not None:
                facts.append(known.facts)
        found[name] = tuple(facts)
    if any(memory.records.get(inside) is not one for inside, one in kept.items()):
        _remember(queue, _Memory(tool=memory.tool, records={**memory.records, **kept}))
    return found


def _facts(queue: Queue, path: Path, inside: str) -> Facts | None:
    record = judge_record(queue, path)
    if record.statement is None or record.state not in {State.FRESH, State.STALE}:
        return None
    details: Details = record.statement.predicate.contribbot
    return Facts(
        path=inside,
        patch=details.patch,
        fresh=record.state is State.FRESH,
        asked=_asked(details),
        rocm=details.machine.rocm,
        seen=tuple(
            Seen(
                stage=one.stage,
                label=str(one.details.get("check", "")),
                target=one.target,
                outcome=str(one.outcome),
                seconds=one.seconds,
            )
            for one in details.stages
        ),
    )


def _asked(details: Details) -> Kind | Literal[""]:
    """Return the kind of the job that sent a record, which the job's id begins with."""
    if details.run is None:
        return ""
    return "compile" if details.run.job.startswith(f"{COMPILING}-") else "gpu"


def _basis(queue: Queue, name: str) -> str:
    """Return the digest of all that makes a record of a patch fresh or stale."""
    patch = queue.patch(name)
    parts = [
        patch.digest,
        patch.checks_digest,
        pin_digest(patch.pin, patch.upstream),
        *(f"{low} {queue.patch(low).digest}" for low in queue.below(name)),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, int, int, int]:
    """Return what changes with a file: as git's index, it is not asked for its content."""
    told = path.stat()
    return told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino


def _recall(queue: Queue) -> _Memory:
    tool = tool_digest()
    try:
        memory = _Memory.model_validate_json((queue.local / _MEMORY).read_bytes())
    except (OSError, ValidationError):
        return _Memory(tool=tool)
    return memory if memory.tool == tool else _Memory(tool=tool)


def _remember(queue: Queue, memory: _Memory) -> None:
    """Keep what was found; that it cannot be kept costs time and nothing else."""
    there = {
        inside: one for inside, one in memory.records.items() if (queue.folder / inside).is_file()
    }
    text = memory.model_copy(update={"records": there}).model_dump_json()
    try:
        queue.local.mkdir(parents=True, exist_ok=True)
        write_atomically(queue.local / _MEMORY, text.encode())
    except (OSError, ContribbotError):
        return


#: Seconds that a job takes before and after its cells: to be handed out, to start the
#: container, to install contribbot, to upload. Assumed, not measured.
START: Final = 90.0


@dataclass(frozen=True)
class Piece:
    """Cells that one verification answers: a patch under one ROCm version.

    Attributes:
        cells: The cells.
        seconds: How long it takes.
        tree: The upstream and the pin whose tree it works on.
        shared: Seconds that all pieces on the tree need once in a job.
    """

    cells: tuple[Cell, ...]
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
    def key(self) -> str:
        """What puts pieces of the same length in order."""
        return self.cells[0].key


@dataclass(frozen=True)
class Packed:
    """Pieces that run one after the other; those on the same tree stand together."""

    pieces: tuple[Piece, ...]

    @functools.cached_property
    def seconds(self) -> float:
        """How long the job takes."""
        return START + _work(self.pieces)


def shared(pieces: Sequence[Piece]) -> float:
    """Return the seconds that pieces need once in a job, over all their trees."""
    once: dict[str, float] = {}
    for piece in pieces:
        once[piece.tree] = max(piece.shared, once.get(piece.tree, 0.0))
    return sum(once.values())


def cut(pieces: Sequence[Piece], number: int) -> tuple[Packed, ...]:
    """Make so many jobs of pieces (fewer, where there are fewer); the longest first."""
    groups: dict[str, list[Piece]] = {}
    for piece in sorted(pieces, key=lambda one: (one.tree, -one.seconds, one.key)):
        groups.setdefault(piece.rocm, []).append(piece)
    jobs: list[Packed] = []
    parts = _parts({rocm: _work(group) for rocm, group in groups.items()}, number)
    for rocm, group in sorted(groups.items()):
        jobs += _cut(group, min(parts[rocm], len(group)))
    return tuple(sorted(jobs, key=lambda job: (-job.seconds, job.pieces[0].key)))


def _work(pieces: Sequence[Piece]) -> float:
    return shared(pieces) + sum(piece.seconds for piece in pieces)


def _parts(work: Mapping[str, float], number: int) -> dict[str, int]:
    """Share a number of jobs out by work, one at least to each."""
    parts = dict.fromkeys(sorted(work), 1)
    for _ in range(number - len(parts)):
        busiest = max(parts, key=lambda rocm: (work[rocm] / parts[rocm], rocm))
        parts[busiest] += 1
    return parts


def _cut(pieces: Sequence[Piece], number: int) -> list[Packed]:
    """Cut a row of pieces, tree by tree, into jobs of about the same length.

    A cut inside a tree costs one more of what its pieces share.
    """
    jobs = []
    left = list(pieces)
    for place in range(number, 1, -1):
        quota = _work(left) / place
        load, taken, tree = 0.0, 0, ""
        while taken < len(left) - (place - 1):
            piece = left[taken]
            more = piece.seconds + (piece.shared if piece.tree != tree else 0.0)
            # The cut that is nearer to the quota.
            if taken and load + more / 2 > quota:
                break
            load, taken, tree = load + more, taken + 1, piece.tree
        jobs.append(Packed(tuple(left[:taken])))
        left = left[taken:]
    return [*jobs, Packed(tuple(left))]


#: Seconds of a unit of a stage of which no record tells. Of the order that this
#: project's own records show on CPU and on one NVIDIA GPU; half of the 5 to 10 minutes
#: that vLLM's AMD CI builds, twice (base and patched), for a full build.
DEFAULTS: Final[Mapping[str, float]] = {
    "source": 30.0, "apply": 1.0, "style": 1.0, "hipify": 8.0, "compile": 20.0, "build": 60.0,
    "reproduce": 20.0, "numerics": 20.0, "bench": 30.0,
}  # fmt: skip
FULL_BUILD: Final = 900.0
#: No unit of work takes a day: what says so was not measured.
_LONGEST: Final = 24 * 3600.0
Basis = Literal["records", "other records", "default"]
_ORDER: Final[tuple[Basis, ...]] = ("records", "other records", "default")


class Times:
    """Estimates from records: the longest that a unit took, else what others took."""

    def __init__(self, facts: Iterable[Facts]) -> None:
        self._exact: dict[tuple[str, str, str, str], float] = {}
        self._patch: dict[tuple[str, str], list[float]] = {}
        self._stage: dict[str, list[float]] = {}
        for one in facts:
            for seen in one.seen:
                if seen.outcome not in SEEN:
                    continue
                if seen.seconds > _LONGEST:
                    continue
                key = (one.patch, seen.stage, seen.label, seen.target)
                self._exact[key] = max(seen.seconds, self._exact.get(key, 0.0))
                self._patch.setdefault((one.patch, seen.stage), []).append(seen.seconds)
                self._stage.setdefault(seen.stage, []).append(seen.seconds)
        self._units: dict[str, tuple[tuple[str, str, str], ...]] = {}
        self._median = {stage: statistics.median(times) for stage, times in self._stage.items()}

    def unit(self, patch: Patch, stage: str, label: str, target: str) -> tuple[float, Basis]:
        """Return the seconds of one unit of work, and where they are from."""
        exact = self._exact.get((patch.name, stage, label, target))
        if exact is not None:
            return exact, "records"
        if stage == "build" and any(
            one.name == label and one.way == "full" for one in patch.spec.build
        ):
            return FULL_BUILD, "default"
        others = self._patch.get((patch.name, stage))
        if others:
            return statistics.median(others), "other records"
        if stage in self._median:
            return self._median[stage], "other records"
        return DEFAULTS[stage], "default"

    def _units_of(self, patch: Patch) -> tuple[tuple[str, str, str], ...]:
        if patch.name not in self._units:
            self._units[patch.name] = units_of(patch)
        return self._units[patch.name]

    def host(self, patch: Patch) -> float:
        """Return the seconds of what every verification of a patch does, on any machine.

        What brings the pinned tree is not in it: see `shared`.
        """
        return sum(
            self.unit(patch, stage, label, target)[0]
            for stage, label, target in self._units_of(patch)
            if target in HOST_TARGETS and stage != "source"
        )

    def compiled(self, patch: Patch, target: str = "") -> tuple[float, Basis]:
        """Return the seconds of what is compiled for a target, or for all of them."""
        return self._sum(
            patch,
            [
                unit
                for unit in self._units_of(patch)
                if unit[0] == "compile" and target in {"", unit[2]}
            ],
        )

    def ran(self, patch: Patch, target: str) -> tuple[float, Basis]:
        """Return the seconds of what runs on a target; of a full build only the patched side."""
        seconds, basis = self._sum(
            patch,
            [unit for unit in self._units_of(patch) if unit[0] != "compile" and unit[2] == target],
        )
        return seconds - self._base_builds(patch, target), basis

    def shared(self, patch: Patch, target: str = "") -> float:
        """Return the seconds of what patches on the same pin need once in a job.

        It is bringing the tree and, for a target, building all of the base.
        """
        source = self.unit(patch, "source", "", "any")[0]
        # A store that is there already says nothing of a job's empty one.
        return max(source, DEFAULTS["source"]) + self._base_builds(patch, target)

    def _base_builds(self, patch: Patch, target: str) -> float:
        if patch.spec.depends_on:
            return 0.0
        return sum(
            self.unit(patch, "build", one.name, target)[0] / 2
            for one in patch.spec.build
            if one.way == "full" and target in one.targets
        )

    def _sum(self, patch: Patch, units: list[tuple[str, str, str]]) -> tuple[float, Basis]:
        told = [self.unit(patch, *unit) for unit in units]
        worst = max((_ORDER.index(basis) for _, basis in told), default=0)
        return sum(seconds for seconds, _ in told), _ORDER[worst]


#: Actions makes at most 256 jobs of a matrix (GitHub, "Actions limits"): a fifth is left.
MOST_JOBS: Final = 200
#: Actions cancels a job that has waited for a self-hosted runner for 24 hours (the same).
WAIT_HOURS: Final = 24
#: Minutes that a job should take at most, so that trying it again costs little.
RETRIED: Final = 90
#: How much longer the last job may end for the sake of fewer jobs.
_FEWER: Final = 1.03
#: The part of a job's limit that is planned with: estimates are wrong by a factor.
_HEADROOM: Final = 0.5
#: The same where all jobs that a set may have are needed.
_HARD: Final = 0.9
#: How far above its length a job may be, as pieces cannot be cut.
_SLACK: Final = 1.05


@dataclass(frozen=True)
class Pool:
    """A set of runners, and what it is to run.

    Attributes:
        name: The set.
        kind: Whether it compiles or runs.
        count: How many runners.
        minutes: Minutes that one job may take.
        most: Jobs that it may get.
        pieces: What it is to run.
        where: What an error names: the file and the table.
    """

    name: str
    kind: Kind
    count: int
    minutes: int
    most: int
    pieces: tuple[Piece, ...]
    where: str

    @property
    def version(self) -> str:
        """What of `runners.toml` adds a ROCm version to it."""
        return "a [[hosted.rocm]]" if self.kind == "compile" else "a [[runners.rocm]]"

    @property
    def more(self) -> str:
        """What of `runners.toml` lets it have more jobs; those that compile are four a runner."""
        return "count" if self.kind == "compile" else "jobs_limit"


@dataclass(frozen=True)
class Stack:
    """The jobs of a pool, the longest first."""

    pool: Pool
    jobs: tuple[Packed, ...]

    @property
    def load(self) -> Load:
        """How busy the set is."""
        return Load(
            runners=self.pool.name,
            count=self.pool.count,
            jobs=len(self.jobs),
            seconds=round(makespan(self.jobs, self.pool.count)[0], 3),
            bound=round(bound(self.pool), 3),
        )


def bound(pool: Pool) -> float:
    """Return the seconds before which no order of a pool's pieces can end.

    All runners are busy to the end, no job needs a start, each tree is brought (and built)
    once for each ROCm version; or the longest piece runs alone.
    """
    if not pool.pieces:
        return 0.0
    versions = {piece.rocm for piece in pool.pieces}
    once = sum(shared([p for p in pool.pieces if p.rocm == version]) for version in versions)
    work = sum(piece.seconds for piece in pool.pieces)
    alone = max(piece.seconds + piece.shared for piece in pool.pieces)
    return max((work + once) / pool.count, alone)


def makespan(jobs: Sequence[Packed], count: int) -> tuple[float, float]:
    """Return when the last job ends and when the last one starts, in seconds."""
    free, last, start = [0.0] * count, 0.0, 0.0
    for job in jobs:
        start = heapq.heappop(free)
        heapq.heappush(free, start + job.seconds)
        last = max(last, start + job.seconds)
    return last, start


def pack(pools: Sequence[Pool]) -> list[Stack]:
    """Pack what each pool is to run."""
    for pool in pools:
        _fits(pool)
    stacks = [_stack(pool, min(pool.most, MOST_JOBS)) for pool in pools]
    if sum(len(stack.jobs) for stack in stacks) > MOST_JOBS:
        stacks = [_stack(one.pool, most) for one, most in zip(stacks, _shares(stacks), strict=True)]
    for stack in stacks:
        _in_time(stack)
    return stacks


def _shares(stacks: Sequence[Stack]) -> list[int]:
    """Return how many jobs each set gets: one for each image, and its part of all others."""
    least = [_versions(stack.pool) for stack in stacks]
    more = [len(stack.jobs) - few for stack, few in zip(stacks, least, strict=True)]
    room = MOST_JOBS - sum(least)
    if room < 0:
        raise QueueError(
            f"each ROCm version of each set needs a job of its own: these are {sum(least)} jobs, "
            f"and a run has at most {MOST_JOBS}",
            hint="take away a [[runners.rocm]], or plan some sets only: --on SET",
        )
    return [few + part * room // sum(more) for few, part in zip(least, more, strict=True)]


def _versions(pool: Pool) -> int:
    return len({piece.rocm for piece in pool.pieces})


def _fits(pool: Pool) -> None:
    for piece in pool.pieces:
        if piece.alone > pool.minutes * 60:
            raise QueueError(
                f"{pool.where}: {piece.key} takes about {math.ceil(piece.alone / 60)} minutes, and "
                f"minutes_limit is {pool.minutes}",
                hint="raise minutes_limit, or split the patch's checks",
            )


def _in_time(stack: Stack) -> None:
    """Refuse what Actions would cancel because it waits too long."""
    pool = stack.pool
    start = makespan(stack.jobs, pool.count)[1]
    if start <= WAIT_HOURS * 3600:
        return
    patches = list(dict.fromkeys(cell.patch for piece in pool.pieces for cell in piece.cells))
    part = max(1, math.floor(len(patches) * WAIT_HOURS * 3600 / start * 0.9))
    raise QueueError(
        f"{pool.where}: {len(pool.pieces)} cells of {len(patches)} patches on {pool.count} "
        f"runners: the last job would start after {start / 3600:.0f} hours, and GitHub cancels "
        f"what has waited for {WAIT_HOURS}",
        hint=f"name about {part} patches, or take away {pool.version}, or raise count",
    )


def _stack(pool: Pool, most: int) -> Stack:
    """Pack one pool: of all numbers of jobs, the one that ends first, with few jobs."""
    if not pool.pieces:
        return Stack(pool, ())
    longest = max(piece.alone for piece in pool.pieces)
    short = max(longest, min(pool.minutes * 60 * _HEADROOM, RETRIED * 60.0))
    packed = [cut(pool.pieces, number) for number in _numbers(pool, most, short)]
    for limit in (short * _SLACK, max(longest, pool.minutes * 60 * _HARD)):
        tried = [
            (makespan(jobs, pool.count)[0], len(jobs), jobs)
            for jobs in packed
            if max(job.seconds for job in jobs) <= limit
        ]
        if tried:
            best = min(end for end, _, _ in tried)
            good = [one for one in tried if one[0] <= best * _FEWER]
            return Stack(pool, min(good, key=lambda one: (one[1], one[0]))[2])
    raise QueueError(
        f"{pool.where}: {len(pool.pieces)} cells do not fit into {most} jobs of {pool.minutes} "
        f"minutes, which are what it gets of the {MOST_JOBS} of a run",
        hint=f"name fewer patches, take away {pool.version}, or raise minutes_limit or {pool.more}",
    )


def _numbers(pool: Pool, most: int, short: float) -> list[int]:
    """Return the numbers of jobs that are tried, the fewest first.

    Jobs of one length end together when each runner gets as many of them.
    """
    versions = _versions(pool)
    work = bound(pool) * pool.count
    enough = math.ceil(work / max(short - START, START))
    wanted = [math.ceil(enough * part / 4 / pool.count) for part in (4, 5, 6, 8, 12)]
    rounds = {*range(1, 7), *wanted}
    numbers = {versions, most, *(pool.count * each for each in rounds)}
    return sorted(each for each in numbers if versions <= each <= most)


def make_plan(
    queue: Queue, names: Sequence[str], *, everything: bool = False, on: Sequence[str] = ()
) -> Plan:
    """Make the plan of a run. The same queue, runners and records give the same plan."""
    fleet = load_fleet(queue.folder)
    meant = restricted(fleet, on)
    asked = asked_cells(queue, names, fleet.runners, meant)
    facts = read_facts(queue, names)
    wanted, fresh = _split(asked.wanted, {} if everything else facts)
    patches = {name: queue.patch(name) for name in dict.fromkeys(one.patch for one in wanted)}
    times = Times(one for each in facts.values() for one in each)
    pieces = _pieces(wanted, patches, times)
    stacks = pack(_pools(fleet, meant, pieces))
    return Plan(
        runners_sha256=fleet.sha256,
        subjects=tuple(
            Subject(patch=name, patch_sha256=one.digest, checks_sha256=one.checks_digest)
            for name, one in patches.items()
        ),
        jobs=_linked([job for stack in stacks for job in _written(meant, stack)]),
        open=asked.open,
        fresh=tuple(fresh),
        without=asked.without,
        loads=tuple(stack.load for stack in stacks),
    )


def _split(
    wanted: Sequence[Wanted], facts: Mapping[str, Sequence[Facts]]
) -> tuple[list[Wanted], list[FreshCell]]:
    """Part what must be run from what a record answers.

    Where records of two machines disagree, the one that says no is named.
    """
    due, fresh = [], []
    for one in wanted:
        said = [(known.says(one.require, one.rocm), known) for known in facts.get(one.patch, ())]
        answers = [(says, known) for says, known in said if says]
        if not answers:
            due.append(one)
            continue
        says, known = min(answers, key=lambda answer: answer[0] != "failed")
        fresh.append(
            FreshCell(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                      record=known.path, says="failed" if says == "failed" else "passed")
        )  # fmt: skip
    return due, fresh


def _pieces(wanted: Sequence[Wanted], patches: Mapping[str, Patch], times: Times) -> list[Piece]:
    """Put cells that one verification answers together: all compiles of a patch."""
    together: dict[tuple[str, str, str], list[Wanted]] = {}
    for one in wanted:
        alone = one.target if one.kind == "gpu" else ""
        together.setdefault((one.patch, one.rocm, alone), []).append(one)
    return [_piece(group, patches[group[0].patch], times) for group in together.values()]


def _piece(group: Sequence[Wanted], patch: Patch, times: Times) -> Piece:
    gpu = group[0].kind == "gpu"
    # A verification does all that its machine can do, whatever was asked of it.
    around = times.host(patch) + times.compiled(patch)[0]
    tree = patch.pin.title
    cells = []
    for one in group:
        seconds, basis = (times.ran if gpu else times.compiled)(patch, one.target)
        whole = around + seconds if gpu else around / len(group)
        cells.append(
            Cell(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                 require=one.require, tree=tree, seconds=round(whole, 3), estimate=basis)
        )  # fmt: skip
    return Piece(
        cells=tuple(cells),
        seconds=sum(cell.seconds for cell in cells),
        tree=tree,
        shared=times.shared(patch, group[0].target if gpu else ""),
    )


def _pools(fleet: Fleet, meant: Runners, pieces: Sequence[Piece]) -> list[Pool]:
    """Give each piece to a set; what compiles first, then the cheapest set."""
    sets = sorted(meant.runners, key=lambda one: one.cost)
    given: dict[str, list[Piece]] = {one.name: [] for one in sets}
    loads = dict.fromkeys(given, 0.0)
    for piece in sorted(pieces, key=lambda one: (-one.seconds, one.key)):
        if piece.cells[0].kind == "compile":
            continue
        one = _chosen(sets, loads, piece)
        given[one.name].append(piece)
        loads[one.name] += piece.seconds
    pools = [
        Pool(one.name, "gpu", one.count, one.minutes_limit, one.jobs_limit * one.count,
             tuple(given[one.name]), f"{fleet.path}: runners {one.name}")
        for one in sets
    ]  # fmt: skip
    if meant.hosted is None:
        return pools
    compiled = tuple(piece for piece in pieces if piece.cells[0].kind == "compile")
    host = meant.hosted
    return [
        Pool(HOSTED, "compile", host.count, host.minutes_limit, 4 * host.count, compiled,
             f"{fleet.path}: hosted"),
        *pools,
    ]  # fmt: skip


def _chosen(sets: Sequence[RunnerSet], loads: Mapping[str, float], piece: Piece) -> RunnerSet:
    """Return the cheapest set that can run a piece in time; of several, the one least busy."""
    cell = piece.cells[0]
    able = [
        one
        for one in sets
        if one.target == cell.target and cell.rocm in {image.version for image in one.rocm}
    ]
    # Where it is too long for all of them, `pack` says so.
    able = [one for one in able if piece.alone <= one.minutes_limit * 60] or able
    return min(able, key=lambda one: (one.cost, (loads[one.name] + piece.seconds) / one.count))


def _written(runners: Runners, stack: Stack) -> list[Job]:
    """Write the jobs of a set, numbered by ROCm version."""
    pool, jobs, numbers = stack.pool, [], dict[str, int]()
    for packed in stack.jobs:
        rocm = packed.pieces[0].rocm
        numbers[rocm] = numbers.get(rocm, 0) + 1
        one = next((each for each in runners.runners if each.name == pool.name), None)
        stem = COMPILING if one is None else _stem(runners, one)
        common = {"rocm": rocm, "runners": pool.name, "kind": pool.kind, "minutes": pool.minutes}
        host = runners.hosted
        offered = one.rocm if one else host.rocm if host else ()
        image = next(each for each in offered if each.version == rocm)
        jobs.append(
            Job.model_validate({
                **common,
                "id": f"{stem}-rocm{rocm}-{numbers[rocm]}",
                "labels": one.labels if one else host.labels if host else (),
                "target": one.target if one else "",
                "image": image.image,
                "flags": getattr(image, "flags", ()),
                "seconds": round(packed.seconds, 3),
                "cells": tuple(cell for piece in packed.pieces for cell in piece.cells),
            })
        )  # fmt: skip
    return jobs


def _stem(runners: Runners, one: RunnerSet) -> str:
    """Return how the jobs of a set are called: by its target, where that names no other."""
    alone = sum(each.target == one.target for each in runners.runners) == 1
    return one.target if alone else f"{one.target}-{one.name}"


def _linked(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Say of each job that runs which jobs compile for it."""
    compiled = {
        (cell.patch, cell.target, cell.rocm): job.id
        for job in jobs
        if job.kind == "compile"
        for cell in job.cells
    }
    return tuple(
        job
        if job.kind == "compile"
        else job.model_copy(update={"after": tuple(dict.fromkeys(
            compiled[key]
            for cell in job.cells
            if (key := (cell.patch, cell.target, cell.rocm)) in compiled
        ))})
        for job in jobs
    )  # fmt: skip


def again(plan: Plan, cells: Sequence[str], runners: Runners) -> tuple[Job, ...]:
    """Return what tries cells once more: on another set where one can, else on the same.

    `jobs_limit` is for what is planned: second tries come on top of it, one at most for each
    job. Else a set that is full could not take what another one's runners failed.
    """
    wanted = frozenset(cells)
    # The sets that were meant: somebody may have chosen among those of the queue.
    meant = {load.runners for load in plan.loads}
    sets = [one for one in runners.runners if one.name in meant]
    jobs = []
    for job in plan.jobs:
        left = tuple(cell for cell in job.cells if cell.key in wanted)
        if left:
            named = {"id": f"{job.id}-again", "cells": left, "after": ()}
            jobs.append(job.model_copy(update={**_elsewhere(job, sets), **named}))
    return tuple(jobs)


def _elsewhere(job: Job, sets: Sequence[RunnerSet]) -> dict[str, object]:
    """Return what of a job differs on the cheapest other set that can run it; or nothing."""
    able = [
        (one, image)
        for one in sets
        for image in one.rocm
        if one.name != job.runners
        and (one.target, image.version) == (job.target, job.rocm)
        and job.seconds <= one.minutes_limit * 60
    ]
    if not able:
        return {}
    one, image = min(able, key=lambda pair: pair[0].cost)
    return {"runners": one.name, "labels": one.labels, "image": image.image,
            "flags": image.flags, "minutes": one.minutes_limit}  # fmt: skip
