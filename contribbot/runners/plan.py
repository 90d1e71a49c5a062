"""From patches, runners and records to a plan."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import heapq
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, ValidationError

from contribbot.errors import ContribbotError, QueueError
from contribbot.files import tool_digest, write_atomically
from contribbot.model.base import Model
from contribbot.model.evidence import HOST_TARGETS, SEEN, Details, Outcome, pin_digest
from contribbot.model.patch import Patch, PatchSpec, units_of
from contribbot.queue.load import Queue
from contribbot.runners.model import (
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
from contribbot.verify.evidence import State, judge_record


def demands(spec: PatchSpec) -> dict[tuple[Kind, str], tuple[str, ...]]:
    """Return what a patch states on AMD targets: the stages, by kind of cell and target.

    A build is part of the cell that runs: checks load its products.
    """
    stated: list[tuple[Kind, str, str]] = [
        *(("compile", "compile", target) for entry in spec.compile for target in entry.targets),
        *(("gpu", "build", target) for entry in spec.build for target in entry.targets),
        *(("gpu", "reproduce", check.target) for check in spec.checks),
        *(("gpu", "numerics", check.target) for check in spec.numerics),
        *(("gpu", "bench", bench.target) for bench in spec.bench),
    ]
    stages: dict[tuple[Kind, str], dict[str, None]] = {}
    for kind, stage, target in stated:
        if target.startswith("gfx"):
            stages.setdefault((kind, target), {})[f"{stage}:{target}"] = None
    return {key: tuple(names) for key, names in stages.items()}


def asked_cells(
    queue: Queue, names: Sequence[str], runners: Runners, meant: Runners
) -> tuple[dict[CellName, tuple[str, ...]], list[OpenCell]]:
    """Return the cells that the runners meant can run, with what each must prove, and the rest."""
    offers, used = _offers(runners), _offers(meant)
    wanted: dict[CellName, tuple[str, ...]] = {}
    lacking: list[OpenCell] = []
    for name in names:
        for (kind, target), require in demands(queue.specs[name]).items():
            offered = offers.get((kind, target), set[str]())
            missing = [rocm for rocm in runners.versions if rocm not in offered]
            for rocm in runners.versions:
                if rocm in used.get((kind, target), ()):
                    cell = CellName(kind=kind, patch=name, target=target, rocm=rocm)
                    wanted[cell] = require
            lacking += [
                OpenCell(kind=kind, patch=name, target=target, rocm=rocm,
                         reason=_lack(runners, kind, target, rocm))
                for rocm in (missing if offered else [""])
            ]  # fmt: skip
    return wanted, lacking


def _offers(runners: Runners) -> dict[tuple[Kind, str], set[str]]:
    """Return the ROCm versions for each kind of cell and target."""
    offers: dict[tuple[Kind, str], set[str]] = {}
    for each in runners.sets:
        for target, version in each.offers:
            offers.setdefault((each.kind, target), set()).add(version)
    return offers


def _lack(runners: Runners, kind: Kind, target: str, rocm: str) -> str:
    """Say why no runner can run a cell."""
    if kind == "gpu":
        return f"no runner with {target} has ROCm {rocm}" if rocm else f"no runner has {target}"
    if runners.hosted is None:
        return "no [hosted] runner compiles"
    with_rocm = f" with ROCm {rocm}" if rocm else ""
    return f"no [[hosted.rocm]] compiles for {target}{with_rocm}"


# What records say: whether they answer a cell, and how long its units took.


class UnitFacts(NamedTuple):
    """An outcome of a record: thousands are read for a plan."""

    stage: str
    label: str
    target: str
    outcome: str
    seconds: float


class RecordFacts(Model):
    """What a plan needs to know of a record, and what it was judged against."""

    stamp: Annotated[tuple[int, int, int], Field(strict=False)]
    against: str
    #: As seen from the queue's folder.
    path: str
    patch: str
    #: Whether it is about what the queue has now.
    fresh: bool = False
    #: The kind of the job that sent it; empty: it was made by hand.
    asked: Kind | Literal[""] = ""
    rocm: str = ""
    #: None of a record that was tampered with.
    units: Annotated[tuple[UnitFacts, ...], Field(strict=False)] = ()

    def says(self, require: Iterable[str], rocm: str) -> Literal["passed", "failed", ""]:
        """Return what it says of a cell, or nothing.

        What a job with a GPU compiled besides, in its own image, answers no cell: nobody asked it.
        """
        needs = [need.partition(":")[::2] for need in require]
        if not self.fresh or not is_version(rocm, self.rocm):
            return ""
        if self.asked == "gpu" and any(stage == "compile" for stage, _ in needs):
            return ""
        outcomes = [
            {unit.outcome for unit in self.units if (unit.stage, unit.target) == need}
            for need in needs
        ]
        if any(Outcome.FAILED in each for each in outcomes):
            return "failed"
        return "passed" if all(each == {str(Outcome.PASSED)} for each in outcomes) else ""


class _RecordMemory(Model):
    """What `.contribbot/matrix.json` holds."""

    tool: str
    records: dict[str, RecordFacts] = Field(default_factory=dict)


class _ReadOnce(Queue):
    """A queue whose patches are read once: hundreds of records are about each."""

    @functools.cached_property
    def _patches(self) -> dict[str, Patch]:
        return {}

    def patch(self, name: str) -> Patch:
        if name not in self._patches:
            self._patches[name] = super().patch(name)
        return self._patches[name]


def read_facts(queue: Queue, names: Sequence[str]) -> dict[str, list[RecordFacts]]:
    """Return what the records in a queue say, by patch; what has not changed is not read."""
    queue = _ReadOnce(queue.folder, queue.spec, queue.specs, queue.upstreams)
    path, tool = queue.local / "matrix.json", tool_digest()
    try:
        memory = _RecordMemory.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        memory = _RecordMemory(tool=tool)
    old = memory.records if memory.tool == tool else {}
    kept = {inside: known for inside, known in old.items() if (queue.folder / inside).is_file()}
    facts: dict[str, list[RecordFacts]] = {name: [] for name in names}
    for name in names:
        against = _basis(queue, name)
        for record in sorted((queue.evidence / name).glob("*.json")):
            inside, status = record.relative_to(queue.folder).as_posix(), record.stat()
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            known = kept.get(inside)
            if known is None or (known.stamp, known.against) != (stamp, against):
                blank = RecordFacts(stamp=stamp, against=against, path=inside, patch=name)
                known = kept[inside] = _judged(queue, record, blank)
            facts[name].append(known)
    if any(old.get(inside) is not known for inside, known in kept.items()):
        # What is not remembered costs time and nothing else.
        with contextlib.suppress(OSError, ContribbotError):
            queue.local.mkdir(parents=True, exist_ok=True)
            write_atomically(
                path, _RecordMemory(tool=tool, records=kept).model_dump_json().encode()
            )
    return facts


def _judged(queue: Queue, path: Path, blank: RecordFacts) -> RecordFacts:
    """Return the facts of a record."""
    record = judge_record(queue, path)
    if record.statement is None or record.state not in {State.FRESH, State.STALE}:
        return blank
    details: Details = record.statement.predicate.contribbot
    asked = ""
    if details.run is not None:
        asked = "compile" if details.run.job.startswith(f"{COMPILING}-") else "gpu"
    units = tuple(
        UnitFacts(unit.stage, str(unit.details.get("check", "")), unit.target, str(unit.outcome),
                  unit.seconds)
        for unit in details.stages
    )  # fmt: skip
    return blank.model_copy(
        update={"fresh": record.state is State.FRESH, "asked": asked,
                "rocm": details.machine.rocm, "units": units}
    )  # fmt: skip


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
#: From the best to the worst.
_BASES: Final[tuple[Basis, ...]] = ("records", "other records", "default")


class PlanUnit(NamedTuple):
    """A unit of work of a patch, how long it takes, and what of that is the base's full build."""

    stage: str
    target: str
    seconds: float
    basis: Basis
    base: float


