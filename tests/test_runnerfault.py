"""A fault of the machine is told from a fault of the patch, and a record names its run."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from contribbot.bench.verdict import BenchResult
from contribbot.errors import MachineError
from contribbot.machine import actions_run, is_full, job_container, this_machine
from contribbot.model import failure
from contribbot.model.evidence import RESULT, Machine, Outcome
from contribbot.model.failure import RunFailure
from contribbot.model.record import PreflightRecord
from contribbot.verify.job import Slots
from contribbot.verify.pytest_plugin import machine_fault
from contribbot.verify.runner_fault import Preflight, UnavailableError, signed
from contribbot.verify.stages import Finding, Unit, unavailable
from contribbot.verify.stages.bench import suspicion
from contribbot.verify.stages.reproduce import CheckRunner, CheckWork
from tests.conftest import Program, dig
from tests.gputoy import FAULT, HEAD, TARGET, Counted, gpu_job
from tests.test_bench_gpu import torch_sees_a_gpu
from tests.test_verify import put
from tests.tools import kinds
from tests.toy import Toy, one_check

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
NO_GPU = "HIP error: no ROCm-capable device is detected"


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
        ("RuntimeError: Triton Error [HIP]:  Code: 98, Messsage: invalid device f", "hip-error"),
        ("RuntimeError: Triton Error [HIP]:  Code: 2, Messsage: out of memory", "out-of-memory"),
        ("Triton Error [CUDA]: an illegal memory access was encountered", "memory-fault"),
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
    found = signed(["AssertionError: assert 5 == 6", said])
    assert found is not None
    assert found.kind == kind
    assert found.said in said


def test_ordinary_failures_point_to_nothing() -> None:
    assert signed(["AssertionError: assert 5 == 6\nout of range", "ValueError: no device"]) is None


@pytest.mark.parametrize(
    "flood",
    ["." * 2**20, "assert 5 == 6\n" * 2**16, f"{NO_GPU} {'.' * 2**20}", f"{'.' * 2**20} {NO_GPU}"],
    ids=["a line", "lines", "a sign before it", "a sign after it"],
)
def test_a_flood_is_searched_in_parts(flood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: Counter[str] = Counter()

    def search(pattern: str, row: str) -> re.Match[str] | None:
        searched[pattern] += len(row)
        return re.search(pattern, row)

    monkeypatch.setattr(failure, "re", SimpleNamespace(search=search))
    sign = failure.sign_in([flood])
    assert (sign is not None and NO_GPU in sign[1]) is (NO_GPU in flood)
    assert max(searched.values()) <= 20_000


PRETENDS = HEAD + (
    "def test_red():\n    if {side}:\n        raise RuntimeError({said!r})\n"
    "    assert rectangle(2, 3) == 6\n"
)
NO_MEMORY = "HIP out of memory. Tried to allocate 2.00 GiB"
NOT_RUN = "no known-good kernel could be run: torch is not installed"
DIED = "on the patched tree: crashed in test_red.py::test_red: SIGABRT"


def pretends(side: str, said: str = NO_GPU) -> str:
    return PRETENDS.format(side=side, said=said)


class NoTorch(Counted):
    def _run(self, target: str, machine: Machine, folder: Callable[[], Path]) -> Preflight:
        del target, machine, folder
        self.flights += 1
        return Preflight(
            None, PreflightRecord(target=TARGET, driver="", not_run="torch is not installed")
        )


@dataclass(frozen=True)
class Fault:
    """A check that goes wrong, and whose fault that is."""

    text: str
    outcome: str
    said: str = ""  # a part of the reason
    kind: str = ""  # of the runner's fault, where it is that
    fit: int = 1000  # how often the known-good kernel passes; -1: there is no torch for it
    flights: int = 0  # how often it was run; 0: that is not asked
    more: str = ""
    reason: str = "assert 5 == 6"


FAULTS = {
    # Before the base, after it and after its second run; the patched run gave no reason to ask.
    "the patch mends it": Fault(FAULT_ON_BASE, "passed", flights=3),
    "nothing works after it": Fault(
        FAULT_ON_BASE, "unavailable", "then a known-good kernel: torch ", "memory-fault", fit=1),
    "the patch causes it": Fault(ABORTS_WHEN_PATCHED, "failed", DIED),
    "the patch breaks the GPU": Fault(
        ABORTS_WHEN_PATCHED, "unavailable",
        "(memory-fault): on the patched tree: Memory access fault", "memory-fault", fit=1),
    # A base that fails is no yardstick for how long the patched tree may take, nor with how much.
    "a hang": Fault(HANGS_WHEN_PATCHED, "unavailable", "hung in", more="timeout = 8"),
    "a hang of the GPU": Fault(
        HANGS_WHEN_PATCHED, "unavailable", "hung in", "gpu-hung", fit=1, more="timeout = 8"),
    "words on the patched tree": Fault(pretends("not ON_BASE"), "failed", NO_GPU),
    "words on the base": Fault(pretends("ON_BASE"), "failed", NO_GPU),
    "a variable hides the GPU": Fault(
        "import os\n" + pretends("'HIP_VISIBLE_DEVICES' in os.environ"), "failed",
        more='env = {HIP_VISIBLE_DEVICES = "-1"}'),
    # That the base wants more memory than there is, is what the patch states to mend.
    "memory as stated": Fault(pretends("ON_BASE", NO_MEMORY), "passed", reason="out of memory"),
    "memory on the base": Fault(
        pretends("ON_BASE", NO_MEMORY), "unavailable", kind="out-of-memory"),
    "memory on the patched tree": Fault(
        pretends("not ON_BASE", NO_MEMORY), "unavailable", kind="out-of-memory"),
    "a GPU that is too small": Fault(
        pretends("True", NO_MEMORY), "unavailable", kind="out-of-memory", reason="out of memory"),
    "no torch to tell": Fault(ABORTS_WHEN_PATCHED, "unavailable", NOT_RUN, "memory-fault", fit=-1),
    # What goes wrong without such words counts as it does anywhere, and asks nobody.
    "no torch, an ordinary failure": Fault(WRONG_WHEN_PATCHED, "failed", fit=-1),
    "an ordinary failure": Fault(WRONG_WHEN_PATCHED, "failed", flights=1),
}  # fmt: skip

#: Slow: another of the table ends as they do, on the other tree or for a like reason.
LIKE_ANOTHER = {
    "a hang", "words on the base", "memory on the patched tree", "a variable hides the GPU",
    "no torch, an ordinary failure",
}  # fmt: skip


def found(unit: Unit) -> Finding:
    try:
        return unit.work()
    except UnavailableError as error:
        return unavailable(error)


@pytest.mark.parametrize("name", kinds(FAULTS, lambda name: name not in LIKE_ANOTHER))
def test_whose_fault_it_is(toy: Toy, shared: Path, name: str) -> None:
    case = FAULTS[name]
    preflights = NoTorch(shared) if case.fit < 0 else Counted(shared, case.fit)
    with gpu_job(toy, case.text, preflights, case.more) as job:
        check = job.patch.spec.checks[0].model_copy(update={"reason": case.reason})
        finding = found(CheckWork(job, CheckRunner(check)).unit())
    details = finding.details
    assert (finding.outcome, case.said in finding.reason) == (case.outcome, True), finding.reason
    fault = finding.runner_fault
    assert (fault.kind if fault else "") == case.kind
    assert case.flights in {0, preflights.flights}
    assert not (finding.lasting and finding.outcome is Outcome.UNAVAILABLE)
    # What the runtime wrote before it aborted is there to read.
    if name == "the patch causes it":
        assert FAULT in str(dig(details, "patched", "suspected", "said"))
    if name == "the patch mends it":
        assert finding.lasting
        assert FAULT in str(dig(details, "base", "failed", 0, "message"))
    if case.fit > 1 and NO_GPU not in case.text:
        assert dig(finding.preflight, "passed") is True


def test_what_a_bench_says_points_to_the_runner_only_where_it_could_be() -> None:
    def suspect(
        outcome: Outcome, *words: str, lasting: bool = False, hung: bool = False, output: str = ""
    ) -> str:
        result = BenchResult(hung=hung, errors=[*words])
        found = suspicion(result, outcome, "a", lasting=lasting, outputs=["", output])
        return found.kind if found else ""

    assert suspect(Outcome.FAILED, hung=True, output=FAULT) == "memory-fault"
    assert suspect(Outcome.FAILED, hung=True) == "gpu-hung"
    assert suspect(Outcome.FAILED, "ended early") == "preflight-failed"
    assert suspect(Outcome.FAILED, output=FAULT, lasting=True) == ""
    assert suspect(Outcome.UNAVAILABLE, output=FAULT) == ""
    assert suspect(Outcome.UNAVAILABLE, NO_MEMORY) == "out-of-memory"
    assert suspect(Outcome.PASSED, output=FAULT) == ""


REAL_FAULT = """\
import torch
from toy.area import rectangle


