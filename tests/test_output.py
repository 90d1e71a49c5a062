"""What a person reads: width, grouping, order, help, completion; what a program reads of errors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from contribbot.cli.command import patch_names
from contribbot.cli.live import Lines
from contribbot.cli.outcomes import outcome_blocks
from contribbot.cli.render import Block, Code, StateText, Table, lines_of, pairs
from contribbot.model.evidence import RESULT, StageResult, target_order
from tests.conftest import Program, dig
from tests.contribute.terminal import sitting
from tests.toy import Toy, one_check

GPUS = ("gfx942", "gfx90a", "gfx1030")


def result(
    stage: str, target: str, outcome: str = "passed", reason: str = "", check: str = ""
) -> StageResult:
    return RESULT.validate_python(
        {"stage": stage, "target": target, "outcome": outcome, "seconds": 0.5, "label": check,
         "reason": f"{check}: {reason}" if check else reason},
    )  # fmt: skip


SIX = "one two three four five six"
LONG = Table([("1", StateText("proved on cpu"), "", SIX)], ("", "v", "", "t"))
FOLDED = """\
   v              t
1  proved on cpu  one two
                  three four
                  five six"""
ODD = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("block", "columns", "lines"),
    [
        ("short", 20, ["short"]),
        ("  one two three four", 12, ["  one two", "    three", "    four"]),
        ("a" * 30 + " b", 20, ["a" * 30, "  b"]),
        (Code("code is " + "wide " * 9), 20, [("code is " + "wide " * 9).rstrip()]),
        (LONG, 0, ["1  proved on cpu  one two three four five six"]),
        (LONG, 30, FOLDED.splitlines()),
        (replace(LONG, cut=True), 30, ["   v              t", "1  proved on cpu  one two thr…"]),
        (pairs([("a", ["1", "2"]), ("bc", []), ("d", ["3"])]), 0, ["  a  1", "     2", "  d  3"]),
        ("a\x1b[31m\nb", 0, [f"a{ODD}[31m b"]),
        (Table([("a\x1b[31m", "\x07")]), 40, [f"a{ODD}[31m  {ODD}"]),
    ],
)
def test_blocks_fit_a_terminal(block: Block, columns: int, lines: list[str]) -> None:
    assert [*lines_of([block], columns)] == lines


def test_what_is_alike_is_one_row_and_the_order_is_that_of_stages_and_targets() -> None:
    lacking = [
        result("compile", gpu, "unavailable", f"no compiler knows {gpu}", "kernels") for gpu in GPUS
    ]
    without = [result("bench", gpu, "unavailable", "nothing to run on") for gpu in GPUS[:2]]
    rows = [*without, result("reproduce", "cpu", "passed", "two tests", "red"), *lacking,
            result("source", "any", "passed", "toy v1.0")]  # fmt: skip

    lines = [*lines_of(outcome_blocks("area", rows))]

    assert [" ".join(line.split()) for line in lines] == [
        "area",
        "source passed 0.5 s toy v1.0",
        "compile 3 targets unavailable 1.5 s kernels: no compiler knows gfx90a, gfx942, gfx1030",
        "reproduce cpu passed 0.5 s red: two tests",
        "bench 2 targets unavailable 1.0 s nothing to run on (gfx90a, gfx942)",
    ]
    assert lines == [*lines_of(outcome_blocks("area", rows[::-1]))]
    assert max(map(len, lines_of(outcome_blocks("area", rows), 80))) <= 80
    assert sorted(["cuda", "compile:gfx942", "any", *GPUS, "cpu"], key=target_order) == [
        "any", "cpu", "cuda", "gfx90a", "gfx942", "gfx1030", "compile:gfx942",
    ]  # fmt: skip


def test_patches_come_in_the_queues_order(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(("low", "high"), stderr=False)
    with lines.shown():
        lines.ended("high", result("style", "any", reason="fine"))
        lines.finished("high")
        assert capsys.readouterr().out == ""
        lines.ended("low", result("style", "any", reason="fine"))
        lines.finished("low")
        assert [row.split()[0] for row in capsys.readouterr().out.splitlines()] == [
            "low", "style", "high", "style",
        ]  # fmt: skip
        lines.ended("other", result("style", "any", reason="never finished"))
    assert "never finished" in capsys.readouterr().out


@pytest.mark.usefixtures("outcome_cache")
@pytest.mark.parametrize("columns", [80, 100])
def test_nothing_is_wider_than_the_terminal(toy: Toy, program: Program, columns: int) -> None:
    toy.put_area(checks=one_check())
    for words in ("verify area", "show area", "status", "evidence show area", "queue list",
                  "queue log area", "gate area --offline"):  # fmt: skip
        ran = program(*words.split(), COLUMNS=str(columns))
        wide = [row for row in ran.out.splitlines() if len(row) > columns and " " in row.strip()]
        assert not wide, words


def test_running_work_has_its_name_and_trees_and_a_pipe_hears_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines(["area"])
    with lines.shown():
        for target in ("cpu", "emulated:gfx942"):
            lines.started("area", "reproduce", target, "red")
        lines.step("area", "cpu", "red", "run 3, base again")
        assert [task.description for task in lines._progress.tasks][1:] == [
            "area: reproduce red: run 3, base again",
            "area: reproduce red emulated:gfx942",
        ]
        lines.ended("area", result("reproduce", "cpu", check="red"))
        assert capsys.readouterr().err == "area: reproduce red: passed\n"


def test_words_have_colours_on_a_terminal_alone(area: Toy) -> None:
    argv = ["-m", "contribbot", "evidence", "check"]
    for colour, words in (("", "\x1b[33mmissing\x1b[0m  area: "), ("1", "missing  area: ")):
        with sitting(*argv, env={"TERM": "xterm", "NO_COLOR": colour}, cwd=area.queue) as person:
            assert person.end() == 1
        assert words in person.seen
    piped = subprocess.run(
        [sys.executable, *argv], cwd=area.queue, stdout=subprocess.PIPE, check=False
    )
    assert piped.stdout.startswith(b"missing  area: ")


def test_an_error_is_json_too(area: Toy, program: Program) -> None:
    del area
    for line, message in (
        ("show nothing --json", "no such patch: nothing"),
        ("--json show nothing", "no such patch: nothing"),
        ("queue list --json --queue nowhere", "nowhere: no such folder"),
    ):
        ran = program(*line.split())
        assert (ran.code, dig(ran.json(), "error", "exit_code")) == (2, 2)
        assert (dig(ran.json(), "error", "message"), message in ran.err) == (message, True)


def test_completion_reads_the_queue(area: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    (area.queue / "below").mkdir()
    monkeypatch.chdir(area.queue / "below")
    assert (patch_names("a"), patch_names("b")) == (["area"], [])
    area.put("patches/queue.toml", "order = [")
    assert patch_names("") == []
