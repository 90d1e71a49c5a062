from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot.errors import MachineError, NoSpaceError, QueueError
from contribbot.queue import transaction as transaction_module
from contribbot.queue.load import find_queue, load_queue
from contribbot.queue.transaction import recover, torn_file, transaction
from tests import smalldisk
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
    assert not list(queue.rglob(".contribbot-*"))
    assert sorted(one.name for one in (queue / ".contribbot").iterdir()) == ["queue.lock"]


def test_changes_of_a_patch_and_of_the_queue_take_effect_together(queue: Path) -> None:
    before = tree(queue / "patches")
    with transaction(queue) as changes:
        changes.write("patches/queue.toml", b"new order\n")
        changes.write("patches/one/0002-more.patch", b"more\n")
        changes.write("patches/three/checks/run.sh", b"#!\n", executable=True)
        changes.delete("patches/one/0001-change.patch")
        assert changes.read("patches/queue.toml") == b"new order\n"
        assert changes.read("patches/one/notes.txt") == b"mine\n"
        assert changes.read("patches/one/0001-change.patch") is None
        assert tree(queue / "patches") == before

    expected = dict(before)
    del expected["one/0001-change.patch"]
    expected |= {
        "queue.toml": b"644 new order\n", "one/0002-more.patch": b"644 more\n",
        "three": "folder", "three/checks": "folder", "three/checks/run.sh": b"755 #!\n",
    }  # fmt: skip
    assert tree(queue / "patches") == expected
    assert_nothing_is_left(queue)


def test_a_block_that_raises_changes_nothing(queue: Path) -> None:
    before = tree(queue / "patches")

    def change() -> None:
        with transaction(queue) as changes:
            changes.write("patches/one/patch.toml", b"x")
            raise KeyError

    with pytest.raises(KeyError):
        change()
    assert tree(queue / "patches") == before
    assert_nothing_is_left(queue)


def test_what_is_so_already_is_not_touched(queue: Path) -> None:
    place = queue / "patches" / "one" / "patch.toml"
    marks = [
        transaction_module.mark(place),
        transaction_module.mark(place.parent),
        transaction_module.mark(queue / "patches"),
    ]
    with transaction(queue) as changes:
        changes.write("patches/one/patch.toml", place.read_bytes())
        changes.delete("patches/one/0009-never-there.patch")
        assert not changes.commit()
    assert [
        transaction_module.mark(one) for one in (place, place.parent, queue / "patches")
    ] == marks


def test_folders_and_what_was_not_changed_stay_the_same_files(queue: Path) -> None:
    """A shell in the folder, an editor's open file and git's index keep what they hold."""
    kept = [
        queue / "patches", queue / "patches/one", queue / "patches/one/checks",
        queue / "patches/one/notes.txt", queue / "patches/two/patch.toml",
    ]  # fmt: skip
    before = [path.stat().st_ino for path in kept]
    with transaction(queue) as changes:
        changes.write("patches/queue.toml", b"new\n")
        changes.write("patches/one/checks/test_red.py", b"new\n")
        changes.write("patches/one/checks/test_more.py", b"new\n")
    assert [path.stat().st_ino for path in kept] == before
    assert (queue / "patches/one/checks/test_more.py").read_bytes() == b"new\n"


