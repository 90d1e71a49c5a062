"""A fleet on paper: 200 patches x 6 targets x 3 ROCm versions on 8 runners.

The queue, its `runners.toml`, its records and the plan are real; only the runners are
simulated. Actions is taken to be: jobs of a set are handed out in the matrix's order to
whichever of its runners is free; what runs waits for all that compiles (`needs`).

Durations: a unit of work takes what a lognormal distribution says (median 12 s, sigma
0.7; seed 6), and each time it runs that times another (median 1, sigma 0.25). A job's
start costs what `contribbot.runners.pack.START` assumes.

Wanted: the last job ends within 1.2 times the lower bound; `matrix` takes under 2 s; a
second night with nothing changed has no job at all.
"""

from __future__ import annotations

import heapq
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import JsonValue

import contribbot
from contribbot.model.evidence import (
    Details,
    DigestSet,
    Resource,
    Statement,
    TestResult,
    names_of,
    pin_digest,
    seal_of,
)
from contribbot.model.machine import Gpu, Machine
from contribbot.model.outcome import Outcome, StageResult, judge, open_targets
from contribbot.model.patch import Patch
from contribbot.model.runners import Job, Plan
from contribbot.queue.load import Queue, load_queue
from contribbot.runners.pack import START
from contribbot.runners.plan import make_plan
from contribbot.runners.times import DEFAULTS, units_of
from contribbot.verify.evidence import write_evidence

SEED: Final = 6
MEDIAN: Final = 12.0
SIGMA: Final = 0.7
AGAIN: Final = 0.25
WANTED_RATIO: Final = 1.2
WANTED_SECONDS: Final = 2.0
PATCHES: Final = 200
TARGETS: Final = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
VERSIONS: Final = ("6.4", "7.0", "7.1")
#: Runners of each target: eight in all.
COUNTS: Final = (1, 2, 2, 1, 1, 1)
ID: Final = "0" * 40
WHEN: Final = datetime(2026, 1, 1, tzinfo=UTC)
#: Of so many jobs one is lost halfway, and tried once more.
LOST: Final = 40
SECONDS: Final = 3600


def make_queue(folder: Path, sets: Iterable[tuple[str, int]]) -> Queue:
    """Write a queue of patches on three pins, and its runners."""
    pins = "".join(
        f'[[pins]]\nupstream = "demo"\ntag = "v{number}"\n[[pins.sources]]\nkind = "git"\n'
        f'remote = "https://example.com/demo.git"\n'
        for number in range(3)
    )
    names = [f"patch{number:03}" for number in range(PATCHES)]
    checks = "".join(
        f'[[checks]]\nname = "on-{target}"\nfile = "test_{target}.py"\nexpect = "pass-to-pass"\n'
        f'requires = ["{target}"]\n'
        for target in TARGETS
    )
    order = ", ".join(f'"{name}"' for name in names)
    put(folder / "patches" / "queue.toml", f"order = [{order}]\n{pins}")
    put(folder / "upstreams" / "demo.toml", 'name = "demo"\nrepository = "a/demo"\n')
    for number, name in enumerate(names):
        here = folder / "patches" / name
        put(here / "patch.toml", f'title = "{name}"\nupstream = "demo"\npin = "v{number % 3}"\n'
            'files = []\nproblem = "p"\nroot_cause = "r"\nsolution = "s"\n'
            f'[[compile]]\nname = "all"\nsource = "a.cu"\nexpect = "pass-to-pass"\n'
            f"{checks}")  # fmt: skip
        for target in TARGETS:
            put(here / "checks" / f"test_{target}.py", "def test_one():\n    pass\n")
    put(folder / "runners.toml", runners_toml(sets))
    return load_queue(folder)


