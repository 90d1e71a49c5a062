"""What this machine cannot do is told from what the patch does wrong."""

from __future__ import annotations

import threading
import time

import pytest

from contribbot.verify.slots import Slots
from tests.conftest import Program
from tests.toy import Toy, one_check

NO_MEMORY = "bytearray(2**62)"
NO_TORCH_MEMORY = "__import__('torch').empty(2**50)"
NO_DEVICE = "exec('raise RuntimeError(\"CUDA error: no CUDA-capable device is detected\")')"


def check(on_base: str, on_patched: str) -> str:
    """Return a check that does one thing on the base and another on the patched tree."""
    return (
        "from toy.area import rectangle\n\n\ndef test_red():\n"
        f"    if rectangle(2, 3) == 5:\n        {on_base}\n    else:\n        {on_patched}\n"
        "    assert rectangle(2, 3) == 6\n"
    )


def put(toy: Toy, text: str) -> None:
    toy.put_patch(checks=one_check(reason="assert 5 == 6"), check_files={"test_red.py": text})
    toy.put_queue(["area"])


@pytest.mark.parametrize("what", [NO_MEMORY, NO_TORCH_MEMORY])
def test_memory_that_lacks_on_the_base_says_nothing_of_the_patch(
    toy: Toy, program: Program, what: str
) -> None:
    put(toy, check(what, "pass"))
    ran = program("verify", "area", "--json")
    assert ran.code == 3
    outcome = ran.stages()["reproduce red"]
    assert outcome.outcome == "unavailable"
    assert outcome.reason.startswith(
        "red: on the base, this machine ran out of memory: test_red.py::test_red: "
    )


def test_memory_that_lacks_on_the_patched_tree_alone_is_the_patchs(
    toy: Toy, program: Program
) -> None:
    put(toy, check("pass", NO_MEMORY))
    ran = program("verify", "area", "--json")
    assert ran.code == 1
    outcome = ran.stages()["reproduce red"]
    assert outcome.outcome == "failed"
    assert outcome.reason.endswith("MemoryError: ; the base did not")


@pytest.mark.parametrize("sides", [(NO_DEVICE, "pass"), ("pass", NO_DEVICE)])
def test_a_device_that_goes_away_says_nothing_of_the_patch(
    toy: Toy, program: Program, sides: tuple[str, str]
) -> None:
    put(toy, check(*sides))
    for _ in range(2):
        outcome = program("verify", "area", "--json").stages()["reproduce red"]
        assert outcome.outcome == "unavailable"
        assert "this machine lost its device" in outcome.reason
        assert not outcome.cached


def test_a_quiet_block_runs_alone_and_gets_its_turn() -> None:
    slots = Slots()
    inside: list[str] = []
    seen: list[tuple[str, ...]] = []
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with slots.busy():
                inside.append("busy")
                time.sleep(0.001)
                inside.remove("busy")

    workers = [threading.Thread(target=busy) for _ in range(4)]
    for worker in workers:
        worker.start()
    for _ in range(20):
        with slots.quiet():
            seen.append(tuple(inside))
            time.sleep(0.001)
            seen.append(tuple(inside))
    stop.set()
    for worker in workers:
        worker.join()
    assert seen == [()] * 40
