"""What the fleet of `benchmarks.fleet` is: its queue, what things take, and its records."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.model.evidence import Gpu, Machine, Statement
from contribbot.model.patch import units_of
from contribbot.queue.load import Queue, load_queue
from contribbot.runners.documents import CiJob, Plan
from contribbot.verify.evidence import statement_of, write_evidence
from tests.records import made_up

SEED: Final = 6
MEDIAN: Final = 12.0
SIGMA: Final = 0.7
AGAIN: Final = 0.25
PATCHES: Final = 200
#: Seconds of a job before and after its patches, and of each unit of other stages: assumed.
START: Final = 90.0
DEFAULTS: Final[Mapping[str, float]] = {"source": 30.0, "apply": 1.0, "style": 1.0}
TARGETS: Final = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
VERSIONS: Final = ("6.4", "7.0", "7.1")
ID: Final = "0" * 40
CHANGE: Final = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A <a@example.com>
Date: Thu, 1 Jan 2026 00:00:00 +0000
Subject: [PATCH] Change

---
diff --git a/a b/a
--- a/a
+++ b/a
@@ -1 +1 @@
-a
+b
"""


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
        put(here / "0001-change.patch", CHANGE)
        put(here / "patch.toml", f'title = "{name}"\nupstream = "demo"\npin = "v{number % 3}"\n'
            'files = ["a"]\nproblem = "p"\nroot_cause = "r"\nsolution = "s"\n'
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

    def cost(self, job: CiJob) -> tuple[float, float]:
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
        return own, DEFAULTS["source"] * len(self.pins(job))

    def pins(self, job: CiJob) -> set[str]:
        """Return the pins that a job brings."""
        return {self.queue.specs[name].pin for name in job.patches}


def machine(target: str, version: str) -> Machine:
    """Return a made-up machine of the simulation."""
    gpus = (Gpu(vendor="amd", target=target, name="simulated", driver=""),) if target else ()
    return Machine(system="Linux x86_64", cpu="simulated", cores=8, python="CPython 3.11.7",
                   git="2.39.5", packages={}, rocm=f"{version}.0-1", gpus=gpus)  # fmt: skip


def write_records(plan: Plan, world: World) -> int:
    """Write the record of each verification of a plan, as made-up machines would."""
    asks = {(name, job.target, job.rocm) for job in plan.jobs for name in job.patches}
    for name, target, version in sorted(asks):
        write_evidence(world.queue.evidence, _statement(name, machine(target, version), world))
    return len(asks)


def _statement(name: str, on: Machine, world: World) -> Statement:
    statement = made_up(world.queue, name, on, outcomes={}, seconds=1.0, commit=ID)
    details = statement.predicate.contribbot
    stages = []
    for stage in details.stages:
        key = (name, stage.stage, str(stage.details.get("check", "")), stage.target)
        seconds = world.units.get(key, stage.seconds)
        # What each side took, where a stage says that.
        sides = {side: {**told, "seconds": seconds / 2}
                 for side in ("base", "patched")
                 if isinstance(told := stage.details.get(side), dict)}  # fmt: skip
        changed = {"seconds": seconds, "details": {**stage.details, **sides}}
        stages.append(stage.model_copy(update=changed))
    return statement_of(details.model_copy(update={"stages": tuple(stages)}))
