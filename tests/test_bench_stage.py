"""Stage `bench`: what `verify` makes of it on a small real queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import dig
from tests.toy import FAIL_TO_PASS, FIXED, one_check

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Program
    from tests.toy import Toy

#: Takes time in proportion to the times that the tree's function is called.
BENCH = """\
import os

from toy import area
from contribbot import bench


def prepare():
    return (list(range(400)),)


def cases():
    yield bench.Case("squares", prepare, lambda sides: [area.square(side) for side in sides])
"""
LOOP = "for _ in range(200):\n        area = side * side"


def entry(at_least: float, more: str = "") -> str:
    red = one_check(reason="^AssertionError: assert 5 == ")
    return (
        f'{red}\n[[bench]]\nname = "squares"\nfile = "bench_area.py"\nat_least = {at_least}\n'
        f"rounds = 6\n{more}\n"
    )


def put(toy: Toy, at_least: float, *, slower: bool = False, more: str = "") -> Path:
    """Write a patch that fixes the area, and makes `square` a lot more work or not."""
    fixed = FIXED.replace("return side * side", f"{LOOP}\n    return area") if slower else FIXED
    folder = toy.put_patch(
        patch=toy.format_patch({"src/toy/area.py": fixed}),
        checks=entry(at_least, more),
        check_files={"test_red.py": FAIL_TO_PASS, "bench_area.py": BENCH},
    )
    toy.put_queue(["area"])
    return folder


def test_a_patch_that_costs_nothing_passes_and_the_record_holds_the_figures(
    toy: Toy, program: Program
) -> None:
    put(toy, 0.1)

    ran = program("verify", "area", "--json")

    assert ran.code == 0, ran.err
    seen = ran.stages()["bench squares"]
    assert (seen.outcome, seen.target, seen.cached) == ("passed", "cpu", False)
    assert seen.reason.startswith("squares: 1 case: ")
    for side in ("base", "patched"):
        seconds, low, high = (
            dig(seen.details, "cases", 0, side, key) for key in ("seconds", "low", "high")
        )
        assert isinstance(seconds, float)
        assert isinstance(low, float)
        assert isinstance(high, float)
        assert 1e-6 < low <= seconds <= high < 1
        assert dig(seen.details, side, "command") == (
            "python -B -m contribbot.bench.child bench_area.py"
        )
    assert dig(seen.details, "cases", 0, "case") == "squares"
    assert program("evidence", "check").code == 0


def test_a_slower_patch_is_refuted_and_that_is_remembered(toy: Toy, program: Program) -> None:
    put(toy, 0.5, slower=True)

    ran = program("verify", "area", "--json")

    assert ran.code == 1
    assert ran.report().verdict == "refuted"
    reason = ran.stages()["bench squares"].reason
    assert reason.startswith("squares: squares: 0.")
    assert reason.endswith(" the base's speed, and at least 0.5 is claimed")
    again = program("verify", "area", "--json").stages()["bench squares"]
    assert (again.cached, again.reason) == (True, reason)


@pytest.mark.slow
def test_a_claim_that_changes_is_measured_again(toy: Toy, program: Program) -> None:
    folder = put(toy, 0.01)
    assert program("verify", "area").code == 0
    spec = folder / "patch.toml"
    spec.write_text(spec.read_text().replace("at_least = 0.01", "at_least = 50.0"))

    ran = program("verify", "area", "--json")

    stages = ran.stages()
    assert (stages["apply"].cached, stages["bench squares"].cached) == (True, False)
    assert stages["bench squares"].outcome == "failed"


def test_hardware_and_modules_that_are_not_here_leave_it_open(toy: Toy, program: Program) -> None:
    put(toy, 0.5, more='requires = ["gfx942"]')

    ran = program("verify", "area", "--json")

    assert ran.code == 0, ran.err
    seen = ran.stages()["bench squares"]
    assert (seen.outcome, seen.reason) == ("unavailable", "squares: no gfx942 on this machine")
    assert ran.report().open == ("gfx942",)
    assert program("verify", "area", "--require", "bench:gfx942").code == 1

    put(toy, 0.5, more='requires = ["cpu", "python:no_such_module_here"]')
    seen = program("verify", "area", "--json").stages()["bench squares"]
    assert seen.reason == "squares: Python modules that are not installed: no_such_module_here"


@pytest.mark.slow
def test_the_bench_has_the_environment_of_a_check(toy: Toy, program: Program) -> None:
    folder = put(toy, 0.01, more='env = { WIDTH = "3" }')
    (folder / "checks/helper.py").write_text("NAME = 'from a file beside it'\n")
    (folder / "checks/bench_area.py").write_text(
        "import helper\nfrom pathlib import Path\n"
        + BENCH.replace(
            "def cases():\n",
            "def cases():\n"
            "    print(helper.NAME, os.environ['WIDTH'], bench.device())\n"
            "    assert Path(area.__file__).is_relative_to(os.environ['CONTRIBBOT_TREE'])\n"
            "    assert 'PERSONAL_TOKEN' not in os.environ\n"
            "    assert list(Path.home().iterdir()) == []\n",
        )
    )

    ran = program("verify", "area", "--json", PERSONAL_TOKEN="mine")  # noqa: S106  none

    seen = ran.stages()["bench squares"]
    assert seen.outcome == "passed", seen.reason
    assert dig(seen.details, "base", "log_tail") == 4 * "from a file beside it 3 cpu\n"
    digest = dig(seen.details, "patched", "log_sha256")
    assert (toy.queue / f".contribbot/logs/{digest}.log").is_file()


def test_a_crash_is_measured_again_the_next_time(toy: Toy, program: Program) -> None:
    folder = put(toy, 0.01)
    (folder / "checks/bench_area.py").write_text(
        BENCH.replace("prepare, lambda sides: ", "prepare, lambda sides: os.abort() or ")
    )

    ran = program("verify", "area", "--json")

    assert ran.code == 1
    assert ran.stages()["bench squares"].reason == (
        "squares: squares: on the base: crashed: SIGABRT"
    )
    again = program("verify", "area", "--json").stages()
    assert (again["reproduce red"].cached, again["bench squares"].cached) == (True, False)


def test_what_an_exception_says_names_no_folder_of_this_machine(toy: Toy, program: Program) -> None:
    folder = put(toy, 0.01)
    (folder / "checks/bench_area.py").write_text(
        BENCH.replace(
            "prepare, lambda sides: ", "prepare, lambda sides: open(area.__file__ + 'x') or "
        )
    )

    seen = program("verify", "area", "--json").stages()["bench squares"]

    assert seen.reason == (
        "squares: squares: fails on both sides: FileNotFoundError: [Errno 2] "
        "No such file or directory: '<tree>/toy/area.pyx'"
    )
    assert str(toy.root.parent) not in seen.model_dump_json()


@pytest.mark.slow
def test_a_bench_that_writes_into_the_tree_fails(toy: Toy, program: Program) -> None:
    folder = put(toy, 0.01)
    (folder / "checks/bench_area.py").write_text(
        f"{BENCH}\n\nopen(os.environ['CONTRIBBOT_TREE'] + '/README', 'a').write('more')\n"
    )

    ran = program("verify", "area", "--json")

    assert ran.stages()["bench squares"].reason == "squares: wrote into the tree: README"


def test_a_claim_of_memory_on_the_processor_is_refused_at_once(toy: Toy, program: Program) -> None:
    put(toy, 0.01, more="memory_at_most = 2.0")

    ran = program("verify", "area")

    assert ran.code == 2
    assert "memory_at_most: memory is measured on a GPU only" in ran.err


@pytest.mark.slow
def test_threads_that_no_machine_has_are_not_believed(toy: Toy, program: Program) -> None:
    put(toy, 0.01, more=f'env = {{ OMP_NUM_THREADS = "{"9" * 5000}" }}')

    ran = program("verify", "area", "--json")

    assert "internal error" not in ran.err
    assert ran.stages()["bench squares"].outcome in {"passed", "failed"}
