"""What this machine cannot do is told from what the patch does wrong."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from contribbot.verify.slots import Slots
from tests.conftest import Program, dig
from tests.test_bench import assert_gone
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


@pytest.mark.parametrize(
    ("sides", "told"), [((NO_DEVICE, "pass"), "unavailable"), (("pass", NO_DEVICE), "failed")]
)
def test_a_device_that_is_missed_without_being_asked_for_is_not_the_machines_fault(
    toy: Toy, program: Program, sides: tuple[str, str], told: str
) -> None:
    put(toy, check(*sides))
    for _ in range(2):
        outcome = program("verify", "area", "--json").stages()["reproduce red"]
        assert outcome.outcome == told
        assert "this machine lost its device" in outcome.reason
        assert not outcome.cached


def test_memory_that_lacks_once_is_tried_again_without_the_base_beside_it(
    toy: Toy, program: Program
) -> None:
    once = toy.root / "once"
    mark = f"__import__('pathlib').Path({str(once)!r})"
    put(toy, check("pass", f"{mark}.exists() or ({mark}.touch(), {NO_MEMORY})"))
    outcome = program("verify", "area", "--json").stages()["reproduce red"]
    assert once.exists()
    assert outcome.outcome == "passed"


def test_a_quiet_block_runs_alone_and_holds_nobody_back() -> None:
    slots = Slots()
    inside: list[str] = []
    seen: list[tuple[str, ...]] = []
    began = threading.Event()

    def busy() -> None:
        for _ in range(50):
            with slots.busy():
                inside.append("busy")
                began.set()
                time.sleep(0.001)
                inside.remove("busy")

    workers = [threading.Thread(target=busy) for _ in range(4)]
    for worker in workers:
        worker.start()
    began.wait(10)
    for _ in range(5):
        with slots.quiet():
            seen.append(tuple(inside))
            time.sleep(0.001)
            seen.append(tuple(inside))
    for worker in workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in workers)
    assert seen == [()] * 10


def test_busy_work_goes_on_while_a_quiet_block_waits() -> None:
    slots = Slots()
    quiet = threading.Thread(target=lambda: slots.quiet().__enter__())
    with slots.busy():
        quiet.start()
        time.sleep(0.05)
        entered = threading.Event()

        def beside() -> None:
            with slots.busy():
                entered.set()

        other = threading.Thread(target=beside)
        other.start()
        assert entered.wait(10)
        other.join(10)
        assert quiet.is_alive()
    quiet.join(10)
    assert not quiet.is_alive()


def test_a_report_beyond_all_measure_is_not_read(toy: Toy, program: Program) -> None:
    put(toy, check("pass", "open('../report.jsonl', 'a').write('x' * (65 << 20))"))
    ran = program("verify", "area", "--json")
    assert ran.code == 1
    outcome = ran.stages()["reproduce red"]
    assert outcome.reason == "red: on the patched tree: reported too much"


def test_a_record_shortens_what_many_failures_say(toy: Toy, program: Program) -> None:
    put(
        toy,
        "import pytest\nfrom toy.area import rectangle\n\n\n"
        "@pytest.mark.parametrize('n', range(200))\ndef test_red(n):\n"
        "    assert rectangle(2, 3) == 6, 'assert 5 == 6' + 'long ' * 700\n",
    )
    ran = program("verify", "area", "--json")
    assert ran.code == 0, ran.err
    failed = dig(ran.stages()["reproduce red"].details, "base", "failed")
    assert isinstance(failed, list)
    assert len(failed) == 200
    assert len(str(dig(failed, 0, "message"))) > 3000
    assert len(str(failed)) < 150_000


def test_nothing_that_a_check_started_outlives_a_killed_contribbot(
    toy: Toy, program: Program, tmp_path: Path
) -> None:
    marker = tmp_path / "pids"
    put(
        toy,
        "import os, pathlib, subprocess, time\n\n\ndef test_red():\n"
        "    helper = subprocess.Popen(['sleep', '600'])\n"
        f"    with open({str(marker)!r}, 'a') as file:\n"
        "        file.write(f'{os.getpid()} {helper.pid} ')\n"
        "    time.sleep(60)\n",
    )
    running = program.start("verify", "area", "--jobs", "2")
    for _ in range(600):
        if marker.is_file() and marker.read_text().count(" ") == 4:
            break
        time.sleep(0.05)
    running.kill()
    running.communicate()
    for pid in marker.read_text().split():
        assert_gone(int(pid))
