"""Stage `bench`: what `verify` makes of it on a small real queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.files import log_path
from tests.buildtoy import with_sources
from tests.conftest import Program, dig
from tests.toy import AREA, FAIL_TO_PASS, FIXED, Toy, one_check

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
    fixed = FIXED.replace("return side * side", f"{LOOP}\n    return area") if slower else FIXED
    return toy.put_area(
        patch=toy.format_patch({"src/toy/area.py": fixed}),
        checks=entry(at_least, more),
        check_files={"test_red.py": FAIL_TO_PASS, "bench_area.py": BENCH},
    )


def test_a_patch_that_costs_nothing_has_figures(toy: Toy, program: Program) -> None:
    folder = put(toy, 0.1, more='env = { WIDTH = "3" }')
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

    ran = program.ok("verify", "area", "--json", PERSONAL_TOKEN="mine")  # noqa: S106  none
    seen = ran.stages()["bench squares"]
    assert (seen.outcome, seen.target, seen.cached) == ("passed", "cpu", False)
    assert seen.reason.startswith("squares: 1 case: ")
    for side in ("base", "patched"):
        kept = dig(seen.details, "cases", 0, side)
        low, seconds, high = (float(str(dig(kept, key))) for key in ("low", "seconds", "high"))
        assert 1e-6 < low <= seconds <= high < 1
        command = "python -B -m contribbot.bench.child bench_area.py"
        assert dig(seen.details, side, "command") == command
        assert dig(seen.details, side, "log_tail") == 6 * "from a file beside it 3 cpu\n"
        digest = str(dig(seen.details, side, "log_sha256"))
        assert log_path(toy.queue / ".contribbot/logs", digest).is_file()
    assert dig(seen.details, "cases", 0, "case") == "squares"
    program.ok("evidence", "check")


@pytest.mark.slow
def test_a_slower_patch_is_refuted_until_it_claims_less(toy: Toy, program: Program) -> None:
    folder = put(toy, 0.5, slower=True)
    ran = program("verify", "area", "--json")
    again = program("verify", "area", "--json").stages()["bench squares"]
    spec = folder / "patch.toml"
    spec.write_text(spec.read_text().replace("at_least = 0.5", "at_least = 0.0001"))
    modest = program("verify", "area", "--json").stages()
    assert ran.code == 1
    assert ran.report().verdict == "refuted"
    reason = ran.stages()["bench squares"].reason
    assert reason.startswith("squares: squares: 0.")
    assert reason.endswith(" the base's speed, and at least 0.5 is claimed")
    assert (again.cached, again.reason) == (True, reason)
    # Another claim is measured again.
    assert (modest["apply"].cached, modest["bench squares"].cached) == (True, False)
    assert modest["bench squares"].outcome == "passed"


SLOW = AREA.replace("return side * side", f"{LOOP}\n    return area")
LIST = BENCH.replace("400", "20")
TRIES = """\
def squares(sides):
    try:
        return [area.square(side) for side in sides]
    except ArithmeticError:
        return sides


def cases():
    yield bench.Case("squares", prepare, squares)
"""


@pytest.mark.parametrize(
    ("fast", "body", "verdict", "reason"),
    [
        pytest.param("return side * side", "", "proved", "with the same results", id="faster"),
        pytest.param("return side + side", "", "incomplete", "but the results differ", id="wrong",
                     marks=pytest.mark.slow),
        pytest.param("raise ArithmeticError(side)", TRIES, "refuted",
                     "squares: returns its inputs or nothing on the patched tree only",
                     id="the input again"),
        pytest.param("return side * side", TRIES.replace("return [", "["), "incomplete",
                     "returns no result to compare", id="no result", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_gain_proves_where_results_are_the_same(
    toy: Toy, program: Program, *, fast: str, body: str, verdict: str, reason: str
) -> None:
    with_sources(toy, {"src/toy/area.py": SLOW})
    changed = SLOW.replace(f"{LOOP}\n    return area", fast)
    toy.put_area(
        patch=toy.format_patch({"src/toy/area.py": changed}),
        checks=entry(2).partition("\n\n")[2],
        check_files={"bench_area.py": LIST.partition("def cases")[0] + body if body else LIST},
    )
    ran = program("verify", "area", "--json")
    assert ran.report().verdict == verdict, ran.err
    assert reason in ran.stages()["bench squares"].reason
    line = "area: proved faster on cpu: the same results in less time"
    assert (line in ran.err) == (verdict == "proved")
    program.ok("evidence", "check")


def test_hardware_and_modules_that_are_not_here_leave_it_open(toy: Toy, program: Program) -> None:
    put(toy, 0.5, more='requires = ["gfx942"]')
    ran = program.ok("verify", "area", "--json")
    seen = ran.stages()["bench squares"]
    assert (seen.outcome, seen.reason) == ("unavailable", "squares: no gfx942 on this machine")
    assert ran.report().open == ("gfx942",)
    assert program("verify", "area", "--require", "bench:gfx942").code == 1
    put(toy, 0.5, more='requires = ["cpu", "python:no_such_module_here"]')
    seen = program("verify", "area", "--json").stages()["bench squares"]
    assert seen.reason == "squares: Python modules that are not installed: no_such_module_here"


BEFORE = "prepare, lambda sides: "


@pytest.mark.parametrize(
    ("text", "reason", "lasting"),
    [
        pytest.param(
            BENCH.replace(BEFORE, f"{BEFORE}os.abort() or "),
            "squares: squares: on the base: crashed: SIGABRT", False, marks=pytest.mark.slow),
        (BENCH.replace(BEFORE, f"{BEFORE}open(area.__file__ + 'x') or "),
         ("squares: squares: fails on both sides: FileNotFoundError: [Errno 2] "
         "No such file or directory: '<tree>/toy/area.pyx'"), True),
        pytest.param(
            f"{BENCH}\n\nopen(os.environ['CONTRIBBOT_TREE'] + '/README', 'a').write('more')\n",
            "squares: wrote into the tree: README", False, marks=pytest.mark.slow),
    ],
    ids=["crashes", "raises", "meddles"],
)  # fmt: skip
def test_a_bench_that_fails_is_remembered_where_it_would_again(
    toy: Toy, program: Program, text: str, reason: str, *, lasting: bool
) -> None:
    folder = put(toy, 0.01)
    (folder / "checks/bench_area.py").write_text(text)
    ran = program("verify", "area", "--json")
    seen = ran.stages()["bench squares"]
    assert (ran.code, seen.reason) == (1, reason)
    assert str(toy.root.parent) not in seen.model_dump_json()
    again = program("verify", "area", "--json").stages()
    assert (again["reproduce red"].cached, again["bench squares"].cached) == (True, lasting)
