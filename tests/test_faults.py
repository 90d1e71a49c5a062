"""What this machine cannot do is told from what the patch does wrong."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from contribbot.machine import is_full
from contribbot.model.failure import RunFailure
from contribbot.verify.job import Slots
from contribbot.verify.pytest_plugin import machine_fault
from tests.conftest import Program
from tests.gputoy import HEAD
from tests.test_verify import put
from tests.toy import Toy


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
