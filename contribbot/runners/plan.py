"""From patches, runners and records to a plan."""

from __future__ import annotations

import hashlib
import heapq
import math
import re
import statistics
from collections import Counter
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
    CellName,
    FreshCell,
    Job,
    Kind,
    Load,
    OpenCell,
    Plan,
    RequestedCell,
    Runners,
    RunnerSet,
    Subject,
    is_version,
    version_key,
)
from contribbot.verify.evidence import State, judge_record
from contribbot.verify.pipeline import tool_digest


@dataclass(frozen=True)
class Asked:
    """What patches ask for: by some runner, by none, or not at all of an AMD target."""

    wanted: tuple[RequestedCell, ...]
    open: tuple[OpenCell, ...]
    without: tuple[str, ...]


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
    found: dict[tuple[Kind, str], dict[str, None]] = {}
    for kind, stage, target in stated:
        if target.startswith("gfx"):
            found.setdefault((kind, target), {})[f"{stage}:{target}"] = None
    return {key: tuple(stages) for key, stages in found.items()}


def asked_cells(queue: Queue, names: Sequence[str], runners: Runners, meant: Runners) -> Asked:
    """Return the cells of patches: those that some of the runners meant can run, and the others."""
    offers, used = _offers(runners), _offers(meant)
    wanted: list[RequestedCell] = []
    lacking: list[OpenCell] = []
    for name in names:
        for (kind, target), require in demands(queue.specs[name]).items():
            wanted += [
                RequestedCell(kind=kind, patch=name, target=target, rocm=rocm, require=require)
                for rocm in used.get((kind, target), ())
            ]
            offered = offers.get((kind, target), ())
            missing = (
                [rocm for rocm in runners.versions if rocm not in offered] if offered else [""]
            )
            lacking += [
                OpenCell(kind=kind, patch=name, target=target, rocm=rocm,
                         reason=_lack(runners, kind, target, rocm))
                for rocm in (missing if offered else [""])
            ]  # fmt: skip
    without = tuple(name for name in names if not demands(queue.specs[name]))
    return Asked(tuple(wanted), tuple(lacking), without)


def _offers(runners: Runners) -> dict[tuple[Kind, str], tuple[str, ...]]:
    """Return the ROCm versions for each kind of cell and target, oldest first."""
    found: dict[tuple[Kind, str], set[str]] = {}
    for fleet in runners.runners:
        found.setdefault(("gpu", fleet.target), set()).update(each.version for each in fleet.rocm)
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
    """What a plan needs to know of a record; `path` is seen from the queue's folder."""

    path: str
    patch: str
    #: Whether it is about what the queue has now.
    fresh: bool
    #: The kind of the job that sent it; empty: it was made by hand.
    asked: Kind | Literal[""]
    rocm: str
    units: Annotated[tuple[UnitFacts, ...], Field(strict=False)]

    def says(self, require: Iterable[str], rocm: str) -> Literal["passed", "failed", ""]:
        """Return what it says of a cell, or nothing.

        What a job with a GPU compiled besides, in its own image, answers no cell: nobody asked it.
        """
        needs = [need.partition(":")[::2] for need in require]
        if not self.fresh or not is_version(rocm, self.rocm):
            return ""
        if self.asked == "gpu" and any(stage == "compile" for stage, _ in needs):
            return ""
        outcomes: list[set[str]] = [
            {unit.outcome for unit in self.units if (unit.stage, unit.target) == need}
            for need in needs
        ]
        if any(Outcome.FAILED in each for each in outcomes):
            return "failed"
        return "passed" if all(each == {Outcome.PASSED} for each in outcomes) else ""


class _Remembered(Model):
    """A record as it was, what it was judged against, and its facts; None: it says nothing."""

    stamp: Annotated[tuple[int, int, int, int], Field(strict=False)]
    against: str
    facts: RecordFacts | None


class _Memory(Model):
    """What `.contribbot/matrix.json` holds, by record."""

    tool: str
    records: dict[str, _Remembered] = Field(default_factory=dict)


class _ReadOnce(Queue):
    """A queue whose patches are read once: hundreds of records are about each."""

    def patch(self, name: str) -> Patch:
        kept: dict[str, Patch] = self.__dict__.setdefault("_read", {})
        if name not in kept:
            kept[name] = super().patch(name)
        return kept[name]


