"""A queue with runners, and records of machines that are not here.

No test has an AMD GPU: what a record says of one is made up, in the form that `verify`
writes, to see what a plan makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot.model.evidence import (
    Gpu,
    Machine,
    Outcome,
)
from contribbot.queue.load import Queue, load_queue
from contribbot.runners.plan import Plan, make_plan
from contribbot.verify.evidence import write_evidence
from tests.conftest import Program, Ran
from tests.contribute.conftest import _no_pause, github, proved
from tests.github.state_actions import Storage
from tests.records import made_up
from tests.toy import Toy

if TYPE_CHECKING:
    from tests.github.handle import GitHub
    from tests.runners.homing import Home

__all__ = ["_no_pause", "github", "proved"]

DIGEST = "0123456789abcdef" * 4
MI300 = f"""\
[[runners]]
name = "mi300"
target = "gfx942"
labels = ["self-hosted", "gfx942"]
[[runners.rocm]]
version = "7.1"
image = "example.com/rocm/run@sha256:{DIGEST}"
"""
HOSTED = f"""\
[hosted]
labels = ["ubuntu-24.04"]
[[hosted.rocm]]
version = "7.1"
image = "example.com/rocm/dev@sha256:{DIGEST}"
targets = ["gfx942", "gfx90a"]
"""
CHECKS = """\
[[compile]]
name = "kernel"
source = "src/a.hip"
targets = ["gfx942"]
expect = "pass-to-pass"

[[checks]]
name = "on-gpu"
file = "test_same.py"
expect = "pass-to-pass"
requires = ["gfx942"]
"""


@dataclass
class Ranged:
    """A queue with runners."""

    toy: Toy
    order: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The queue's folder."""
        return self.toy.queue

    def put(self, text: str) -> Path:
        """Write `runners.toml`."""
        return self.toy.put("runners.toml", text)

    def patch(self, name: str, checks: str = CHECKS, extra: str = "") -> None:
        """Add a patch; its content does not matter here."""
        self.toy.put_patch(
            name, patch=self.toy.format_patch({"README": f"{name}\n"}), files=("README",),
            checks=checks, extra=extra, check_files={"test_same.py": "def test_one():\n    pass\n"},
        )  # fmt: skip
        self.order.append(name)
        self.toy.put_queue(self.order)

    def load(self) -> Queue:
        """Load the queue."""
        return load_queue(self.folder)

    def plan(self, *names: str, everything: bool = False, on: tuple[str, ...] = ()) -> Plan:
        """Make the plan of patches; of all when none is named."""
        return make_plan(self.load(), names or self.order, everything=everything, on=on)

    def record(
        self,
        name: str,
        *,
        target: str = "gfx942",
        rocm: str = "7.1.0-84",
        outcomes: Mapping[str, Outcome] | None = None,
        seconds: float = 7.0,
        cores: int = 8,
    ) -> Path:
        """Write a record of a made-up machine; what it has the hardware for has passed."""
        queue = self.load()
        gpus = (Gpu(vendor="amd", target=target, name="made up", driver=""),) if target else ()
        machine = Machine(system="Linux x86_64", cpu="made up", cores=cores, packages={}, gpus=gpus,
                          python="CPython 3.11.7", git="2.39.5", rocm=rocm)  # fmt: skip
        statement = made_up(
            queue, name, machine, outcomes=outcomes or {}, seconds=seconds,
            commit=self.toy.commit,
        )  # fmt: skip
        return write_evidence(queue.evidence, statement)


@pytest.fixture
def ranged(toy: Toy) -> Ranged:
    """A queue with one patch, two runners with gfx942, and hosted runners."""
    made = Ranged(toy)
    made.patch("area")
    made.put(MI300 + HOSTED)
    return made


@pytest.fixture
def home(ranged: Ranged, github: GitHub) -> Iterator[Home]:
    """A queue on the local GitHub, with a run whose jobs wait."""
    from tests.runners.homing import make_home

    with Storage().running() as storage:
        made = make_home(ranged, github, storage)
        made.begin()
        yield made


def run_matrix(folder: Path, *args: str | Path, **env: str) -> Ran:
    """Run `contribbot runners matrix` in a queue."""
    return Program(folder, {"GITHUB_OUTPUT": "", **env})("runners", "matrix", *args)
