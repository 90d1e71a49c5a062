"""What a user waits for: `verify` and the commands beside it, each with its CPU-seconds.

All runs are in folders of their own, with the downloaded archives; the queue and its evidence
stay as they are. The first `verify` of each patch is cold: no store, no remembered outcome and
no compiled kernel is there; the first `status` applies all patches. The goals are for two quiet
cores. A stranger's kernel (docs/triton-kernel.md), `make verify` in a fresh clone and `make test`
are not measured here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contribbot.files import cache_folder

ROOT = Path(__file__).parent.parent
#: What is run, in this order, and the seconds that it may take; 0: no goal.
COMMANDS = (
    ("verify rmsnorm", 25),
    ("verify rmsnorm", 0.5),
    ("verify rmsnorm --force", 15),
    ("verify resample-race", 0),
    ("verify resample-race --force", 18),
    ("check resample-race --check gfx942", 8),
    ("verify hipify-path --force", 30),
    ("edit resample-race", 4),
    ("edit resample-race --abort", 2),
    ("doctor", 3),
    ("queue list", 0.5),
    ("status", 0),
    ("status", 0.5),
    ("verify --all --force", 0),
)
#: An option of prctl(2): orphans become children of this process.
SUBREAPER = 36
#: Not proved is no failure of the measurement, and neither is a noisy bench.
ENDS = (0, 3)


def measure(queue: Path, cache: Path, words: str) -> tuple[float, float]:
    """Run a command of contribbot; return its seconds, and those of the processor."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "contribbot", "--queue", str(queue), *words.split()],
            env={**os.environ, "CONTRIBBOT_CACHE": str(cache)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        child.wait()
        seconds = time.perf_counter() - started
        with contextlib.suppress(ChildProcessError):
            while True:  # what bubblewrap did not wait for is this process's child now
                os.wait()
        if child.returncode not in ENDS:
            output.seek(0)
            sys.exit(f"{words} ended with {child.returncode}:\n{output.read().decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"on {cores} cores, load {load:.1f}: seconds, CPU-seconds, wanted on two quiet cores")
    with tempfile.TemporaryDirectory() as folder:
        queue, cache = Path(folder) / "queue", Path(folder) / "cache"
        shutil.copytree(ROOT / "patches", queue / "patches")
        if (downloads := cache_folder() / "downloads").is_dir():
            shutil.copytree(downloads, cache / "downloads")
        for words, goal in COMMANDS:
            seconds, cpu = measure(queue, cache, words)
            wanted = f"{goal:g} s" if goal else "-"
            print(f"{words:36} {seconds:7.2f} {cpu:7.1f}   {wanted}", flush=True)


if __name__ == "__main__":
    main()
