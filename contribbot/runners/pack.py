"""Packing cells into jobs: few enough for Actions, short enough to be tried again.

Runners of a set take jobs from a queue, the first free one the next job. So jobs of about
the same length, the longest first, end at about the same time; how many there are is
chosen by trying. Patches on the same pin stand together: the tree is brought, and its base
built, once a job.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.errors import QueueError
from contribbot.model.runners import Cell, Kind, Load

#: Actions makes at most 256 jobs of a matrix (GitHub, "Actions limits"): a fifth is left.
MOST_JOBS: Final = 200
#: Actions cancels a job that has waited for a self-hosted runner for 24 hours (the same).
WAIT_HOURS: Final = 24
#: Seconds that a job takes before and after its cells: to be handed out, to start the
#: container, to install contribbot, to upload. Assumed, not measured.
START: Final = 90.0
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
    def key(self) -> str:
        """What puts pieces of the same length in order."""
        return self.cells[0].key


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


@dataclass(frozen=True)
class Packed:
    """Pieces that run one after the other; those on the same tree stand together."""

    pieces: tuple[Piece, ...]

    @functools.cached_property
    def seconds(self) -> float:
        """How long the job takes."""
        return START + _work(self.pieces)


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


def shared(pieces: Sequence[Piece]) -> float:
    """Return the seconds that pieces need once in a job, over all their trees."""
    once: dict[str, float] = {}
    for piece in pieces:
        once[piece.tree] = max(piece.shared, once.get(piece.tree, 0.0))
    return sum(once.values())


def bound(pool: Pool) -> float:
    """Return the seconds before which no order of a pool's pieces can end.

    All runners are busy to the end, no job needs a start, each tree is brought (and built)
    once for each ROCm version; or the longest piece runs alone.

    Args:
        pool: The pool.
    """
    if not pool.pieces:
        return 0.0
    versions = {piece.rocm for piece in pool.pieces}
    once = sum(shared([p for p in pool.pieces if p.rocm == version]) for version in versions)
    work = sum(piece.seconds for piece in pool.pieces)
    alone = max(piece.seconds + piece.shared for piece in pool.pieces)
    return max((work + once) / pool.count, alone)


def makespan(jobs: Sequence[Packed], count: int) -> tuple[float, float]:
    """Return when the last job ends and when the last one starts, in seconds.

    Args:
        jobs: In the order in which they are handed out.
        count: How many runners take them.
    """
    free, last, start = [0.0] * count, 0.0, 0.0
    for job in jobs:
        start = heapq.heappop(free)
        heapq.heappush(free, start + job.seconds)
        last = max(last, start + job.seconds)
    return last, start


def pack(pools: Sequence[Pool]) -> list[Stack]:
    """Pack what each pool is to run.

    Args:
        pools: The pools.

    Raises:
        QueueError: A cell takes longer than its job may, or there is too much for one
            run. The message says what to cut.
    """
    for pool in pools:
        _fits(pool)
    stacks = [_stack(pool, pool.most) for pool in pools]
    total = sum(len(stack.jobs) for stack in stacks)
    if total > MOST_JOBS:
        # Each gives up its part of what is too much.
        stacks = [
            _stack(stack.pool, max(1, len(stack.jobs) * MOST_JOBS // total)) for stack in stacks
        ]
    for stack in stacks:
        _in_time(stack)
    return stacks


def _fits(pool: Pool) -> None:
    for piece in pool.pieces:
        seconds = START + piece.shared + piece.seconds
        if seconds > pool.minutes * 60:
            raise QueueError(
                f"{pool.where}: {piece.key} takes about {math.ceil(seconds / 60)} minutes, and "
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
        hint=f"name about {part} patches, or take away a [[runners.rocm]], or add runners",
    )


def _stack(pool: Pool, most: int) -> Stack:
    """Pack one pool: of all numbers of jobs, the one that ends first, with few jobs."""
    if not pool.pieces:
        return Stack(pool, ())
    longest = max(START + piece.shared + piece.seconds for piece in pool.pieces)
    short = max(longest, min(pool.minutes * 60 * _HEADROOM, RETRIED * 60.0))
    packed = [_jobs(pool, number) for number in _numbers(pool, most, short)]
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
        hint="name fewer patches, take away a [[runners.rocm]], or raise minutes_limit or "
        "jobs_limit",
    )


def _numbers(pool: Pool, most: int, short: float) -> list[int]:
    """Return the numbers of jobs that are tried, the fewest first.

    Jobs of one length end together when each runner gets as many of them.
    """
    versions = len({piece.rocm for piece in pool.pieces})
    work = bound(pool) * pool.count
    enough = math.ceil(work / max(short - START, START))
    wanted = [math.ceil(enough * part / 4 / pool.count) for part in (4, 5, 6, 8, 12)]
    rounds = {*range(1, 7), *wanted}
    numbers = {versions, most, *(pool.count * each for each in rounds)}
    return sorted(each for each in numbers if versions <= each <= most)


def _jobs(pool: Pool, number: int) -> tuple[Packed, ...]:
    """Make so many jobs of all pieces (fewer, where there are fewer); the longest first."""
    groups: dict[str, list[Piece]] = {}
    for piece in sorted(pool.pieces, key=lambda one: (one.tree, -one.seconds, one.key)):
        groups.setdefault(piece.rocm, []).append(piece)
    jobs: list[Packed] = []
    parts = _parts({rocm: _work(pieces) for rocm, pieces in groups.items()}, number)
    for rocm, pieces in sorted(groups.items()):
        jobs += _cut(pieces, min(parts[rocm], len(pieces)))
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
