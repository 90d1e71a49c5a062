"""Re-applying a queue onto its pin in memory, against `git am` in a work tree.

The tree is vLLM 0.22.0 as its archive has it; the patches, 4 and 100, are made
here. Both sides start from nothing but the base each time: contribbot from a store
that borrows the base's objects, git from a work tree at the base. Both run in turn;
only the ratio of the medians carries over to other machines. Wanted: at most 0.5.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.vllm import Base, brought
from contribbot.git.apply import Series, apply_series
from contribbot.git.repository import Store, git_environment, open_store
from contribbot.model.patch import PatchFile

ROUNDS: Final = 7
WANTED: Final = 0.5


def fresh_store(base: Base, folder: Path) -> Store:
    """Return a store that has the base's objects and none of a patch."""
    store = open_store(folder, "vllm")
    alternates = store.path / "objects" / "info" / "alternates"
    alternates.write_text(f"{base.store.path / 'objects'}\n", encoding="utf-8")
    return store


def ours(base: Base, files: Sequence[PatchFile]) -> tuple[float, Series]:
    """Apply in memory; return the seconds and what came of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = fresh_store(base, folder)
        started = time.perf_counter()
        with store.exclusive():
            series = apply_series(store, base.commit, files, pin="vllm")
        return time.perf_counter() - started, series


def theirs(base: Base, files: Sequence[PatchFile], tree: Path) -> tuple[float, str]:
    """Apply with `git am`; return the seconds and the tree."""
    env = git_environment(
        {"GIT_COMMITTER_NAME": "contribbot", "GIT_COMMITTER_EMAIL": "contribbot@localhost"}
    )

    def git(*args: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["git", *args], cwd=tree, env=env, input=stdin, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    git("reset", "-q", "--hard", base.commit)
    # So that git need not look into files that were written a moment ago.
    git("update-index", "-q", "--really-refresh")
    mails = b"".join(file.content for file in files)
    started = time.perf_counter()
    git("am", "-q", "--keep-non-patch", stdin=mails)
    return time.perf_counter() - started, git("rev-parse", "HEAD^{tree}")


def measure(base: Base, count: int, tree: Path) -> float:
    """Measure one size of queue, and return the ratio."""
    files = base.patches(count)
    taken: dict[str, list[float]] = {"contribbot": [], "git am": []}
    for turn in range(ROUNDS + 1):
        mine, series = ours(base, files)
        them, expected = theirs(base, files, tree)
        if series.applied[-1].tree != expected:
            sys.exit("contribbot and git am disagree")
        # The first turn warms the caches of the disk.
        if turn:
            taken["contribbot"].append(mine)
            taken["git am"].append(them)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    ratio = medians["contribbot"] / medians["git am"]
    print(f"{count} patches onto vLLM 0.22.0 (medians of {ROUNDS})")
    for name, seconds in medians.items():
        print(f"  {name}: {seconds * 1000:.0f} ms")
    print(f"  ratio: {ratio:.2f} (wanted: at most {WANTED})")
    return ratio


def main() -> int:
    """Measure; return 1 when the target is missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = brought(folder / "stores", "0.22.0")
        tree = base.work_tree(folder / "tree")
        ratios = [measure(base, count, tree) for count in (4, 100)]
    return 0 if max(ratios) <= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