class Times:
    """Estimates from records: the longest that a unit took, else what others took."""

    def __init__(self, facts: Iterable[RecordFacts]) -> None:
        self._exact: dict[tuple[str, ...], float] = {}
        others: dict[tuple[str, ...], list[float]] = {}
        for record in facts:
            for unit in record.units:
                if unit.outcome not in SEEN or unit.seconds > _LONGEST:
                    continue
                key = (record.patch, unit.stage, unit.label, unit.target)
                self._exact[key] = max(unit.seconds, self._exact.get(key, 0.0))
                others.setdefault((record.patch, unit.stage), []).append(unit.seconds)
                others.setdefault((unit.stage,), []).append(unit.seconds)
        self._median = {key: statistics.median(times) for key, times in others.items()}

    def of(self, patch: Patch) -> list[PlanUnit]:
        """Return the units of a patch."""
        full = {build.name for build in patch.spec.build if build.way == "full"}
        units = []
        for stage, label, target in units_of(patch):
            whole = stage == "build" and label in full
            exact = self._exact.get((patch.name, stage, label, target))
            median = self._median.get((patch.name, stage), self._median.get((stage,)))
            basis: Basis = "default"
            seconds = FULL_BUILD if whole else DEFAULTS[stage]
            if exact is not None:
                basis, seconds = "records", exact
            elif median is not None and not whole:
                basis, seconds = "other records", median
            # Patches on the bare base share its build in a job.
            base = seconds / 2 if whole and not patch.spec.depends_on else 0.0
            units.append(PlanUnit(stage, target, seconds, basis, base))
        return units


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
#: How far above its length a job may be, as pieces cannot be cut.
_SLACK: Final = 1.05


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
    def key(self) -> str:
        """What puts pieces of the same length in order."""
        return self.cells[0].key


