"""Checks for a GPU under a program that stands in for one: counted apart, never alone a proof.

The program here is a script that sets a variable and runs the rest of its arguments: AMD's own
emulator was not tried.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contribbot.model.evidence import Outcome
from tests.conftest import Program
from tests.hiptoy import program_file
from tests.runners.conftest import DIGEST
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
    put(toy, "")
