"""The command line itself: start-up, help, version, completion, errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import contribbot
from contribbot.cli.main import COMMANDS
from tests.conftest import Program
from tests.toy import Toy, one_check

HEAVY = (
    "torch", "github", "git", "pypi_simple", "unidiff", "rich", "pydantic", "pytest",
)  # fmt: skip


def imported(toy: Toy, *args: str) -> set[str]:
    """Return which heavy modules a command imports."""
    code = (
        "import sys\n"
        "sys.argv = ['contribbot', *sys.argv[1:]]\n"
        "from contribbot.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('IMPORTED', *[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=toy.queue, capture_output=True, text=True,
        check=True, env=dict(os.environ),  # readline puts COLUMNS beside it
    )  # fmt: skip
    return set(done.stderr.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("--help", ""),
        ("--version", ""),
        ("verify --help", "pydantic"),  # typer itself takes it for the options of a command
        ("queue list", "pydantic"),
        ("show area", "pydantic"),
        ("evidence check", "pydantic"),
        ("evidence show area", "pydantic"),
    ],
)
def test_a_command_that_only_reads_imports_little(area: Toy, line: str, most: str) -> None:
    assert imported(area, *line.split()) <= {*most.split()}


@pytest.mark.usefixtures("outcome_cache")
def test_verify_that_repeats_nothing_starts_no_test_runner(area: Toy, program: Program) -> None:
    program("verify", "area")
    assert imported(area, "verify", "area") <= {"pydantic", "rich"}


def test_the_help_of_every_command_fits_on_its_line(program: Program) -> None:
    assert program("--version").out == f"contribbot {contribbot.__version__}\n"
    assert "reorder" in program("queue", "--help").out
    out = program("--help", COLUMNS="80").out
    rows = {line.strip() for line in out.splitlines()}
    for name, (_, text) in COMMANDS.items():
        if " " not in name:
            assert any(row.split(maxsplit=1) == [name, text] for row in rows), name
    assert max(map(len, out.splitlines())) <= 80


def test_completion_of_the_installed_program() -> None:
    program = Path(sys.executable).with_name("contribbot")
    asked = {"_CONTRIBBOT_COMPLETE": "complete_bash", "COMP_WORDS": "contribbot ver"}
    asked |= {**os.environ, "COMP_CWORD": "1"}
    done = subprocess.run([program], env=asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["verify"]


def test_debug_shows_tracebacks_and_the_commands_that_run(area: Toy, program: Program) -> None:
    assert "contribbot.process: run: git" in program("--debug", "verify", "area").err
    area.put("patches/queue.toml", "order = [")
    plain, debug = program("queue", "list"), program("--debug", "queue", "list")
    assert (plain.code, plain.err.count("\n"), debug.code) == (2, 1, 2)
    assert ["Traceback" in ran.err for ran in (plain, debug)] == [False, True]


def test_git_that_is_missing_or_too_old(area: Toy, program: Program) -> None:
    fake = area.root / "bin/git"
    fake.parent.mkdir()
    missing = program.process("verify", "area", PATH=str(fake.parent))
    fake.write_text("#!/bin/sh\necho git version 2.30.2\n")
    fake.chmod(0o755)
    old = program.process("verify", "area", PATH=f"{fake.parent}:/usr/bin:/bin")
    assert (missing.code, old.code) == (3, 3)
    assert missing.err == "contribbot: git: program not found; install git and put it on PATH\n"
    assert old.err == "contribbot: git 2.30.2 is too old; install git 2.39 or newer\n"


def test_a_cache_that_cannot_be_written(area: Toy, program: Program) -> None:
    file = area.put("not-a-folder", "")
    ran = program("verify", "area", CONTRIBBOT_CACHE=str(file))
    assert (ran.code, str(file) in ran.err, "Traceback" in ran.err) == (3, True, False)


def test_what_nobody_foresaw_is_one_line(toy: Toy, program: Program) -> None:
    folder = toy.put_area()
    # A check file whose name no text can hold.
    Path(os.fsdecode(os.fsencode(folder / "checks") + b"/\xff.py")).write_text("x = 1\n")
    program.ok("verify", "area")
    program.ok("show", "area", COLUMNS="1")
    program.ok("--queue", toy.queue, "queue", "list", CONTRIBBOT_CACHE="~nobody-here/x")
    ran = program("verify", "area", CONTRIBBOT_CACHE="~nobody-here/x")
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_the_threads_of_one_run_wait_in_silence(toy: Toy, program: Program) -> None:
    for name in ("one", "two"):
        toy.put_patch(name, checks=one_check())
    toy.put_queue(["one", "two"])
    ran = program.ok("verify", "--all")
    assert all(row.endswith(": passed") for row in ran.err.splitlines()), ran.err


def test_an_upstream_that_cannot_be_reached(area: Toy, program: Program) -> None:
    area.upstream.rename(area.root / "gone")
    ran = program("verify", "area", "--json")
    assert ran.code == 3
    report = ran.report()
    assert report.verdict == "incomplete"
    assert report.stages[0].outcome == "unavailable"
    assert {stage.outcome for stage in report.stages[1:]} == {"skipped"}
    assert not (area.queue / "evidence").exists()


def test_a_commit_that_the_pin_does_not_name(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"], commit="1" * 40)
    ran = program("verify", "area")
    assert ran.code == 3
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert f"expected {'1' * 40}, got {toy.commit}" in ran.err