class PackedJob(NamedTuple):
    """The pieces of a job, those on the same tree together, and the seconds that it takes."""

    pieces: tuple[Piece, ...]
    seconds: float


@dataclass(frozen=True)
class Pool:
    """A set of runners and what it is to run."""

    runners: RunnerSet | Hosted
    pieces: tuple[Piece, ...]

    @property
    def images(self) -> int:
        """How many ROCm versions it is to run: each needs a job of its own."""
        return len({piece.rocm for piece in self.pieces})

    @property
    def bound(self) -> float:
        """The seconds before which no order of its pieces can end.

        All runners are busy to the end, no job needs a start, each tree is brought (and built)
        once for each ROCm version; or the longest piece runs alone.
        """
        once = {(piece.rocm, piece.tree): 0.0 for piece in self.pieces}
        for piece in self.pieces:
            key = (piece.rocm, piece.tree)
            once[key] = max(piece.shared, once[key])
        work = sum(once.values()) + sum(piece.seconds for piece in self.pieces)
        longest = max((piece.seconds + piece.shared for piece in self.pieces), default=0.0)
        return max(work / self.runners.count, longest)

    def load(self, jobs: Sequence[PackedJob]) -> Load:
        """Return how busy the set is."""
        end, _ = makespan(jobs, self.runners.count)
        return Load(runners=self.runners.name, count=self.runners.count, jobs=len(jobs),
                    seconds=round(end, 3), bound=round(self.bound, 3))  # fmt: skip

    def error(self, what: str, hint: str) -> QueueError:
        """Return what a user is told for whom it is too much."""
        return QueueError(f"{RUNNERS_FILE}: {self.runners.name}: {what}", hint=hint)

    @property
    def less(self) -> str:
        """What takes something off the set."""
        table = "runners" if self.runners.target else HOSTED
        return f"take away a [[{table}.rocm]]"


def makespan(jobs: Sequence[PackedJob], count: int) -> tuple[float, float]:
    """Return when the last job ends and when the last one starts, in seconds."""
    free, start = [0.0] * count, 0.0
    for job in jobs:
        start = heapq.heappop(free)
        heapq.heappush(free, start + job.seconds)
    return max(free), start