def put(path: Path, text: str) -> None:
    """Write a file, and the folders to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def runners_toml(sets: Iterable[tuple[str, int]]) -> str:
    """Write runners that offer all ROCm versions."""
    digest = "0" * 64
    text = '[hosted]\nlabels = ["ubuntu-24.04"]\n'
    targets = ", ".join(f'"{target}"' for target in TARGETS)
    for version in VERSIONS:
        text += (f'[[hosted.rocm]]\nversion = "{version}"\nimage = "a/dev@sha256:{digest}"\n'
                 f"targets = [{targets}]\n")  # fmt: skip
    for target, count in sets:
        text += (f'[[runners]]\nname = "{target}"\ntarget = "{target}"\ncount = {count}\n'
                 f'labels = ["self-hosted", "{target}"]\nminutes_limit = 240\n')  # fmt: skip
        for version in VERSIONS:
            text += f'[[runners.rocm]]\nversion = "{version}"\nimage = "a/run@sha256:{digest}"\n'
    return text


@dataclass(frozen=True)
class World:
    """What things really take: a unit's own time, and what each run makes of it.

    Attributes:
        queue: The queue.
        units: Seconds of each unit, by patch and then stage, label and target.
        draw: Where each run's own part comes from.
    """

    queue: Queue
    units: Mapping[tuple[str, str, str, str], float]
    draw: random.Random

    @classmethod
    def of(cls, queue: Queue) -> World:
        """Draw what each unit takes."""
        draw = random.Random(SEED)  # noqa: S311  a simulation, nothing secret
        units = {}
        for name in queue.specs:
            for stage, label, target in units_of(queue.patch(name)):
                long = stage in {"compile", "reproduce"}
                units[name, stage, label, target] = (
                    draw.lognormvariate(math.log(MEDIAN), SIGMA) if long else DEFAULTS[stage]
                )
        return cls(queue, units, draw)

    def cost(self, job: Job) -> tuple[float, float]:
        """Return what a job's patches take this time, and what bringing their trees takes."""
        own = 0.0
        for name in job.patches:
            own += sum(
                seconds * self.draw.lognormvariate(0, AGAIN)
                for (patch, stage, _, target), seconds in self.units.items()
                if patch == name
                and stage != "source"
                and (stage == "compile" or target in {"any", job.target})
            )
        return own, DEFAULTS["source"] * len({cell.tree for cell in job.cells})


@dataclass(frozen=True)
class Night:
    """How a run went.

    Attributes:
        makespan: When the last job ended, in seconds.
        bound: Before which it could not, whatever the order.
        compiled: When the last job that compiles ended.
        alone: How what runs, from then on, compares with its own bound; the worst set.
    """

    makespan: float
    bound: float
    compiled: float
    alone: float


def simulate(plan: Plan, world: World, *, faults: bool = False) -> Night:
    """Run a plan on paper; with faults, one job of some is lost halfway and tried again."""
    ends: dict[str, float] = {}
    compiled, bound, alone, first = 0.0, 0.0, 0.0, math.inf
    # By patch, for it matters which one it is: draws would differ from plan to plan.
    costs = {job.id: world.cost(job) for job in plan.jobs}
    for load in plan.loads:
        jobs = [job for job in plan.jobs if job.runners == load.runners]
        begin = 0.0 if load.runners == "hosted" else compiled
        free = [begin] * load.count
        waiting = [(job, False) for job in jobs]
        for number, (job, second) in enumerate(waiting):
            seconds = START + sum(costs[job.id])
            lost = faults and not second and number % LOST == LOST // 2
            start = heapq.heappop(free)
            heapq.heappush(free, start + (seconds / 2 if lost else seconds))
            if lost:
                waiting.append((job, True))
        ends[load.runners] = max(free)
        work = sum(costs[job.id][0] for job in jobs)
        trees = {(cell.tree, cell.rocm) for job in jobs for cell in job.cells}
        if load.runners == "hosted":
            compiled = ends["hosted"]
            first = min(costs[job.id][0] / len(job.patches) for job in jobs)
        else:
            least = (work + DEFAULTS["source"] * len(trees)) / load.count
            alone = max(alone, (ends[load.runners] - begin) / least)
            bound = max(bound, least + (first if first < math.inf else 0.0))
    return Night(max(ends.values()), bound, compiled, alone)


def machine(target: str, version: str) -> Machine:
    """Return a made-up machine of the simulation."""
    gpus = (Gpu(vendor="amd", target=target, name="simulated", driver=""),) if target else ()
    return Machine(system="Linux x86_64", cpu="simulated", cores=8, python="CPython 3.11.7",
                   git="2.39.5", packages={}, rocm=f"{version}.0-1", gpus=gpus)  # fmt: skip