def read_facts(queue: Queue, names: Sequence[str]) -> dict[str, tuple[RecordFacts, ...]]:
    """Return what the untampered records in a queue say, by patch; they are read once."""
    patches = _ReadOnce(queue.folder, queue.spec, queue.specs, queue.upstreams)
    path, tool = queue.local / "matrix.json", tool_digest()
    try:
        memory = _Memory.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        memory = _Memory(tool=tool)
    old = memory.records if memory.tool == tool else {}
    kept = {inside: known for inside, known in old.items() if (queue.folder / inside).is_file()}
    found: dict[str, tuple[RecordFacts, ...]] = {}
    for name in names:
        against, facts = _basis(patches, name), []
        for record in sorted((queue.evidence / name).glob("*.json")):
            inside = record.relative_to(queue.folder).as_posix()
            # As git's index, a file whose stamp is the same is not read.
            status = record.stat()
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            known = kept.get(inside)
            if known is None or (known.stamp, known.against) != (stamp, against):
                known = kept[inside] = _Remembered(
                    stamp=stamp, against=against, facts=_facts(patches, record, inside)
                )
            if known.facts is not None:
                facts.append(known.facts)
        found[name] = tuple(facts)
    if any(old.get(inside) is not known for inside, known in kept.items()):
        try:
            queue.local.mkdir(parents=True, exist_ok=True)
            write_atomically(path, _Memory(tool=tool, records=kept).model_dump_json().encode())
        except (OSError, ContribbotError):
            pass  # what is not remembered costs time and nothing else
    return found


def _facts(queue: Queue, path: Path, inside: str) -> RecordFacts | None:
    record = judge_record(queue, path)
    if record.statement is None or record.state not in {State.FRESH, State.STALE}:
        return None
    details: Details = record.statement.predicate.contribbot
    asked: Kind | Literal[""] = ""
    if details.run is not None:
        asked = "compile" if details.run.job.startswith(f"{COMPILING}-") else "gpu"
    units = tuple(
        UnitFacts(unit.stage, str(unit.details.get("check", "")), unit.target, str(unit.outcome),
                  unit.seconds)
        for unit in details.stages
    )  # fmt: skip
    return RecordFacts(path=inside, patch=details.patch, fresh=record.state is State.FRESH,
                       asked=asked, rocm=details.machine.rocm, units=units)  # fmt: skip


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
Basis = Literal["records", "other records", "default"]
_BASES: Final[tuple[Basis, ...]] = ("records", "other records", "default")


class Unit(NamedTuple):
    """A unit of work of a patch, how long it takes, and what of that is the base's full build."""

    stage: str
    target: str
    seconds: float
    basis: Basis
    base: float


class Times:
    """Estimates from records: the longest that a unit took, else what others took."""

    def __init__(self, facts: Iterable[RecordFacts]) -> None:
        self._exact: dict[tuple[str, str, str, str], float] = {}
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
        self._units: dict[str, tuple[Unit, ...]] = {}

    def of(self, patch: Patch) -> tuple[Unit, ...]:
        """Return the units of a patch."""
        if patch.name not in self._units:
            full = {build.name for build in patch.spec.build if build.way == "full"}
            self._units[patch.name] = tuple(
                Unit(stage, target, seconds, basis, seconds / 2 if shares else 0.0)
                for stage, label, target in units_of(patch)
                for whole in [stage == "build" and label in full]
                for seconds, basis in [self._time(patch.name, stage, label, target, whole=whole)]
                for shares in [whole and not patch.spec.depends_on]
            )
        return self._units[patch.name]

    def _time(
        self, patch: str, stage: str, label: str, target: str, *, whole: bool
    ) -> tuple[float, Basis]:
        exact = self._exact.get((patch, stage, label, target))
        if exact is not None:
            return exact, "records"
        if whole:
            return FULL_BUILD, "default"
        median = self._median.get((patch, stage), self._median.get((stage,)))
        return (DEFAULTS[stage], "default") if median is None else (median, "other records")


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
#: How much longer the last job may end for the sake of fewer jobs.
_FEWER: Final = 0.03
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
    """The pieces of a job, those on the same tree together, and the seconds that it takes."""

    pieces: tuple[Piece, ...]
    seconds: float


