"""Everyday commands on this queue, and `contribbot status` on longer queues and larger trees.

The commands run warm, in turn, on a copy of this queue; each with its CPU-seconds beside what is
wanted on two quiet cores. The other queues are made here: an upstream in git with so many files,
and so many patches of one line each. Wanted: time that grows with the number of patches in a line,
and does not grow with the tree (5,000 against 50,000 files).
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from contribbot.files import cache_folder
from contribbot.git.repository import git_environment

ROOT: Final = Path(__file__).parent.parent
ROUNDS: Final = 7
#: Seconds that are wanted of a command; `edit` opens a tree of vLLM.
WANTED: Final = {
    "queue list": 0.5,
    "status": 0.5,
    "doctor": 3.0,
    "edit resample-race": 4.0,
    "edit --abort resample-race": 2.0,
}
LINES: Final = "".join(f"value_{number} = {number}\n" for number in range(40))
IDENTITY: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@localhost"), ("DATE", "1700000000 +0000"))
}


def git(folder: Path, *args: str) -> bytes:
    """Run git with nobody's settings."""
    done = subprocess.run(
        ["git", *args], cwd=folder, env=git_environment(IDENTITY), check=True, capture_output=True
    )
    return done.stdout


def make(folder: Path, *, files: int, patches: int) -> Path:
    """Make an upstream and a queue on it; return the queue's folder."""
    upstream, queue = folder / "upstream", folder / "queue"
    upstream.mkdir(parents=True)
    git(upstream, "init", "-q", "-b", "main")
    for number in range(files):
        path = upstream / f"part{number % 100}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {number}\n{LINES}", encoding="utf-8")
    git(upstream, "add", "-A")
    git(upstream, "commit", "-q", "-m", "Release")
    git(upstream, "tag", "v1.0")
    commit = git(upstream, "rev-parse", "HEAD").decode().strip()
    (queue / "upstreams").mkdir(parents=True)
    (queue / "upstreams" / "demo.toml").write_text(
        'name = "demo"\nrepository = "a/demo"\n', encoding="utf-8"
    )
    names = [f"patch{number:03}" for number in range(patches)]
    for number, name in enumerate(names):
        put(queue / "patches" / name, upstream, f"part{number % 100}/module{number}.py", commit)
    order = ", ".join(f'"{name}"' for name in names)
    (queue / "patches" / "queue.toml").write_text(
        f'order = [{order}]\n[[pins]]\nupstream = "demo"\ntag = "v1.0"\ncommit = "{commit}"\n'
        f'[[pins.sources]]\nkind = "git"\nremote = "{upstream.as_uri()}"\n',
        encoding="utf-8",
    )
    return queue


def put(folder: Path, upstream: Path, path: str, commit: str) -> None:
    """Write a patch that changes one line of a file."""
    target = upstream / path
    target.write_text(target.read_text().replace("value_20 = 20", "value_20 = 21"))
    git(upstream, "commit", "-q", "-a", "-m", f"Change {path}")
    content = git(upstream, "format-patch", "-1", "--stdout", "--zero-commit", "--no-signature")
    git(upstream, "reset", "-q", "--hard", commit)
    (folder / "checks").mkdir(parents=True)
    (folder / "0001-change.patch").write_bytes(content)
    (folder / "checks" / "test_red.py").write_text("def test_it():\n    assert False\n")
    (folder / "patch.toml").write_text(
        f'title = "Change"\nupstream = "demo"\npin = "v1.0"\nfiles = ["{path}"]\n'
        'problem = "p"\nroot_cause = "r"\nsolution = "s"\n'
        '[[checks]]\nname = "red"\nfile = "test_red.py"\nexpect = "fail-to-pass"\n'
        'reason = "AssertionError"\n',
        encoding="utf-8",
    )


def bring(queue: Path, cache: Path) -> None:
    """Bring the pin into the store, as the first `verify` does."""
    first = min(path.name for path in (queue / "patches").glob("patch*"))
    run(queue, cache, "verify", first)


def run(queue: Path, cache: Path, *args: str) -> float:
    """Run contribbot; return the seconds."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "contribbot", "--queue", str(queue), *args],
        env={**os.environ, "CONTRIBBOT_CACHE": str(cache)} if cache.name else os.environ,
        check=False,
        capture_output=True,
    )
    return time.perf_counter() - started


def warm(queue: Path, cache: Path) -> float:
    """Return the median time of a warm `status`."""
    run(queue, cache, "status")
    return statistics.median(run(queue, cache, "status") for _ in range(ROUNDS))


def everyday(queue: Path) -> None:
    """Measure the everyday commands on a copy of this queue, and print."""
    for part in ("patches", "evidence", "history"):
        shutil.copytree(ROOT / part, queue / part)
    rows: dict[str, list[tuple[float, float]]] = {command: [] for command in WANTED}
    for _ in range(ROUNDS + 1):
        for command, times in rows.items():
            before = cpu_seconds()
            seconds = run(queue, Path(), *command.split())
            times.append((seconds, cpu_seconds() - before))
    for command, times in rows.items():
        wall, cpu = map(statistics.median, zip(*times[1:], strict=True))
        print(f"{command}: {wall:.2f} s, {cpu:.2f} CPU-seconds (wanted: {WANTED[command]:g} s)")


def cpu_seconds() -> float:
    """Return the processor time of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    # On the cache's file system, as a work tree's objects are links into the store there.
    with tempfile.TemporaryDirectory(dir=cache_folder()) as name:
        everyday(Path(name))
    seen: dict[tuple[int, int], float] = {}
    with tempfile.TemporaryDirectory() as name:
        for files, patches in ((5_000, 10), (5_000, 50), (5_000, 100), (50_000, 10)):
            folder = Path(name) / f"{files}-{patches}"
            queue, cache = make(folder, files=files, patches=patches), folder / "cache"
            bring(queue, cache)
            seen[files, patches] = warm(queue, cache)
            print(f"{files:,} files, {patches} patches: {seen[files, patches]:.2f} s")
    small, large = seen[5_000, 10], seen[50_000, 10]
    print(f"50,000 files / 5,000 files: {large / small:.2f}")
    step = (seen[5_000, 50] - small) / 40
    later = (seen[5_000, 100] - seen[5_000, 50]) / 50
    print(
        f"a patch more, from 50 to 100 / from 10 to 50: {later / step:.2f} ({later * 1e3:.1f} ms)"
    )


if __name__ == "__main__":
    main()
