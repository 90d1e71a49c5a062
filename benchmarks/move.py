"""Moving 100 patches to another release, against `git rebase --onto` in a work tree.

From vLLM 0.22.0 to 0.33.0, both as their archives have them. The patches are made
here; some must conflict. contribbot moves all of them, each by itself, conflicts
sorted and the new patch files written. `git rebase` gets the clean ones alone, in a
row, since it stops at the first conflict; a second figure has contribbot move them as
such a row too. All run in turn; only the ratios of the medians carry over. Wanted: at
most 0.5.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.vllm import Base, brought
from contribbot.git.apply import Applied, Series
from contribbot.git.merge import Moving, RebaseResult, move
from contribbot.git.repository import NewCommit, Store, git_environment, open_store
from contribbot.model.lifecycle import Text

ROUNDS: Final = 5
WANTED: Final = 0.5
PATCHES: Final = 100
CONFLICTS: Final = 10
#: So that git need not look into files that were written a moment ago.
REFRESH: Final = ["update-index", "-q", "--really-refresh"]


def series(base: str, commit: tuple[NewCommit, str, str]) -> Series:
    """Return a commit as a series of one patch."""
    described, made, tree = commit
    message = described.message.decode()
    applied = Applied("0001-x.patch", message.partition("\n")[0], message, made, tree, ())
    return Series(base, (applied,), ())


def choose(old: Base, new: Base) -> tuple[list[str], list[str]]:
    """Return files whose middle stays, most changed elsewhere, and some whose middle does not."""
    before, after = old.files(), new.files()
    theirs = {path: b"\n".join(lines) for path, lines in new.lines(after).items()}
    stays: list[str] = []
    gone: list[str] = []
    for path, lines in old.lines(before).items():
        middle = len(lines) // 2
        if len(lines) < PATCHES // 2:
            continue
        if b"\n".join(lines[middle - 4 : middle + 4]) in theirs.get(path, b""):
            stays.append(path)
        elif path in after and b"\n".join(lines[middle - 1 : middle + 1]) not in theirs[path]:
            gone.append(path)
    changed = [path for path in stays if after[path] != before[path]]
    same = [path for path in stays if after[path] == before[path]]
    clean = PATCHES - CONFLICTS
    half = clean // 3
    picked = [*changed[:: len(changed) // (clean - half)][: clean - half],
              *same[:: len(same) // half][:half]]  # fmt: skip
    return sorted(picked), gone[:: len(gone) // CONFLICTS][:CONFLICTS]


def ours(old: Base, new: str, patches: Sequence[Moving]) -> tuple[float, list[RebaseResult]]:
    """Move in memory, in a store that has nothing of it yet; return the seconds and the result."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store: Store = open_store(folder, "vllm")
        alternates = store.path / "objects" / "info" / "alternates"
        alternates.write_text(f"{old.store.path / 'objects'}\n", encoding="utf-8")
        started = time.perf_counter()
        with store.exclusive():
            moved = move(store, patches, old=old.commit, new=new, pin="0.33.0")
        return time.perf_counter() - started, moved


def theirs(old: Base, new: str, tip: str, tree: Path) -> float:
    """Rebase; return the seconds."""
    env = git_environment(
        {"GIT_COMMITTER_NAME": "contribbot", "GIT_COMMITTER_EMAIL": "contribbot@localhost"}
    )
    for command in (["checkout", "-q", "--force", "-B", "work", tip], REFRESH):
        subprocess.run(["git", *command], cwd=tree, env=env, check=True, capture_output=True)
    started = time.perf_counter()
    subprocess.run(
        ["git", "rebase", "-q", "--onto", new, old.commit, "work"],
        cwd=tree, env=env, check=True, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - started


def main() -> int:
    """Measure; return 1 when a target is missed."""
    taken: dict[str, list[float]] = {"all by themselves": [], "clean in a row": [], "rebase": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, new = brought(folder / "stores", "0.22.0"), brought(folder / "stores", "0.33.0")
        clean, conflicting = choose(old, new)
        alone = old.commits([*clean, *conflicting], in_a_row=False)
        row = old.commits(clean, in_a_row=True)
        single = [Moving(f"p{n}", (), series(old.commit, one)) for n, one in enumerate(alone)]
        names = [f"p{n}" for n in range(len(row))]
        stack = [
            Moving(names[n], tuple(names[:n]), series(row[n - 1][1] if n else old.commit, one))
            for n, one in enumerate(row)
        ]
        tree = old.work_tree(folder / "tree")
        for turn in range(ROUNDS + 1):
            seconds, moved = ours(old, new.commit, single)
            in_a_row, stacked = ours(old, new.commit, stack)
            rebased = theirs(old, new.commit, row[-1][1], tree)
            if turn:
                taken["all by themselves"].append(seconds)
                taken["clean in a row"].append(in_a_row)
                taken["rebase"].append(rebased)
            if any(one.status not in {Text.CLEAN, Text.MERGED} for one in stacked):
                sys.exit("a patch that rebases does not move cleanly")
    fates = Counter(one.status.value for one in moved)
    medians = {what: statistics.median(times) for what, times in taken.items()}
    print(f"{len(single)} patches from vLLM 0.22.0 to 0.33.0: {dict(fates)} (medians of {ROUNDS})")
    print(f"  git rebase --onto, the {len(row)} clean ones: {medians['rebase'] * 1000:.0f} ms")
    ratios = []
    for what in ("all by themselves", "clean in a row"):
        ratios.append(medians[what] / medians["rebase"])
        print(f"  contribbot, {what}: {medians[what] * 1000:.0f} ms, ratio {ratios[-1]:.2f}")
    print(f"  wanted: at most {WANTED}")
    return 0 if max(ratios) <= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
