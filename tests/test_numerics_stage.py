"""The stage `numerics` on a real queue, and grids under a plain pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contribbot.cli.outcomes import detail_blocks, worst_blocks
from contribbot.cli.render import lines_of
from contribbot.model.checks import Numerics
from contribbot.model.evidence import Outcome, StageResult
from contribbot.model.record import CellRecord, Digests, NumericsDetails, OutputRecord
from contribbot.verify.pytest_run import CheckRun, FailedTest
from contribbot.verify.stages import numerics
from contribbot.verify.stages.numerics import MOST_CELLS, judge_cells
from contribbot.verify.verdict import Cause, sentence
from tests.conftest import Program, Ran, dig
from tests.records import NUMERICS as JUDGED_RECORD
from tests.records import seen
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
    stated = f"reason = '{reason}'\n" if reason else ""
    return (
        f'[[numerics]]\nname = "grid"\nfile = "test_grid.py"\nexpect = "{expect}"\n{stated}'
        f'fudge = 2\nfloor = 1e-9\nwhy = "A product is rounded once."\n{more}\n'
    )


def ran(toy: Toy, program: Program, check: str, stated: str, **changes: str) -> StageResult:
    patch = toy.format_patch({"src/toy/area.py": changes.get("fixed", FIXED)})
    toy.put_area(patch=patch, checks=stated, check_files={"test_grid.py": check})
    return verified(program)


def verified(program: Program) -> StageResult:
    done: Ran = program("verify", "area", "--json")
    assert done.out, done.err
    return done.stages()["numerics grid"]


@pytest.mark.slow
def test_a_wrong_base_and_a_right_patch(toy: Toy, program: Program) -> None:
    result = ran(toy, program, JUDGED, entry())

    assert result.outcome is Outcome.PASSED, result.reason
    text = "grid: 4 cells: patched error at most 1 times the same-precision reference's (allowed 2)"
    assert result.reason.startswith(text + "; base up to ")
    assert isinstance(result.details, NumericsDetails)
    details = result.details.numerics
    assert (details.fudge, details.floor) == (2.0, 1e-9)
    assert details.why == "A product is rounded once."
    totals = dig(details, "totals", "patched")
    assert [dig(totals, name) for name in ("cells", "failed", "elements")] == [4, 0, 66]
    assert dig(details, "totals", "base", "failed") == 4
    by = details.judged_by_sha256
    first = details.cells.base[0]
    assert (first.test, first.cell, first.seeds) == (
        "test_grid.py::test_area[float16 2x3]", "float16 2x3", (0, 1, 2),
    )  # fmt: skip
    assert first.axes == {"dtype": "float16", "shape": "2x3"}
    (output,) = first.outputs
    assert f"seed {output.worst_seed}: area: {output.complaint}" in first.failed
    assert output.max_abs > output.allowed > 0
    assert (output.elements, 0 < output.mismatches <= 18) == (18, True)
    assert len(worst_blocks(details)) == 8

    assert verified(program).cached
    mean = ran(toy, program, JUDGED.replace("mean=3.0", "mean=2.0"), entry())
    assert len(by) == 64
    assert by not in str(dig(mean.details, "numerics", "judged_by_sha256"))


JUDGE = (
    'draw.judge(\n        "area", lambda: rectangle(x, y), reference=x.double() * y.double(), '
    "same_precision=x * y\n    )"
)
EXACT = JUDGED.replace(JUDGE, 'draw.judge_exact("square", lambda: square(x), x * x)')
SQUARES = JUDGED.replace(
    "rectangle(x, y), reference=x.double() * y.double(), same_precision=x * y",
    "square(x), reference=x.double() ** 2, same_precision=x * x",
)
SOME = SQUARES.replace(
    "@GRID.each_cell\n",
    "@GRID.each_cell\n@pytest.mark.parametrize("
    "'n', [0, pytest.param(1, marks=pytest.mark.skip(reason='later'))])\n",
).replace("draw: Draw", "draw: Draw, n: int")
HALF = SQUARES + "    if draw.seed == 1 and draw.shape == (5,):\n        pytest.skip('enough')\n"
COARSE = FIXED.replace("width * height", "width * height * 1.01")
RED, GREEN = entry(), entry(expect="pass-to-pass", reason="")
#: Its reason would match: a broken check is never the stated reason.
BROKEN = entry(reason="CannotJudgeError|AssertionError: float")
FIRST = "test_grid.py::test_area[float16 2x3]"
#: A check, its entry, what the patch makes of the tree, the outcome and a part of the reason.
RUNS: dict[str, tuple[str, str, str, Outcome, str]] = {
    "too coarse": (JUDGED, RED, COARSE, Outcome.FAILED,
                   f"fails on the patched tree: {FIRST}: AssertionError: "),
    # The same function on both trees, and the wrong one to ask.
    "the tree as its own judge": (
        JUDGED.replace("y.double()", "square(y.double()) / y"), BROKEN, FIXED,
        Outcome.UNAVAILABLE, (f"on the base: {FIRST}: CannotJudgeError: area: toy/area.py: "
                             "square ran in the test itself")),
    "a reference from the tree at import": (
        JUDGED.replace("@GRID", "EXACT = square(torch.ones(1).double())\n\n@GRID", 1).replace(
            "y.double()", "y.double() * EXACT[0]"), BROKEN, FIXED,
        Outcome.UNAVAILABLE, (f"on the base: {FIRST}: CannotJudgeError: area: toy/area.py: "
                              "square gave a tensor while the check was imported")),
    "skipped": (SOME, GREEN, FIXED, Outcome.PASSED, "; base up to 1 times; 4 tests skipped"),
    "a cell that stops half way": (
        HALF, GREEN, FIXED, Outcome.FAILED,
        ("grid: judged bad, though its test did not fail: "
        "test_grid.py::test_area[float16 5]: Skipped: enough")),
    "the same bits": (EXACT, GREEN, FIXED, Outcome.PASSED,
                      "grid: 4 cells: 66 elements bit-identical; base the same bits"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_what_an_entry_comes_to(toy: Toy, program: Program, name: str) -> None:
    check, stated, fixed, outcome, said = RUNS[name]
    result = ran(toy, program, check, stated, fixed=fixed)
    assert result.outcome is outcome, result.reason
    assert said in result.reason


#: What passes, and should not: a check, and what the patch makes of the tree.
OPEN: dict[str, tuple[str, str]] = {
    "a reference by another thread": (
        JUDGED.replace("y.double()", "there(lambda: square(y.double()) / y)").replace(
            "@GRID", "def there(ask):\n    from concurrent.futures import ThreadPoolExecutor\n"
            "    return ThreadPoolExecutor(1).submit(ask).result()\n\n@GRID"), FIXED),
    "a reference by TorchScript": (
        JUDGED.replace("y.double()", "SCRIPT(y.double()) / y").replace(
            "@GRID", "SCRIPT = torch.jit.script(square)\n\n@GRID"), FIXED),
    "bfloat16 midway": (
        JUDGED.replace("same_precision=x * y", "same_precision=x * y.bfloat16().to(y.dtype)"),
        FIXED.replace("width * height", "width * height * 1.002")),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.xfail(reason="open: docs/numerics.md, docs/evidence.md", raises=AssertionError)
@pytest.mark.parametrize("name", OPEN)
def test_what_is_not_noticed(toy: Toy, program: Program, name: str) -> None:
    check, fixed = OPEN[name]
    assert ran(toy, program, check, RED, fixed=fixed).outcome is not Outcome.PASSED


@pytest.mark.slow
def test_a_base_that_raises_keeps_its_reason(toy: Toy, program: Program) -> None:
    check = JUDGED.replace("lambda: rectangle(x, y)", "lambda: area(x, y)").replace(
        "@GRID", "def area(x, y):\n    found = rectangle(x, y)\n"
        "    if float((found - x * y).abs().max()) > 0.1:\n"
        '        raise ValueError(f"no rectangle in {__file__}")\n    return found\n\n@GRID'
    )  # fmt: skip
    result = ran(toy, program, check, entry(reason="^ValueError: no rectangle"))
    assert result.outcome is Outcome.PASSED, result.reason
    assert result.reason.endswith("; base gives no result in any; red again without the change")
    failed = dig(result.details, "numerics", "cells", "base", 0, "failed")
    assert failed == "ValueError: no rectangle in <run>/checks/test_grid.py"


# --- judging without running


NUMERICS = Numerics.model_validate(
    {
        "name": "grid", "file": "test_grid.py", "expect": "pass-to-pass", "fudge": 2.0,
        "floor": {"float16": 1e-3}, "why": "so",
    }
)  # fmt: skip


def cell(number: int, ratio: float | None = 1.0, failed: str = "", **other: object) -> CellRecord:
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
    return Digests(seed=seed, result="y", inputs=inputs, references=references)


def run(*cells: CellRecord) -> CheckRun:
    bad = [FailedTest(cell.test, "call", f"E: {cell.failed}") for cell in cells if cell.failed]
    passed = [cell.test for cell in cells if not cell.failed]
    return CheckRun(passed=passed, failed=bad, cells=list(cells), status=bool(bad))


def judged(base: CheckRun, patched: CheckRun) -> tuple[Outcome, str]:
    judgement = judge_cells(NUMERICS, base, patched)
    return judgement.outcome, sentence(judgement)


def altered(record: CellRecord, **changes: object) -> CellRecord:
    return record.model_copy(update=changes)


GOOD, BAD = cell(1), cell(1, 9.0, "too far")
SILENT = altered(BAD, outputs=())
TWICE = (digests(), digests(seed=1))
WRITES = digests().model_copy(update={"written": ("input 1",)})


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
        ([altered(SILENT, digests=())], [GOOD], Cause.DIFFERENT),
        # Whatever it came to, it was not the same that was judged.
        ([GOOD], [altered(GOOD, digests=TWICE)], Cause.DIFFERENT),
        ([GOOD], [altered(GOOD, seeds=(0, 1))], Cause.DIFFERENT),
        ([GOOD], [altered(GOOD, axes={"n": "8"})], Cause.DIFFERENT),
        ([GOOD, cell(2)], [GOOD], Cause.DIFFERENT),
        *(
            ([altered(old, digests=(other,))], [new], Cause.DIFFERENT)
            for other in (digests(inputs="c"), digests(references="c"), digests(seed=1))
            for old, new in ((GOOD, GOOD), (BAD, GOOD), (SILENT, GOOD), (BAD, BAD), (GOOD, BAD))
        ),
        # What the patched tree overwrites and the base leaves alone.
        *(
            ([old], [altered(GOOD, digests=(WRITES,))], Cause.DIFFERENT)
            for old in (GOOD, BAD, SILENT)
        ),
        ([altered(GOOD, digests=(WRITES,))], [GOOD], Cause.GREEN_ON_BOTH),
        # What the claim's own words refute stays refuted.
        ([GOOD], [BAD], Cause.FAILS_PATCHED),
        ([SILENT], [BAD], Cause.FAILS_PATCHED),
        ([BAD], [altered(BAD, digests=())], Cause.FAILS_PATCHED),
    ],
)
def test_two_trees(base: list[CellRecord], patched: list[CellRecord], cause: Cause) -> None:
    stated = {"expect": "fail-to-pass", "reason": "too far"} if base and base[0].failed else {}
    check = NUMERICS.model_copy(update=stated)
    both = [run(*cells) if cells else CheckRun(passed=["t"]) for cells in (base, patched)]
    assert judge_cells(check, both[0], both[1]).cause is cause


REFERENCES = "the same-precision reference's"
TINY = [cell(1, 1.78e-5, reference_abs=1.78e-8, floor=1e-3)]
MIXED = [cell(1, 1.0), cell(2, 1.5, reference_abs=0.0, floor=1e-3), cell(3, 1.2)]
#: Cells of the base and of the patched tree, and the sentence.
SENTENCES: list[tuple[list[CellRecord], list[CellRecord], str]] = [
    ([GOOD], [cell(1, vacuous=1, why_vacuous="it is empty"), cell(2, vacuous=1)],
     "it shows nothing of numbers: float16 n=1: y: it is empty (and 1 more)"),
    ([altered(GOOD, digests=(digests(inputs="a b"),))],
     [altered(GOOD, digests=(digests(inputs="a c"),))], (
        "the check is broken: inputs and references must be the same on both trees: "
        "t.py::test[float16 n=1]: y seed 0: other inputs, from number 2 of what is drawn on")),
    ([GOOD], [altered(GOOD, digests=(WRITES,))], (
        "the check is broken: inputs and references must be the same on both trees: "
        "t.py::test[float16 n=1]: y seed 0: input 1 is overwritten, and is not on the base: "
        "if callers allow that, hand over a clone of it")),
    ([altered(GOOD, digests=(WRITES,))], [altered(GOOD, digests=(WRITES,))],
     ("1 cell: patched error at most 1 times the same-precision reference's (allowed 2); "
     "base up to 1 times")),
    ([altered(GOOD, digests=(digests(references="c"),))], [GOOD], (
        "the check is broken: inputs and references must be the same on both trees: "
        "t.py::test[float16 n=1]: y seed 0: other references")),
    (TINY, TINY, (
        "1 cell: patched error at most 1.78e-05 times the floor (allowed 2); "
        "base up to 1.78e-05 times the floor")),
    ([cell(1, 1.26)], [cell(1, 1.26, floor=1.0)], (
        f"1 cell: patched error at most 1.26 times {REFERENCES} (allowed 2); "
        "base up to 1.26 times")),
    (MIXED, MIXED, (
        f"3 cells: patched error at most 1.2 times {REFERENCES}, 1.5 times the floor where that "
        "is larger (allowed 2); base up to 1.5 times the floor")),
    ([cell(1, 1700.0), cell(2, non_finite=2, mismatches=2),
      cell(3, elements=0, complaint="shape (1,) instead of (4,)"), altered(cell(4), outputs=())],
     [cell(number, 1.26) for number in range(1, 5)], (
         f"4 cells: patched error at most 1.26 times {REFERENCES} (allowed 2); base gives no "
         "result in 1, NaN or infinite in 1, of another shape, dtype or device in 1, up to "
         "1,700 times")),
]  # fmt: skip


@pytest.mark.parametrize(("base", "patched", "said"), SENTENCES)
def test_the_sentence(base: list[CellRecord], patched: list[CellRecord], said: str) -> None:
    runs = [CheckRun(passed=["t"], status=0, cells=cells) for cells in (base, patched)]
    judgement = judge_cells(NUMERICS, *runs)
    assert sentence(judgement) == said
    passed = "patched error" in said
    assert judgement.outcome is (Outcome.PASSED if passed else Outcome.UNAVAILABLE)


def test_a_record_keeps_the_worst_of_many_cells() -> None:
    many = [cell(number, 1 + number / 10_000) for number in range(1500)]
    outputs = tuple(cell(1, ratio, name=f"y{ratio}").outputs[0] for ratio in range(200))
    (crowded,) = numerics._worst([altered(many[0], outputs=outputs)])
    kept = numerics._worst(many)
    names = {record.cell for record in kept}
    assert {f"float16 n={number}" for number in range(1500 - MOST_CELLS, 1500)} == names
    assert len(kept) == len(numerics._worst(many[:MOST_CELLS])) == MOST_CELLS
    assert numerics.add_up(many).cells == 1500
    assert [output.name for output in crowded.outputs] == [
        f"y{ratio}" for ratio in range(199, 199 - numerics.MOST_OUTPUTS, -1)
    ]


def test_lines_for_a_terminal_say_what_is_undefined_and_obey_nobody() -> None:
    odd = cell(1, non_finite=3, mismatches=3, complaint="\x1b[2Jbad")
    cells = {"base": [], "patched": [odd, cell(4, 0.5, name="\x1b]0;y")]}
    judged = {**JUDGED_RECORD, "cells": cells}
    result = seen("numerics", outcome=Outcome.FAILED, numerics=judged)
    lines = [*lines_of(detail_blocks(result))]
    assert lines[:2] == [
        "worst on the patched tree:",
        (
            "  float16 n=1 seed 0: y: 3 NaN or infinite, max abs 1, 1 times the same-precision "
            "reference's 1, 3 of 4 elements beyond, max rel undefined, at (1,)"
        ),
    ]
    assert "\x1b" not in "".join(lines)


# --- plain pytest, without contribbot's plugin


#: All seeds run and the worst is named; a test that judges nothing, or twice, fails.
MORE = """
SEEN = []