def pack(pools: Sequence[Pool]) -> list[tuple[PackedJob, ...]]:
    """Pack what each pool is to run; together they are no more jobs than a run may have."""
    packed = [
        _packed(pool, min(pool.runners.jobs_limit * pool.runners.count, MOST_JOBS))
        for pool in pools
    ]
    if sum(map(len, packed)) > MOST_JOBS:
        # One job for each image, and of all others each set's part.
        least = [pool.images for pool in pools]
        more = [len(jobs) - images for jobs, images in zip(packed, least, strict=True)]
        if (room := MOST_JOBS - sum(least)) < 0:
            raise QueueError(
                f"each ROCm version of each set needs a job of its own: these are {sum(least)} "
                f"jobs, and a run has at most {MOST_JOBS}",
                hint="take away a [[runners.rocm]], or plan some sets only: --on SET",
            )
        packed = [
            _packed(pool, images + part * room // sum(more))
            for pool, images, part in zip(pools, least, more, strict=True)
        ]
    return packed


def _packed(pool: Pool, most: int) -> tuple[PackedJob, ...]:
    """Pack one pool into whole rounds of its runners, each job short enough to try again."""
    if not pool.pieces:
        return ()
    minutes, count = pool.runners.minutes_limit, pool.runners.count
    long = max(pool.pieces, key=lambda piece: piece.alone)
    if long.alone > minutes * 60:
        raise pool.error(
            f"{long.key} takes about {math.ceil(long.alone / 60)} minutes, and minutes_limit is "
            f"{minutes}",
            "raise minutes_limit, or split the patch's checks",
        )
    short = max(long.alone, min(minutes * 60 * _HEADROOM, RETRIED * 60.0))
    number = min(most, count * math.ceil(pool.bound / max(short - START, START)))
    jobs = _spread(pool.pieces, number)
    while jobs[0].seconds > short * _SLACK and number < most:
        number = min(most, number + count)
        jobs = _spread(pool.pieces, number)
    if jobs[0].seconds > max(long.alone, minutes * 60 * _HARD) or len(jobs) > most:
        limit = "jobs_limit" if pool.runners.target else "count"
        raise pool.error(
            f"{len(pool.pieces)} cells do not fit into {most} jobs of {minutes} minutes, which "
            f"are what it gets of the {MOST_JOBS} of a run",
            f"name fewer patches, {pool.less}, or raise minutes_limit or {limit}",
        )
    _, start = makespan(jobs, count)
    if start > WAIT_HOURS * 3600:
        patches = {cell.patch for piece in pool.pieces for cell in piece.cells}
        part = max(1, math.floor(len(patches) * WAIT_HOURS * 3600 / start * 0.9))
        raise pool.error(
            f"{len(pool.pieces)} cells of {len(patches)} patches on {count} runners: the last job "
            f"would start after {start / 3600:.0f} hours, and GitHub cancels what has waited for "
            f"{WAIT_HOURS}",
            f"name about {part} patches, or {pool.less}, or raise count",
        )
    return jobs


def _spread(pieces: Sequence[Piece], number: int) -> tuple[PackedJob, ...]:
    """Make about so many jobs, one at least for each ROCm version; the longest comes first."""
    groups: dict[str, list[Piece]] = {}
    for piece in sorted(pieces, key=lambda piece: (-piece.seconds, piece.key)):
        groups.setdefault(piece.rocm, []).append(piece)
    work = {rocm: sum(piece.seconds for piece in group) for rocm, group in groups.items()}
    shares = Counter(dict.fromkeys(sorted(groups), 1))
    for _ in range(number - len(shares)):
        shares[max(shares, key=lambda rocm: work[rocm] / shares[rocm])] += 1
    jobs = [job for rocm in shares for job in _greedy(groups[rocm], shares[rocm])]
    return tuple(sorted(jobs, key=lambda job: (-job.seconds, job.pieces[0].key)))


def _greedy(pieces: Sequence[Piece], number: int) -> Iterator[PackedJob]:
    """Give each piece, the longest first, to the job that is shortest with it."""
    jobs: list[list[Piece]] = [[] for _ in range(min(number, len(pieces)))]
    ends = [START] * len(jobs)
    trees: list[dict[str, float]] = [{} for _ in jobs]
    for piece in pieces:
        costs = [
            end + piece.seconds + max(piece.shared - tree.get(piece.tree, 0.0), 0.0)
            for end, tree in zip(ends, trees, strict=True)
        ]
        place = costs.index(min(costs))
        jobs[place].append(piece)
        ends[place] = costs[place]
        trees[place][piece.tree] = max(piece.shared, trees[place].get(piece.tree, 0.0))
    for job, end in zip(jobs, ends, strict=True):
        yield PackedJob(tuple(sorted(job, key=lambda piece: piece.tree)), end)


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
    facts = read_facts(queue, names)
    answers: dict[CellName, FreshCell] = {}
    if not everything:
        needs: dict[CellName, tuple[str, ...]] = wanted
        if not (fleet.runners.runners or fleet.runners.hosted):
            # Without runners, a record under any ROCm version answers what waits.
            needs = {cell: demands(queue.specs[cell.patch])[cell.kind, cell.target]
                     for cell in lacking}  # fmt: skip
        for cell, require in needs.items():
            if answer := _answer(cell, require, facts[cell.patch]):
                answers[cell] = answer
    due = {cell: require for cell, require in wanted.items() if cell not in answers}
    patches = {name: queue.patch(name) for name in dict.fromkeys(cell.patch for cell in due)}
    times = Times(record for records in facts.values() for record in records)
    pools = _pools(meant, _pieces(due, patches, times))
    packed = pack(pools)
    jobs = [
        job for pool, jobs in zip(pools, packed, strict=True) for job in _jobs(meant, pool, jobs)
    ]
    return Plan(
        runners_sha256=fleet.sha256,
        subjects=tuple(
            Subject(patch=name, patch_sha256=patch.digest, checks_sha256=patch.checks_digest)
            for name, patch in patches.items()
        ),
        jobs=_linked(jobs),
        open=tuple(cell for cell in lacking if cell not in answers),
        fresh=tuple(answers.values()),
        without=tuple(name for name in names if not demands(queue.specs[name])),
        loads=tuple(pool.load(jobs) for pool, jobs in zip(pools, packed, strict=True)),
    )


_RELEASE: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}")