@dataclass(frozen=True)
class Pool:
    """A set of runners and what it is to run, in at most so many jobs; errors name `where`."""

    name: str
    kind: Kind
    count: int
    minutes: int
    most: int
    pieces: tuple[Piece, ...]
    where: str

    @property
    def rocm(self) -> str:
        """The table of `runners.toml` that adds a ROCm version to it."""
        return "a [[hosted.rocm]]" if self.kind == "compile" else "a [[runners.rocm]]"


@dataclass(frozen=True)
class Stack:
    """The jobs of a pool, the longest first."""

    pool: Pool
    jobs: tuple[Packed, ...]

    @property
    def load(self) -> Load:
        """How busy the set is."""
        end, _ = makespan(self.jobs, self.pool.count)
        return Load(runners=self.pool.name, count=self.pool.count, jobs=len(self.jobs),
                    seconds=round(end, 3), bound=round(bound(self.pool), 3))  # fmt: skip


def bound(pool: Pool) -> float:
    """Return the seconds before which no order of a pool's pieces can end.

    All runners are busy to the end, no job needs a start, each tree is brought (and built)
    once for each ROCm version; or the longest piece runs alone.
    """
    once: dict[tuple[str, str], float] = {}
    for piece in pool.pieces:
        key = (piece.rocm, piece.tree)
        once[key] = max(piece.shared, once.get(key, 0.0))
    work = sum(once.values()) + sum(piece.seconds for piece in pool.pieces)
    longest = max((piece.seconds + piece.shared for piece in pool.pieces), default=0.0)
    return max(work / pool.count, longest)


def makespan(jobs: Sequence[Packed], count: int) -> tuple[float, float]:
    """Return when the last job ends and when the last one starts, in seconds."""
    free, start = [0.0] * count, 0.0
    for job in jobs:
        start = heapq.heappop(free)
        heapq.heappush(free, start + job.seconds)
    return max(free), start


def spread(pieces: Sequence[Piece], number: int) -> tuple[Packed, ...]:
    """Make about so many jobs, one at least for each ROCm version; the longest comes first.

    Greedy: the longest piece first, each to the job that is shortest with it.
    """
    groups: dict[str, list[Piece]] = {}
    for piece in sorted(pieces, key=lambda piece: (-piece.seconds, piece.key)):
        groups.setdefault(piece.rocm, []).append(piece)
    work = {rocm: sum(piece.seconds for piece in group) for rocm, group in groups.items()}
    shares = Counter(dict.fromkeys(sorted(groups), 1))
    for _ in range(number - len(shares)):
        shares[max(shares, key=lambda rocm: work[rocm] / shares[rocm])] += 1
    return tuple(sorted(
        (job for rocm in shares for job in _greedy(groups[rocm], shares[rocm])),
        key=lambda job: (-job.seconds, job.pieces[0].key),
    ))  # fmt: skip


def _greedy(pieces: Sequence[Piece], number: int) -> Iterable[Packed]:
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
        yield Packed(tuple(sorted(job, key=lambda piece: piece.tree)), end)


def pack(pools: Sequence[Pool]) -> list[Stack]:
    """Pack what each pool is to run."""
    for pool in pools:
        for piece in pool.pieces:
            if piece.alone > pool.minutes * 60:
                raise QueueError(
                    f"{pool.where}: {piece.key} takes about {math.ceil(piece.alone / 60)} minutes, "
                    f"and minutes_limit is {pool.minutes}",
                    hint="raise minutes_limit, or split the patch's checks",
                )
    stacks = [_stack(pool, min(pool.most, MOST_JOBS)) for pool in pools]
    if sum(len(stack.jobs) for stack in stacks) > MOST_JOBS:
        stacks = [
            _stack(stack.pool, most) for stack, most in zip(stacks, _shares(stacks), strict=True)
        ]
    for stack in stacks:
        _check_wait(stack)
    return stacks


