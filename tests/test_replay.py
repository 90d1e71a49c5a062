"""Carrying commits to another base, with conflicts that a person resolves once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from contribbot.errors import QueueError, UsageError
from contribbot.files import stores_folder
from contribbot.git.repository import Store, open_store
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.worktree import Replay, abort, close_replay, open_replay, open_tree, taken
from tests.hostile import hostile_home, person
from tests.toy import AREA, FIXED, Toy, git

AREA_FILE = "src/toy/area.py"
#: What a later release made of the line that the patch changes.
LATER = AREA.replace("return width + height", "return height + width")
RESOLVED = FIXED.replace("area = width * height", "area = height * width")


@dataclass
class Move:
    """A patch `area` with commits, and other releases to carry it to."""

    toy: Toy
    queue: Queue
    store: Store
    commits: tuple[str, ...]

    def release(self, changes: dict[str, str]) -> str:
        """Return a commit of the store, as another release."""
        for path, content in changes.items():
            self.toy.write(path, content)
        git(self.toy.upstream, "add", "-A")
        git(self.toy.upstream, "commit", "-q", "--allow-empty", "-m", "Toy 2.0")
        commit = git(self.toy.upstream, "rev-parse", "HEAD").decode().strip()
        self.store.git("fetch", "-q", str(self.toy.upstream), f"HEAD:refs/heads/{commit}")
        git(self.toy.upstream, "reset", "-q", "--hard", self.toy.commit)
        return commit

    def to(self, base: str, at: Path | None = None) -> Replay:
        return open_replay(self.queue, "area", base=base, commits=self.commits, at=at)


@pytest.fixture
def move(toy: Toy) -> Move:
    toy.put_patch()
    toy.put("patches/area/0002-more.patch", second(toy))
    toy.put_queue(["area"])
    queue = load_queue(toy.queue)
    opened = open_tree(queue, "area")
    assert abort(queue, "area").lost == ()
    store = open_store(stores_folder(), "toy")
    return Move(toy, queue, store, tuple(one.commit for one in opened.commits))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return hostile_home(tmp_path / "person")


def second(toy: Toy) -> bytes:
    return toy.format_patch({"README": "toy\nareas\n"}, subject="Say more")


def resolve(replay: Replay, home: Path) -> None:
    """Resolve the conflict as a person does."""
    (replay.path / AREA_FILE).write_text(RESOLVED)
    person(replay.path, "add", AREA_FILE, home=home)


def test_what_applies_is_carried_to_the_end(move: Move) -> None:
    base = move.release({AREA_FILE: "# two\n" + AREA})

    replay = move.to(base)

    assert replay.conflicted == ()
    assert git(replay.path, "log", "--format=%an %s").decode().splitlines() == [
        "Ada Example Say more", "Ada Example Multiply the sides of a rectangle",
        "Ada Example Toy 2.0", "Ada Example Toy 1.0",
    ]  # fmt: skip
    files = taken(move.queue, "area")
    assert [file.name for file in files] == [
        "0001-Multiply-the-sides-of-a-rectangle.patch", "0002-Say-more.patch",
    ]  # fmt: skip
    assert b"\nDate: Tue, 14 Nov 2023 23:13:20 +0100\n" in files[0].content


def test_a_conflict_waits_in_the_tree_and_is_taken_when_it_is_resolved(
    move: Move, home: Path
) -> None:
    base = move.release({AREA_FILE: LATER})

    replay = move.to(base)

    assert replay.conflicted == (AREA_FILE,)
    text = (replay.path / AREA_FILE).read_text()
    for side in ("<<<<<<<", "|||||||", "return width + height", "return height + width"):
        assert side in text
    with pytest.raises(UsageError, match="a git cherry-pick is not finished"):
        taken(move.queue, "area")
    assert move.to(base) == replay
    resolve(replay, home)
    assert move.to(base).conflicted == ()
    first, more = taken(move.queue, "area")
    assert b"+    area = height * width" in first.content
    assert b"From: Ada Example <ada@example.com>" in first.content
    assert b"Say more" in more.content
    assert b"<<<" not in first.content


def test_what_was_resolved_once_is_remembered(move: Move, home: Path, tmp_path: Path) -> None:
    replay = move.to(move.release({AREA_FILE: LATER}))
    resolve(replay, home)
    person(replay.path, "cherry-pick", "--continue", home=home)
    assert close_replay(move.queue, "area")
    assert not replay.path.exists()
    assert not (home / "hook-ran").exists()
    assert any((tmp_path / "cache/rr-cache/toy").iterdir())

    again = move.to(move.release({AREA_FILE: LATER, "README": "three\n" * 9}), tmp_path / "at")

    # The second commit meets a conflict of its own, after the first was resolved by itself.
    assert (again.path, again.remembered) == (tmp_path / "at", (AREA_FILE,))
    assert again.conflicted == ("README",)
    assert git(again.path, "show", f"HEAD:{AREA_FILE}").decode() == RESOLVED


def test_a_commit_that_the_base_has_is_skipped_and_said(move: Move) -> None:
    base = move.release({AREA_FILE: FIXED})

    replay = move.to(base)

    assert replay.conflicted == ()
    (file,) = taken(move.queue, "area")
    assert b"Say more" in file.content
    assert move.to(base) == replay


def test_nothing_is_left_where_the_base_has_all(move: Move) -> None:
    base = move.release({AREA_FILE: FIXED, "README": "toy\nareas\n"})

    replay = move.to(base)

    assert replay.conflicted == ()
    assert move.to(base) == replay
    with pytest.raises(UsageError, match="no commit is left"):
        taken(move.queue, "area")


def test_what_was_given_up_by_hand_starts_again(move: Move, home: Path) -> None:
    base = move.release({AREA_FILE: LATER})
    replay = move.to(base)
    person(replay.path, "cherry-pick", "--abort", home=home)

    assert move.to(base) == replay


def test_one_tree_a_patch(move: Move) -> None:
    base, other = move.release({AREA_FILE: LATER}), move.release({"README": "other\n"})
    move.to(base)

    with pytest.raises(UsageError, match="being carried to"):
        move.to(other)
    with pytest.raises(UsageError, match="is being carried to another base"):
        open_tree(move.queue, "area")
    assert abort(move.queue, "area").lost
    assert close_replay(move.queue, "area")
    open_tree(move.queue, "area")
    with pytest.raises(UsageError, match="area is open in"):
        move.to(base)
    assert not close_replay(move.queue, "area")
    assert abort(move.queue, "area").lost == ()


def test_files_that_the_release_moved_are_followed(move: Move) -> None:
    git(move.toy.upstream, "mv", AREA_FILE, "src/toy/shapes.py")
    base = move.release({})

    replay = move.to(base)

    assert replay.conflicted == ()
    first, _ = taken(move.queue, "area")
    assert b"diff --git a/src/toy/shapes.py b/src/toy/shapes.py" in first.content


@pytest.mark.parametrize("how", ["untracked", "stash"])
def test_what_would_go_with_the_tree_is_asked_for(move: Move, home: Path, how: str) -> None:
    replay = move.to(move.release({"README": "toy\n"}))
    if how == "untracked":
        (replay.path / "forgotten.txt").write_text("mine\n")
    else:
        (replay.path / AREA_FILE).write_text("mine\n")
        person(replay.path, "stash", home=home)

    with pytest.raises(UsageError, match=r"in no commit: (forgotten\.txt|what is stashed)$"):
        taken(move.queue, "area")


def test_marks_of_a_conflict_are_refused_unless_they_are_the_patchs_own(move: Move) -> None:
    marks = "<<<<<<< a\n1\n||||||| b\n2\n=======\n3\n>>>>>>> c\n"
    move.toy.put("patches/area/0003-marks.patch", move.toy.format_patch({"test.txt": marks}))
    move.queue = load_queue(move.toy.queue)
    move.commits = tuple(one.commit for one in open_tree(move.queue, "area").commits)
    assert abort(move.queue, "area").lost == ()
    replay = move.to(move.release({AREA_FILE: LATER}))
    git(replay.path, "add", "-A")
    git(replay.path, "-c", "core.editor=true", "cherry-pick", "--continue")

    with pytest.raises(QueueError, match="Multiply the sides of a rectangle adds the marks"):
        taken(move.queue, "area")

    git(replay.path, "checkout", "-q", "--detach", "HEAD~2")
    (replay.path / AREA_FILE).write_text(RESOLVED)
    git(replay.path, "commit", "-q", "-a", "--amend", "--no-edit")
    git(replay.path, "cherry-pick", "contribbot/area~2..contribbot/area")
    assert len(taken(move.queue, "area")) == 3
