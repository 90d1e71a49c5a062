"""The known-good kernel that runs before anything is judged on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from contribbot.machine import this_machine
from contribbot.model.evidence import Machine
from contribbot.model.failure import RunFailure
from contribbot.model.record import PreflightRecord
from contribbot.verify.runner_fault import (
    Preflight,
    Preflights,
    RunnerFaultError,
    run_preflight,
    runner_fault,
)
from tests.gputoy import FAULT, TARGET, Counted, flown, folders, machine
from tests.test_bench_gpu import torch_sees_a_gpu
from tests.tools import kinds

#: A torch whose device is broken, which no hardware here can be made to be.
STANDIN = """\
import os, sys, time
__version__ = "0"
int32 = None


class version:
    cuda = hip = None


def device(name):
    return name


def arange(*args, **kwargs):
    {what}
"""


def test_a_known_good_kernel_passes_and_says_what_it_ran_on(shared: Path) -> None:
    found = flown("cpu", shared)
    assert found.fault is None
    assert found.record.passed is True
    assert found.record.driver == "6.1"
    assert found.record.device == "cpu"
    assert found.record.torch


def test_a_gpu_that_torch_does_not_see_is_said(shared: Path) -> None:
    found = flown("cuda", shared)
    assert found.fault is not None
    assert found.fault.kind == "gpu-not-visible"
    assert found.fault.said.startswith("torch ")
    assert found.record.passed is False


@pytest.mark.parametrize(
    ("what", "kind", "said"),
    kinds([
        ("time.sleep(600)", "gpu-hung", "a known-good kernel hung: no end after 8 s (memory)"),
        (f"os.write(2, b{FAULT!r}); os.abort()", "memory-fault", FAULT),
        ("raise RuntimeError('HIP error: unknown error')", "hip-error", "HIP error"),
        ("os._exit(7)", "preflight-failed", "a known-good kernel ended with 7 (memory)"),
        ("os.abort()", "preflight-failed", "a known-good kernel ended with SIGABRT (memory)"),
    ], lambda case: case[1] != "gpu-hung"),
)  # fmt: skip
def test_each_way_to_fail_has_its_name(tmp_path: Path, what: str, kind: str, said: str) -> None:
    (tmp_path / "torch.py").write_text(STANDIN.format(what=what))
    found = run_preflight(TARGET, machine(), tmp_path, device="cpu", timeout=8)
    assert found.fault is not None
    assert (found.fault.kind, said in found.fault.said) == (kind, True), found.fault.said


def test_a_torch_that_cannot_be_imported_in_time_is_no_hung_gpu(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(600)\n")
    found = run_preflight(TARGET, machine(), tmp_path, timeout=2)
    assert found.fault is not None
    assert found.fault.kind == "preflight-failed"


def test_it_runs_once_a_target_until_something_goes_wrong(tmp_path: Path, shared: Path) -> None:
    preflights, folder = Counted(shared, fit=2), folders(tmp_path)
    for _ in range(2):
        assert preflights.before(TARGET, machine(), folder).passed is True
    assert preflights.flights == 1
    suspect = runner_fault(RunFailure.HIP_ERROR, "HIP error: x")
    preflights.after(suspect, TARGET, machine(), folder)
    with pytest.raises(RunnerFaultError, match="HIP error: x; then a known-good kernel: torch"):
        preflights.after(suspect, TARGET, machine(), folder)
    # From now on nothing is tried there.
    with pytest.raises(RunnerFaultError, match=r"runner fault \(hip-error\)"):
        preflights.before(TARGET, machine(), folder)
    assert preflights.flights == 3


def test_memory_that_somebody_else_has_taken_is_the_runners_fault(tmp_path: Path) -> None:
    class Told(Preflights):
        def __init__(self) -> None:
            super().__init__()
            self.free = [64 << 30, 60 << 30, 20 << 30]

        def _run(self, target: str, machine: Machine, folder: Callable[[], Path]) -> Preflight:
            del target, machine, folder
            return Preflight(
                None, PreflightRecord(target=TARGET, driver="", memory_free=self.free.pop(0))
            )

    preflights, folder = Told(), folders(tmp_path)
    suspect = runner_fault(RunFailure.NO_MEMORY, "HIP out of memory")
    preflights.before(TARGET, machine(), folder)
    preflights.after(suspect, TARGET, machine(), folder)
    with pytest.raises(RunnerFaultError, match=r"20\.0 GiB are free .*, 64\.0 before"):
        preflights.after(suspect, TARGET, machine(), folder)


@pytest.mark.skipif(not torch_sees_a_gpu(), reason="needs a GPU that torch can use")
def test_a_real_gpu_passes(tmp_path: Path) -> None:
    (target, *_) = sorted(this_machine().targets - {"any", "cpu"})
    found = run_preflight(target, this_machine(), tmp_path)
    assert found.fault is None, found
    assert found.record.driver
    assert found.record.arch
    assert found.record.memory_free > 0