def _shares(stacks: Sequence[Stack]) -> list[int]:
    """Return how many jobs each set gets: one for each image, and its part of all others."""
    least = [len({piece.rocm for piece in stack.pool.pieces}) for stack in stacks]
    more = [len(stack.jobs) - few for stack, few in zip(stacks, least, strict=True)]
    room = MOST_JOBS - sum(least)
    if room < 0:
        raise QueueError(
            f"each ROCm version of each set needs a job of its own: these are {sum(least)} jobs, "
            f"and a run has at most {MOST_JOBS}",
            hint="take away a [[runners.rocm]], or plan some sets only: --on SET",
        )
    return [few + part * room // sum(more) for few, part in zip(least, more, strict=True)]


def _stack(pool: Pool, most: int) -> Stack:
    """Pack one pool into whole rounds of its runners, as few as end about as early as any."""
    if not pool.pieces:
        return Stack(pool, ())
    longest = max(piece.alone for piece in pool.pieces)
    short = max(longest, min(pool.minutes * 60 * _HEADROOM, RETRIED * 60.0))
    limits = (short * _SLACK, max(longest, pool.minutes * 60 * _HARD))
    least = bound(pool)
    rounds = math.ceil(least / max(short - START, START))
    numbers = {most, *(pool.count * each for each in range(1, rounds + 4) if each > rounds - 1)}
    tried = [spread(pool.pieces, number) for number in sorted(numbers) if number <= most]

    def rank(jobs: Sequence[Packed]) -> tuple[int, int, int]:
        too_long = sum(jobs[0].seconds > limit for limit in limits)
        return too_long, math.ceil(makespan(jobs, pool.count)[0] / least / _FEWER), len(jobs)

    best = min(tried, key=rank)
    if best[0].seconds > limits[-1] or len(best) > most:
        raise QueueError(
            f"{pool.where}: {len(pool.pieces)} cells do not fit into {most} jobs of {pool.minutes} "
            f"minutes, which are what it gets of the {MOST_JOBS} of a run",
            hint=f"name fewer patches, take away {pool.rocm}, or raise minutes_limit or "
            + ("count" if pool.kind == "compile" else "jobs_limit"),
        )
    return Stack(pool, best)


def _check_wait(stack: Stack) -> None:
    """Refuse what Actions would cancel because it waits too long."""
    pool = stack.pool
    start = makespan(stack.jobs, pool.count)[1]
    if start <= WAIT_HOURS * 3600:
        return
    patches = {cell.patch for piece in pool.pieces for cell in piece.cells}
    part = max(1, math.floor(len(patches) * WAIT_HOURS * 3600 / start * 0.9))
    raise QueueError(
        f"{pool.where}: {len(pool.pieces)} cells of {len(patches)} patches on {pool.count} "
        f"runners: the last job would start after {start / 3600:.0f} hours, and GitHub cancels "
        f"what has waited for {WAIT_HOURS}",
        hint=f"name about {part} patches, or take away {pool.rocm}, or raise count",
    )


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
    asked = asked_cells(queue, names, fleet.runners, meant)
    facts = read_facts(queue, names)
    wanted, fresh = _split(asked.wanted, {} if everything else facts)
    waiting = asked.open
    if not (fleet.runners.runners or fleet.runners.hosted or everything):
        waiting, answered = _waiting(queue, asked.open, facts)
        fresh += answered
    patches = {name: queue.patch(name) for name in dict.fromkeys(cell.patch for cell in wanted)}
    times = Times(record for records in facts.values() for record in records)
    stacks = pack(_pools(fleet, meant, _pieces(wanted, patches, times)))
    return Plan(
        runners_sha256=fleet.sha256,
        subjects=tuple(
            Subject(patch=name, patch_sha256=patch.digest, checks_sha256=patch.checks_digest)
            for name, patch in patches.items()
        ),
        jobs=_linked([job for stack in stacks for job in _jobs(meant, stack)]),
        open=waiting,
        fresh=tuple(fresh),
        without=asked.without,
        loads=tuple(stack.load for stack in stacks),
    )


def _split(
    wanted: Sequence[RequestedCell], facts: Mapping[str, Sequence[RecordFacts]]
) -> tuple[list[RequestedCell], list[FreshCell]]:
    """Part what must be run from what a record answers; one that says no goes before others."""
    due, fresh = [], []
    for cell in wanted:
        if answer := _answer(cell, cell.require, facts.get(cell.patch, ())):
            fresh.append(answer)
        else:
            due.append(cell)
    return due, fresh


def _waiting(
    queue: Queue, cells: Sequence[OpenCell], facts: Mapping[str, Sequence[RecordFacts]]
) -> tuple[tuple[OpenCell, ...], list[FreshCell]]:
    """Part what waits for a machine from what a record under any ROCm version answers."""
    waiting, fresh = [], []
    for cell in cells:
        require = demands(queue.specs[cell.patch])[cell.kind, cell.target]
        if answer := _answer(cell, require, facts.get(cell.patch, ())):
            fresh.append(answer)
        else:
            waiting.append(cell)
    return tuple(waiting), fresh


_RELEASE: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}")


