"""`contribbot check`: one patch's checks in the terminal, and nothing recorded."""

from __future__ import annotations

import os

import pytest

from contribbot.cli.verify import CheckReport
from contribbot.model.record import CheckDetails
from tests.conftest import Program
from tests.contribute.terminal import sitting
from tests.toy import FIXED, PASS_TO_PASS, Toy, one_check

RED = "from toy.area import rectangle\n\n\ndef test_it():\n    assert rectangle(2, 3) == 6\n"


def test_what_pytest_shows_then_the_reasons_side_by_side(area: Toy, program: Program) -> None:
    before = {path for path in area.queue.rglob("*") if ".contribbot" not in path.parts}
    ran = program("check", "area")
    assert (ran.code, ran.err) == (0, "")
    assert ">       assert rectangle(2, 3) == 6" in ran.out
    told = ran.out[ran.out.index("red on the base: 2 failed: as expected") :].splitlines()
    assert told == [
        "red on the base: 2 failed: as expected: AssertionError: assert 5 == 6",
        "red on the patched tree: 2 passed: as expected",
        "same on the base: 1 passed: as expected",
        "same on the patched tree: 1 passed: as expected",
        "check: shows; verify: records. To record it: contribbot verify area",
    ]
    assert str(area.queue) not in "".join(told)
    after = {path for path in area.queue.rglob("*") if ".contribbot" not in path.parts}
    assert after == before


@pytest.mark.parametrize(
    ("changed", "args", "again"),
    [("", (), False), ("", ("--force",), True), ("src/toy/area.py", (), True)],
)
def test_its_runs_are_the_first_of_the_next_verify(
    area: Toy, program: Program, changed: str, args: tuple[str, ...], again: bool
) -> None:
    program.ok("check", "area", "--check", "red")
    if changed:
        area.put_patch("area", patch=area.format_patch({changed: f"{FIXED}\n# another"}))
    for _ in range(2):
        ran = program("verify", "area", "--json", *args)
        red = ran.stages()["reproduce red"].details
        assert isinstance(red, CheckDetails)
        assert red.base is not None
        assert red.again.patched is not None
        assert (" -q " in red.base.command) is again
        assert " -q " in red.again.patched.command
        args, again = ("--force",), True


@pytest.mark.parametrize(
    ("args", "ran_on", "code"),
    [
        (("--on", "base"), ["red on the base", "same on the base"], 0),
        (("--on", "patched", "--check", "red"), ["red on the patched tree"], 0),
        (("--", "test_same.py"), ["same on the base", "same on the patched tree"], 0),
        (("--on", "base", "--", "test_red.py::test_flat", "-q"), ["red on the base"], 0),
        (("--check", "red", "--", "-k", "flat", "-x"), ["red on the base: 1 failed"], 0),
        (("--", "-k", "nothing"), [], 2),
    ],
)
def test_what_is_run(
    area: Toy, program: Program, args: tuple[str, ...], ran_on: list[str], code: int
) -> None:
    assert area.queue.is_dir()
    ran = program("check", "area", *args)
    assert ran.code == code, ran.err
    told = [row for row in ran.out.splitlines() if ": as expected" in row]
    assert [row[: len(start)] for row, start in zip(told, ran_on, strict=False)] == ran_on
    assert bool(told) is bool(ran_on)


