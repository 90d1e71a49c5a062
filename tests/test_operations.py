"""The operation log: each change is a commit beside the user's branches, and can be taken back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contribbot.queue.history import versions
from contribbot.queue.load import load_queue
from contribbot.queue.transaction import OperationLog, transaction
from tests.conftest import Program, dig
from tests.releases import release
from tests.test_refresh import put_three
from tests.toy import Toy, git, snapshot


@pytest.fixture
def queue(toy: Toy) -> Toy:
    """Commit a queue of three patches to git."""
    put_three(toy)
    toy.put(".gitignore", ".contribbot/\n")
    git(toy.queue, "add", "-A")
    git(toy.queue, "commit", "-qm", "The queue")
    return toy


def files(queue: Toy) -> dict[str, bytes]:
    """Return the files of the queue, but for git's and for journals, which only grow."""
    return {
        path: content
        for path, content in snapshot(queue.queue).items()
        if not path.startswith(".git/") and not path.endswith("journal.jsonl")
    }


@pytest.mark.parametrize(
    "args",
    [
        "queue fold cube area",
        "queue fold readme area",
        "queue split area more NEW",
        "queue reorder readme --before area",
        "queue mv area plane",
        "queue retire readme --why done",
        "new fourth --title Fourth",
    ],
)
def test_every_operation_is_taken_back_whole_and_so_is_an_undo(
    queue: Toy, program: Program, args: str
) -> None:
    queue.put("evidence/area/x.json", "{}")
    before, head = files(queue), git(queue.queue, "rev-parse", "HEAD")
    index = (queue.queue / ".git/index").read_bytes()
    program.ok(*args.split())
    after = files(queue)
    assert after != before
    program.ok("undo")
    assert files(queue) == before
    program.ok("undo")
    assert files(queue) == after
    # Neither HEAD nor the index nor a branch of the user's is touched.
    assert git(queue.queue, "rev-parse", "HEAD") == head
    assert (queue.queue / ".git/index").read_bytes() == index
    assert git(queue.queue, "branch", "--format=%(refname)") == b"refs/heads/main\n"


@pytest.mark.parametrize("args", ["rebase v2.0 --text-only", "refresh area"])
def test_a_rebase_and_a_refresh_are_taken_back_too(queue: Toy, program: Program, args: str) -> None:
    release(queue, {"LICENSE": "free\n"})
    program.ok("edit", "area")
    tree = queue.queue / ".contribbot/edit/area"
    (tree / "NEW").write_text("newer\n")
    before = patch_files(queue)
    program.ok(*args.split())
    after = patch_files(queue)
    assert after != before
    for state in (before, after):
        program.ok("undo")
        assert patch_files(queue) == state
    assert (tree / "NEW").read_text() == "newer\n"


def patch_files(queue: Toy) -> dict[str, bytes]:
    """Return the files of the queue's patches."""
    return {path: content for path, content in files(queue).items() if path.startswith("patches/")}


def test_a_change_by_hand_is_never_taken_back(queue: Toy, program: Program) -> None:
    program.ok("queue", "reorder", "readme", "--before", "area")
    place = queue.queue / "patches/queue.toml"
    logged, before = place.read_bytes(), files(queue)
    for other in (b"# mine\n", b"<<<<<<< HEAD\n"):
        place.write_bytes(logged + other)
        ran = program("undo")
        assert (ran.code, place.read_bytes()) == (2, logged + other), ran.err
    assert "a merge conflict" in ran.err
    place.write_bytes(logged + b"# mine\n")
    said = program("undo").err
    assert "queue.toml has changed since 'reorder readme', by hand or by git" in said
    (shown,) = re.findall(r"git show (\S+) prints", said)
    assert git(queue.queue, "show", shown) == logged
    # Files that the operation did not change may have changed; the log has them.
    place.write_bytes(logged)
    queue.put("patches/area/notes.txt", "kept\n")
    program.ok("undo")
    assert (queue.queue / "patches/area/notes.txt").read_text() == "kept\n"
    assert files(queue) != before
    rows = program("queue", "log").out.splitlines()
    assert [row.split("  ")[2].strip() for row in rows] == [
        "undo: reorder readme",
        "changed by hand",
        "reorder readme",
    ]
    assert program("queue", "log", "area").out.count("changed by hand") == 1
    document = program("queue", "log", "--json").json()
    assert dig(document, "operations", 0, "summary") == "undo: reorder readme"


def test_versions_come_from_the_log(queue: Toy, program: Program) -> None:
    before = load_queue(queue.queue).patch("area").files
    program.ok("queue", "split", "area", "more", "NEW")
    after = load_queue(queue.queue).patch("area").files
    program.ok("undo")
    first, second = versions(queue.queue, "area")
    assert (first.files(), second.files()) == (before, after)
    assert not list(queue.queue.glob("history/*/*.mbox"))
    assert "area: v1 against v2" in program("queue", "diff", "area", "v1..v2").out
    program.ok("queue", "mv", "area", "plane")
    assert versions(queue.queue, "plane")[1].files() == after


def test_a_queue_that_is_not_in_git_does_without(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_patch("other")
    toy.put_queue(["area", "other"])
    program.ok("queue", "reorder", "area")
    for command in (("undo",), ("queue", "log")):
        assert "the queue is in no git repository" in program.refused(*command).err


@pytest.mark.usefixtures("queue")
def test_before_the_first_operation_there_is_nothing_to_undo(program: Program) -> None:
    assert "no operation is logged yet" in program.refused("undo").err
    assert program("queue", "log").out == "no operation is logged yet\n"


def test_each_work_tree_and_each_queue_of_a_repository_has_its_log(
    queue: Toy, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    git(queue.queue, "worktree", "add", "-q", "-b", "side", str(other))
    inside = queue.queue / "inside"
    for folder in (other, inside):
        (folder / "patches").mkdir(parents=True, exist_ok=True)
        with transaction(folder, f"in {folder.name}") as change:
            change.write("patches/queue.toml", b"order = []\n")
        assert [each.summary for each in OperationLog.require(folder).operations()] == [
            f"in {folder.name}"
        ]
    assert not OperationLog.require(queue.queue).operations()
