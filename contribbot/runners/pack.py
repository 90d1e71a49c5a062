"""Packing cells into jobs: few enough for Actions, short enough to be tried again.

Runners of a set take jobs from a queue, the first free one the next job. So jobs of about
the same length, the longest first, end at about the same time; how many there are is
chosen by trying. Patches on the same pin stand together: the tree is brought, and its base
built, once a job.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.errors import QueueError
from contribbot.model.runners import Kind, Load
from contribbot.runners.pieces import START, Packed, Piece, cut, shared

__all__ = [
    "MOST_JOBS", "START", "Packed", "Piece", "Pool", "Stack", "bound", "makespan", "pack",
]  # fmt: skip

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
