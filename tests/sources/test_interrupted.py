"""Imports that are killed, that meet each other, or that run out of disk."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot.errors import NoSpaceError
from contribbot.git.pins import Silent
from contribbot.git.pins.sources import provide, stored_tree
from contribbot.git.repository import Store
from contribbot.model.patch import Pin
from tests import tools

from .conftest import UPSTREAM, Kit
from .index_server import Index

#: Provides the pin of its first argument; stops for good at the word of its second.
CHILD = """
import json, sys, time
from contribbot.model.patch import Pin, Upstream
from contribbot.git.pins.sources import provide
from contribbot.git.repository import open_store
from contribbot.files import stores_folder

class Stops:
    def start(self, label, total):
        self.stop, self.count = label.startswith(sys.argv[2]), 0
    def advance(self, count):
        self.count += count
        if self.stop and self.count > 300_000:
            print("in the middle", flush=True)
            time.sleep(60)
    def done(self):
        pass

pin = Pin.model_validate_json(sys.argv[1])
upstream = Upstream(name="demo", repository="owner/demo")
found = provide(pin, upstream, open_store(stores_folder(), "demo"), progress=Stops())
print(json.dumps([found.commit, found.fresh]))
"""


def child(pin: Pin, stop: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, pin.model_dump_json(), stop], stdout=subprocess.PIPE
    )


def noise(kit: Kit, index: Index) -> Pin:
    """Offer an archive that does not compress, of 2 MiB in 20 files."""
    rng = random.Random(1)  # noqa: S311  not a secret
    archive = kit.pack({f"demo-1.0/{n}.bin": rng.randbytes(100_000) for n in range(20)})
    index.offer(archive)
    return kit.pin(kit.sdist(archive))


def leftovers(store: Store) -> list[str]:
    names = (path.name for path in store.path.rglob("*"))
    return [name for name in names if name.startswith(("tmp_", "fast_import_crash"))]


@pytest.mark.parametrize("stage", ["downloading", "importing"])
def test_a_kill_leaves_nothing_that_counts(kit: Kit, index: Index, stage: str) -> None:
    pin = noise(kit, index)
    with child(pin, stage) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in the middle\n"
        os.kill(process.pid, signal.SIGKILL)
    store = kit.store
    assert stored_tree(pin, UPSTREAM, store) is None
    # git is killed with its parent, in its own time.
    time.sleep(0.5)
    found = provide(pin, UPSTREAM, store, progress=Silent())
    assert found.fresh
    assert len(kit.files(found.tree)) == 20
    assert leftovers(store) == []


def test_two_at_once_import_once(kit: Kit, index: Index) -> None:
    pin = noise(kit, index)
    with child(pin, "never") as one, child(pin, "never") as two:
        said = [json.loads(process.communicate(timeout=60)[0]) for process in (one, two)]
    assert said[0][0] == said[1][0]
    assert sorted(fresh for _, fresh in said) == [False, True]
    packs = list((kit.store.path / "objects" / "pack").glob("*.pack"))
    assert len(packs) == 1


@pytest.fixture
def small_disk(tmp_path: Path, patch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a cache on a disk of 3 MiB."""
    with tools.small_disk(tmp_path / "disk", "size=3m") as disk:
        patch.setenv("CONTRIBBOT_CACHE", str(disk))
        yield disk


@pytest.mark.parametrize("taken", [0, 2 * 2**20])
def test_a_full_disk_is_named_and_leaves_no_pin(
    kit: Kit, index: Index, small_disk: Path, taken: int
) -> None:
    # The archive of 2 MiB fits and its pack does not; or not even the archive does.
    pin = noise(kit, index)
    store = kit.store
    (small_disk / "ballast").write_bytes(bytes(taken))
    with pytest.raises(NoSpaceError, match="the disk is full") as caught:
        provide(pin, UPSTREAM, store, progress=Silent())
    assert "CONTRIBBOT_CACHE" in caught.value.hint
    assert stored_tree(pin, UPSTREAM, store) is None
    assert leftovers(store) == []
