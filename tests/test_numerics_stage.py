"""The stage `numerics` on a real queue, and grids under a plain pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from contribbot.cli.output import worst_lines
from contribbot.model.checks import Numerics
from contribbot.model.evidence import Outcome, StageResult
from contribbot.numerics.records import CellRecord, Digests, OutputRecord
from contribbot.verify.pytest_run import CheckRun, Failure
from contribbot.verify.stages.numerics import MOST_CELLS, judge_cells
from contribbot.verify.verdict import Cause, sentence
from tests.conftest import Program, Ran, dig
from tests.toy import AREA, FIXED, Toy

HEAD = """\
import pytest
import torch
from contribbot.numerics import Draw, Grid
from toy.area import rectangle, square

GRID = Grid({"dtype": [torch.float16, torch.float32], "shape": [(2, 3), (5,)]}, seeds=3)

"""
JUDGED = (
    HEAD
    + """
@GRID.each_cell
def test_area(draw: Draw) -> None:
    x, y = draw.normal(*draw.shape, mean=3.0), draw.normal(*draw.shape, mean=3.0)
    draw.judge(
        "area", lambda: rectangle(x, y), reference=x.double() * y.double(), same_precision=x * y
    )
"""
)
REASON = "^AssertionError: float(16|32) [x0-9]+ seed [012]: area: max abs error .* times the same-"


def entry(*, expect: str = "fail-to-pass", reason: str = REASON, more: str = "") -> str:
    """Return the table of one entry."""
    stated = f"reason = '{reason}'\n" if reason else ""
    return (
        f'[[numerics]]\nname = "grid"\nfile = "test_grid.py"\nexpect = "{expect}"\n{stated}'
        f'fudge = 2\nfloor = 1e-9\nwhy = "A product is rounded once."\n{more}\n'
    )


def ran(toy: Toy, program: Program, check: str, stated: str, **changes: str) -> StageResult:
    """Verify a patch with one entry; return what the stage made of it."""
    patch = toy.format_patch({"src/toy/area.py": changes.get("fixed", FIXED)})
    toy.put_patch(patch=patch, checks=stated, check_files={"test_grid.py": check})
    toy.put_queue(["area"])
    return verified(program)


def verified(program: Program) -> StageResult:
    done: Ran = program("verify", "area", "--json")
    assert done.out, done.err
    return done.stages()["numerics grid"]


def test_a_wrong_base_and_a_right_patch(toy: Toy, program: Program) -> None:
    result = ran(toy, program, JUDGED, entry())

    assert result.outcome is Outcome.PASSED, result.reason
    text = "grid: 4 cells: patched error at most 1 times the same-precision reference's (allowed 2)"
    assert result.reason.startswith(text + "; base up to ")
    details = result.details
    assert (details["fudge"], details["floor"]) == (2.0, 1e-9)
    assert details["why"] == "A product is rounded once."
    totals = {"cells": 4, "failed": 0, "elements": 66, "mismatches": 0, "non_finite": 0}
    for name, number in totals.items():
        assert dig(details, "totals", "patched", name) == number
    assert dig(details, "totals", "base", "failed") == 4
    by = str(details["judged_by_sha256"])
    cells = dig(details, "cells", "base")
    assert isinstance(cells, list)
    first = CellRecord.model_validate(cells[0])
    assert (first.test, first.cell, first.seeds) == (
        "test_grid.py::test_area[float16 2x3]", "float16 2x3", (0, 1, 2),
    )  # fmt: skip
    assert first.axes == {"dtype": "float16", "shape": "2x3"}
    (output,) = first.outputs
    assert f"seed {output.worst_seed}: area: {output.complaint}" in first.failed
    assert output.place is not None
    assert output.max_abs > output.allowed > 0
    assert output.elements == 18
    assert 0 < output.mismatches <= 18
    lines = worst_lines(result)
    assert lines[0] == "  worst on the patched tree:"
    assert len(lines) == 8
    assert "area: max abs" in lines[-1]

    again = verified(program)
    assert again.cached
    mean = ran(toy, program, JUDGED.replace("mean=3.0", "mean=2.0"), entry())
    assert len(by) == 64
    assert by not in str(mean.details["judged_by_sha256"])


@pytest.mark.slow
def test_a_patch_whose_numbers_are_too_coarse_is_refuted(toy: Toy, program: Program) -> None:
    coarse = FIXED.replace("width * height", "width * height * 1.01")
    result = ran(toy, program, JUDGED, entry(), fixed=coarse)
    assert result.outcome is Outcome.FAILED
    assert "fails on the patched tree: test_grid.py::test_area[float16 2x3]: Asser" in result.reason
    assert "; allowed 2 times" in result.reason
    assert dig(result.details, "totals", "patched", "failed") == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        # Its reason would match: a broken check is never the stated reason.
        (("y.double()", "y.double() * float('nan')"),
         "on the base: {}: CannotJudgeError: the float64 reference is NaN or infinite at (0, 0)"),
        # The same function on both trees, and the wrong one to ask.
        (("y.double()", "square(y.double()) / y"),
         "on the base: {}: CannotJudgeError: area: toy/area.py: square ran in the test itself"),
        # What the tree says without running.
        (("y.double()", "y.double() * len(open(rectangle.__code__.co_filename).read())"),
         "inputs and references must be the same on both trees: {}: area seed 0: other references"),
        (("mean=3.0", "mean=len(open(rectangle.__code__.co_filename).read())"),
         "inputs and references must be the same on both trees: {}: area seed 0: other inputs"),
    ],
)  # fmt: skip
def test_what_says_nothing_of_the_patch(
    toy: Toy, program: Program, change: tuple[str, str], words: str
) -> None:
    stated = entry(reason="CannotJudgeError|AssertionError: float")
    result = ran(toy, program, JUDGED.replace(*change), stated)
    assert result.outcome is Outcome.UNAVAILABLE
    assert result.reason.startswith("grid: the check is broken")
    assert words.format("test_grid.py::test_area[float16 2x3]") in result.reason


@pytest.mark.slow
def test_what_is_skipped_is_said_and_a_cell_that_stops_half_way_is_no_pass(
    toy: Toy, program: Program
) -> None:
    exact = JUDGED.replace(
        "rectangle(x, y), reference=x.double() * y.double(), same_precision=x * y",
        "square(x), reference=x.double() ** 2, same_precision=x * x",
    )
    some = exact.replace(
        "@GRID.each_cell\n",
        "@GRID.each_cell\n@pytest.mark.parametrize("
        "'n', [0, pytest.param(1, marks=pytest.mark.skip(reason='later'))])\n",
    ).replace("draw: Draw", "draw: Draw, n: int")
    result = ran(toy, program, some, entry(expect="pass-to-pass", reason=""))
    assert result.outcome is Outcome.PASSED, result.reason
    assert result.reason.endswith("; base up to 1 times; 4 tests skipped")

    half = exact + "    if draw.seed == 1 and draw.shape == (5,):\n        pytest.skip('enough')\n"
    result = ran(toy, program, half, entry(expect="pass-to-pass", reason=""))
    assert result.outcome is Outcome.FAILED
    assert result.reason == (
        "grid: judged bad, though its test did not fail: "
        "test_grid.py::test_area[float16 5]: Skipped: enough"
    )


@pytest.mark.slow
def test_names_that_no_text_can_hold_are_spelled_out(toy: Toy, program: Program) -> None:
    check = JUDGED.replace("[(2, 3), (5,)]", '[(5,)], "odd": ["\\ud800\\x1b[2J"]').replace(
        '"area", lambda', '"\\udfff", lambda'
    )
    result = ran(toy, program, check, entry(reason="max abs error"))
    assert result.outcome is Outcome.PASSED, result.reason
    assert dig(result.details, "cells", "base", 0, "axes", "odd") == "\\ud800\x1b[2J"
    assert dig(result.details, "cells", "base", 0, "outputs", 0, "name") == "\\udfff"


@pytest.mark.slow
def test_a_base_that_raises_gives_no_result_and_keeps_its_reason(
    toy: Toy, program: Program
) -> None:
    check = JUDGED.replace("lambda: rectangle(x, y)", "lambda: area(x, y)").replace(
        "@GRID", "def area(x, y):\n    found = rectangle(x, y)\n"
        "    if float((found - x * y).abs().max()) > 0.1:\n"
        '        raise ValueError(f"no rectangle in {__file__}")\n    return found\n\n@GRID'
    )  # fmt: skip
    result = ran(toy, program, check, entry(reason="^ValueError: no rectangle"))
    assert result.outcome is Outcome.PASSED, result.reason
    assert result.reason.endswith("; base gives no result in any")
    failed = dig(result.details, "cells", "base", 0, "failed")
    assert failed == "ValueError: no rectangle in <run>/checks/test_grid.py"


@pytest.mark.slow
def test_what_must_stay_bit_for_bit(toy: Toy, program: Program) -> None:
    check = JUDGED.replace(
        'draw.judge(\n        "area", lambda: rectangle(x, y), reference=x.double() * y.double(), '
        "same_precision=x * y\n    )",
        'draw.judge_exact("square", lambda: square(x), x * x)',
    )
    assert "judge_exact" in check
    result = ran(toy, program, check, entry(expect="pass-to-pass", reason=""))
    assert result.outcome is Outcome.PASSED, result.reason
    assert result.reason == "grid: 4 cells: 66 elements bit-identical; base the same bits"

    other = FIXED.replace("side * side", "side * side * 1.01")
    result = ran(toy, program, check, entry(expect="pass-to-pass", reason=""), fixed=other)
    assert result.outcome is Outcome.FAILED
    assert "square: 6 of 6 elements differ, first at (0, 0): " in result.reason


def test_no_such_hardware_is_unavailable(toy: Toy, program: Program) -> None:
    result = ran(toy, program, JUDGED, entry(more='requires = ["gfx942"]'))
    assert result.outcome is Outcome.UNAVAILABLE
    assert result.target == "gfx942"


# --- judging without running


NUMERICS = Numerics.model_validate(
    {
        "name": "grid", "file": "test_grid.py", "expect": "pass-to-pass", "fudge": 2.0,
        "floor": {"float16": 1e-3}, "why": "so",
    }
)  # fmt: skip


def cell(number: int, ratio: float | None = 1.0, failed: str = "", **other: object) -> CellRecord:
    """Return a cell with one result."""
    output = OutputRecord.model_validate(
        {
            "name": "y", "kind": "error", "dtype": "float16", "shape": (4,), "elements": 4,
            "mismatches": 0, "non_finite": 0, "worst_seed": 0, "place": (1,),
            "max_abs": ratio or 0.0, "max_rel": None, "reference_abs": 1.0, "allowed": 2.0,
            "largest": 9.0,
            "ratio": ratio, "complaint": failed, **other,
        }
    )  # fmt: skip
    name = f"float16 n={number}"
    return CellRecord(
        test=f"t.py::test[{name}]", cell=name, axes={"n": str(number % 7)}, seeds=(0,),
        digests=(digests(),), outputs=(output,), failed=failed,
    )  # fmt: skip


def digests(inputs: str = "a", references: str = "b", seed: int = 0) -> Digests:
    """Return what a result is judged by."""
    return Digests(seed=seed, result="y", inputs=inputs, references=references)


def run(*cells: CellRecord) -> CheckRun:
    """Return a run in which all tests passed but those of the cells that failed."""
    bad = [Failure(one.test, "call", f"E: {one.failed}") for one in cells if one.failed]
    passed = [one.test for one in cells if not one.failed]
    return CheckRun(passed=passed, failed=bad, cells=list(cells), status=bool(bad))


def judged(base: CheckRun, patched: CheckRun) -> tuple[Outcome, str]:
    """Return the outcome, and what is said of it."""
    judgement = judge_cells(NUMERICS, base, patched)
    return judgement.outcome, sentence(judgement)


def altered(one: CellRecord, **changes: object) -> CellRecord:
    """Return a cell with other fields."""
    return one.model_copy(update=changes)


GOOD, BAD = cell(1), cell(1, 9.0, "too far")
SILENT = altered(BAD, outputs=())
TWICE = (digests(), digests(seed=1))


@pytest.mark.parametrize(
    ("base", "patched", "cause"),
    [
        ([GOOD], [GOOD], Cause.GREEN_ON_BOTH),
        ([], [], Cause.SHOWS_NOTHING),
        # Each result of each cell shows something, or the entry shows nothing.
        ([GOOD, cell(2)], [GOOD, cell(2, vacuous=1)], Cause.SHOWS_NOTHING),
        ([GOOD, cell(2)], [GOOD, cell(2, elements=0, vacuous=3)], Cause.SHOWS_NOTHING),
        ([GOOD, cell(2, vacuous=1)], [GOOD, cell(2)], Cause.GREEN_ON_BOTH),
        # The base fails: it may end sooner, and not before it has what judges.
        ([BAD], [GOOD], Cause.RED_TO_GREEN),
        ([SILENT], [GOOD], Cause.RED_TO_GREEN),
        ([SILENT], [altered(GOOD, digests=TWICE)], Cause.RED_TO_GREEN),
        ([altered(SILENT, digests=())], [GOOD], Cause.REFERENCES_DIFFER),
        # Whatever it came to, it was not the same that was judged.
        ([GOOD], [altered(GOOD, digests=TWICE)], Cause.REFERENCES_DIFFER),
        ([GOOD], [altered(GOOD, seeds=(0, 1))], Cause.REFERENCES_DIFFER),
        ([GOOD], [altered(GOOD, axes={"n": "8"})], Cause.REFERENCES_DIFFER),
        ([GOOD, cell(2)], [GOOD], Cause.DIFFERENT_TESTS),
        *(
            ([altered(old, digests=(other,))], [new], Cause.REFERENCES_DIFFER)
            for other in (digests(inputs="c"), digests(references="c"), digests(seed=1))
            for old, new in ((GOOD, GOOD), (BAD, GOOD), (SILENT, GOOD), (BAD, BAD), (GOOD, BAD))
        ),
        # What the claim's own words refute stays refuted.
        ([GOOD], [BAD], Cause.FAILS_PATCHED),
        ([SILENT], [BAD], Cause.FAILS_PATCHED),
        ([BAD], [altered(BAD, digests=())], Cause.FAILS_PATCHED),
    ],
)
def test_cells_of_two_trees(
    base: list[CellRecord], patched: list[CellRecord], cause: Cause
) -> None:
    stated = {"expect": "fail-to-pass", "reason": "too far"} if base and base[0].failed else {}
    check = NUMERICS.model_copy(update=stated)
    both = [run(*cells) if cells else CheckRun(passed=["t"]) for cells in (base, patched)]
    assert judge_cells(check, both[0], both[1]).cause is cause


@pytest.mark.parametrize(
    ("base", "patched", "said"),
    [
        (run(GOOD), run(cell(1, vacuous=1)), (
            "it shows nothing of numbers: float16 n=1: zeros would pass for y: fudge and floor "
            "allow an error as large as the values")),
        (run(GOOD), run(cell(1, elements=0, vacuous=1), cell(2, vacuous=1)),
         "it shows nothing of numbers: float16 n=1: y is empty (and 1 more)"),
        (run(altered(GOOD, digests=(digests(references="c"),))), run(GOOD), (
            "the check is broken: inputs and references must be the same on both trees: "
            "t.py::test[float16 n=1]: y seed 0: other references")),
    ],
)  # fmt: skip
def test_what_is_said_of_cells(base: CheckRun, patched: CheckRun, said: str) -> None:
    base.passed = patched.passed
    assert judged(base, patched) == (Outcome.UNAVAILABLE, said)


@pytest.mark.parametrize(
    ("cells", "patched", "base"),
    [
        # 1.78e-5 of the floor, and as much as the reference errs.
        ([cell(1, 1.78e-5, reference_abs=1.78e-8, floor=1e-3)],
         "1.78e-05 times the floor", "1.78e-05 times the floor"),
        ([cell(1, 1.26)], "1.26 times the same-precision reference's", "1.26 times"),
        ([cell(1, 1.26, floor=1.0)], "1.26 times the same-precision reference's", "1.26 times"),
        ([cell(1, 1.0), cell(2, 1.5, reference_abs=0.0, floor=1e-3), cell(3, 1.2)],
         "1.2 times the same-precision reference's, 1.5 times the floor where that is larger",
         "1.5 times the floor"),
    ],
)  # fmt: skip
def test_the_figure_that_is_said_is_the_one_that_decided(
    cells: list[CellRecord], patched: str, base: str
) -> None:
    outcome, reason = judged(run(*cells), run(*cells))
    assert outcome is Outcome.PASSED
    said = reason.partition(": ")[2]
    assert said == f"patched error at most {patched} (allowed 2); base up to {base}"


def test_what_stays_bit_for_bit_and_what_is_skipped_is_said() -> None:
    exact = run(cell(1, kind="exact", ratio=None))
    exact.skipped.append("t.py::test[later]")
    assert judged(exact, exact) == (
        Outcome.PASSED, "1 cell: 4 elements bit-identical; base the same bits; 1 test skipped"
    )  # fmt: skip


def test_a_bad_cell_whose_test_passed_is_no_pass() -> None:
    patched = CheckRun(passed=[BAD.test], cells=[BAD])
    outcome, reason = judged(run(GOOD), patched)
    assert outcome is Outcome.FAILED
    assert reason == "judged bad, though its test did not fail: t.py::test[float16 n=1]: too far"


def test_the_base_is_told_as_it_is() -> None:
    base = [
        cell(1, 1700.0), cell(2, non_finite=2, mismatches=2),
        cell(3, elements=0, complaint="shape (1,) instead of (4,)"), altered(cell(4), outputs=()),
    ]  # fmt: skip
    patched = run(*(cell(number, 1.26) for number in range(1, 5)))
    outcome, reason = judged(run(*base), patched)
    assert outcome is Outcome.PASSED
    assert reason == (
        "4 cells: patched error at most 1.26 times the same-precision reference's (allowed 2); "
        "base gives no result in 1, NaN or infinite in 1, of another shape, dtype or device in 1, "
        "up to 1,700 times"
    )


def test_a_record_keeps_the_worst_of_each_group_of_many_cells() -> None:
    from contribbot.verify.stages import numerics

    many = [cell(number, 1 + number / 10_000) for number in range(1500)]
    kept = numerics._kept(many)
    names = {str(dig(one, "cell")) for one in kept}
    assert len(kept) == MOST_CELLS // 7 * 7
    assert {f"float16 n={number}" for number in range(1500 - 7 * 9, 1500)} == names
    assert len(numerics._kept(many[:MOST_CELLS])) == MOST_CELLS
    assert numerics.Totals.of(many).cells == 1500


def test_a_record_keeps_the_worst_results_of_a_cell_that_has_many() -> None:
    from contribbot.verify.stages import numerics

    one = cell(1)
    many = [cell(1, ratio, name=f"y{ratio}").outputs[0] for ratio in range(200)]
    (kept,) = numerics._kept([one.model_copy(update={"outputs": tuple(many)})])
    outputs = dig(kept, "outputs")
    assert isinstance(outputs, list)
    assert [dig(output, "name") for output in outputs] == [
        f"y{ratio}" for ratio in range(199, 199 - numerics.MOST_OUTPUTS, -1)
    ]


def test_lines_for_a_terminal_say_what_is_undefined_and_obey_nobody() -> None:
    odd = cell(1, non_finite=3, mismatches=3, complaint="\x1b[2Jbad")
    rest = (
        cell(2, elements=0, complaint="dtype \x1b[2J instead"),
        cell(3, kind="exact", ratio=None),
        cell(4, 0.5, name="\x1b]0;y", max_rel=0.25),
    )
    details = {"cells": {"patched": [one.model_dump(mode="json") for one in (odd, *rest)]}}
    result = StageResult(
        stage="numerics", target="cpu", outcome=Outcome.FAILED, reason="-", seconds=0,
        details=json.loads(json.dumps(details)),
    )  # fmt: skip
    lines = worst_lines(result)
    assert lines[0] == "  worst on the patched tree:"
    assert lines[1] == (
        "    float16 n=1 seed 0: y: 3 NaN or infinite, max abs 1, 1 times the same-precision "
        "reference's 1, 3 of 4 elements beyond, max rel undefined, at (1,)"
    )
    assert "\x1b" not in "".join(lines)
    assert worst_lines(result.model_copy(update={"details": {"cells": {"base": [{}, 3]}}})) == []
    assert worst_lines(result.model_copy(update={"details": {}})) == []


# --- plain pytest, without contribbot's plugin


def plain(tmp_path: Path, check: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a check file as a person does, beside a patch.toml that states its limits."""
    (tmp_path / "checks").mkdir()
    (tmp_path / "patch.toml").write_text(entry())
    (tmp_path / "checks/test_grid.py").write_text(check)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/__init__.py").touch()
    (tmp_path / "toy/area.py").write_text(AREA)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini",
         "--color=no", *args, "checks/test_grid.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_check_asserts_under_plain_pytest(tmp_path: Path) -> None:
    done = plain(tmp_path, JUDGED)
    assert done.returncode == 1
    assert "FAILED checks/test_grid.py::test_area[float32 5] - AssertionError: f" in done.stdout
    assert "4 failed" in done.stdout