def _answer(
    cell: CellName, require: Sequence[str], facts: Sequence[RecordFacts]
) -> FreshCell | None:
    """Return what the records of a patch say of a cell: one that failed goes before others."""
    answers: dict[str, RecordFacts] = {
        says: record
        for record in reversed(facts)
        if (says := record.says(require, cell.rocm or record.rocm))
    }
    if not answers:
        return None
    answer: Literal["passed", "failed"] = "failed" if "failed" in answers else "passed"
    record = answers[answer]
    # Distributions write it as 7.1.0-84.
    release = _RELEASE.match(record.rocm)
    rocm = cell.rocm or (release[0] if release else "")
    return FreshCell(kind=cell.kind, patch=cell.patch, target=cell.target, rocm=rocm,
                     record=record.path, says=answer)  # fmt: skip


def _pieces(
    due: Mapping[CellName, tuple[str, ...]], patches: Mapping[str, Patch], times: Times
) -> list[Piece]:
    """Put cells that one verification answers together: all compiles of a patch."""
    units = {name: times.of(patch) for name, patch in patches.items()}
    groups: dict[tuple[str, str, str], list[CellName]] = {}
    for cell in due:
        gpu = cell.target if cell.kind == "gpu" else ""
        groups.setdefault((cell.patch, cell.rocm, gpu), []).append(cell)
    return [
        _piece({cell: due[cell] for cell in cells}, gpu, patches[name].pin.title, units[name])
        for (name, _, gpu), cells in groups.items()
    ]


