"""`contribbot verify`, cold with the archives downloaded, and warm.

Cold: nothing but the downloaded archives is there (no store, no remembered
outcomes, no compiled kernels). Warm: the same again. All runs are in folders of
their own; the queue and its evidence stay as they are. Wanted on 2 cores: for
patches/rmsnorm cold under 15 s and warm under 1 s, for the whole queue cold under
180 s and warm under 1.5 s.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contribbot.files import cache_folder

ROOT = Path(__file__).parent.parent
WARM_ROUNDS = 5
#: Not proved is no failure of the measurement, and neither is a noisy bench.
ENDS = (0, 3)


def verify(queue: Path, cache: Path, what: str) -> float:
    """Run it and return the seconds."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "contribbot", "--queue", str(queue), "verify", what],
        env={**os.environ, "CONTRIBBOT_CACHE": str(cache)},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode not in ENDS:
        sys.exit(f"verify {what} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started


def measure(what: str, *, cold_goal: float, warm_goal: float) -> None:
    """Measure one command, cold and warm, and print."""
    with tempfile.TemporaryDirectory() as folder:
        queue, cache = Path(folder) / "queue", Path(folder) / "cache"
        shutil.copytree(ROOT / "patches", queue / "patches")
        downloads = cache_folder() / "downloads"
        if downloads.is_dir():
            shutil.copytree(downloads, cache / "downloads")
        else:
            verify(queue, cache, what)
            for made in [*cache.iterdir(), queue / ".contribbot"]:
                if made.name != "downloads" and made.is_dir():
                    shutil.rmtree(made)
        cold = verify(queue, cache, what)
        warm = sorted(verify(queue, cache, what) for _ in range(WARM_ROUNDS))[WARM_ROUNDS // 2]
    cores = len(os.sched_getaffinity(0))
    print(f"verify {what}, on {cores} cores (wanted on 2: {cold_goal:g} s, warm {warm_goal:g} s)")
    print(f"  cold, archives downloaded: {cold:.1f} s")
    print(f"  warm: {warm:.2f} s, median of {WARM_ROUNDS}")
    print(f"  warm / cold: {warm / cold:.4f}")


def main() -> None:
    """Measure and print."""
    measure("rmsnorm", cold_goal=15, warm_goal=1)
    measure("--all", cold_goal=180, warm_goal=1.5)


if __name__ == "__main__":
    main()