@pytest.mark.parametrize(
    ("check", "reason", "said", "code"),
    [
        (("from toy.area import rectangle\n\n\n"
         "def test_it():\n    assert [1, rectangle(2, 3)] == [1, 6]\n"),
         "At index 1", "as expected: At index 1 diff: 5 != 6", 0),
        (f"{RED}\n\ndef test_list():\n    assert [1, rectangle(2, 3)] == [1, 6]\n", "At index 1",
         "its line: At index 1 diff: 5 != 6", 1),
        (RED, "^ValueError", "AssertionError: assert 5 == 6 (not stated)", 1),
        (PASS_TO_PASS, "^No", "red on the base: 1 passed: NOT as expected, it must fail, for", 1),
        (RED.replace("== 6", "== 5"), "^No", "red on the patched tree: 1 failed: NOT as expec", 1),
        (f"import absent\n{RED}", "^No", "could not be collected: ModuleNotFoundError", 3),
        (f"{RED}    nmae()\n".replace("== 6", "> 4"), "^No", "is not defined (broken)", 3),
        (RED.replace("    assert", "    import os\n    os._exit(3)\n    assert"), "^No",
         "ended early in test_red.py::test_it with exit status 3", 3),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_check(toy: Toy, check: str, reason: str, said: str, code: int) -> None:
    toy.put_area(checks=one_check(reason=reason), check_files={"test_red.py": check})
    ran = Program(toy.queue)("check", "area")
    assert said in ran.out
    assert ("To record it" in ran.out) == (code == 0)
    assert ran.code == code, ran.out


def test_a_reason_below_the_first_line_of_a_message_has_a_key_of_its_own(toy: Toy) -> None:
    content = RED.replace("rectangle(2, 3) == 6", "[rectangle(2, 3)] == [6]")
    toy.put_area(checks=one_check(reason="At index 0"), check_files={"test_red.py": content})
    ran = Program(toy.queue)("check", "area", "--on", "base", "--json")
    (failure,) = CheckReport.model_validate_json(ran.out).runs[0].failures
    assert (failure.message, failure.line) == (
        "AssertionError: assert [5] == [6]", "At index 0 diff: 5 != 6",
    )  # fmt: skip


def test_before_there_are_commits(toy: Toy) -> None:
    assert Program(toy.queue)("new", "area", "--title", "T").code == 0
    ran = Program(toy.queue)("check", "area")
    assert (ran.code, ran.out) == (2, "")
    assert "area: patch.toml states no check; write patches/area/checks/test_red.py" in ran.err
    stated = toy.queue / "patches/area/patch.toml"
    stated.write_text(stated.read_text() + one_check())
    toy.put("patches/area/checks/test_red.py", RED)
    ran = Program(toy.queue)("check", "area")
    assert (ran.code, ran.err) == (0, "")
    assert "red on the base: 1 failed: as expected" in ran.out
    assert "red on the patched tree: not run: no commits yet; contribbot edit area" in ran.out


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("aera",), 2, "no such patch: aera (did you mean area?)"),
        (("area", "--check", "no"), 2, "area: no check no; it has red, same"),
        (("area", "--check", "red", "--check", "gfx942"), 2, "area: no check red gfx942; it has "),
        (("area", "--", "--nonsense"), 2, "pytest does not take these arguments"),
        (("torn",), 1, "torn: apply: "),
    ],
)
def test_what_cannot_be_run(
    area: Toy, program: Program, args: tuple[str, ...], code: int, said: str
) -> None:
    torn = area.format_patch({"src/toy/area.py": FIXED}).replace(
        b"-    return width", b"-    return wide"
    )
    area.put_patch("torn", patch=torn)
    area.put_queue(["area", "torn"])
    ran = program("check", *args)
    assert ran.code == code, ran.out
    assert said in ran.err.splitlines()[-1]


def test_at_a_terminal_the_debugger_and_an_interrupt(area: Toy) -> None:
    program = ("-m", "contribbot", "check", "area", "--on", "base", "--check", "red")
    env = {name: os.environ[name] for name in ("HOME", "CONTRIBBOT_CACHE")}
    with sitting(*program, "--", "--pdb", env=env, cwd=area.queue) as terminal:
        terminal.until(r"\(Pdb\) ")
        terminal.type("print('seen', rectangle(2, 3) * 100)\n")
        terminal.until("seen 500")
        terminal.type("q\n")
        assert terminal.end() == 130
        assert terminal.seen.endswith("interrupted\n")
    area.put("patches/area/checks/test_red.py", RED.replace("    assert", SLEEP))
    with sitting(*program, "--", "-s", env=env, cwd=area.queue) as terminal:
        terminal.until("asleep")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert terminal.seen.endswith("interrupted\n")


SLEEP = "    print('asleep', flush=True)\n    __import__('time').sleep(60)\n    assert"