def _piece(
    group: Mapping[CellName, tuple[str, ...]], gpu: str, tree: str, units: Sequence[PlanUnit]
) -> Piece:
    # A verification does all that its machine can do, whatever was asked of it.
    around = sum(
        unit.seconds
        for unit in units
        if unit.stage == "compile" or (unit.target in HOST_TARGETS and unit.stage != "source")
    )
    cells = []
    for cell, require in group.items():
        mine = [
            unit
            for unit in units
            if unit.target == cell.target and (unit.stage == "compile") is not bool(gpu)
        ]
        own = sum(unit.seconds - unit.base for unit in mine)
        seconds = around + own if gpu else around / len(group)
        worst = max((_BASES.index(unit.basis) for unit in mine), default=0)
        cells.append(
            PlannedCell(kind=cell.kind, patch=cell.patch, target=cell.target, rocm=cell.rocm,
                 require=require, tree=tree, seconds=round(seconds, 3), estimate=_BASES[worst])
        )  # fmt: skip
    # A store that is there already says nothing of a job's empty one.
    source = max(DEFAULTS["source"], *(unit.seconds for unit in units if unit.stage == "source"))
    shared = source + sum(unit.base for unit in units if unit.target == gpu)
    return Piece(tuple(cells), sum(cell.seconds for cell in cells), tree, shared)


def _pools(meant: Runners, pieces: Sequence[Piece]) -> list[Pool]:
    """Give each piece to the cheapest set that can run it in time, of several to the idlest."""
    sets = sorted(meant.sets, key=lambda each: each.cost)
    given: dict[str, list[Piece]] = {each.name: [] for each in sets}
    loads = dict.fromkeys(given, 0.0)
    for piece in sorted(pieces, key=lambda piece: (-piece.seconds, piece.key)):
        cell = piece.cells[0]
        able = [each for each in sets
                if each.kind == cell.kind and (cell.target, cell.rocm) in each.offers]  # fmt: skip
        # Where it is too long for all of them, `pack` says so.
        able = [each for each in able if piece.alone <= each.minutes_limit * 60] or able
        ends = {each.name: loads[each.name] + piece.seconds / each.count for each in able}
        cheapest = min(able, key=lambda each: (each.cost, ends[each.name]))
        given[cheapest.name].append(piece)
        loads[cheapest.name] = ends[cheapest.name]
    return [Pool(each, tuple(given[each.name])) for each in sets]


def _jobs(meant: Runners, pool: Pool, packed: Iterable[PackedJob]) -> Iterator[CiJob]:
    """Write the jobs of a set, numbered by ROCm version."""
    numbers = Counter[str]()
    own = pool.runners
    # A set is called by its target, where that names no other.
    twins = [each for each in meant.runners if each.target == own.target]
    stem = own.target or COMPILING
    stem = f"{stem}-{own.name}" if len(twins) > 1 else stem
    for pieces, seconds in packed:
        rocm = pieces[0].rocm
        numbers[rocm] += 1
        image = next(image for image in own.rocm if image.version == rocm)
        yield CiJob(
            id=f"{stem}-rocm{rocm}-{numbers[rocm]}", kind=own.kind, runners=own.name,
            labels=own.labels, target=own.target, rocm=rocm, image=image.image,
            flags=image.flags, minutes=own.minutes_limit, seconds=round(seconds, 3),
            cells=tuple(cell for piece in pieces for cell in piece.cells),
        )  # fmt: skip


def _linked(jobs: Sequence[CiJob]) -> tuple[CiJob, ...]:
    """Say of each job that runs which jobs compile for it."""
    compiled = {
        (cell.patch, cell.target, cell.rocm): job.id
        for job in jobs
        if job.kind == "compile"
        for cell in job.cells
    }
    linked = []
    for job in jobs:
        keys = ((cell.patch, cell.target, cell.rocm) for cell in job.cells)
        after = tuple(dict.fromkeys(compiled[key] for key in keys if key in compiled))
        linked.append(job.model_copy(update={"after": after}) if job.kind == "gpu" else job)
    return tuple(linked)


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
        (other, image)
        for other in runners.runners
        for image in other.rocm
        if other.name in meant
        and (other.target, image.version) == (job.target, job.rocm)
        and job.seconds <= other.minutes_limit * 60
    ]
    changed: dict[str, object] = {"id": f"{job.id}{AGAIN}", "cells": left, "after": ()}
    if able:
        other, image = min(able, key=lambda pair: pair[0].cost)
        changed |= {"runners": other.name, "labels": other.labels, "image": image.image,
                    "flags": image.flags, "minutes": other.minutes_limit}  # fmt: skip
    return job.model_copy(update=changed)
