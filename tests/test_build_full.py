"""The stage `build`, way `full`: an upstream's own recipe, in a copy of the tree."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from contribbot.files import log_path
from contribbot.model.patch import Upstream
from contribbot.queue.load import read_model, upstream_files
from tests.buildtoy import FIXED_KERNEL, HEADER, KERNEL, build_table, products, with_sources
from tests.conftest import Program, dig, until
from tests.test_bench import running
from tests.toy import Toy

pytestmark = pytest.mark.tool("g++", "ninja")
MAKEFILE = """\
src/toy/libnative.so: csrc/area.cpp csrc/area.h
\t$(CXX) -shared -fPIC -Icsrc -o $@ csrc/area.cpp
"""
#: The package finds its library beside itself, as an upstream's does.
NATIVE = """\
import ctypes
from pathlib import Path

side_sum = ctypes.CDLL(str(Path(__file__).with_name("libnative.so"))).side_sum
"""
CHECK = """
[[checks]]
name = "red"
file = "test_red.py"
expect = "fail-to-pass"
reason = "AssertionError"
build = "whole"
"""
LOADING = """\
from toy.native import side_sum


def test_area():
    assert side_sum(2, 3) == 6
"""
RECIPE = {
    "targets": '["cpu"]', "commands": '[["make", "-j{jobs}"]]', "requires": '["make", "g++"]',
    "needs": '["Makefile"]', "python": '["src"]', "discard": '["csrc"]',
}  # fmt: skip


def put_full(toy: Toy, recipe: dict[str, str] | None = None, env: str = "", **entry: str) -> None:
    """Put the patch `area`, whose check loads what the toy's own recipe builds."""
    sources = {"Makefile": MAKEFILE, "csrc/area.cpp": KERNEL, "csrc/area.h": HEADER}
    with_sources(toy, {**sources, "src/toy/native.py": NATIVE})
    keys = "".join(f"{key} = {value}\n" for key, value in {**RECIPE, **(recipe or {})}.items())
    table = f"[build]\n{keys}" + (f"[build.env]\n{env}" if env else "")
    toy.put("upstreams/toy.toml", toy.upstream_toml() + table)
    stated = {"name": '"whole"', "way": '"full"', "sources": "", "include": "", **entry}
    toy.put_area(
        patch=toy.format_patch({"csrc/area.cpp": FIXED_KERNEL}),
        files=("csrc/area.cpp",),
        checks=build_table(**stated) + CHECK,
        check_files={"test_red.py": LOADING},
    )


def test_checks_load_what_a_recipe_made_of_each_tree(toy: Toy, program: Program) -> None:
    put_full(toy)
    ran = program("verify", "area", "--json")
    again = program("verify", "area", "--json")
    assert ran.code == 0, ran.out + ran.err
    assert ran.report().verdict == "proved"
    build = ran.stages()["build whole"]
    assert build.outcome == "passed"
    assert ran.stages()["reproduce red"].outcome == "passed"
    assert again.stages()["build whole"].cached
    kept = products(toy)
    assert len(kept) == 2
    for folder in kept:
        assert (folder / "tree/src/toy/libnative.so").is_file()
        assert not (folder / "tree/csrc").exists(), "what the recipe discards was kept"
    log = log_path(toy.queue / ".contribbot/logs", f"{dig(build.details, 'base', 'log_sha256')}")
    assert log.read_text(encoding="utf-8").startswith("+ make -j")


