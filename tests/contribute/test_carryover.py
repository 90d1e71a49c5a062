"""Patches and stacks on the upstream's branch, compared with `git am` on the same base."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.contribute.publication import waits_for
from tests.contribute.place import Desk, make_desk
from tests.github.handle import GitHub
from tests.lifetoy import BINARY, CRLF, LATIN, awkward, commit, three_commits
from tests.toy import AREA, FIXED, Toy, git


def put_series(toy: Toy, name: str, folder: Path, commits: str, *, extra: str = "") -> None:
    """Make commits of a work tree a patch of the queue."""
    toy.put_patch(name, extra=extra, checks="", check_files={})
    place = toy.queue / "patches" / name
    (place / "0001-change.patch").unlink()
    git(
        folder, "format-patch", "-q", "--zero-commit", "--no-signature", "--binary",
        "-o", str(place), commits,
    )  # fmt: skip


@pytest.fixture
def folder(toy: Toy) -> Path:
    """A work tree of an upstream with content that tools stumble over."""
    awkward(toy)
    git(toy.root, "clone", "-q", str(toy.upstream), str(toy.root / "work"))
    return toy.root / "work"


def desk_with(toy: Toy, github: GitHub, folder: Path, commits: str) -> Desk:
    put_series(toy, "area", folder, commits)
    toy.put_queue(["area"])
    return make_desk(toy, github)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_renames_modes_deletions_and_bytes_of_any_kind(
    toy: Toy, github: GitHub, folder: Path, *, elsewhere: bool
) -> None:
    base = three_commits(folder)
    (folder / "link").unlink()
    (folder / "link").symlink_to("src/toy")
    (folder / "other link").symlink_to("../outside")
    (folder / "tool.sh").chmod(0o644)
    commit(
        folder,
        b"Bytes, links and programs\n\nSigned-off-by: J\xc3\xb6rg <joerg@example.com>\n",
        {"data.bin": BINARY[::-1] + b"\0", "r\xe4w.txt": LATIN * 3, "crlf.new": CRLF},
        GIT_AUTHOR_NAME="D'Artagnan \N{SNOWMAN}", GIT_AUTHOR_DATE="1600000001 -0730",
    )  # fmt: skip
    (folder / "run.py").write_text("print(1)\n")
    (folder / "run.py").chmod(0o755)
    left: dict[str, str | bytes | None] = {
        name: None for name in ("latin.txt", "empty", "dos.txt") if (folder / name).exists()
    }
    commit(folder, "A program, and fewer files\n", left)
    desk = desk_with(toy, github, folder, base)
    if elsewhere:
        # The insertion between the functions moves hunks, without a conflict.
        longer = AREA.replace('"""Areas."""\n', '"""Areas."""\n\nSIDES = 4\n')
        desk.push({"src/toy/area.py": longer.encode(), "new": b"file\n"})
    desk.open()
    desk.assert_as_am()


def test_a_file_becomes_a_folder_and_a_folder_a_file(
    toy: Toy, github: GitHub, folder: Path
) -> None:
    (folder / "README").unlink()
    commit(folder, "A folder for the file\n", {"README/first": "1\n", "README/second": "2\n"})
    git(folder, "rm", "-q", "-r", "docs")
    commit(folder, "A file for the folder\n", {"docs": "none\n"})
    desk = desk_with(toy, github, folder, "HEAD~2")
    desk.open()
    desk.assert_as_am()


def test_what_was_carried_is_posted_once_each(toy: Toy, github: GitHub, folder: Path) -> None:
    commit(folder, "One\n", {"a": "same\n", "b": "same\n", "c/d": "other\n", "gone": "x\n"})
    # Reverted files and a rename need no new blob.
    commit(folder, "Two\n", {"gone": None, "b": "toy\n", "README": None})
    desk = desk_with(toy, github, folder, "HEAD~2")
    made = desk.writes()
    desk.assert_as_am()
    assert sum(row.path.endswith("/git/blobs") for row in made) == 3


@pytest.mark.parametrize("kind", ["text", "deleted", "folder", "file above", "link"])
def test_a_branch_that_moved_away_is_named_and_nothing_is_written(
    toy: Toy, github: GitHub, kind: str
) -> None:
    path = "src/toy/area.py"
    changes: dict[str, dict[str, bytes | None]] = {
        "text": {path: AREA.replace("width + height", "height + width").encode()},
        "deleted": {path: None},
        "folder": {path: None, f"{path}/inside": b"1\n"},
        "file above": {path: None, "src/toy/__init__.py": None, "src/toy": b"1\n"},
        "link": {path: None},
    }
    # No fork is made for a patch that does not apply.
    desk = make_desk(toy, github, fork=kind != "text")
    if kind == "link":
        (toy.upstream / path).unlink()
        (toy.upstream / path).symlink_to("__init__.py")
        git(toy.upstream, "add", "-A")
        git(toy.upstream, "commit", "-q", "-m", "A link")
        desk.upstream.git.import_from(toy.upstream)
    else:
        desk.push(changes[kind])
    error = desk.refused("moved so that the patch no longer applies")
    assert path in error.message
    assert "example/toy@main" in error.message
    assert "0001-change.patch" in error.message
    assert "contribbot rebase" in error.hint


@pytest.mark.parametrize("moved", [False, True])
def test_a_patch_that_the_branch_has_is_upstream_already(
    toy: Toy, github: GitHub, *, moved: bool
) -> None:
    desk = make_desk(toy, github)
    text = FIXED.replace('"""Areas."""', '"""Areas and more."""') if moved else FIXED
    desk.push({"src/toy/area.py": text.encode()})
    assert "contribbot status --against" in desk.refused("it is upstream already").hint


def test_half_of_it_upstream_leaves_the_other_half(toy: Toy, github: GitHub, folder: Path) -> None:
    commit(folder, "First\n", {"first": "1\n"})
    commit(folder, "Second\n", {"second": "2\n"})
    desk = desk_with(toy, github, folder, "HEAD~2")
    desk.push({"first": b"1\n"})
    (done,) = desk.open()
    assert [made.subject for made in done.commits] == ["Second"]
    assert "example/toy@main has all of area/0001-First.patch already" in done.notes


@pytest.fixture
def desk(toy: Toy, github: GitHub) -> Desk:
    folder = toy.root / "work"
    git(toy.root, "clone", "-q", str(toy.upstream), str(folder))
    commit(folder, "First\n", {"src/toy/area.py": FIXED})
    commit(folder, "Second\n", {"src/toy/area.py": FIXED + "\n\nUNIT = 1\n", "new": "1\n"})
    put_series(toy, "area", folder, "HEAD~2..HEAD~1")
    put_series(toy, "unit", folder, "HEAD~1..HEAD", extra='depends_on = ["area"]\n')
    toy.put_queue(["area", "unit"])
    return make_desk(toy, github)


def test_what_is_below_comes_first(desk: Desk) -> None:
    error = desk.refused("depends on area, which has no pull request", "unit")
    assert "contribbot open-pr area" in error.hint
    assert desk.github.requests == []


def test_a_stack_is_opened_in_order_and_carries_what_is_below(desk: Desk) -> None:
    before = len(desk.github.requests)
    lower, upper = desk.open("area", "unit")
    # It is asked once whose token it is.
    paths = [row.path for row in desk.github.requests[before:]]
    assert (paths.count("/user"), paths.count("/repos/example/toy")) == (1, 1)
    assert lower.pull_request == "example/toy#1"
    assert upper.waits_for == ["example/toy#1"]
    assert [commit.subject for commit in upper.commits] == ["First", "Second"]
    # The same commits, so that GitHub takes the lower one off the upper when it is merged.
    assert upper.commits[0] == lower.commits[0]
    desk.assert_as_am("area")
    desk.assert_as_am("area", "unit", branch="contribbot/unit")
    assert len(desk.pulls()) == 2


def test_the_text_names_what_it_waits_for_until_that_is_merged(desk: Desk) -> None:
    assert waits_for(desk.queue, "unit") == ("`area` (no pull request yet)",)
    desk.open("area")
    assert waits_for(desk.queue, "unit") == ("example/toy#1",)
    assert waits_for(desk.queue, "area") == ()
    desk.note("merged")
    assert waits_for(desk.queue, "unit") == ()


@pytest.mark.parametrize("state", ["closed", "reverted"])
def test_what_the_upstream_did_not_keep_below_stops_what_is_above(desk: Desk, state: str) -> None:
    desk.open("area")
    desk.note(state)
    desk.refused(f"whose pull request example/toy#1 was {state}", "unit")
    assert len(desk.pulls()) == 1


def test_a_change_below_moves_what_is_above(desk: Desk) -> None:
    desk.open("area", "unit")
    changed = FIXED.replace("area = width * height", "area = height * width")
    patch = desk.toy.format_patch({"src/toy/area.py": changed}, subject="First")
    for path in (desk.toy.queue / "patches" / "area").glob("*.patch"):
        path.write_bytes(patch)
    lower, upper = desk.open("area", "unit")
    assert (lower.branch_was, upper.branch_was) == ("moved", "moved")
    desk.assert_as_am("area", "unit", branch="contribbot/unit")
    assert len(desk.pulls()) == 2


@pytest.mark.parametrize("opened", [False, True])
def test_a_merged_one_below_leaves_only_the_upper(desk: Desk, *, opened: bool) -> None:
    desk.open(*(("area", "unit") if opened else ("area",)))
    desk.github.merge(desk.pulls()[0], "squash")
    (upper,) = desk.open("unit", up_to_date=opened)
    assert upper.branch_was == ("moved" if opened else "made")
    assert [commit.subject for commit in upper.commits] == ["Second"]
    assert "example/toy@main has all of area already" in upper.notes
