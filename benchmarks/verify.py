"""`contribbot verify patches/rmsnorm`: cold with the archive downloaded, and warm.

Cold: nothing but the downloaded archive is there (no store, no remembered
outcomes). Warm: the same again. Both run in folders of their own; the queue and
its evidence stay as they are. Wanted: cold under 15 s on 2 cores, warm under 1 s.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contribbot.workspace import cache_folder

ROOT = Path(__file__).parent.parent
WARM_ROUNDS = 5


def verify(queue: Path, cache: Path) -> float:
    """Run it and return the seconds."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "contribbot", "--queue", str(queue), "verify", "rmsnorm"],
        env={**os.environ, "CONTRIBBOT_CACHE": str(cache)},
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        queue, cache = Path(folder) / "queue", Path(folder) / "cache"
        shutil.copytree(ROOT / "patches", queue / "patches")
        downloads = cache_folder() / "downloads"
        if downloads.is_dir():
            shutil.copytree(downloads, cache / "downloads")
        else:
            verify(queue, cache)
            shutil.rmtree(cache / "stores")
            shutil.rmtree(queue / ".contribbot")
        cold = verify(queue, cache)
        warm = sorted(verify(queue, cache) for _ in range(WARM_ROUNDS))[WARM_ROUNDS // 2]
    cores = len(os.sched_getaffinity(0))
    print(f"cold, archive downloaded: {cold:.1f} s on {cores} cores (wanted: under 15 on 2)")
    print(f"warm: {warm:.2f} s, median of {WARM_ROUNDS} (wanted: under 1)")
    print(f"warm / cold: {warm / cold:.3f}")


if __name__ == "__main__":
    main()