def test_red():
    place = torch.full((1,), 2**40 if rectangle(2, 3) == 5 else 0, device="cuda")
    assert torch.ones(4, device="cuda")[place].sum().item() == 1
"""


@pytest.mark.skipif(not torch_sees_a_gpu(), reason="needs a GPU that torch can use")
def test_a_real_fault_that_a_patch_mends_proves_it(toy: Toy, program: Program) -> None:
    (target, *_) = sorted(this_machine().targets - {"any", "cpu"})
    put(toy, REAL_FAULT, reason="(CUDA|HIP) error", more=f'requires = ["{target}"]')
    ran = program.ok("verify", "area", "--require", target, "--json")
    stages = ran.stages()
    red = stages["reproduce red"]
    assert dig(red.preflight, "passed") is True
    assert dig(red.details, "base", "suspected")
    assert red.runner_fault is None


def with_gpu_check(toy: Toy, target: str) -> None:
    toy.put_area(checks=one_check(reason="5 == 6", more=f'requires = ["{target}"]'))


def break_gpu(toy: Toy, program: Program) -> None:
    """Have the driver list a GPU that torch cannot use."""
    listing = toy.put("bin/nvidia-smi", "#!/bin/sh\necho '9.0, 1.0, A GPU that no one can use'\n")
    listing.chmod(0o755)
    path = f"{listing.parent}:{os.environ['PATH']}"
    program.env |= {"PATH": path, "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.slow
def test_a_faulty_runner_fails_as_a_machine(toy: Toy, program: Program) -> None:
    with_gpu_check(toy, "cuda")
    break_gpu(toy, program)
    ran = program("verify", "area", "--require", "cuda", "--json")
    assert ran.code == 3
    outcome = ran.stages()["reproduce red"]
    assert outcome.reason.startswith("red: runner fault (gpu-not-visible): torch ")
    assert "\n" not in outcome.reason
    assert ran.report().verdict == "incomplete"
    assert not outcome.cached

    said = program("verify", "area").out
    assert re.search(
        r"incomplete: nothing could be proved here: runner fault \(gpu-not-visible\): torch .*"
        r"; could not run: reproduce red; not run: cuda",
        " ".join(said.split()),
    )

    # It takes nothing away from a record that stands, and the record says what it is.
    (record,) = (toy.queue / "evidence/area").iterdir()
    before = record.read_bytes()
    assert program("verify", "area", "--force").code == 3
    assert record.read_bytes() == before
    told = program("evidence", "check", "--json").out
    assert '"fresh"' in told

    # One that counts what is the runner's contradicts itself.
    document = json.loads(before)
    stages = document["predicate"]["contribbot"]["stages"]
    next(row for row in stages if row.get("runner_fault"))["outcome"] = "passed"
    record.write_text(json.dumps(document))
    assert '"tampered"' in program("evidence", "check", "--json").out


def test_a_planned_job_that_does_not_find_its_gpu_says_so(toy: Toy, program: Program) -> None:
    with_gpu_check(toy, "gfx999")
    asked = ("verify", "area", "--require", "gfx999", "--json")
    # A machine without some GPU is an ordinary machine.
    assert program(*asked).code == 1
    ran = program(*asked, CONTRIBBOT_JOB="gfx999-rocm7.1-1")
    assert ran.code == 3
    told = ran.stages()["reproduce red"].runner_fault
    assert told is not None
    assert told.kind == "gpu-not-visible"
    # Another job's GPU is not this one's.
    assert program(*asked, CONTRIBBOT_JOB="gfx942-rocm7.1-1").code == 1


def test_what_makes_no_sense_as_a_fault_is_refused() -> None:
    good = {"kind": "hip-error", "said": "x"}
    odds: tuple[object, ...] = ([], {**good, "kind": "no such"}, {"kind": "hip-error"})
    document = {"stage": "bench", "target": "gfx942", "outcome": "unavailable", "reason": "",
                "seconds": 0}  # fmt: skip
    assert RESULT.validate_python({**document, "runner_fault": good}).runner_fault
    for odd in odds:
        with pytest.raises(ValidationError, match="runner_fault"):
            RESULT.validate_python({**document, "runner_fault": odd})


RUN = {
    "GITHUB_RUN_ID": "42", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "gpu",
    "GITHUB_REPOSITORY": "example/queue", "GITHUB_SHA": "a" * 40,
}  # fmt: skip
IMAGE = f"docker.io/rocm/dev@sha256:{'b' * 64}"


@pytest.mark.usefixtures("outcome_cache")
def test_the_record_names_the_run_and_the_container(area: Toy, program: Program) -> None:
    program.env |= {
        **RUN, "CONTRIBBOT_JOB": "cpu-1", "CONTRIBBOT_IMAGE": IMAGE,
        "CONTRIBBOT_CONTAINER_FLAGS": "--device /dev/kfd --group-add 'video'",
    }  # fmt: skip
    program.ok("verify", "area")
    (record,) = (area.queue / "evidence/area").iterdir()
    told = json.loads(record.read_bytes())["predicate"]["contribbot"]
    assert told["run"] == {
        "run_id": 42, "attempt": 2, "job": "cpu-1", "repository": "example/queue",
        "commit": "a" * 40,
    }  # fmt: skip
    assert told["container"] == {
        "image": IMAGE, "flags": ["--device", "/dev/kfd", "--group-add", "video"],
    }  # fmt: skip
    program.ok("evidence", "check")
    rows = program("evidence", "show", "area").out.splitlines()
    start = next(number for number, row in enumerate(rows) if row.startswith("  run "))
    assert rows[start : start + 4] == [
        "  run      job cpu-1 of example/queue run 42, attempt 2, as given to the job",
        "           https://github.com/example/queue/actions/runs/42",
        f"  in       {IMAGE}, as given to the job",
        "           with --device /dev/kfd --group-add video",
    ]
    # Pages of another GitHub are elsewhere.
    shown = program("evidence", "show", "area", GITHUB_API_URL="https://git.example/api/v3").out
    assert "           https://git.example/example/queue/actions/runs/42\n" in shown

    ran = program("verify", "area", "--force", GITHUB_SHA="main")
    assert ran.code == 3
    assert "GITHUB_SHA" in ran.err
    assert json.loads(record.read_bytes())["predicate"]["contribbot"]["run"]["run_id"] == 42


def test_run_and_container_are_read_from_the_variables() -> None:
    assert actions_run({}) is None
    assert job_container({}) is None
    told = actions_run(RUN)
    assert told is not None
    assert (told.run_id, told.job) == (42, "gpu")
    for name, bad in (
        ("GITHUB_RUN_ID", "x1"), ("GITHUB_RUN_ATTEMPT", ""), ("GITHUB_JOB", "a b"),
        ("GITHUB_REPOSITORY", "queue"), ("GITHUB_SHA", "main"),
    ):  # fmt: skip
        with pytest.raises(MachineError):
            actions_run({**RUN, name: bad})
    for bad in ("rocm/dev:latest", f"{IMAGE}0", f"-v@sha256:{'b' * 64}"):
        with pytest.raises(MachineError, match="CONTRIBBOT_IMAGE"):
            job_container({"CONTRIBBOT_IMAGE": bad})
    for bad in ("--device '/dev/kfd", "--name a\x07b"):
        with pytest.raises(MachineError, match="CONTRIBBOT_CONTAINER_FLAGS"):
            job_container({"CONTRIBBOT_IMAGE": IMAGE, "CONTRIBBOT_CONTAINER_FLAGS": bad})


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (MemoryError(), RunFailure.NO_MEMORY),
        (OutOfMemoryError("tried to allocate"), RunFailure.NO_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), RunFailure.NO_MEMORY),
        (RuntimeError("HIP error: out of memory"), RunFailure.NO_MEMORY),
        (OSError(12, "Cannot allocate memory"), RunFailure.NO_MEMORY),
        (RuntimeError("CUDA error: no CUDA-capable device is detected"), RunFailure.NOT_VISIBLE),
        (RuntimeError("No HIP GPUs are available"), RunFailure.NOT_VISIBLE),
        (RuntimeError("assert 5 == 6"), None),
    ],
)
def test_an_exception_says_what_is_lacking(error: Exception, fault: RunFailure | None) -> None:
    assert machine_fault(error) == fault


SPLIT = HEAD + "def test_red():\n    if {side}:\n        {what}\n    assert rectangle(2, 3) == 6\n"


def test_memory_that_the_base_lacks_says_nothing_of_a_patch(toy: Toy, program: Program) -> None:
    put(toy, SPLIT.format(side="ON_BASE", what="bytearray(2**62)"), reason="assert 5 == 6")
    for _ in range(2):
        ran = program("verify", "area", "--json")
        red = ran.stages()["reproduce red"]
        assert (ran.code, red.outcome, red.cached) == (3, "unavailable", False)
        assert red.reason.startswith(
            "red: on the base, this machine ran out of memory: test_red.py::test_red: "
        )


@pytest.mark.usefixtures("unsandboxed")
def test_memory_that_lacks_once_is_tried_again_alone(toy: Toy, program: Program) -> None:
    once = toy.root / "once"
    mark = f"__import__('pathlib').Path({str(once)!r})"
    what = f"{mark}.exists() or ({mark}.touch(), bytearray(2**62))"
    put(toy, SPLIT.format(side="not ON_BASE", what=what), reason="assert 5 == 6")
    red = program("verify", "area", "--json").stages()["reproduce red"]
    assert once.exists()
    assert red.outcome == "passed"


EATS = (
    "open({group!r} + '/cgroup.procs', 'w').write(str(os.getpid()))\n"
    "        bytes(256 << 20).upper()"
)
KILLED = "red: {where}, out of memory in test_red.py::test_red: killed by the kernel"


@pytest.mark.parametrize("group", ["memory"], indirect=True)
@pytest.mark.parametrize(
    "seen",
    [
        ("ON_BASE", "on the base", "out-of-memory"),
        pytest.param(("not ON_BASE", "on the patched tree", ""), marks=pytest.mark.slow),
        pytest.param(("True", "on the base", "out-of-memory"), marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("unsandboxed")
def test_what_the_kernel_kills_for_memory_is_not_the_runners_on_the_patched_tree_alone(
    toy: Toy,
    program: Program,
    group: Path,
    seen: tuple[str, str, str],
) -> None:
    side, where, kind = seen
    (group / "memory.limit_in_bytes").write_text(str(128 * 2**20))
    put(toy, SPLIT.format(side=side, what=EATS.format(group=str(group))), reason="5 == 6")
    ran = program("verify", "area", "--json")
    assert ran.code == 3, ran.out + ran.err
    red = ran.stages()["reproduce red"]
    assert red.reason == KILLED.format(where=where)
    fault = red.runner_fault
    assert (fault.kind if fault else "") == kind


@pytest.mark.parametrize(("side", "kind"), [("ON_BASE", "disk-full"), ("not ON_BASE", "")])
def test_a_disk_full_on_the_patched_tree(toy: Toy, program: Program, side: str, kind: str) -> None:
    what = "os.write(os.open('/dev/full', os.O_WRONLY), b'x')"
    put(toy, SPLIT.format(side=side, what=what), reason="5 == 6")
    ran = program("verify", "area", "--json")
    fault = ran.stages()["reproduce red"].runner_fault
    assert (ran.code, fault.kind if fault else "") == (3, kind)


def test_a_disk_with_room_is_not_full(tmp_path: Path) -> None:
    before = list(tmp_path.iterdir())
    assert not is_full(tmp_path)
    assert list(tmp_path.iterdir()) == before


def test_a_quiet_block_runs_alone_and_holds_nobody_back() -> None:
    slots, began, entered = Slots(), threading.Event(), threading.Event()
    inside: list[str] = []
    alone: list[bool] = []

    def busy() -> None:
        for _ in range(50):
            with slots.busy():
                inside.append("busy")
                began.set()
                time.sleep(0.001)
                inside.remove("busy")

    def quiet() -> None:
        for _ in range(5):
            with slots.quiet():
                alone.append(not inside)
                time.sleep(0.001)
                alone.append(not inside)

    def beside() -> None:
        with slots.busy():
            entered.set()

    workers = [threading.Thread(target=work) for work in (busy, busy, busy, quiet, beside)]
    for worker in workers[:3]:
        worker.start()
    assert began.wait(10)
    with slots.busy():
        workers[3].start()
        time.sleep(0.05)
        # Busy work goes on while a quiet block waits.
        workers[4].start()
        assert entered.wait(10)
        assert workers[3].is_alive()
    for worker in workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in workers)
    assert alone == [True] * 10
