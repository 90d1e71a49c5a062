"""A fleet on paper: 200 patches x 6 targets x 3 ROCm versions on 8 runners.

The queue, its `runners.toml`, its records and the plan are real; only the runners are
simulated. Actions is taken to be: jobs of a set are handed out in the matrix's order to
whichever of its runners is free; what runs waits for all that compiles (`needs`).

Durations: a unit of work takes what a lognormal distribution says (median 12 s, sigma
0.7; seed 6), and each time it runs that times another (median 1, sigma 0.25). A job's
start costs 90 s.

Wanted: the last job ends within 1.2 times the lower bound; `matrix` takes under 2 s of
processor, without records and with those that it knows; a second night with nothing changed
has no job at all. What records cost that it sees for the first time, as each plan job of
Actions does, on a new machine, is printed and not judged. Requests to GitHub are counted by
the local GitHub of the tests, while `dispatch` watches such a night and `collect` fetches it.
"""

from __future__ import annotations

import heapq
import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.fleet_requests import Ends, told_requests
from benchmarks.fleet_world import DEFAULTS, START, TARGETS, World, make_queue, put, write_records
from contribbot.queue.load import Queue, load_queue
from contribbot.runners.documents import Plan, load_fleet
from contribbot.runners.plan import make_plan

WANTED_RATIO: Final = 1.2
WANTED_SECONDS: Final = 2.0
#: Runners of each target: eight in all.
COUNTS: Final = (1, 2, 2, 1, 1, 1)
#: Of so many jobs one is lost halfway, and tried once more.
LOST: Final = 40
SECONDS: Final = 3600


@dataclass(frozen=True)
class Night:
    """How a run went.

    Attributes:
        makespan: When the last job ended, in seconds.
        bound: Before which it could not, whatever the order.
        compiled: When the last job that compiles ended.
        alone: How what runs, from then on, compares with its own bound; the worst set.
        times: When each job began and ended, in seconds.
    """

    makespan: float
    bound: float
    compiled: float
    alone: float
    times: Ends


def simulate(plan: Plan, world: World, *, faults: bool = False) -> Night:
    """Run a plan on paper; with faults, one job of some is lost halfway and tried again."""
    ends: dict[str, float] = {}
    times: dict[str, tuple[float, float]] = {}
    compiled, bound, alone, first = 0.0, 0.0, 0.0, math.inf
    # By patch, for it matters which one it is: draws would differ from plan to plan.
    costs = {job.id: world.cost(job) for job in plan.jobs}
    for own in load_fleet(world.queue.folder).runners.sets:
        jobs = [job for job in plan.jobs if job.runners == own.name]
        begin = 0.0 if own.name == "hosted" else compiled
        free = [begin] * own.count
        waiting = [(job, False) for job in jobs]
        for number, (job, second) in enumerate(waiting):
            seconds = START + sum(costs[job.id])
            lost = faults and not second and number % LOST == LOST // 2
            start = heapq.heappop(free)
            end = start + (seconds / 2 if lost else seconds)
            heapq.heappush(free, end)
            times[job.id] = (start, end)
            if lost:
                waiting.append((job, True))
        ends[own.name] = max(free)
        work = sum(costs[job.id][0] for job in jobs)
        trees = {(pin, job.rocm) for job in jobs for pin in world.pins(job)}
        if own.name == "hosted":
            compiled = ends["hosted"]
            first = min(costs[job.id][0] / len(job.patches) for job in jobs)
        else:
            least = (work + DEFAULTS["source"] * len(trees)) / own.count
            alone = max(alone, (ends[own.name] - begin) / least)
            bound = max(bound, least + (first if first < math.inf else 0.0))
    return Night(max(ends.values()), bound, compiled, alone, times)


def timed(queue: Queue) -> tuple[Plan, str, float]:
    """Make the plan of all patches; return it with how long it took, and its processor time."""
    begun, worked = time.perf_counter(), time.process_time()
    plan = make_plan(load_queue(queue.folder), list(queue.specs))
    spent = time.process_time() - worked
    return plan, f"{time.perf_counter() - begun:.2f} s ({spent:.2f} s of processor)", spent


def told(what: str, plan: Plan, night: Night, took: str) -> float:
    """Print a night; return how its end compares with the bound."""
    hours = [
        f"{seconds / SECONDS:.1f} h" for seconds in (night.makespan, night.bound, night.compiled)
    ]
    ratio = night.makespan / night.bound
    print(f"{what}\n  {len(plan.cells)} cells, {len(plan.of_kind('compile'))} jobs compile and "
          f"{len(plan.of_kind('gpu'))} run; all ends after {hours[0]}, bound {hours[1]}: "
          f"x{ratio:.3f}\n  compiled after {hours[2]}; what runs alone: x{night.alone:.3f}; "
          f"matrix {took}")  # fmt: skip
    return ratio


def scenario(
    folder: Path, title: str, sets: list[tuple[str, int]], *, requests: bool = True
) -> bool:
    """Run the nights of one fleet; say whether all went as wanted."""
    print(title)
    queue = make_queue(folder, sets)
    world = World.of(queue)
    plan, took, cold = timed(queue)
    night = simulate(plan, world)
    ratios = [
        told("first night, no record", plan, night, took),
        told("the same, lost jobs tried again", plan, simulate(plan, world, faults=True), took),
    ]
    if requests:
        print("\n".join(told_requests(queue, plan, night.times, folder)))
    number = write_records(plan, world)
    size = sum(path.stat().st_size for path in queue.evidence.rglob("*.json")) // number
    warm, first_took, _ = timed(queue)
    _, again_took, spent = timed(queue)
    print(f"second night, nothing changed: {len(warm.jobs)} jobs, {len(warm.fresh)} cells fresh\n"
          f"  matrix {first_took} with {number} records of {size} bytes that it sees for the "
          f"first time, {again_took} with those that it knows")  # fmt: skip
    for name in queue.specs:
        put(queue.folder / "patches" / name / "checks" / "conftest.py", "# changed\n")
    third, took, _ = timed(queue)
    ratios.append(told("third night, all checks changed", third, simulate(third, world), took))
    print()
    return max(ratios) <= WANTED_RATIO and not warm.jobs and max(cold, spent) < WANTED_SECONDS


def main() -> int:
    """Run the fleet, and for comparison one with all runners in one set."""
    with tempfile.TemporaryDirectory() as folder:
        sets = list(zip(TARGETS, COUNTS, strict=True))
        fine = scenario(Path(folder) / "all", "Six targets on eight runners", sets)
        # Nothing is wanted of it: there, what compiles takes a good part of the time, and
        # Actions lets all that runs wait for all of it.
        scenario(Path(folder) / "one", "For comparison: one target on eight", [("gfx942", 8)],
                 requests=False)  # fmt: skip
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
