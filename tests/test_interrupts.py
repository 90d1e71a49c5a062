"""Ended at any moment: the next run just works, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.buildtoy import with_sources
from tests.conftest import Program, until
from tests.test_bench import assert_gone
from tests.test_verify import put
from tests.tools import small_disk
from tests.toy import Toy, one_check

#: Slow enough to be met in the middle, and telling that it has started.
SLOW = """\
import os, pathlib, subprocess, time
from toy.area import rectangle


def test_it():
    helper = subprocess.Popen(["sleep", "600"])
    pathlib.Path(os.environ["TMPDIR"], "started").touch()
    {wait}
    assert rectangle(2, 3) == 6
"""
SLEEP = "time.sleep(60)"
NATIVE = "__import__('re').match(r'(a+)+$', 'a' * 60 + 'b')"


def wait_for(runs: Path, *, started: int = 1) -> None:
    assert until(lambda: len(list(runs.rglob("tmp/started"))) >= started)
    assert len(at_work(runs)) >= 2 * started


def at_work(folder: Path) -> list[int]:
    """Return the processes that work in a folder, in whatever namespace they are."""
    numbers = []
    for entry in Path("/proc").glob("[0-9]*"):
        # Gone meanwhile.
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(folder):
                numbers.append(int(entry.name))
    return numbers


def assert_dead(runs: Path) -> None:
    assert until(lambda: not at_work(runs), 10), "a check outlived contribbot"


@pytest.mark.parametrize("number", [2, pytest.param(15, marks=pytest.mark.slow)])
def test_ctrl_c(toy: Toy, program: Program, tmp_path: Path, number: int) -> None:
    put(toy, SLOW.format(wait=SLEEP))
    running = program.start("verify", "area")
    wait_for(tmp_path / "cache/runs")
    running.send_signal(number)
    _, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert_dead(tmp_path / "cache/runs")
    assert until(lambda: not list((tmp_path / "cache/runs").iterdir()))
    assert not (toy.queue / "evidence").exists()


@pytest.mark.parametrize(
    "wait", [pytest.param(SLEEP, marks=pytest.mark.slow), NATIVE], ids=["asleep", "in native code"]
)
def test_the_run_after_sigkill_cleans_up(
    toy: Toy, program: Program, tmp_path: Path, wait: str
) -> None:
    put(toy, SLOW.format(wait=wait))
    running = program.start("verify", "area", "--jobs", "2")
    wait_for(tmp_path / "cache/runs", started=2)
    running.kill()
    running.communicate()
    assert_dead(tmp_path / "cache/runs")
    toy.put_patch()
    program.ok("verify", "area")
    assert until(lambda: not list((tmp_path / "cache/runs").iterdir()))


def test_a_fetch_does_not_outlive_contribbot(toy: Toy, program: Program, tmp_path: Path) -> None:
    marker, ssh = tmp_path / "marker", tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho $$ > {marker}.new; mv {marker}.new {marker}; sleep 60\n")
    ssh.chmod(0o755)
    toy.put_area()
    queue = toy.queue / "patches/queue.toml"
    queue.write_text(queue.read_text().replace(toy.upstream.as_uri(), "ssh://localhost/toy"))
    program.env["GIT_SSH"] = str(ssh)
    running = program.start("verify", "area")
    assert until(marker.is_file)
    running.kill()
    running.communicate()
    assert_gone(int(marker.read_text()))


def test_deep_folders_are_cleaned_up(toy: Toy, program: Program, tmp_path: Path) -> None:
    digging = (
        "import os\n\n\ndef test_it():\n    os.chdir(os.environ['TMPDIR'])\n"
        "    for _ in range(1500):\n        os.mkdir('d')\n        os.chdir('d')\n"
    )
    toy.put_area(checks=one_check("pass-to-pass", ""), check_files={"test_red.py": digging})
    checked = program("verify", "area", "--json").stages()["reproduce red"]
    assert checked.outcome == "passed"
    assert until(lambda: not list((tmp_path / "cache/runs").iterdir()))


@pytest.mark.slow
def test_sigkill_at_random(area: Toy, program: Program, tmp_path: Path) -> None:
    seed = random.randrange(2**32)  # noqa: S311  no secret
    chance = random.Random(seed)  # noqa: S311  no secret
    for _ in range(12):
        running = program.start("verify", "area", "--force")
        time.sleep(chance.uniform(0.05, 1.5))
        running.kill()
        running.communicate()
        for record in (area.queue / "evidence").glob("*/*.json"):
            # Whole, whenever it was: never a part of one.
            assert program("evidence", "check").out.startswith("fresh"), (seed, record)

    ran = program("verify", "area")

    assert ran.code == 0, (seed, ran.err)
    assert until(lambda: not list((tmp_path / "cache/runs").iterdir())), seed
    names = [path.name for path in (*(tmp_path / "cache").rglob("*"), *area.queue.rglob("*"))]
    assert not [name for name in names if re.search(r"tmp_|^\.x86|crash", name)], seed


def test_waiting_for_a_store_is_interrupted(toy: Toy, program: Program, tmp_path: Path) -> None:
    toy.put_area()
    lock = tmp_path / "cache/stores/toy.git.lock"
    lock.parent.mkdir(parents=True)
    holder = subprocess.Popen(["flock", str(lock), "sleep", "60"], start_new_session=True)
    try:
        time.sleep(0.3)
        running = program.start("verify", "area")
        assert running.stderr is not None
        said = running.stderr.readline()
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=10)
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()

    assert running.returncode == 130
    assert "waiting for another contribbot to finish with the store toy.git" in said


def test_a_full_disk(toy: Toy, program: Program, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=400k") as small:
        with_sources(toy, {"big.bin": os.urandom(2**20)})
        toy.put_area()
        ran = program("verify", "area", CONTRIBBOT_CACHE=str(small))
        assert ran.code == 3, ran.out
        assert "the disk is full" in ran.err + ran.out
        assert "free some space" in ran.err + ran.out
        assert "Traceback" not in ran.err
        assert not (toy.queue / "evidence").exists()
    program.ok("verify", "area")
