"""What the runner does wrong is told from what the patch does wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contribbot.hardware.machine import this_machine
from contribbot.model.evidence import Outcome, RunnerFault
from contribbot.verify.check import Way, check_unit
from contribbot.verify.runner_fault import Preflight, sign_in, suspicion_of_bench
from tests.conftest import dig
from tests.gputoy import FAULT, HEAD, Counted, gpu_job
from tests.test_bench_gpu import torch_sees_a_gpu
from tests.test_supervise import group  # noqa: F401  a fixture
from tests.toy import Toy, one_check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from contribbot.model.evidence import Machine
    from contribbot.verify.job import Finding
    from tests.conftest import Program

#: As a check of a real fault does: the kernel runs in a process of its own, which dies.
FAULT_ON_BASE = HEAD + (
    "def test_red():\n"
    "    code = 'import os, sys; os.write(2, sys.argv[1].encode()); os.abort()'\n"
    "    argv = [sys.executable, '-c', code if ON_BASE else '', FAULT]\n"
    "    done = subprocess.run(argv, capture_output=True, text=True)\n"
    "    assert rectangle(2, 3) == 6, done.stderr\n"
)
ABORTS_WHEN_PATCHED = HEAD + (
    "def test_red():\n"
    "    if not ON_BASE:\n        os.write(2, FAULT.encode())\n        os.abort()\n"
    "    assert rectangle(2, 3) == 6\n"
)
HANGS_WHEN_PATCHED = HEAD + (
    "def test_red():\n    time.sleep(0 if ON_BASE else 600)\n    assert rectangle(2, 3) == 6\n"
)
WRONG_WHEN_PATCHED = HEAD + (
    "def test_red():\n    assert rectangle(2, 3) == (6 if ON_BASE else 7)\n"
)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("hipErrorNoDevice: no ROCm-capable device is detected", "gpu-not-visible"),
        ("RuntimeError: No HIP GPUs are available", "gpu-not-visible"),
        ("Unable to open /dev/kfd read-write: Permission denied", "gpu-not-visible"),
        (FAULT, "memory-fault"),
        ("AcceleratorError: CUDA error: an illegal memory access was encountered", "memory-fault"),
        (":0:rocdevice.cpp: HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: 0x29", "memory-fault"),
        ("HW Exception by GPU node-1 (Agent handle: 0x1b0fc990) reason :GPU Hang", "gpu-hung"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2 GiB", "out-of-memory"),
        ("HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate", "out-of-memory"),
        ('"hipErrorNoBinaryForGpu: Unable to find code object for all', "hip-error"),
        ("HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in", "hip-error"),
        ("CUDA error: unspecified launch failure", "hip-error"),
        ("HSA_STATUS_ERROR: A generic error has occurred.", "hip-error"),
        ("HSA_STATUS_ERROR_INVALID_ISA: The instruction set architecture is invalid.", "hip-error"),
        (
            "RuntimeError: Triton Error [HIP]:  Code: 98, Messsage: invalid device function",
            "hip-error",
        ),
        ("RuntimeError: Triton Error [HIP]:  Code: 2, Messsage: out of memory", "out-of-memory"),
        (
            "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
            "memory-fault",
        ),
        ("hipErrorInvalidDeviceFunction", "hip-error"),
        ("RuntimeError: HIP error: out of memory", "out-of-memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "out-of-memory"),
        ("It is possible that dataloader's workers are out of shared memory.", "out-of-memory"),
        ("CUDA driver version is insufficient for CUDA runtime version", "driver-mismatch"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver-mismatch"),
        # The cause comes before what follows from it.
        (f"HIP error: unspecified launch failure\n{FAULT}", "memory-fault"),
    ],
)
def test_words_point_to_a_kind(said: str, kind: str) -> None:
    found = sign_in(["AssertionError: assert 5 == 6", said])
    assert found is not None
    assert found.kind == kind
    assert found.said in said


def test_ordinary_failures_point_to_nothing() -> None:
    assert sign_in(["AssertionError: assert 5 == 6\nout of range", "ValueError: no device"]) is None


def outcome_of(toy: Toy, text: str, preflights: Counted, more: str = "") -> Finding:
    with gpu_job(toy, text, preflights, more) as job:
        return check_unit(job, job.patch.spec.checks[0], Way()).work()


def test_a_memory_fault_that_a_patch_mends_is_the_stated_red(toy: Toy) -> None:
    preflights = Counted()
    found = outcome_of(toy, FAULT_ON_BASE, preflights)
    assert (found.outcome, found.lasting) == (Outcome.PASSED, True)
    assert "runner_fault" not in found.details
    assert FAULT in str(dig(found.details, "base", "failed", 0, "message"))
    # Before the base, after it and after its second run; the patched run gave no reason to ask.
    assert preflights.flights == 3
    assert dig(found.details, "preflight", "passed") is True


def test_a_memory_fault_after_which_nothing_works_is_the_runners(toy: Toy) -> None:
    preflights = Counted(fit=1)
    found = outcome_of(toy, FAULT_ON_BASE, preflights)
    assert (found.outcome, found.lasting) == (Outcome.UNAVAILABLE, False)
    assert dig(found.details, "runner_fault", "kind") == "memory-fault"
    assert found.reason.startswith("runner fault (memory-fault): ")
    assert "then a known-good kernel: torch " in found.reason
    assert dig(found.details, "preflight", "passed") is False


def test_nothing_more_is_tried_on_a_target_that_is_not_fit(toy: Toy) -> None:
    preflights = Counted(fit=0)
    marker = toy.root / "ran"
    with gpu_job(toy, f"open({str(marker)!r}, 'w')\n{FAULT_ON_BASE}", preflights) as job:
        unit = check_unit(job, job.patch.spec.checks[0], Way())
        found = [unit.work() for _ in range(2)]
    assert {one.outcome for one in found} == {Outcome.UNAVAILABLE}
    assert {dig(one.details, "runner_fault", "kind") for one in found} == {"gpu-not-visible"}
    assert preflights.flights == 1
    assert not marker.exists()


def test_a_memory_fault_that_a_patch_causes_refutes_it(toy: Toy) -> None:
    found = outcome_of(toy, ABORTS_WHEN_PATCHED, Counted())
    assert found.outcome is Outcome.FAILED
    assert "on the patched tree: crashed in test_red.py::test_red: SIGABRT" in found.reason
    # What the runtime wrote before it aborted is there to read.
    assert FAULT in str(dig(found.details, "patched", "suspected", "said"))


# To refute, the base must be done in a tenth of the limit, also on a machine that is busy.
@pytest.mark.parametrize(
    ("fit", "outcome", "limit"), [(9, "failed", 60), (1, "unavailable", 8)]
)  # fmt: skip
def test_a_hang_is_the_runners_where_a_known_good_kernel_does_not_run_either(
    toy: Toy, fit: int, outcome: str, limit: int
) -> None:
    found = outcome_of(toy, HANGS_WHEN_PATCHED, Counted(fit), f"timeout = {limit}")
    assert found.outcome == outcome
    told = found.details.get("runner_fault")
    assert told is None if fit > 1 else dig(told, "kind") == "gpu-hung"


PRETENDS = HEAD + (
    "def test_red():\n"
    "    if {side}:\n        raise RuntimeError({said!r})\n"
    "    assert rectangle(2, 3) == 6\n"
)
NO_GPU = "HIP error: no ROCm-capable device is detected"
NO_MEMORY = "HIP out of memory. Tried to allocate 2.00 GiB"


@pytest.mark.parametrize("side", ["not ON_BASE", "ON_BASE"])
def test_words_do_not_excuse_a_patch_where_a_known_good_kernel_runs_after_them(
    toy: Toy, side: str
) -> None:
    found = outcome_of(toy, PRETENDS.format(side=side, said=NO_GPU), Counted())
    assert found.outcome is Outcome.FAILED
    assert "runner_fault" not in found.details
    assert NO_GPU in found.reason


def test_a_variable_that_hides_the_gpu_from_a_check_is_not_the_runners_fault(toy: Toy) -> None:
    text = "import os\n" + PRETENDS.format(side="'HIP_VISIBLE_DEVICES' in os.environ", said=NO_GPU)
    found = outcome_of(toy, text, Counted(), 'env = {HIP_VISIBLE_DEVICES = "-1"}')
    assert found.outcome is Outcome.FAILED
    assert "runner_fault" not in found.details


@pytest.mark.parametrize(
    ("side", "reason", "outcome"),
    [
        # That the base wants more memory than there is, is what the patch states to mend.
        ("ON_BASE", "out of memory", "passed"),
        ("ON_BASE", "assert 5 == 6", "unavailable"),
        ("not ON_BASE", "assert 5 == 6", "failed"),
        # The GPU is too small for either.
        ("True", "out of memory", "unavailable"),
    ],
)
def test_out_of_memory_on_a_gpu_is_told_by_the_side_that_it_lacks_on(
    toy: Toy, side: str, reason: str, outcome: str
) -> None:
    text = PRETENDS.format(side=side, said=NO_MEMORY)
    with gpu_job(toy, text, Counted()) as job:
        check = job.patch.spec.checks[0].model_copy(update={"reason": reason})
        found = check_unit(job, check, Way()).work()
    assert (found.outcome, found.lasting) == (outcome, False)
    assert ("runner_fault" in found.details) == (outcome == "unavailable")


def test_a_fault_that_breaks_the_gpu_names_the_side(toy: Toy) -> None:
    found = outcome_of(toy, ABORTS_WHEN_PATCHED, Counted(fit=1))
    assert found.outcome is Outcome.UNAVAILABLE
    assert "(memory-fault): on the patched tree: Memory access fault" in found.reason


def test_a_fault_after_which_no_known_good_kernel_can_run_decides_nothing(toy: Toy) -> None:
    class NoTorch(Counted):
        def _fly(self, target: str, machine: Machine, folder: Callable[[], Path]) -> Preflight:
            del target, machine, folder
            return Preflight(None, {"not_run": "torch is not installed"})

    found = outcome_of(toy, ABORTS_WHEN_PATCHED, NoTorch())
    assert (found.outcome, found.lasting) == (Outcome.UNAVAILABLE, False)
    assert "no known-good kernel could be run: torch is not installed" in found.reason
    # What went wrong without such words counts as it does anywhere.
    assert outcome_of(toy, WRONG_WHEN_PATCHED, NoTorch()).outcome is Outcome.FAILED


def test_an_ordinary_failure_asks_nobody(toy: Toy) -> None:
    preflights = Counted()
    assert outcome_of(toy, WRONG_WHEN_PATCHED, preflights).outcome is Outcome.FAILED
    assert preflights.flights == 1


def test_what_a_bench_says_points_to_the_runner_only_where_it_could_be() -> None:
    def suspect(outcome: Outcome, reason: str, *, lasting: bool = False) -> RunnerFault | None:
        return suspicion_of_bench(outcome, reason, lasting=lasting, outputs=["", FAULT])

    hung = suspect(Outcome.FAILED, "a: on the base: hung, or …: no answer in time")
    assert hung is not None
    assert hung.kind == "memory-fault"
    assert suspect(Outcome.FAILED, "a: 0.5x the base's speed", lasting=True) is None
    assert suspect(Outcome.UNAVAILABLE, "a: too noisy to tell") is None
    assert suspect(Outcome.PASSED, "a") is None


REAL_FAULT = """\
import torch
from toy.area import rectangle


def test_red():
    place = torch.full((1,), 2**40 if rectangle(2, 3) == 5 else 0, device="cuda")
    assert torch.ones(4, device="cuda")[place].sum().item() == 1
"""


@pytest.mark.skipif(not torch_sees_a_gpu(), reason="needs a GPU that torch can use")
def test_a_real_fault_that_a_patch_mends_proves_it_with_the_kernels_that_ran(
    toy: Toy, program: Program
) -> None:
    (target, *_) = sorted(this_machine().targets - {"any", "cpu"})
    toy.put_patch(
        checks=one_check(
            reason="(CUDA|HIP) error", more=f'requires = ["{target}"]\nkernels = ["reduce_kernel"]'
        ),
        check_files={"test_red.py": REAL_FAULT},
    )
    toy.put_queue(["area"])
    ran = program("verify", "area", "--require", target, "--json")
    assert ran.code == 0, ran.out
    stages = ran.stages()
    red = stages["reproduce red"]
    assert dig(red.details, "preflight", "passed") is True
    assert dig(red.details, "base", "suspected")
    assert "runner_fault" not in red.details
    assert stages["witness kernels of reproduce/red"].outcome is Outcome.PASSED