def test_what_others_write_meanwhile_is_kept(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = queue / "patches" / "one"
    seen: list[str] = []

    def busy(first: Path, second: Path) -> None:
        # An editor saves in place, another by renaming, and somebody adds a file:
        # just before the first exchange, and between the two.
        seen.append("exchange")
        (patch / f"added-{len(seen)}").write_text("theirs\n")
        (patch / "notes.txt").write_text(f"saved {len(seen)}\n")
        (patch / "new").write_text(f"saved {len(seen)}\n")
        (patch / "new").rename(patch / "checks" / "test_red.py")
        exchange(first, second)

    exchange = transaction_module.exchange
    monkeypatch.setattr(transaction_module, "exchange", busy)
    with transaction(queue) as changes:
        changes.write("patches/one/0001-change.patch", b"ours\n")
        changes.write("patches/one/0002-change.patch", b"ours\n")
    assert seen == ["exchange"] * 2
    assert (patch / "0001-change.patch").read_bytes() == b"ours\n"
    assert {one.name for one in patch.glob("added-*")} == {"added-1", "added-2"}
    assert (patch / "notes.txt").read_text() == "saved 2\n"
    assert (patch / "checks" / "test_red.py").read_text() == "saved 2\n"
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


def test_a_single_file_keeps_its_permissions(queue: Path) -> None:
    place = queue / "patches" / "one" / "patch.toml"
    place.chmod(0o640)
    with transaction(queue) as changes:
        changes.write("patches/one/patch.toml", b"new\n")
    assert place.read_bytes() == b"new\n"
    assert stat.S_IMODE(place.stat().st_mode) == 0o640
    assert_nothing_is_left(queue)


def test_permissions_of_folders_stay_when_several_files_change(queue: Path) -> None:
    patch = queue / "patches" / "one"
    (patch / "checks").chmod(0o750)
    (patch / "patch.toml").chmod(0o600)
    with transaction(queue) as changes:
        changes.write("patches/one/patch.toml", b"new\n")
        changes.write("patches/one/checks/test_red.py", b"new\n")
    assert stat.S_IMODE((patch / "checks").stat().st_mode) == 0o750
    assert stat.S_IMODE((patch / "patch.toml").stat().st_mode) == 0o600


def test_a_linked_patch_folder_is_changed_where_it_lies(queue: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "one"
    elsewhere.parent.mkdir()
    (queue / "patches" / "one").rename(elsewhere)
    (queue / "patches" / "one").symlink_to(elsewhere)
    with transaction(queue) as changes:
        changes.write("patches/one/patch.toml", b"new\n")
        changes.delete("patches/one/0001-change.patch")
    assert (queue / "patches" / "one").is_symlink()
    assert (elsewhere / "patch.toml").read_bytes() == b"new\n"
    assert not (elsewhere / "0001-change.patch").exists()
    assert sorted(one.name for one in elsewhere.parent.iterdir()) == ["one"]

    before = tree(tmp_path)
    with pytest.raises(QueueError, match="cannot be changed in one step") as raised:
        write_all(queue, {"patches/one/patch.toml": b"newer\n", "patches/queue.toml": b"newer\n"})
    assert "where the link" in raised.value.hint
    assert tree(tmp_path) == before


def test_a_linked_file_is_changed_where_it_lies(queue: Path, tmp_path: Path) -> None:
    (tmp_path / "shared.toml").write_text("shared\n")
    place = queue / "patches" / "one" / "patch.toml"
    place.unlink()
    place.symlink_to("../../../shared.toml")
    with transaction(queue) as changes:
        changes.write("patches/one/patch.toml", b"new\n")
    assert place.is_symlink()
    assert (tmp_path / "shared.toml").read_text() == "new\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for a little."""
    with smalldisk.small_disk(tmp_path / "disk", "size=256k") as disk:
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


def test_a_patch_on_another_device_is_changed_there(queue: Path, small_disk: Path) -> None:
    shutil.move(queue / "patches" / "one", small_disk / "one")
    (queue / "patches" / "one").symlink_to(small_disk / "one")
    for path in ("0001-change.patch", "0002-more.patch"):
        with transaction(queue) as changes:
            changes.write("patches/one/patch.toml", f'title = "{path}"\n'.encode())
            changes.write(f"patches/one/{path}", b"new\n")
    with transaction(queue) as changes:
        changes.write("patches/one/0001-change.patch", b"alone\n")
    assert (small_disk / "one" / "0001-change.patch").read_bytes() == b"alone\n"
    assert (small_disk / "one" / "0002-more.patch").read_bytes() == b"new\n"
    assert sorted(one.name for one in small_disk.iterdir()) == ["one"]
    assert_nothing_is_left(queue)


def test_a_mounted_patch_and_the_queue_cannot_be_changed_together(
    queue: Path, small_disk: Path
) -> None:
    patch = queue / "patches" / "one"
    subprocess.run(["mount", "--bind", str(small_disk), str(patch)], check=True)
    try:
        (patch / "patch.toml").write_text("mounted\n")
        before = tree(queue / "patches")
        files = {"patches/one/patch.toml": b"new\n", "patches/queue.toml": b"new\n"}
        with pytest.raises(MachineError, match="on another file system"):
            write_all(queue, files)
        assert tree(queue / "patches") == before
        assert_nothing_is_left(queue)
    finally:
        subprocess.run(["umount", str(patch)], check=True)


def change_as_nobody(queue: Path, *paths: str) -> str:
    """Write files of a queue as a user whom permissions bind, where the tests run as root."""
    done = subprocess.run(
        [sys.executable, "-c", CHANGE, str(queue), *paths],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


CHANGE = """
import os
import sys
from pathlib import Path

import filelock

from contribbot.errors import ContribbotError
from contribbot.files import lock
from contribbot.queue.transaction import transaction

if os.geteuid() == 0:
    with lock(Path(sys.argv[1]).parent / "warm.lock", "imports"):
        pass  # what is imported late may lie where nobody may read
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    with transaction(Path(sys.argv[1])) as changes:
        for path in sys.argv[2:]:
            changes.write(path, b"new\\n")
except ContribbotError as error:
    print(error.message, "|", error.hint)
"""


@pytest.fixture
def open_queue(queue: Path) -> Iterator[Path]:
    """The queue in a place that everybody may enter, owned by whom `change_as_nobody` runs as."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.move(queue, place / "queue")
        if os.geteuid() == 0:
            for path in (place, *place.rglob("*")):
                os.chown(path, 65534, 65534, follow_symlinks=False)
        yield place / "queue"


def test_a_folder_that_may_not_be_written_is_named(open_queue: Path) -> None:
    patch = open_queue / "patches" / "one"
    for closed, paths in (
        (patch, ["patches/one/patch.toml"]),
        (patch / "checks", ["patches/one/checks/test_red.py", "patches/one/patch.toml"]),
        (patch.parent, ["patches/queue.toml", "patches/one/patch.toml"]),
        (patch.parent, ["patches/one/0002.patch", "patches/one/patch.toml"]),
        (open_queue / ".contribbot", ["patches/one/patch.toml"]),
    ):
        closed.mkdir(exist_ok=True)
        mode = stat.S_IMODE(closed.stat().st_mode)
        before = tree(open_queue / "patches")
        closed.chmod(0o555)
        said = change_as_nobody(open_queue, *paths)
        closed.chmod(mode)
        assert said.startswith(str(closed)), said
        assert "the queue is as it was | check that the folder is yours" in said
        assert tree(open_queue / "patches") == before


def test_somebody_elses_files_in_a_patch_folder_stay_theirs(open_queue: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a file to somebody else needs root")
    # What a container running as root leaves behind.
    cache = open_queue / "patches" / "one" / "checks" / "__pycache__"
    cache.mkdir()
    (cache / "test_red.pyc").write_bytes(b"compiled")
    for path in (cache, cache / "test_red.pyc"):
        os.chown(path, 0, 0)
    said = change_as_nobody(open_queue, "patches/one/patch.toml", "patches/one/0002-a.patch")
    assert said == ""
    assert (open_queue / "patches/one/0002-a.patch").read_bytes() == b"new\n"
    assert (cache / "test_red.pyc").stat().st_uid == 0
    assert (open_queue / "patches/one/patch.toml").stat().st_uid == 65534


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


def test_who_looks_by_name_sees_the_state_before_or_after(queue: Path) -> None:
    stop = threading.Event()
    mixed: list[set[bytes]] = []
    files = ("patch.toml", "0001-change.patch", "checks/test_red.py")
    looks = 0

    def look() -> None:
        nonlocal looks
        while not stop.is_set():
            before = (queue / "patches/one/patch.toml").read_bytes()
            found = {(queue / "patches/one" / name).read_bytes() for name in files}
            # Between two opens the whole may change: only a look at one state counts.
            if (queue / "patches/one/patch.toml").read_bytes() == before:
                looks += 1
                if len(found) > 1:
                    mixed.append(found)

    for name in files:
        (queue / "patches/one" / name).write_bytes(b"0")
    reader = threading.Thread(target=look)
    reader.start()
    for number in range(1, 40):
        with transaction(queue) as changes:
            for name in files:
                changes.write(f"patches/one/{name}", b"%d" % number)
    stop.set()
    reader.join()
    assert looks > 40
    assert mixed == []


TWO_RENAMES = """
import os, signal, sys
from pathlib import Path
from contribbot.queue import transaction

def refused(first, second):
    raise transaction.CannotExchangeError

transaction.exchange = refused
if sys.argv[2] == "kill":
    Path.rename = lambda one, other, do=Path.rename: (
        os.kill(os.getpid(), signal.SIGKILL) if one.name == "new" else do(one, other)
    )
if sys.argv[2] == "fail":
    def fail(one, other, do=Path.rename):
        if one.name == "new":
            raise OSError(5, "Input/output error", str(one))
        return do(one, other)
    Path.rename = fail
with transaction.transaction(Path(sys.argv[1])) as changes:
    for path in sys.argv[3:]:
        changes.write(path, b"new\\n")
"""


@pytest.mark.parametrize(
    "paths",
    [
        ["patches/one/patch.toml", "patches/one/0002-more.patch"],
        ["patches/queue.toml", "patches/one/0002-more.patch"],
    ],
    ids=["a patch", "all"],
)
def test_without_an_exchange_a_kill_is_put_right_by_the_next_command(
    queue: Path, paths: list[str]
) -> None:
    before = tree(queue / "patches")
    command = [sys.executable, "-c", TWO_RENAMES, str(queue)]
    failed = subprocess.run([*command, "fail", *paths], capture_output=True, check=False)
    assert b"the queue is as it was" in failed.stderr
    assert tree(queue / "patches") == before
    assert_nothing_is_left(queue)

    killed = subprocess.run([*command, "kill", *paths], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    moved = queue / "patches" / "one" if paths[0].startswith("patches/one") else queue / "patches"
    assert not moved.exists()
    assert find_queue(queue / "patches") == queue
    assert tree(queue / "patches") == before
    recover(queue)

    subprocess.run([*command, "work", *paths], check=True)
    assert (queue / "patches/one/0002-more.patch").read_bytes() == b"new\n"
    assert (queue / "patches/two/patch.toml").read_bytes() == b'title = "two"\n'
    assert_nothing_is_left(queue)


def test_a_torn_file_can_name_nothing_but_what_lies_aside(queue: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "folder"
    other.mkdir(parents=True)
    before = tree(queue / "patches")
    for content in (f'{{"folder": "{other}"}}', "no json", "[1]"):
        torn = torn_file(queue)
        torn.parent.mkdir(exist_ok=True)
        torn.write_text(content)
        recover(queue)
        assert not torn.exists()
    assert other.is_dir()
    assert tree(queue / "patches") == before


def test_what_killed_runs_left_is_swept(queue: Path) -> None:
    left = queue / ".contribbot" / "stage" / "abc" / "new"
    left.mkdir(parents=True)
    (left / "file").write_text("x")
    left.chmod(0o555)
    with transaction(queue) as changes:
        changes.write("patches/one/patch.toml", b"new\n")
    assert_nothing_is_left(queue)


@pytest.mark.parametrize("path", ["queue.toml", "/etc/x", "patches/../x", "patches//x", "a/\0"])
def test_only_paths_into_folders_of_the_queue_are_taken(queue: Path, path: str) -> None:
    with transaction(queue) as changes:
        with pytest.raises(ValueError, match="not a path into"):
            changes.write(path, b"")
        with pytest.raises(ValueError, match="not a path into"):
            changes.delete(path)


def test_a_folder_where_a_file_belongs_is_named(queue: Path) -> None:
    with pytest.raises(QueueError, match="a folder, where a file belongs"):
        write_all(queue, {"patches/one": b""})


def test_a_real_queue_loads_after_a_change(toy: Toy) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    content = (toy.queue / "patches/queue.toml").read_bytes()
    with transaction(toy.queue) as changes:
        changes.write("patches/queue.toml", content.replace(b'"area"', b'"moved"'))
        for path in (toy.queue / "patches/area").rglob("*"):
            if path.is_file():
                inside = path.relative_to(toy.queue).as_posix()
                changes.write(inside.replace("/area/", "/moved/"), path.read_bytes())
                changes.delete(inside)
    queue = load_queue(toy.queue)
    assert list(queue.specs) == ["moved"]
    assert len(queue.patch("moved").support) == 2
    assert_nothing_is_left(toy.queue)
