"""Carrying commits to another base, with conflicts that a person resolves once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from contribbot.errors import UsageError
from contribbot.files import stores_folder
from contribbot.git.pins import Silent
from contribbot.git.repository import Store, open_store
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.worktree import (
    abort,
    close_replay,
    open_replay,
    open_tree,
    resolved_files,
)
from tests.hostile import person
from tests.toy import AREA, FIXED, Toy, git

AREA_FILE = "src/toy/area.py"
#: What a later release made of the line that the patch changes.
LATER = AREA.replace("return width + height", "return height + width")


@dataclass
class Move:
    """A patch `area` with commits, and other releases to carry it to."""

    toy: Toy
    queue: Queue
    store: Store
    commits: tuple[str, ...]

    def release(self, changes: dict[str, str]) -> str:
        """Return a commit of the store, as another release."""
        commit = self.toy.change(changes, "Toy 2.0")
        self.store.git("fetch", "-q", str(self.toy.upstream), f"HEAD:refs/heads/{commit}")
        git(self.toy.upstream, "reset", "-q", "--hard", self.toy.commit)
        return commit

    def to(self, base: str) -> tuple[Path, tuple[str, ...]]:
        return open_replay(self.queue, "area", base=base, commits=self.commits)


@pytest.fixture
def move(toy: Toy) -> Move:
    toy.put_patch()
    toy.put("patches/area/0002-more.patch", second(toy))
    toy.put_queue(["area"])
    queue = load_queue(toy.queue)
    opened = open_tree(queue, "area", progress=Silent())
    assert abort(queue, "area").lost == ()
    store = open_store(stores_folder(), "toy")
    return Move(toy, queue, store, tuple(one.commit for one in opened.commits))


def second(toy: Toy) -> bytes:
    return toy.format_patch({"README": "toy\nareas\n"}, subject="Say more")


def test_what_applies_is_carried_to_the_end(move: Move) -> None:
    base = move.release({AREA_FILE: "# two\n" + AREA})
    replay = move.to(base)
    assert replay[1] == ()
    assert git(replay[0], "log", "--format=%an %s").decode().splitlines() == [
        "Ada Example Say more", "Ada Example Multiply the sides of a rectangle",
        "Ada Example Toy 2.0", "Ada Example Toy 1.0",
    ]  # fmt: skip
    files = resolved_files(move.queue, "area")
    assert [file.name for file in files] == [
        "0001-Multiply-the-sides-of-a-rectangle.patch", "0002-Say-more.patch",
    ]  # fmt: skip
    assert b"\nDate: Tue, 14 Nov 2023 23:13:20 +0100\n" in files[0].content


def test_a_commit_that_the_base_has_is_skipped_and_said(move: Move) -> None:
    base = move.release({AREA_FILE: FIXED})
    replay = move.to(base)
    assert replay[1] == ()
    (file,) = resolved_files(move.queue, "area")
    assert b"Say more" in file.content
    assert move.to(base) == replay


def test_what_was_given_up_by_hand_starts_again(move: Move, home: Path) -> None:
    base = move.release({AREA_FILE: LATER})
    replay = move.to(base)
    person(replay[0], "cherry-pick", "--abort", home=home)
    assert move.to(base) == replay


def test_one_tree_a_patch(move: Move) -> None:
    base, other = move.release({AREA_FILE: LATER}), move.release({"README": "other\n"})
    move.to(base)
    with pytest.raises(UsageError, match="being carried to"):
        move.to(other)
    with pytest.raises(UsageError, match="is being carried to another base"):
        open_tree(move.queue, "area", progress=Silent())
    assert abort(move.queue, "area").lost
    assert close_replay(move.queue, "area")
    open_tree(move.queue, "area", progress=Silent())
    with pytest.raises(UsageError, match="area is open in"):
        move.to(base)
    assert not close_replay(move.queue, "area")
    assert abort(move.queue, "area").lost == ()


@pytest.mark.parametrize("how", ["untracked", "stash"])
def test_what_would_go_with_the_tree_is_asked_for(move: Move, home: Path, how: str) -> None:
    tree, _ = move.to(move.release({"README": "toy\n"}))
    if how == "untracked":
        (tree / "forgotten.txt").write_text("mine\n")
    else:
        (tree / AREA_FILE).write_text("mine\n")
        person(tree, "stash", home=home)
    with pytest.raises(UsageError, match=r"in no commit: (forgotten\.txt|what is stashed)$"):
        resolved_files(move.queue, "area")
