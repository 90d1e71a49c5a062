"""`contribbot init` and `pin add`: a queue that works, from nothing, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from contribbot.errors import QueueError
from contribbot.queue.load import load_queue
from contribbot.runners.plan import Runners, load_fleet
from tests.conftest import Program

from .conftest import Kit
from .index_server import Index

DEMO = 'name = "demo"\nrepository = "owner/demo"\n\n[release]\ndistribution = "demo-dist"\n'


def begun(folder: Path) -> Program:
    """Return the program in a new queue that knows the upstream of these tests."""
    folder.mkdir(exist_ok=True)
    program = Program(folder)
    assert program("init").code == 0
    (folder / "upstreams").mkdir()
    (folder / "upstreams/demo.toml").write_text(DEMO.replace("demo-dist", "demo"))
    return program


def test_a_queue_from_nothing_works(tmp_path: Path) -> None:
    program = Program(tmp_path)
    ran = program("init", "my queue")
    assert (ran.code, ran.err) == (0, "")
    assert "cd 'my queue'" in ran.out
    folder = tmp_path / "my queue"
    assert (folder / ".gitignore").read_text() == "/.contribbot/\n.*.partial\n"
    assert program("queue", "list", cwd=folder).out == "the queue is empty\n"
    assert load_fleet(folder, needed=False).runners == Runners()
    with pytest.raises(QueueError, match="no such file"):
        load_fleet(folder)
    ran = program("new", "area", "--title", "T", cwd=folder)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "pin one: contribbot pin add sglang VERSION" in ran.err


def test_in_a_repository_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.o\n")
    assert Program(tmp_path)("init").code == 0
    assert (tmp_path / ".gitignore").read_text() == "*.o\n/.contribbot/\n.*.partial\n"


def test_no_queue_begins_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    ran = Program(tmp_path)("init")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "neither empty nor in a git repository; name an empty folder" in ran.err
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["notes"]


@pytest.mark.parametrize("release", ["1.0", "v1.0", "newest"])
def test_a_release_is_pinned(tmp_path: Path, kit: Kit, index: Index, release: str) -> None:
    archive = kit.pack({"demo-1.0/demo/area.py": b"x = 1\n"})
    index.offer(archive)
    program = begun(tmp_path / "queue")
    added = program("pin", "add", "demo", release, "--json").json()
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert {**added, "commit": ""} == {
        "upstream": "demo", "tag": "v1.0", "file": "demo-1.0.tar.gz", "place": index.url,
        "sha256": sha256, "kind": "sdist", "commit": "",
    }  # fmt: skip
    (pin,) = load_queue(tmp_path / "queue").spec.pins
    assert [source.kind for source in pin.sources] == ["sdist", "git"]
    text = (tmp_path / "queue/patches/queue.toml").read_text()
    assert text.startswith("# The order in which patches")
    assert f'sha256 = "{sha256}"' in text
    # It stands, and a patch can begin on it; nothing of it is downloaded again.
    assert program("new", "area", "--title", "T").code == 0
    downloads = index.downloads
    assert program("verify", "area").code == 1
    assert index.downloads == downloads
    again = program("pin", "add", "demo", release)
    assert (again.code, again.out) == (2, "")
    assert "demo v1.0: pinned already" in again.err


def test_what_a_pin_trusts_is_said(tmp_path: Path, kit: Kit, index: Index) -> None:
    index.offer(kit.pack({"demo-1.0/demo/area.py": b"x = 1\n"}))
    ran = begun(tmp_path / "queue")("pin", "add", "demo", "1.0")
    assert ran.code == 0, ran.err
    assert "file    demo-1.0.tar.gz" in ran.out
    assert f"from    {index.url}" in ran.out


@pytest.mark.parametrize(
    ("fault", "args", "said"),
    [
        ("", ("demo", "1.1"), "demo v1.1: no such release of demo"),
        ("", ("demo", "../1"), "no such release of demo"),
        ("gone", ("demo", "1.0"), "Connection refused"),
        ("flip", ("demo", "1.0"), "wrong sha256"),
    ],
)
def test_what_cannot_be_pinned(
    kit: Kit, index: Index, fault: str, args: tuple[str, str], said: str
) -> None:
    queue = kit.folder.parent / "queue"
    index.offer(kit.pack({"demo-1.0/demo/area.py": b"x = 1\n"}))
    program = begun(queue)
    if fault == "gone":
        program.env["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple/"
    elif fault:
        index.faults = [fault] * 9
    before = (queue / "patches/queue.toml").read_bytes()
    ran = program("pin", "add", *args)
    assert (ran.code, ran.out) == (3 if fault else 2, "")
    assert said in ran.err.splitlines()[-1]
    assert (queue / "patches/queue.toml").read_bytes() == before
