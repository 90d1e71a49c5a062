from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot.errors import MachineError, NoSpaceError, QueueError
from contribbot.model.patch import PatchSpec
from contribbot.queue import load
from contribbot.queue.arrange import rename
from contribbot.queue.load import load_queue
from contribbot.queue.transaction import transaction
from tests import tools
from tests.toy import Toy

Tree = dict[str, bytes | str]


def tree(folder: Path) -> Tree:
    """Return all that is in a folder: contents with permissions, links, folders."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[inside] = f"link to {path.readlink()}"
        elif path.is_dir():
            found[inside] = "folder"
        else:
            found[inside] = b"%o " % stat.S_IMODE(path.stat().st_mode) + path.read_bytes()
    return found


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """Two patches of a few files each, and one that is not the queue's."""
    folder = tmp_path / "queue"
    for name in ("one", "two"):
        checks = folder / "patches" / name / "checks"
        checks.mkdir(parents=True)
        (checks / "test_red.py").write_text("red\n")
        (checks.parent / "patch.toml").write_text(f'title = "{name}"\n')
        (checks.parent / "0001-change.patch").write_bytes(b"From \xff\n")
    (folder / "patches" / "queue.toml").write_text("order\n")
    (folder / "patches" / "one" / "notes.txt").write_text("mine\n")
    (folder / "patches" / "one" / "checks" / "link.py").symlink_to("test_red.py")
    return folder


def write_all(queue: Path, files: dict[str, bytes]) -> None:
    """Write files of a queue in one transaction."""
    with transaction(queue) as changes:
        for path, content in files.items():
            changes.write(path, content)


def assert_nothing_is_left(queue: Path) -> None:
    assert not list(queue.rglob("*.partial"))
    assert {one.name for one in (queue / ".contribbot").iterdir()} <= {"queue.lock"}


def test_changes_of_a_patch_and_of_the_queue_take_effect_together(queue: Path) -> None:
    before = tree(queue / "patches")
    with transaction(queue) as changes:
        changes.write("patches/queue.toml", b"new order\n")
        changes.write("patches/one/0002-more.patch", b"more\n")
        changes.write("patches/three/checks/run.sh", b"#!\n")
        changes.write("history/one/journal.jsonl", b"{}\n")
        changes.delete("patches/one/0001-change.patch")
        assert changes.read("patches/queue.toml") == b"new order\n"
        assert changes.read("patches/one/notes.txt") == b"mine\n"
        assert changes.read("patches/one/0001-change.patch") is None
        assert tree(queue / "patches") == before

    expected = dict(before)
    del expected["one/0001-change.patch"]
    expected |= {
        "queue.toml": b"644 new order\n", "one/0002-more.patch": b"644 more\n",
        "three": "folder", "three/checks": "folder", "three/checks/run.sh": b"644 #!\n",
    }  # fmt: skip
    assert tree(queue / "patches") == expected
    assert (queue / "history/one/journal.jsonl").read_bytes() == b"{}\n"
    assert_nothing_is_left(queue)


def test_what_is_so_already_or_is_given_up_changes_nothing(queue: Path) -> None:
    place, before = queue / "patches/one/patch.toml", tree(queue / "patches")
    stat_before = place.stat()
    with transaction(queue) as changes:
        changes.write("patches/one/patch.toml", place.read_bytes())
        changes.delete("patches/one/0009-never-there.patch")
    assert place.stat() == stat_before

    def give_up() -> None:
        with transaction(queue) as changes:
            changes.write("patches/one/patch.toml", b"x")
            raise KeyError

    with pytest.raises(KeyError):
        give_up()
    assert tree(queue / "patches") == before
    assert_nothing_is_left(queue)


def test_a_patch_whose_files_all_go_goes_itself(queue: Path) -> None:
    with transaction(queue) as changes:
        for path in (queue / "patches" / "two").rglob("*"):
            if path.is_file():
                changes.delete(path.relative_to(queue).as_posix())
    assert sorted(one.name for one in (queue / "patches").iterdir()) == ["one", "queue.toml"]

    with transaction(queue) as changes:
        changes.write("patches/queue.toml", b"nothing\n")
        for path in (queue / "patches" / "one").rglob("*"):
            if path.is_file() and path.name != "notes.txt":
                changes.delete(path.relative_to(queue).as_posix())
    assert tree(queue / "patches") == {
        "one": "folder", "one/notes.txt": b"644 mine\n", "queue.toml": b"644 nothing\n",
    }  # fmt: skip
    assert_nothing_is_left(queue)


