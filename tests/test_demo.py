"""The demo: really run, without a network, and gone afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contribbot import demo
from tests.conftest import Program, until
from tests.toy import Toy

#: In a network of its own, where nothing but the machine's own address is reached.
ALONE = ("bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-net")
#: What each command says, in the order in which they are run.
SAID = (
    ("contribbot init my-queue", "an empty queue"),
    ("contribbot pin add toy 1.0", "toy v1.0: pinned"),
    ("contribbot new waves ../fix.patch", "waves: 1 commit on toy v1.0"),
    ("contribbot check waves -- -q", "red on the base: 1 failed: as expected"),
    ("contribbot check waves -- -q", "red on the patched tree: 1 passed: as expected"),
    ("contribbot verify waves", "waves: proved on cpu"),
    (
        "contribbot body waves",
        "/test_red.py) | CPU | fails: `AssertionError: assert 1 == 2` | 1 pass |",
    ),
    ("contribbot gate waves --offline", "nobody has read it and run it"),
    ("contribbot open-pr waves --dry-run", "from contribbot/waves, a branch of your fork"),
    ("contribbot open-pr waves --dry-run", "GitHub was not asked"),
    ("contribbot new sums ../kernel.patch", "sums: 1 commit on toy v1.0"),
    ("contribbot verify sums", "sums: proved by emulating gfx942: fails without the patch"),
)


def left_of_it(toy: Toy) -> list[Path]:
    """Return what a demo left in the cache, but for the lock that stays."""
    # A walk takes no offence at folders that vanish meanwhile.
    found = os.walk(toy.root.parent / "cache")
    return [Path(at, name) for at, _, names in found for name in names if name != "runs.lock"]


@pytest.mark.slow
@pytest.mark.tool("bwrap")
def test_all_of_it_without_a_network(toy: Toy) -> None:
    kept = toy.root / "kept"
    ran = subprocess.run(
        [*ALONE, sys.executable, "-m", "contribbot", "demo", "--json", kept],
        cwd=toy.root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    steps = iter(json.loads(ran.stdout)["steps"])
    step = next(steps)
    for command, said in SAID:
        while command != step["command"] or said not in " ".join(step["output"].split()):
            step = next(steps)
    assert [step for step in steps if step["exit_code"]] == []
    # What is kept can be gone on with, as it says.
    again = Program(kept / "my-queue")("verify", "waves", CONTRIBBOT_CACHE=str(kept / "cache"))
    assert (again.code, "proved on cpu" in again.out) == (0, True)
    assert until(lambda: not left_of_it(toy)), left_of_it(toy)
    assert Program(toy.root)("demo", kept).err == (
        f"contribbot: {kept}: not an empty folder; name a new one\n"
    )


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_interrupted_it_leaves_nothing(toy: Toy, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "contribbot", "demo"],
        cwd=toy.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        while "pin add" not in child.stdout.readline():
            assert child.poll() is None
        os.kill(child.pid, number)
        _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (130, "interrupted\n")
    assert until(lambda: not left_of_it(toy)), left_of_it(toy)


def test_a_command_that_fails_ends_the_demo(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = shutil.copytree(demo._TOY, toy.root / "spoilt")
    (spoilt / "patch/checks/test_red.py").write_text("def test_nothing() -> None:\n    pass\n")
    monkeypatch.setattr(demo, "_TOY", spoilt)
    ran = Program(toy.root)("demo")
    assert ran.code == 3
    assert ran.err.startswith("contribbot: demo: `contribbot check waves -- -q` ended with exit")
    assert ran.err.count("\n") == 1
    assert "$ contribbot verify" not in ran.out
    assert until(lambda: not left_of_it(toy)), left_of_it(toy)
