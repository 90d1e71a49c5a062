from __future__ import annotations

import logging
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from contribbot.errors import IntegrityError, MachineError, SourceError
from contribbot.files import downloads_folder
from contribbot.git.pins import Silent
from contribbot.git.pins.index import obtain
from contribbot.git.pins.sources import provide
from contribbot.model.patch import Pin
from tests.tools import unpack

from .conftest import Kit, git
from .index_server import Index

TREE = {"demo-1.0/a.py": b"print(1)\n", "demo-1.0/noise.bin": bytes(range(256)) * 1000}


@dataclass
class Recorder:
    steps: list[tuple[str, int | None]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    ended: int = 0

    def start(self, label: str, total: int | None) -> None:
        self.steps.append((label, total))
        self.counts.append(0)

    def advance(self, count: int) -> None:
        self.counts[-1] += count

    def done(self) -> None:
        self.ended += 1


def test_the_real_archive_gives_the_tree_that_git_add_gives(
    kit: Kit, sglang_pin: Pin, sglang_archive: Path, find_links: Path, patch: pytest.MonkeyPatch
) -> None:
    patch.setenv("PIP_FIND_LINKS", str(sglang_archive.parent))
    found = provide(sglang_pin, kit.upstream, kit.store, progress=Silent())
    unpack(sglang_archive, find_links / "out")
    (top,) = (find_links / "out").iterdir()
    (top / "PKG-INFO").unlink()
    (top / "setup.cfg").unlink()
    shutil.rmtree(top / "sglang.egg-info")
    top.rename(top.with_name("python"))
    git(find_links / "out", "init", "-q")
    git(find_links / "out", "add", "-A", "-f")
    assert found.tree == git(find_links / "out", "write-tree")
    assert found.tree == "084da068f68bd873da838f572f094ccb6e600f4c"
    # The same on every machine: evidence refers to it.
    assert found.commit == "88eb47df6054b3a5ffc682e2ae1418fa40fa5cce"


def test_an_archive_is_found_downloaded_and_imported(kit: Kit, index: Index) -> None:
    archive = kit.pack(TREE)
    index.offer(archive)
    progress = Recorder()
    spec = kit.sdist(archive)
    found = provide(kit.pin(spec), kit.upstream, kit.store, progress=progress)
    assert found.fresh
    assert found.kind == "sdist"
    assert found.detail == f"demo 1.0 source archive, sha256 {spec.sha256}"
    assert set(kit.files(found.commit)) == {"a.py", "noise.bin"}
    size = archive.stat().st_size
    assert progress.steps == [
        ("downloading demo-1.0.tar.gz", size),
        ("importing demo-1.0.tar.gz", size),
    ]
    assert progress.counts == [size, size]
    assert progress.ended == 2


def test_a_damaged_file_in_the_cache_is_downloaded_again(kit: Kit, index: Index) -> None:
    archive = kit.pack(TREE)
    index.offer(archive)
    cached = obtain(kit.sdist(archive), progress=Silent())
    assert obtain(kit.sdist(archive), progress=Silent()) == cached
    assert index.downloads == 1
    cached.write_bytes(cached.read_bytes()[:-5])
    assert obtain(kit.sdist(archive), progress=Silent()).read_bytes() == archive.read_bytes()
    assert index.downloads == 2
    assert [path.name for path in cached.parent.iterdir()] == ["demo-1.0.tar.gz"]


def test_a_digest_of_another_release_is_refused(kit: Kit, index: Index) -> None:
    archive = kit.pack(TREE)
    index.offer(archive)
    obtain(kit.sdist(archive), progress=Silent())
    # Whoever edits the version of a pin may forget its digest.
    moved = kit.sdist(archive).model_copy(update={"version": "1.1"})
    with pytest.raises(IntegrityError, match=r"demo-1\.0\.tar\.gz has the sha256 of demo 1\.1"):
        obtain(moved, progress=Silent())


def test_a_503_is_asked_again(kit: Kit, index: Index) -> None:
    archive = kit.pack(TREE)
    index.offer(archive)
    index.faults = ["503"]
    assert kit.provide(kit.sdist(archive)).fresh


@pytest.mark.parametrize(
    ("fault", "words"),
    [("short", "IncompleteRead"), ("503", "503"), ("404", "404")],
)
def test_a_fault_is_named_and_leaves_nothing(
    kit: Kit, index: Index, fault: str, words: str
) -> None:
    archive = kit.pack(TREE)
    index.offer(archive)
    index.faults = [fault] * 9
    with pytest.raises(SourceError, match=words) as caught:
        kit.provide(kit.sdist(archive))
    assert not isinstance(caught.value, IntegrityError)
    assert "demo-1.0.tar.gz from " + index.url in caught.value.message
    assert not [path for path in downloads_folder().rglob("*.gz*") if path.is_file()]


@pytest.mark.parametrize(("announce", "local"), [(True, False), (False, False), (False, True)])
def test_another_digest_than_the_pins_is_refused(
    kit: Kit, index: Index, announce: bool, local: bool
) -> None:
    archive = kit.pack(TREE)
    index.offer(archive)
    index.announce = announce
    if local:
        index.folder = archive.parent.as_uri() + "/"
    got = kit.sdist(archive).sha256
    with pytest.raises(IntegrityError) as caught:
        kit.provide(kit.sdist(archive, sha256="0" * 64))
    assert "0" * 64 in caught.value.message
    assert got in caught.value.message
    assert index.downloads == (0 if announce or local else 1)
    assert not [path for path in downloads_folder().rglob("*.gz*") if path.is_file()]
    assert kit.nothing_landed()


def test_a_release_that_the_index_lacks_is_named(kit: Kit, index: Index) -> None:
    index.offer(kit.pack(TREE, "demo-1.0.post1.tar.gz"))
    index.offer(kit.pack(TREE, "demo-1.0+local.tar.gz"))
    index.offer(kit.write(b"", "demo-1.0-py3-none-any.whl"))
    with pytest.raises(SourceError) as caught:
        kit.provide(kit.sdist(kit.folder / "demo-1.0.post1.tar.gz"))
    assert (
        f"demo 1.0: no source archive of it found: {index.url} has 3 files" in caught.value.message
    )
    assert "pip config list" in caught.value.hint


def test_the_index_password_works_and_is_shown_nowhere(
    kit: Kit, index: Index, patch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    archive = kit.pack(TREE)
    index.offer(archive)
    index.credentials = "me:s3cret"
    patch.setenv("PIP_INDEX_URL", index.url_as("me:s3cret"))
    found = kit.provide(kit.sdist(archive))
    assert "s3cret" not in repr(found)
    index.faults = ["404"]
    for path in downloads_folder().rglob("*.gz"):
        path.unlink()
    with pytest.raises(SourceError) as caught:
        obtain(kit.sdist(archive), progress=Silent())
    assert "s3cret" not in caught.value.message + caught.value.hint
    assert "s3cret" not in caplog.text
    assert "bWU6czNjcmV0" not in caplog.text  # the same, as the header says it


def test_an_unreachable_index_is_named_and_the_next_one_serves(
    kit: Kit, index: Index, patch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"http://127.0.0.1:{server.getsockname()[1]}/simple/"
    archive = kit.pack(TREE)
    patch.setenv("PIP_EXTRA_INDEX_URL", index.url)
    patch.setenv("PIP_INDEX_URL", closed)
    with pytest.raises(SourceError) as caught:
        kit.provide(kit.sdist(archive))
    assert f"{closed}: " in caught.value.message
    assert f"{index.url} has no files" in caught.value.message
    index.offer(archive)
    assert kit.provide(kit.sdist(archive)).fresh


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"PIP_INDEX_URL": "http://index.invalid/simple"},
            "was not asked: it needs https, or to be a trusted-host of pip",
        ),
        ({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/missing"}, "/missing: no such folder"),
        ({"PIP_FIND_LINKS": "https://index.invalid/links.html"}, "a page of find-links is not"),
        ({"PIP_NO_INDEX": "1"}, "no-index and without find-links"),
        ({"PIP_INDEX_URL": "wrong"}, "401"),
    ],
    ids=["no encryption", "no folder", "a page", "nowhere", "no password"],
)
def test_a_place_that_cannot_be_asked_is_named(
    kit: Kit, index: Index, patch: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    index.credentials = "me:s3cret"
    wrong = index.url_as("me:wrong-s3cret")
    for name, value in variables.items():
        patch.setenv(name, wrong if value == "wrong" else value)
    with pytest.raises(SourceError, match=words) as caught:
        kit.provide(kit.sdist(kit.pack(TREE)))
    assert "s3cret" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_named(
    kit: Kit, find_links: Path, patch: pytest.MonkeyPatch
) -> None:
    archive = kit.pack(TREE)
    (find_links / "file").write_bytes(b"")
    patch.setenv("CONTRIBBOT_CACHE", str(find_links / "file" / "cache"))
    with pytest.raises(MachineError, match="file") as caught:
        obtain(kit.sdist(archive), progress=Silent())
    assert "CONTRIBBOT_CACHE" in caught.value.hint
