"""A patch that is checked on a GPU that no machine has, and known-good kernels for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from contribbot.files import stores_folder
from contribbot.git.pins import Silent
from contribbot.git.repository import open_store
from contribbot.machine import this_machine
from contribbot.model.evidence import Gpu, Machine
from contribbot.model.record import ApplyDetails
from contribbot.queue.load import load_queue
from contribbot.verify.job import Job, Slots
from contribbot.verify.runner_fault import Preflight, Preflights, run_preflight
from contribbot.verify.warm import WarmProcesses
from tests.conftest import Program, once
from tests.toy import Toy, one_check

#: A target that LLVM does not know, so that no GPU is one.
TARGET = "gfx999"
FAULT = (
    "Memory access fault by GPU node-1 (Agent handle: 0x55ac14d27600) on address "
    "0x7f9587e00000. Reason: Page not present or supervisor privilege."
)
#: How a check begins that does one thing on the base and another on the patched tree.
HEAD = (
    "import os, subprocess, sys, time\nfrom toy.area import rectangle\n\n"
    f"FAULT = {FAULT!r}\nON_BASE = rectangle(2, 3) == 5\n\n\n"
)


def machine() -> Machine:
    gpu = Gpu(vendor="amd", target=TARGET, name="none", driver="6.1")
    return this_machine().model_copy(update={"gpus": (gpu,)})


def flown(device: str, shared: Path) -> Preflight:
    """Return what a known-good kernel really comes to: the same each time, and it takes seconds."""

    def fresh(folder: Path) -> Preflight:
        return run_preflight(TARGET, machine(), folder, device=device)

    return once(shared / f"known-good-{device}", fresh)


class Counted(Preflights):
    """Known-good kernels that ran: on the processor so often, then on a GPU that is not."""

    def __init__(self, shared: Path, fit: int = 1000) -> None:
        super().__init__()
        self.flights = 0
        self._shared, self._fit = shared, fit

    def _run(self, target: str, machine: Machine, folder: Callable[[], Path]) -> Preflight:
        del target, machine, folder
        self.flights += 1
        return flown("cpu" if self.flights <= self._fit else "cuda", self._shared)


@contextmanager
def gpu_job(toy: Toy, text: str, preflights: Preflights, more: str = "") -> Iterator[Job]:
    """Put a patch with one check for the GPU, and give its verification, trees and all."""
    stated = one_check(reason="assert 5 == 6", more=f'requires = ["{TARGET}"]\n{more}')
    toy.put_area(checks=stated, check_files={"test_red.py": text})
    # The trees are made for real; the check itself waits for hardware there.
    applied = Program(toy.queue)("verify", "area", "--json").stages()["apply"].details
    with ThreadPoolExecutor(1) as pool, closing(WarmProcesses(toy.root / "warm")) as warm:
        job = Job(
            load_queue(toy.queue).patch("area"), (), store=open_store(stores_folder(), "toy"),
            machine=machine(), children=pool, slots=Slots(), threads=1,
            warm=warm,
            scratch=toy.root / "scratch", logs=toy.root / "logs", progress=Silent(),
            preflights=preflights,
        )  # fmt: skip
        assert isinstance(applied, ApplyDetails)
        trees = applied.trees
        assert trees is not None
        job.trees.pin_commit = toy.commit
        job.trees.base, job.trees.patched = trees.base_tree, trees.patched_tree
        job.trees.tested = trees.tested_tree
        yield job


def folders(root: Path) -> Callable[[], Path]:
    def fresh() -> Path:
        folder = root / str(len(list(root.iterdir())))
        folder.mkdir()
        return folder

    return fresh
