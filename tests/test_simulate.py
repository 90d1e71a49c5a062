"""Checks for a GPU under a program that stands in for one: counted apart, never alone a proof.

The program here is a script that sets a variable and runs the rest of its arguments: AMD's own
emulator was not tried.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contribbot.contribute.body import make_comment
from contribbot.model.evidence import Outcome
from contribbot.queue.load import load_queue
from contribbot.report.site import survey_of
from contribbot.runners.documents import CellState
from contribbot.runners.plan import make_plan, record_says
from contribbot.verify.evidence import read_records
from tests.conftest import Program
from tests.contribute.bodytoy import describe
from tests.hiptoy import program_file
from tests.runners.conftest import DIGEST, HOSTED, MI300
from tests.runners.test_work import asks, left, run
from tests.toy import FAIL_TO_PASS, Toy, one_check

TARGET = "rocjitsu:gfx942"
CHECK = """\
import os
from toy.area import rectangle


def test_it():
    assert os.environ["STANDS_IN"] == "gfx942 --profile mi300x"
    assert rectangle(2, 3) == 6
"""
#: What stands before the check's own command.
STANDS_IN = 'STANDS_IN="gfx942 $1 $2"; export STANDS_IN; shift 3; '
RUNNER = """\
[[runners]]
name = "rocjitsu"
target = "{target}"
labels = ["ubuntu-24.04"]
under = {under}
[[runners.rocm]]
version = "7.1"
image = "example.com/rocm/emulation@sha256:{digest}"
flags = []
"""


def runner(under: list[str], target: str = TARGET) -> str:
    return RUNNER.format(under=json.dumps(under), digest=DIGEST, target=target)


def put(toy: Toy, script: str, check: str = CHECK, more: str = "") -> Path:
    """Put a patch into the queue whose check wants a GPU, and a runner with a program for it."""
    stated = one_check(reason="^AssertionError: assert 5 == 6", more='requires = ["gfx942"]')
    toy.put_patch(
        checks=stated + more, check_files={"test_red.py": check, "test_cpu.py": FAIL_TO_PASS}
    )
    toy.put_queue(["area"])
    program = program_file(toy.root / "mirage", script)
    toy.put("runners.toml", runner([str(program), "--profile", "mi300x", "--"]))
    return program


def test_it_counts_as_a_target_of_its_own(toy: Toy, program: Program) -> None:
    put(toy, STANDS_IN + 'exec "$@"')

    ran = program("verify", "area", "--json")

    report = ran.report()
    results = {(row.stage, row.target): row for row in report.stages if row.label == "red"}
    assert results["reproduce", "gfx942"].outcome is Outcome.UNAVAILABLE
    simulated = results["simulate", TARGET]
    assert simulated.outcome is Outcome.PASSED, simulated.reason
    assert simulated.reason.endswith(f"(run under mirage as {TARGET}; not run on a GPU)")
    assert simulated.details["returned"] == ["test_red.py::test_it"]
    assert "mirage --profile mi300x -- python -m pytest" in str(simulated.details["patched"])
    # From red to green, and never alone a proof.
    assert (ran.code, report.verdict) == (3, "incomplete")
    said = program("verify", "area").out
    assert f"incomplete: red to green on {TARGET} alone, which proves nothing" in said
    for need, code in (("gfx942", 1), (f"simulate:{TARGET}", 0)):
        assert program("verify", "area", "--require", need).code == code
    ran = program("verify", "area", "--require", "simulate:other:gfx942")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_tables_and_pages_have_a_column_for_it(toy: Toy, program: Program) -> None:
    describe(toy)
    beside = one_check().replace('"red"', '"cpu"').replace("test_red", "test_cpu")
    put(toy, STANDS_IN + 'exec "$@"', more=beside)
    assert program("verify", "area").code == 0

    survey = survey_of(load_queue(toy.queue))

    columns = {cell.column.target: cell for cell in survey.report.patches[0].cells}
    assert [*columns] == ["cpu", "gfx942", TARGET]
    assert columns[TARGET].column.title == "gfx942, rocjitsu"
    assert [line.text for line in columns[TARGET].lines] == ["simulated"]
    assert [line.text for line in columns["gfx942"].lines] == ["not run"]
    pages = toy.root / "pages"
    assert program("evidence", "report", pages).code == 0
    page = (pages / "index.html").read_text()
    assert "gfx942, rocjitsu" in page
    assert "AMD GPU has run" not in page
    # A text about it says so, and that the GPU itself ran nothing.
    toml = toy.queue / "patches/area/patch.toml"
    toml.write_text(toml.read_text().replace("problem =", 'pull = "a/b#1"\nproblem ='))
    text = make_comment(load_queue(toy.queue), "area").text
    assert f"| red | {TARGET} (run under a program: not on a GPU) | fails: " in text
    assert "**Not run** on gfx942." in text


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kill -KILL $$", "on the base: crashed: SIGKILL; the command, or what it ran"),
        ("exit 0", "on the base: ended early with exit status 0; the command"),
        ("echo no such device >&2; exit 3", "on the base: ended early with exit status 3; the"),
        # It loses how the check ended.
        (STANDS_IN + '"$@"; exit 0', "on the base: ended early in test_red.py::test_it with exit"),
    ],
)
def test_a_program_that_ends_itself_decides_nothing(
    toy: Toy, program: Program, script: str, said: str
) -> None:
    put(toy, script)
    (result,) = (row for row in program("verify", "area", "--json").report().stages
                 if row.stage == "simulate")  # fmt: skip
    assert result.outcome is Outcome.UNAVAILABLE
    assert said in result.reason
    assert "under mirage, on" in result.reason


def test_output_that_is_swallowed_takes_nothing_away(toy: Toy, program: Program) -> None:
    put(toy, STANDS_IN + 'exec "$@" >/dev/null 2>&1')
    assert program("verify", "area", "--require", f"simulate:{TARGET}").code == 0


def test_a_program_that_is_not_there_is_one_line(toy: Toy, program: Program) -> None:
    put(toy, "").unlink()
    ran = program("verify", "area", "--json")
    (result,) = (row for row in ran.report().stages if row.stage == "simulate")
    assert result.outcome is Outcome.UNAVAILABLE
    assert "mirage here, under which checks run as rocjitsu:gfx942 (runners.toml)" in result.reason
    assert f"simulate:{TARGET}" in ran.report().open
    said = program("doctor").out
    assert f"    not here  {TARGET}: simulate\n              no " in said
    assert "\nsimulates" not in said
    put(toy, "")
    said = program("doctor").out
    assert f"    here      {TARGET}: simulate\n" in said
    assert f"\nsimulates     {TARGET}\n" in said


def test_a_job_of_the_runner_is_planned_run_and_judged(toy: Toy, program: Program) -> None:
    put(toy, STANDS_IN + 'exec "$@"')
    own = (toy.queue / "runners.toml").read_text()
    # GitHub's own runner may do both: neither has a GPU.
    toy.put("runners.toml", own + MI300 + HOSTED)
    plan = make_plan(load_queue(toy.queue), ["area"])
    jobs = {job.target: job for job in plan.jobs}
    job = jobs[TARGET]
    assert (job.id, job.flags) == ("rocjitsu-gfx942-rocm7.1-1", ())
    assert job.asks == {"area": (f"simulate:{TARGET}",)}
    assert jobs["gfx942"].asks == {"area": ("reproduce:gfx942",)}

    ran = run(program, {**asks("area", require=f"simulate:{TARGET}"), "CONTRIBBOT_JOB": job.id})

    assert ran.code == 0, ran.out + ran.err
    assert left(toy).patches[0].exit_code == 0
    (path,) = (toy.queue / "answer/records/area").iterdir()
    # Its record answers the cell, and no other.
    toy.put(f"evidence/area/{path.name}", path.read_bytes())
    queue = load_queue(toy.queue)
    (record,) = read_records(queue, queue.evidence, "area")
    assert record_says(record, job.cells[0].require, None) == "passed"
    assert record_says(record, jobs["gfx942"].cells[0].require, None) == ""
    assert job.cells[0].good is CellState.SIMULATED


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (f'"{TARGET}"', '"gfx942"', "under: what runs under a program counts as a target of its"),
        ("under = ", "# under = ", "under: what runs under a program counts as a target of its"),
        (TARGET, "emulated:gfx942", "what `emulated:` says of a target is another thing"),
        (TARGET, "Mi 300:gfx942", "'Mi 300:gfx942' is not a target such as gfx942, or rocjitsu"),
        ("flags = []\n", "", "rocm: there is no GPU to hand to a container of rocjitsu:gfx942"),
    ],
)
def test_a_runner_that_would_count_as_a_gpu_is_refused(
    toy: Toy, program: Program, before: str, after: str, said: str
) -> None:
    put(toy, "")
    text = (toy.queue / "runners.toml").read_text()
    assert before in text
    toy.put("runners.toml", text.replace(before, after))
    ran = program("runners", "matrix")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "runners.toml:" in ran.err
    assert said in ran.err