def test_permissions_stay_and_links_are_followed(queue: Path, tmp_path: Path) -> None:
    patch, elsewhere = queue / "patches" / "one", tmp_path / "elsewhere" / "one"
    (patch / "checks").chmod(0o750)
    (patch / "patch.toml").chmod(0o640)
    (tmp_path / "shared.patch").write_text("shared\n")
    elsewhere.parent.mkdir()
    patch.rename(elsewhere)
    patch.symlink_to(elsewhere)
    (patch / "0002-shared.patch").symlink_to(tmp_path / "shared.patch")

    with transaction(queue) as changes:
        changes.write("patches/one/patch.toml", b"new\n")
        changes.write("patches/one/checks/test_red.py", b"new\n")
        changes.write("patches/one/0002-shared.patch", b"new\n")
        changes.delete("patches/one/0001-change.patch")
        changes.write("patches/queue.toml", b"newer\n")

    assert stat.S_IMODE((elsewhere / "checks").stat().st_mode) == 0o750
    assert stat.S_IMODE((elsewhere / "patch.toml").stat().st_mode) == 0o640
    assert patch.is_symlink()
    assert (patch / "0002-shared.patch").is_symlink()
    assert (tmp_path / "shared.patch").read_bytes() == b"new\n"
    assert (elsewhere / "patch.toml").read_bytes() == b"new\n"
    assert not (elsewhere / "0001-change.patch").exists()
    assert [path.name for path in elsewhere.parent.iterdir()] == ["one"]
    assert_nothing_is_left(queue)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for a little."""
    with tools.small_disk(tmp_path / "disk", "size=256k") as disk:
        yield disk


def test_a_full_disk_changes_nothing(queue: Path, small_disk: Path) -> None:
    shutil.move(queue, small_disk / "queue")
    full = small_disk / "queue"
    before = tree(full / "patches")
    large = {"patches/one/0001-change.patch": b"x" * 300_000}
    for files in (large, {"patches/queue.toml": b"y", **large}):
        with pytest.raises(NoSpaceError, match="the queue is as it was"):
            write_all(full, files)
    assert tree(full / "patches") == before
    assert_nothing_is_left(full)


def test_a_folder_that_may_not_be_written_is_named(
    queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(queue / "patches")
    patch = queue / "patches" / "one"
    monkeypatch.setattr(os, "access", lambda place, _mode: Path(place) != patch)
    words = rf"{patch}: .*; the queue is as it was"
    for files in ({"patches/queue.toml": b"x", "patches/one/patch.toml": b"x"},):
        with pytest.raises(MachineError, match=words):
            write_all(queue, files)
    assert tree(queue / "patches") == before


def test_two_at_once_wait_for_each_other_and_read_afresh(queue: Path) -> None:
    place = queue / "patches" / "queue.toml"
    place.write_bytes(b"0")
    count = """
import sys
from pathlib import Path
from contribbot.queue.transaction import transaction
for _ in range(10):
    with transaction(Path(sys.argv[1])) as changes:
        number = int(changes.read("patches/queue.toml")) + 1
        changes.write("patches/queue.toml", b"%d" % number)
        changes.write("patches/one/patch.toml", b"%d" % number)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", count, str(queue)], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for one in running:
        _, said = one.communicate(timeout=60)
        assert one.returncode == 0, said
    assert place.read_bytes() == (queue / "patches/one/patch.toml").read_bytes() == b"30"
    assert_nothing_is_left(queue)


def test_a_reader_beside_a_writer_never_sees_half_of_a_change(
    area: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue changes after `queue.toml` was read, and before the folders are listed."""
    queue, spec_of = load_queue(area.queue), load._patch_spec
    area.put_queue(["area"])
    names = ["x1"]

    def read(folder: Path, name: str) -> PatchSpec:
        if names:
            rename(queue, "area", names.pop())
        return spec_of(folder, name)

    monkeypatch.setattr(load, "_patch_spec", read)
    assert list(load_queue(area.queue).specs) == ["x1"]


def test_an_edit_of_a_file_that_is_gone_writes_nothing(queue: Path) -> None:
    (queue / "patches/two/patch.toml").unlink()
    before = tree(queue / "patches")
    with (
        pytest.raises(QueueError, match=r"patches/two/patch\.toml is gone"),
        transaction(queue) as changes,
    ):
        changes.edit("patches/two/patch.toml", bytes.upper)
    assert tree(queue / "patches") == before


def test_a_folder_where_a_file_belongs_is_named(queue: Path) -> None:
    before = tree(queue / "patches")
    with pytest.raises(QueueError, match="a folder, where a file belongs"):
        write_all(queue, {"patches/new/checks/x": b"", "patches/new/y": b"", "patches/one": b""})
    with pytest.raises(MachineError, match="File exists"):
        write_all(queue, {"patches/queue.toml": b"x", "patches/one/patch.toml/x": b""})
    assert tree(queue / "patches") == before


def test_a_change_that_an_earlier_release_left_half_made_is_refused(queue: Path) -> None:
    (queue / ".contribbot" / "change").mkdir(parents=True)
    with pytest.raises(QueueError, match=r"\.contribbot/change: .* half made") as raised:
        load_queue(queue)
    assert "git status" in raised.value.hint