@pytest.mark.slow
def test_all_seeds_run_and_the_worst_is_named(tmp_path: Path) -> None:
    check = HEAD + textwrap.dedent(
        """
        SEEN = []

        @pytest.fixture
        def by():
            return {0: 0.0, 1: 5.0, 2: 2.0}

        @Grid({"dtype": [torch.float32]}, seeds=3).each_cell
        @pytest.mark.parametrize("sign", [1, -1])
        def test_worst(draw: Draw, by, sign, request) -> None:
            SEEN.append((draw.seed, sign, request.node.name))
            one = draw.uniform(4)
            wrong = one + sign * by[draw.seed]
            draw.judge("fine", one.clone(), reference=one.double(), same_precision=one)
            draw.judge("sum", wrong, reference=one.double(), same_precision=one)

        def test_all_have_run():
            assert [(seed, sign) for seed, sign, _ in SEEN] == [
                (seed, sign) for sign in (1, -1) for seed in range(3)
            ]
            assert SEEN[0][2] == "test_worst[1-float32]"
        """
    )
    done = plain(tmp_path, check, "--deselect", "checks/test_grid.py::test_area")
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert "AssertionError: float32 seed 1: sum: max abs error 5 at (" in done.stdout
    assert "seed 2: sum" not in done.stdout


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("pass", "AssertionError: float32: nothing was judged"),
        pytest.param(
            "x = draw.normal(3)\n    for _ in 'ab':\n        draw.judge_exact('x', x.clone(), x)",
            "ValueError: x: judged twice with seed 0; give each result its name",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_test_that_judges_nothing_or_twice_fails(tmp_path: Path, body: str, words: str) -> None:
    check = HEAD + (
        '@Grid({"dtype": [torch.float32]}).each_cell\n'
        f"def test_it(draw: Draw) -> None:\n    {body}\n"
    )
    done = plain(tmp_path, check)
    assert done.returncode == 1
    assert words in done.stdout
