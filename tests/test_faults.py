"""What this machine cannot do is told from what the patch does wrong."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot import process
from contribbot.hardware.machine import is_full
from contribbot.verify.job import Slots
from contribbot.verify.pytest_run import Scrub, read_report
from contribbot.verify.runner_fault import fault_of
from tests.conftest import Program, dig
from tests.gputoy import HEAD
from tests.smalldisk import small_disk
from tests.test_supervise import group  # noqa: F401  a fixture
from tests.toy import Toy, one_check

if TYPE_CHECKING:
    from contribbot.verify.pytest_run import CheckRun

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


@pytest.mark.parametrize("what", [NO_MEMORY, pytest.param(NO_TORCH_MEMORY, marks=pytest.mark.slow)])
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


@pytest.mark.usefixtures("unsandboxed")
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
    assert ran.code == 3
    outcome = ran.stages()["reproduce red"]
    assert outcome.reason == "red: the check is broken on the patched tree: reported too much"


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


EATS = HEAD + (
    "def test_red():\n"
    "    if {side}:\n"
    "        open({group!r} + '/cgroup.procs', 'w').write(str(os.getpid()))\n"
    "        bytes(256 << 20).upper()\n"
    "    assert rectangle(2, 3) == 6\n"
)


@pytest.mark.parametrize("group", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("side", "code"),
    [
        ("ON_BASE", 3),
        pytest.param("not ON_BASE", 1, marks=pytest.mark.slow),
        pytest.param("True", 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("unsandboxed")
def test_what_the_kernel_kills_for_memory_is_the_patchs_on_the_patched_tree_alone(
    toy: Toy,
    program: Program,
    group: Path,  # noqa: F811  the fixture
    side: str,
    code: int,
) -> None:
    (group / "memory.limit_in_bytes").write_text(str(128 * 2**20))
    text = EATS.format(side=side, group=str(group))
    toy.put_patch(checks=one_check(reason="5 == 6"), check_files={"test_red.py": text})
    toy.put_queue(["area"])
    ran = program("verify", "area", "--json")
    assert ran.code == code, ran.out + ran.err
    red = ran.stages()["reproduce red"]
    where = "on the patched tree" if code == 1 else "on the base"
    said = f"red: {where}, out of memory in test_red.py::test_red: killed by the kernel"
    assert red.reason == said
    told = fault_of(red)
    assert (told is not None) == (code == 3)
    assert told is None or told.kind == "out-of-memory"


@pytest.mark.parametrize(("side", "code"), [("ON_BASE", 3), ("not ON_BASE", 1)])
def test_a_full_disk_is_the_patchs_where_it_lacks_on_the_patched_tree_alone(
    toy: Toy, program: Program, side: str, code: int
) -> None:
    text = HEAD + (
        f"def test_red():\n    if {side}:\n"
        "        os.write(os.open('/dev/full', os.O_WRONLY), b'x')\n"
        "    assert rectangle(2, 3) == 6\n"
    )
    toy.put_patch(checks=one_check(reason="5 == 6"), check_files={"test_red.py": text})
    toy.put_queue(["area"])
    ran = program("verify", "area", "--json")
    assert ran.code == code
    told = fault_of(ran.stages()["reproduce red"])
    assert told is None if code == 1 else told is not None
    assert told is None or told.kind == "disk-full"


def test_a_disk_with_room_is_not_full(tmp_path: Path) -> None:
    before = list(tmp_path.iterdir())
    assert not is_full(tmp_path)
    assert list(tmp_path.iterdir()) == before


#: Prints what a full disk says, and has room.
SAYS = "print(OSError(28, 'No space left on device'))"


@pytest.mark.parametrize("sides", [(SAYS, "pass"), (SAYS, SAYS)])
def test_words_of_a_full_disk_that_a_check_prints_are_no_full_disk(
    toy: Toy, program: Program, sides: tuple[str, str]
) -> None:
    put(toy, check(*sides))
    ran = program("verify", "area", "--json")
    assert ran.stages()["reproduce red"].outcome == "passed", ran.out
    assert ran.code == 0


FULL = b"OSError: [Errno 28] No space left on device"


def reported(folder: Path, output: bytes, *events: dict[str, object], code: int = 1) -> CheckRun:
    """Return what becomes of a report in a folder, and of what was written."""
    report = folder / "report.jsonl"
    report.write_text("".join(f"{json.dumps(one)}\n" for one in events))
    done = process.Supervised(
        code, timed_out=False, flooded=False, starved=False, stuck=False, output=output, seconds=1
    )
    return read_report(report, done, {}, limit=60, scrub=Scrub(folder, folder))


def test_a_disk_is_full_where_writing_fails_or_the_check_did(tmp_path: Path) -> None:
    test, end = {"test": "test_red"}, {"event": "end", "status": 1}
    red: dict[str, object] = {"event": "phase", **test, "when": "call", "outcome": "failed"}
    other: dict[str, object] = {**red, "message": "AssertionError: 5"}
    assert reported(tmp_path, FULL, other, end).told == ""
    # What the test was ended by, or what ended before it could say so.
    for events in (({**red, "message": FULL.decode()}, end), (other,), ()):
        assert reported(tmp_path, FULL, *events).told == "the disk is full"
    with small_disk(tmp_path / "disk", "size=1m") as folder:
        assert reported(folder, FULL, other, end).told == "the disk is full"
        assert reported(folder, b"", other, end).told == ""