@pytest.mark.parametrize(
    ("recipe", "outcome", "said"),
    [
        ({"commands": '[["make", "nothing"]]'}, "failed",
         "the patched tree does not build, nor does the base: make: *** No rule to make"),
        ({"python": '["built"]'}, "failed", "the recipe ended well and made no built"),
        ({"needs": '["third_party/x"]'}, "unavailable",
         "the pinned tree has no third_party/x, which the recipe of toy needs"),
        ({"requires": '["no-such-tool"]'}, "unavailable", "no no-such-tool on this machine"),
        ({"requires": '["python:no_such"]'}, "unavailable", "the Python module no_such is not"),
        ({"targets": '["cuda"]'}, "unavailable", "the recipe of toy builds for cuda, not cpu"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_end_well(
    toy: Toy, program: Program, recipe: dict[str, str], outcome: str, said: str
) -> None:
    put_full(toy, recipe)
    ran = program("verify", "area", "--json")
    build, check = ran.stages()["build whole"], ran.stages()["reproduce red"]
    assert (build.outcome, said in build.reason) == (outcome, True), build.reason
    assert check.outcome == "unavailable"
    assert "its build whole" in check.reason
    assert products(toy) == []


def test_a_recipe_gets_what_it_states_and_nothing_personal(toy: Toy, program: Program) -> None:
    put_full(
        toy,
        {"commands": '[["sh", "-c", "env | sort; test $HOME != $OLD; pwd; exit 3"]]'},
        env='VERSION = "{version}"\nFOR = "{target} in {tree}"\nPYTHON = "{python}"\nOLD = "/x"\n',
    )
    program.env |= {"GITHUB_TOKEN": "x", "USER": "somebody"}
    ran = program("verify", "area", "--json")
    build = ran.stages()["build whole"]
    assert build.outcome == "failed"
    log = log_path(toy.queue / ".contribbot/logs", f"{dig(build.details, 'patched', 'log_sha256')}")
    written_text = log.read_text(encoding="utf-8")
    assert "VERSION=1.0\n" in written_text
    assert "FOR=cpu in <tree>\n" in written_text
    for private in ("GITHUB_TOKEN", "CONTRIBBOT_", "somebody", str(toy.root.parent)):
        assert private not in written_text


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_no_command_outlives_contribbot(toy: Toy, program: Program, how: signal.Signals) -> None:
    pids = toy.root / "pids"
    pids.mkdir()
    # A command that waits for what it has started, as make does.
    slow = f"sleep 600 & echo $$ $! > {pids}/$$.part; mv {pids}/$$.part {pids}/$$; wait"
    put_full(toy, {"commands": f'[["true"], ["sh", "-c", "{slow}"]]'})
    child = program.start("verify", "area")
    try:
        assert until(lambda: bool(written(pids))), "no command was ever started"
        started = written(pids)
        assert all(map(running, started))
    finally:
        child.send_signal(how)
        child.communicate(timeout=60)

    try:
        # The other side's command may have started meanwhile.
        assert until(lambda: not any(map(running, {*started, *written(pids)})))
    finally:
        for pid in filter(running, written(pids)):
            os.kill(pid, signal.SIGKILL)
    assert products(toy) == []


def written(folder: Path) -> list[int]:
    files = [path for path in folder.iterdir() if path.suffix != ".part"]
    return [int(pid) for path in files for pid in path.read_text(encoding="utf-8").split()]


def test_an_unknown_placeholder_is_refused(toy: Toy, program: Program) -> None:
    put_full(toy, {"commands": '[["make", "PREFIX={prefix}"]]'})
    ran = program("verify", "area")
    assert ran.code == 2
    assert "{prefix}: not one of tree, python, jobs, target, version" in ran.err
    assert "upstreams/toy.toml" in ran.err


@pytest.mark.parametrize("name", ["pytorch", "sglang", "vllm"])
def test_the_recipes_that_come_along_are_for_amd_and_leave_the_environment_alone(name: str) -> None:
    recipe = read_model(upstream_files(Path("/nonexistent"))[name], Upstream).build
    assert recipe is not None
    assert "gfx942" in recipe.targets
    assert "hipcc" in recipe.requires
    assert "{target}" in {*recipe.env.values()}
    words = {word for argv in recipe.commands for word in argv}
    assert not words & {"develop", "-e"}
    # pip would install into the environment that runs it, without a folder of its own.
    assert all("--target" in argv for argv in recipe.commands if "install" in argv)
