"""What is remembered is kept as long as it is used, and let go when nobody has asked for long."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contribbot.compile import cache as build_cache
from contribbot.compile.cache import Compiled
from contribbot.files import DiskCache, cache_folder, log_path, run_folder, write_atomically
from contribbot.machine import Packages, this_machine
from contribbot.verify.pipeline import CachedOutcome, OutcomeCache
from tests.buildtoy import products, put_kernel_patch
from tests.conftest import Program, until
from tests.records import seen
from tests.toy import Toy

DAY = 86400
#: A run that lasts until its input ends, in a process of its own.
RUN = """\
import sys
from contribbot.files import run_folder
from contribbot.compile import cache as build_cache

with run_folder(build_cache.compile_cache(), build_cache.product_cache()):
    print("running", flush=True)
    sys.stdin.read()
"""


def age(days: float, *paths: Path) -> None:
    """Say that files and folders, not what is in them, were last used some days ago."""
    then = time.time() - days * DAY
    for path in paths:
        os.utime(path, (then, then), follow_symlinks=False)


def fresh(path: Path) -> bool:
    """Say whether a file was used by this test."""
    return time.time() - path.lstat().st_mtime < DAY / 2


def put_product(name: str) -> Path:
    """Build a product for real, and return its folder."""

    def build(folder: Path) -> build_cache.CachedBuild:
        (folder / "x.so").write_bytes(name.encode())
        return build_cache.CachedBuild(0.1, "", extension="x.so")

    made = build_cache.make_product(build_cache.json_digest(name), build)
    assert made is not None
    return made.folder


def put_compile(name: str) -> Path:
    """Remember a compile, and return its file."""
    file = build_cache.compile_cache().folder / name[:2] / f"{name}.json"
    write_atomically(file, Compiled(error=name).model_dump_json().encode())
    return file


def a_run(*caches: DiskCache) -> None:
    """Start a run in this process and end it."""
    with run_folder(
        *(caches or (build_cache.compile_cache(), build_cache.product_cache()))
    ) as folder:
        assert list(folder.iterdir()) == [], "a run begins with an empty folder"


@pytest.mark.tool("g++", "ninja")
@pytest.mark.slow
def test_verify_keeps_what_it_uses_and_lets_go_of_the_rest(toy: Toy, program: Program) -> None:
    put_kernel_patch(toy)
    program.ok("verify", "area")
    outcomes, logs = toy.queue / ".contribbot/outcomes", toy.queue / ".contribbot/logs"
    builds = cache_folder() / "builds"
    wanted = [*outcomes.iterdir(), *logs.iterdir()]
    wanted += [folder / "product.json" for folder in products(toy)]
    assert len(wanted) > 8
    strays = [outcomes / f"{'0' * 64}.json", logs / f"{'0' * 64}.log", builds / ("0" * 64)]
    shutil.copyfile(next(outcomes.glob("*.json")), strays[0])
    strays[1].write_text("of a run long ago", encoding="utf-8")
    shutil.copytree(products(toy)[0], strays[2])
    strays.append(put_compile("stray"))
    # Not what is in the products: it would no longer be as it was built.
    age(29, *wanted)
    age(31, *strays, *builds.iterdir(), *builds.glob(f"{'0' * 64}/product.json"))

    again = program("verify", "area", "--json")

    assert all(one.cached for one in again.report().stages)
    assert all(map(fresh, wanted)), "what is used was not noted"
    assert not any(map(os.path.lexists, strays))
    assert until(lambda: not list((cache_folder() / "runs").iterdir()))


def test_an_entry_is_kept_for_30_days_after_its_last_use() -> None:
    stays = [put_product("a"), put_compile("a")]
    goes = [put_product("b"), put_compile("b")]
    lock = goes[0].with_suffix(".lock")
    age(29.9, stays[0] / "product.json", stays[1])
    # Only the marker says when a product was used.
    age(200, stays[0])
    left = cache_folder() / "runs" / "0123abcd"  # of a run that ended: its removal was killed
    left.mkdir(parents=True)
    age(30.1, *goes, goes[0] / "product.json", lock)

    a_run()

    assert all(path.exists() for path in stays)
    assert not any(path.exists() for path in (*goes, lock))
    assert until(lambda: not left.exists())
    assert build_cache.find_product(build_cache.json_digest("a")) is not None
    assert put_product("b") == goes[0], "what was let go can be made again"


def test_the_log_of_a_remembered_outcome_stays_as_long_as_the_outcome(tmp_path: Path) -> None:
    outcomes, logs = tmp_path / "outcomes", tmp_path / "logs"
    cache = OutcomeCache(outcomes, this_machine(), logs=logs)
    logs.mkdir()
    named, nested, stray = (log_path(logs, digit * 64) for digit in "abc")
    for path in (named, nested, stray):
        path.write_text("said", encoding="utf-8")
    run = {"command": "", "log_tail": "", "seconds": 0.0}
    first, second = ({**run, "log_sha256": digit * 64} for digit in "ab")
    result = seen("reproduce", base=first, again={"base": second})
    cache.put("k", CachedOutcome(result, Packages()))
    age(31, *outcomes.iterdir(), *logs.iterdir())

    assert cache.get("k") is not None
    a_run(*cache.kept)

    assert cache.get("k") is not None
    assert named.is_file()
    assert nested.is_file()
    assert not stray.exists()


def test_nothing_is_let_go_while_another_process_may_use_it() -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=Path(__file__).parent.parent, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert other.stdout is not None
    assert other.stdout.readline() == "running\n"
    product, compiled = put_product("a"), put_compile("a")
    age(31, product / "product.json", compiled)

    a_run()

    assert product.is_dir()
    assert compiled.is_file()

    # However the other ended, it uses nothing any more.
    other.kill()
    other.communicate()
    a_run()

    assert not product.exists()
    assert not compiled.exists()