def _answer(
    cell: CellName, require: Sequence[str], facts: Sequence[RecordFacts]
) -> FreshCell | None:
    """Return what the records of a patch say of a cell; None: nothing."""
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
    rocm = cell.rocm or (found[0] if (found := _RELEASE.match(record.rocm)) else "")
    return FreshCell(kind=cell.kind, patch=cell.patch, target=cell.target, rocm=rocm,
                     record=record.path, says=answer)  # fmt: skip


def _pieces(
    wanted: Sequence[RequestedCell], patches: Mapping[str, Patch], times: Times
) -> list[Piece]:
    """Put cells that one verification answers together: all compiles of a patch."""
    groups: dict[tuple[str, str, str], list[RequestedCell]] = {}
    for cell in wanted:
        gpu = cell.target if cell.kind == "gpu" else ""
        groups.setdefault((cell.patch, cell.rocm, gpu), []).append(cell)
    return [_piece(cells, gpu, patches[name], times) for (name, _, gpu), cells in groups.items()]


def _piece(group: Sequence[RequestedCell], gpu: str, patch: Patch, times: Times) -> Piece:
    units = times.of(patch)
    # A verification does all that its machine can do, whatever was asked of it.
    around = sum(
        unit.seconds
        for unit in units
        if unit.stage == "compile" or (unit.target in HOST_TARGETS and unit.stage != "source")
    )
    cells = []
    for cell in group:
        mine = [
            unit
            for unit in units
            if unit.target == cell.target and (unit.stage == "compile") is not bool(gpu)
        ]
        own = sum(unit.seconds - unit.base for unit in mine)
        seconds = around + own if gpu else around / len(group)
        worst = max((_BASES.index(unit.basis) for unit in mine), default=0)
        cells.append(
            Cell(kind=cell.kind, patch=cell.patch, target=cell.target, rocm=cell.rocm,
                 require=cell.require, tree=patch.pin.title, seconds=round(seconds, 3),
                 estimate=_BASES[worst])
        )  # fmt: skip
    # A store that is there already says nothing of a job's empty one.
    source = max(DEFAULTS["source"], *(unit.seconds for unit in units if unit.stage == "source"))
    shared = source + sum(unit.base for unit in units if unit.target == gpu)
    return Piece(tuple(cells), sum(cell.seconds for cell in cells), patch.pin.title, shared)


def _pools(fleet: Fleet, meant: Runners, pieces: Sequence[Piece]) -> list[Pool]:
    """Give each piece to a set; what compiles first, then the cheapest set."""
    sets = sorted(meant.runners, key=lambda runners: runners.cost)
    given: dict[str, list[Piece]] = {runners.name: [] for runners in sets}
    loads = dict.fromkeys(given, 0.0)
    for piece in sorted(pieces, key=lambda piece: (-piece.seconds, piece.key)):
        if piece.cells[0].kind == "gpu":
            runners = _chosen(sets, loads, piece)
            given[runners.name].append(piece)
            loads[runners.name] += piece.seconds / runners.count
    pools = [
        Pool(runners.name, "gpu", runners.count, runners.minutes_limit,
             runners.jobs_limit * runners.count, tuple(given[runners.name]),
             f"{fleet.path}: runners {runners.name}")
        for runners in sets
    ]  # fmt: skip
    if host := meant.hosted:
        compiled = tuple(piece for piece in pieces if piece.cells[0].kind == "compile")
        pools.insert(0, Pool(HOSTED, "compile", host.count, host.minutes_limit, 4 * host.count,
                             compiled, f"{fleet.path}: hosted"))  # fmt: skip
    return pools


