"""The stage `build`, way `extension`: compiled with the machine's compiler, loaded by checks."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from contribbot.files import log_path
from tests.buildtoy import (
    BINDING,
    CHECK,
    FIXED_KERNEL,
    KERNEL,
    LOADING,
    LOADING_TORCH,
    build_table,
    products,
    put_kernel_patch,
)
from tests.conftest import Program, dig
from tests.hiptoy import program_file
from tests.toy import PASS_TO_PASS, Toy

pytestmark = pytest.mark.tool("g++", "ninja")
OTHER_CHECK = """
[[checks]]
name = "same"
file = "test_same.py"
expect = "pass-to-pass"
"""
BROKEN = KERNEL.replace("width + height;", "width + heigth;")


@pytest.mark.slow
def test_a_kernel_goes_from_red_to_green_through_torch(toy: Toy, program: Program) -> None:
    put_kernel_patch(
        toy,
        build=build_table(binding='"binding.cpp"', flags='["-std=c++20"]', defines='["TOY=1"]'),
        check_files={"test_red.py": LOADING_TORCH, "binding.cpp": BINDING},
    )

    ran = program("verify", "area", "--json")

    assert ran.code == 0, ran.out + ran.err
    assert ran.report().verdict == "proved"
    build = ran.stages()["build area"]
    assert (build.outcome, build.reason) == ("passed", "area: the base and the patched tree build")
    base, patched = dig(build.details, "base"), dig(build.details, "patched")
    assert str(dig(build.details, "compilers", 0)).startswith("torch ")
    assert re.match(r"[^/]*\+\+: .*\d+\.\d+", str(dig(build.details, "compilers", 1)))
    assert dig(base, "sha256") != dig(patched, "sha256")
    assert dig(patched, "passed") == ["area"]
    log = log_path(toy.queue / ".contribbot/logs", f"{dig(patched, 'log_sha256')}")
    told = log.read_text(encoding="utf-8")
    assert "csrc/area.cpp" in told
    assert "built and loaded" in told
    assert str(toy.root.parent) not in told, "a folder of this machine is in the log"
    assert len(products(toy)) == 2
    assert program("evidence", "check").code == 0


def test_an_unchanged_build_is_not_repeated(toy: Toy, program: Program) -> None:
    # No check runs: each would be judged anew with the build, four times.
    put_kernel_patch(toy, checks="")
    assert program("verify", "area", "--json").stages()["build area"].outcome == "passed"
    stamps = {folder: (folder / "extension.so").stat().st_mtime_ns for folder in products(toy)}
    again = program("verify", "area", "--json").stages()["build area"]
    forced = program("verify", "area", "--json", "--force").stages()["build area"]
    put_kernel_patch(toy, checks="", change={"csrc/area.cpp": FIXED_KERNEL + "// as before\n"})
    changed = program("verify", "area", "--json").stages()["build area"]
    assert again.cached
    assert [dig(forced.details, side, "reused") for side in ("base", "patched")] == [True, True]
    assert [dig(changed.details, side, "reused") for side in ("base", "patched")] == [True, False]
    assert stamps == {folder: (folder / "extension.so").stat().st_mtime_ns for folder in stamps}


EXPECTED = {"expect": '"fail-to-pass"', "reason": '"heigth.* was not declared"'}


#: What the base has, what the patch changes, the table's keys, the outcome and its reason.
CASES: dict[str, tuple[str, dict[str, str | bytes], dict[str, str], str, str]] = {
    "broken": (KERNEL, {"csrc/area.cpp": BROKEN}, {}, "failed",
               r"area: the patched tree does not build: csrc/area.cpp:4:.*heigth"),
    "mended": (BROKEN, {"csrc/area.cpp": FIXED_KERNEL}, EXPECTED, "passed",
               "area: the base does not build, as stated, .* tree does: csrc/area.cpp:4:"),
    # A source that only the patch has is no red.
    "new": (KERNEL, {"csrc/new.cpp": FIXED_KERNEL},
            {**EXPECTED, "sources": '["csrc/new.cpp"]'}, "failed",
            r"area: the base is broken there, not wrong: it has no csrc/new.cpp"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_does_not_compile(toy: Toy, program: Program, name: str) -> None:
    base, change, table, outcome, said = CASES[name]
    checks = OTHER_CHECK if table else CHECK + OTHER_CHECK
    files = {"test_red.py": LOADING, "test_same.py": PASS_TO_PASS}
    stated = build_table(**table)
    put_kernel_patch(toy, base=base, build=stated, checks=checks, change=change, check_files=files)

    ran = program("verify", "area", "--json")

    build = ran.stages()["build area"]
    assert build.outcome == outcome
    assert re.match(said, build.reason), build.reason
    if outcome == "passed":
        assert ran.report().verdict == "proved"
        assert dig(build.details, "base", "failed", 0, "test") == "area"
        assert program("evidence", "check").code == 0
    elif not table:
        check = ran.stages()["reproduce red"]
        assert (ran.code, check.outcome) == (1, "unavailable")
        assert check.reason.startswith(
            "red: its build area failed: the patched tree does not build"
        )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"binding": '"binding.cpp"'}, "the build area names binding.cpp, and "),
        ({"sources": '["csrc/area.cu"]'}, "csrc/area.cu: for cpu, sources are .cpp, .cc, .cxx"),
        ({"sources": '["csrc/area.h"]'}, "csrc/area.h: cpp_extension compiles .cpp, "),
        ({"sources": ""}, "sources: an extension is made of some"),
        ({"way": '"full"'}, "way full: the upstream's recipe knows its sources"),
        ({"targets": '["rocm"]'}, "targets"),
    ],
)
def test_a_senseless_table(toy: Toy, program: Program, table: dict[str, str], said: str) -> None:
    put_kernel_patch(toy, build=build_table(**table))
    ran = program("verify", "area")
    assert ran.code == 2
    assert said in ran.err
    assert "patch.toml" in ran.err


def test_without_compiler_its_package_is_named(toy: Toy, program: Program, tmp_path: Path) -> None:
    put_kernel_patch(toy)
    lean = tmp_path / "bin"
    lean.mkdir()
    for name in ("git", "rm"):
        found = shutil.which(name)
        assert found
        (lean / name).symlink_to(found)
    ran = program.process("verify", "area", "--json", PATH=str(lean))
    assert ran.report().verdict == "incomplete"
    build, check = ran.stages()["build area"], ran.stages()["reproduce red"]
    assert build.outcome == check.outcome == "unavailable"
    assert build.reason == "area: no C++ compiler on this machine (Debian: apt-get install g++)"
    assert check.reason.startswith("red: its build area is unavailable: no C++ compiler")


@pytest.mark.slow
def test_a_build_that_takes_too_long_is_not_remembered(toy: Toy, program: Program) -> None:
    # GCC's driver starts what it would run as the arguments of its wrapper.
    wrapper = program_file(toy.root / "wrapper", "sleep 300")
    put_kernel_patch(toy, build=build_table(flags=f'["-wrapper", "{wrapper}"]', timeout="5"))
    for _ in range(2):
        build = program("verify", "area", "--json").stages()["build area"]
        assert (build.outcome, build.cached) == ("unavailable", False)
        assert build.reason == "area: on the base: not finished after 5 s"