def write_records(plan: Plan, world: World) -> int:
    """Write the record of each verification of a plan, as made-up machines would."""
    asks = {(name, job.target, job.rocm) for job in plan.jobs for name in job.patches}
    for name, target, version in sorted(asks):
        patch = world.queue.patch(name)
        write_evidence(world.queue.evidence, _statement(patch, machine(target, version), world))
    return len(asks)


def _statement(patch: Patch, on: Machine, world: World) -> Statement:
    stages = []
    for stage, label, target in units_of(patch):
        here = stage == "compile" or target in on.targets
        details: dict[str, JsonValue] = {"check": label, "expect": "pass-to-pass"} if label else {}
        if stage == "apply":
            details = {"patched_tree": ID}
        stages.append(
            StageResult(stage=stage, target=target, reason="simulated", details=details,
                        outcome=Outcome.PASSED if here else Outcome.UNAVAILABLE,
                        seconds=world.units[patch.name, stage, label, target] if here else 0.0)
        )  # fmt: skip
    seen = tuple(stages)
    details_of = Details(
        tool=contribbot.__version__, tool_sha256="0" * 64, command="simulated", started=WHEN,
        finished=WHEN, patch=patch.name, patch_sha256=patch.digest,
        checks_sha256=patch.checks_digest, below={}, upstream=patch.upstream.name,
        pin=patch.pin.tag, pin_sha256=pin_digest(patch.pin, patch.upstream), base_commit=ID,
        machine=on, verdict=judge(seen, on.targets), open=tuple(open_targets(seen)), stages=seen,
    )  # fmt: skip
    result = TestResult(result="WARNED", configuration=(), warnedTests=(), failedTests=(),
                        passedTests=names_of(seen, Outcome.PASSED),
                        contribbot=details_of)  # fmt: skip
    subject = (
        Resource(name=patch.name, digest=DigestSet(sha256=patch.digest)),
        Resource(name="tree", digest=DigestSet(gitTree=ID)),
    )
    statement = Statement(
        _type="https://in-toto.io/Statement/v1", subject=subject, predicate=result
    )
    seal = seal_of(statement.model_dump(mode="json", by_alias=True, exclude_none=True))
    return statement.model_copy(update={"seal": seal})


def timed(queue: Queue) -> tuple[Plan, str, float]:
    """Make the plan of all patches; return it with how long it took, and its processor time."""
    begun, worked = time.perf_counter(), time.process_time()
    plan = make_plan(load_queue(queue.folder), list(queue.specs))
    spent = time.process_time() - worked
    return plan, f"{time.perf_counter() - begun:.2f} s ({spent:.2f} s of processor)", spent


def requests(plan: Plan) -> dict[str, int]:
    """Return the API requests of a run, counted from the plan; pages hold 100 entries.

    Following a run is apart: one conditional request each time it looks, and a page of
    jobs for each hundred when something has changed.
    """
    jobs = len(plan.jobs)
    pages = -(-(jobs + 4) // 100)
    return {"matrix": 0, "dispatch": 2, "collect": 1 + 2 * pages + jobs}


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


def scenario(folder: Path, title: str, sets: list[tuple[str, int]]) -> bool:
    """Run the nights of one fleet; say whether all went as wanted."""
    print(title)
    queue = make_queue(folder, sets)
    world = World.of(queue)
    plan, took, cold = timed(queue)
    ratios = [
        told("first night, no record: times by default", plan, simulate(plan, world), took),
        told("the same, lost jobs tried again", plan, simulate(plan, world, faults=True), took),
    ]
    print(f"  API requests of this run: {requests(plan)}")
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
    ratios.append(
        told("third night, all checks changed: times known", third, simulate(third, world), took)
    )
    print()
    return max(ratios) <= WANTED_RATIO and not warm.jobs and max(cold, spent) < WANTED_SECONDS


def main() -> int:
    """Run the fleet, and for comparison one with all runners in one set."""
    with tempfile.TemporaryDirectory() as folder:
        sets = list(zip(TARGETS, COUNTS, strict=True))
        fine = scenario(Path(folder) / "all", "Six targets on eight runners", sets)
        # Nothing is wanted of it: there, what compiles takes a good part of the time, and
        # Actions lets all that runs wait for all of it.
        scenario(Path(folder) / "one", "For comparison: one target on eight", [("gfx942", 8)])
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