def _chosen(sets: Sequence[RunnerSet], loads: Mapping[str, float], piece: Piece) -> RunnerSet:
    """Return the cheapest set that can run a piece in time; of several, the one least busy."""
    able = [
        runners
        for runners in sets
        if runners.target == piece.cells[0].target
        and piece.rocm in {image.version for image in runners.rocm}
    ]
    # Where it is too long for all of them, `pack` says so.
    able = [runners for runners in able if piece.alone <= runners.minutes_limit * 60] or able
    return min(
        able,
        key=lambda runners: (runners.cost, loads[runners.name] + piece.seconds / runners.count),
    )


def _jobs(meant: Runners, stack: Stack) -> Iterable[Job]:
    """Write the jobs of a set, numbered by ROCm version."""
    pool, numbers = stack.pool, Counter[str]()
    own = next((each for each in meant.runners if each.name == pool.name), None)
    offered = own or meant.hosted
    if offered is None:
        return
    # A set is called by its target, where that names no other.
    twins = [each for each in meant.runners if own and each.target == own.target]
    stem = (
        COMPILING if own is None else own.target if twins == [own] else f"{own.target}-{own.name}"
    )
    for packed in stack.jobs:
        rocm = packed.pieces[0].rocm
        numbers[rocm] += 1
        image = next(image for image in offered.rocm if image.version == rocm)
        yield Job(
            id=f"{stem}-rocm{rocm}-{numbers[rocm]}", kind=pool.kind, runners=pool.name,
            labels=offered.labels, target=own.target if own else "", rocm=rocm, image=image.image,
            flags=getattr(image, "flags", ()), minutes=pool.minutes,
            seconds=round(packed.seconds, 3),
            cells=tuple(cell for piece in packed.pieces for cell in piece.cells),
        )  # fmt: skip


def _linked(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Say of each job that runs which jobs compile for it."""
    compiled = {
        (cell.patch, cell.target, cell.rocm): job.id
        for job in jobs
        if job.kind == "compile"
        for cell in job.cells
    }

    def after(job: Job) -> tuple[str, ...]:
        keys = ((cell.patch, cell.target, cell.rocm) for cell in job.cells)
        return tuple(dict.fromkeys(compiled[key] for key in keys if key in compiled))

    return tuple(
        job.model_copy(update={"after": after(job)}) if job.kind == "gpu" else job for job in jobs
    )


def again(plan: Plan, cells: Iterable[str], runners: Runners) -> tuple[Job, ...]:
    """Return what tries cells once more: on another set where one can, else on the same.

    `jobs_limit` is for what is planned: second tries come on top of it, one at most for each
    job. Else a set that is full could not take what another one's runners failed.
    """
    wanted = frozenset(cells)
    # The sets that were meant: somebody may have chosen among those of the queue.
    meant = {load.runners for load in plan.loads}
    sets = [each for each in runners.runners if each.name in meant]
    jobs = []
    for job in plan.jobs:
        if left := tuple(cell for cell in job.cells if cell.key in wanted):
            named = {"id": f"{job.id}-again", "cells": left, "after": ()}
            jobs.append(job.model_copy(update={**_elsewhere(job, sets), **named}))
    return tuple(jobs)


def _elsewhere(job: Job, sets: Sequence[RunnerSet]) -> dict[str, object]:
    """Return what of a job differs on the cheapest other set that can run it; or nothing."""
    able = [
        (each, image)
        for each in sets
        for image in each.rocm
        if each.name != job.runners
        and (each.target, image.version) == (job.target, job.rocm)
        and job.seconds <= each.minutes_limit * 60
    ]
    if not able:
        return {}
    other, image = min(able, key=lambda pair: pair[0].cost)
    return {"runners": other.name, "labels": other.labels, "image": image.image,
            "flags": image.flags, "minutes": other.minutes_limit}  # fmt: skip