@pytest.fixture
def by():
    return {0: 0.0, 1: 5.0, 2: 2.0}

@Grid({"dtype": [torch.float32]}, seeds=3).each_cell
@pytest.mark.parametrize("sign", [1, -1])
def test_worst(draw: Draw, by, sign, request) -> None:
    SEEN.append((draw.seed, sign, request.node.name))
    plain = draw.uniform(4)
    wrong = plain + sign * by[draw.seed]
    draw.judge("fine", plain.clone(), reference=plain.double(), same_precision=plain)
    draw.judge("sum", wrong, reference=plain.double(), same_precision=plain)

def test_all_have_run():
    assert [(seed, sign) for seed, sign, _ in SEEN] == [
        (seed, sign) for sign in (1, -1) for seed in range(3)
    ]
    assert SEEN[0][2] == "test_worst[1-float32]"

@Grid({"dtype": [torch.float32]}).each_cell
def test_nothing(draw: Draw) -> None:
    pass

@Grid({"dtype": [torch.float32]}).each_cell
def test_twice(draw: Draw) -> None:
    x = draw.normal(3)
    for _ in "ab":
        draw.judge_exact("x", x.clone(), x)
"""


def test_a_check_asserts_under_plain_pytest(tmp_path: Path) -> None:
    # As a person runs it, beside a patch.toml that states its limits.
    for name, text in {
        "patch.toml": entry(), "checks/test_grid.py": JUDGED + MORE, "toy/__init__.py": "",
        "toy/area.py": AREA, "pytest.ini": "[pytest]\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini",
         "--color=no", "checks/test_grid.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert "8 failed, 1 passed" in done.stdout
    for line in (
        "FAILED checks/test_grid.py::test_area[float32 5] - AssertionError: f",
        "AssertionError: float32 seed 1: sum: max abs error 5 at (",
        "AssertionError: float32: nothing was judged",
        "ValueError: x: judged twice with seed 0; give each result its name",
    ):
        assert line in done.stdout
    assert "seed 2: sum" not in done.stdout
