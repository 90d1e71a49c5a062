"""The command line itself: start-up, help, version, completion, errors."""

from __future__ import annotations

import os
import re
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


def test_help_imports_nothing_heavy(toy: Toy) -> None:
    assert imported(toy, "--help") == set()
    # Typer itself takes pydantic for the options of a command.
    assert imported(toy, "verify", "--help") <= {"pydantic"}
    assert imported(toy, "--version") == set()


def test_commands_that_only_read_import_neither_torch_nor_git_libraries(area: Toy) -> None:
    for args in (
        ["queue", "list"],
        ["show", "area"],
        ["evidence", "check"],
        ["evidence", "show", "area"],
    ):
        assert imported(area, *args) <= {"pydantic"}, args


@pytest.mark.usefixtures("outcome_cache")
def test_verify_that_repeats_nothing_starts_no_test_runner(area: Toy, program: Program) -> None:
    program("verify", "area")
    assert imported(area, "verify", "area") <= {"pydantic", "rich"}


def test_version_and_help(program: Program) -> None:
    assert program("--version").out == f"contribbot {contribbot.__version__}\n"
    for command in ("verify", "queue list", "show", "evidence"):
        group, _, name = command.rpartition(" ")
        assert name in program(*group.split(), "--help").out
        assert program(*command.split(), "--help").code == 0


def test_the_help_of_every_command_fits_on_its_line(program: Program) -> None:
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


def test_no_traceback_without_debug(toy: Toy, program: Program) -> None:
    toy.put("patches/queue.toml", "order = [")
    plain, debug = program("queue", "list"), program("--debug", "queue", "list")
    assert (plain.code, debug.code) == (2, 2)
    assert plain.err.count("\n") == 1
    assert "Traceback" not in plain.err
    assert "Traceback" in debug.err


def test_debug_shows_the_commands_that_run(toy: Toy, program: Program) -> None:
    toy.put_area()
    ran = program("--debug", "verify", "area")
    assert "contribbot.process: run: git" in ran.err


def test_git_that_is_missing_or_too_old(area: Toy, program: Program) -> None:
    empty = area.root / "bin"
    empty.mkdir()
    missing = program.process("verify", "area", PATH=str(empty))
    assert missing.code == 3
    assert missing.err == ("contribbot: git: program not found; install git and put it on PATH\n")
    fake = empty / "git"
    fake.write_text("#!/bin/sh\necho git version 2.30.2\n")
    fake.chmod(0o755)
    old = program.process("verify", "area", PATH=f"{empty}:/usr/bin:/bin")
    assert old.code == 3
    assert old.err == "contribbot: git 2.30.2 is too old; install git 2.39 or newer\n"


def test_a_cache_that_cannot_be_written(area: Toy, program: Program) -> None:
    file = area.put("not-a-folder", "")
    ran = program("verify", "area", CONTRIBBOT_CACHE=str(file))
    assert ran.code == 3
    assert str(file) in ran.err
    assert "Traceback" not in ran.err


def test_closed_standard_streams_and_a_reader_that_goes_away(toy: Toy) -> None:
    toy.put_area(checks=one_check())
    ours = f"{sys.executable} -m contribbot"
    export = f"{ours} queue export area"
    for command in (f"{ours} queue list 0<&- 2>&-", f"{export} >&-", f"{export} | true"):
        done = subprocess.run(
            ["bash", "-c", command], cwd=toy.queue, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done)
        assert not re.search("Traceback|internal error|Broken pipe", done.stderr), done.stderr


def test_what_nobody_foresaw_is_one_line(toy: Toy, program: Program) -> None:
    folder = toy.put_area()
    # A check file whose name no text can hold.
    Path(os.fsdecode(os.fsencode(folder / "checks") + b"/\xff.py")).write_text("x = 1\n")
    assert program("verify", "area").code == 0
    assert program("show", "area", COLUMNS="1").code == 0
    assert (
        program("--queue", toy.queue, "queue", "list", CONTRIBBOT_CACHE="~nobody-here/x").code == 0
    )
    ran = program("verify", "area", CONTRIBBOT_CACHE="~nobody-here/x")
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_the_threads_of_one_run_wait_in_silence(toy: Toy, program: Program) -> None:
    for name in ("one", "two"):
        toy.put_patch(name, checks=one_check())
    toy.put_queue(["one", "two"])
    ran = program("verify", "--all")
    assert ran.code == 0, ran.err
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
