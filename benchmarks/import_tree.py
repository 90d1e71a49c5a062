"""How long an import into a fresh store takes, against unpacking and `git add -A`.

Run it as `python -m benchmarks.import_tree [ARCHIVE]`. Without an archive it
fetches vLLM 0.22.0 the way that contribbot does. Both sides are measured in the
same run, in turn; only the ratio carries over to other machines.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from contribbot.git.pins import Silent, SourceRequest
from contribbot.git.pins.index import obtain
from contribbot.git.pins.sources import import_archive
from contribbot.git.repository import git_environment, open_store
from contribbot.model.patch import Pin, SdistSource, Upstream

#: The release that the figures in the documents are about.
_VLLM: Final = "6d41581a9e5288cd69278518a550c6d7ce510ae27a506556a3427d01284be7fe"
_TARGET: Final = 0.5


def _source(sha256: str) -> SdistSource:
    return SdistSource(kind="sdist", distribution="vllm", version="0.22.0", sha256=sha256)


def _import(archive: Path, spec: SdistSource, folder: Path) -> Path:
    """Import an archive into a fresh store; return the store."""
    store = open_store(folder, "bench")
    upstream = Upstream(name="bench", repository="bench/bench")
    pin = Pin(upstream="bench", tag=f"v{spec.version}", sources=(spec,))
    job = SourceRequest(pin, spec, upstream, store, Silent())
    with store.exclusive():
        import_archive(job, archive)
    return store.path


def _add(archive: Path, folder: Path) -> Path:
    """Do what one does by hand; return the repository."""
    env = git_environment()
    subprocess.run(["tar", "--no-same-owner", "-xzf", archive, "-C", folder], check=True)
    (tree,) = folder.iterdir()
    for command in (["init", "-q"], ["add", "-A"], ["write-tree"]):
        subprocess.run(["git", *command], cwd=tree, env=env, check=True, stdout=subprocess.PIPE)
    return tree / ".git"


def _timed(work: Callable[[Path], Path]) -> tuple[float, int]:
    """Return the seconds that it takes, and the bytes that git then holds."""
    with tempfile.TemporaryDirectory() as name:
        # What the one before left to be written must not slow this one down.
        os.sync()
        started = time.perf_counter()
        repository = work(Path(name))
        seconds = time.perf_counter() - started
        size = sum(path.stat().st_size for path in repository.rglob("*") if path.is_file())
    return seconds, size


def main() -> int:
    """Measure; return 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path, nargs="?", help="a source archive (.tar.gz)")
    parser.add_argument("--runs", type=int, default=3, help="the best of so many counts")
    options = parser.parse_args()
    if options.archive is None:
        spec = _source(_VLLM)
        archive = obtain(spec, progress=Silent())
    else:
        archive = options.archive
        spec = _source(hashlib.sha256(archive.read_bytes()).hexdigest())
    imported, added = [], []
    for _ in range(options.runs):
        imported.append(_timed(lambda folder: _import(archive, spec, folder)))
        added.append(_timed(lambda folder: _add(archive, folder)))
    ours, theirs = min(imported), min(added)
    ratio = ours[0] / theirs[0]
    print(f"{archive.name}, best of {options.runs}")
    print(f"import into a fresh store:    {ours[0]:6.2f} s, {ours[1] / 2**20:6.1f} MiB")
    print(f"tar + git add + write-tree:   {theirs[0]:6.2f} s, {theirs[1] / 2**20:6.1f} MiB")
    print(f"ratio: {ratio:.2f} (target: at most {_TARGET})")
    return 0 if ratio <= _TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
