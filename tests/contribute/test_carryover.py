"""A patch on the upstream's branch, compared with `git am` on the same base."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contribute.opening import Desk, make_desk, put_series
from tests.github.handle import GitHub
from tests.lifetoy import BINARY, CRLF, LATIN, awkward, commit, three_commits
from tests.toy import AREA, FIXED, Toy, git


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
    base = git(folder, "rev-parse", "HEAD").decode().strip()
    (folder / "README").unlink()
    commit(folder, "A folder for the file\n", {"README/first": "1\n", "README/second": "2\n"})
    git(folder, "rm", "-q", "-r", "docs")
    commit(folder, "A file for the folder\n", {"docs": "none\n"})
    desk = desk_with(toy, github, folder, base)
    desk.open()
    desk.assert_as_am()


def test_what_was_carried_is_posted_once_each(toy: Toy, github: GitHub, folder: Path) -> None:
    base = git(folder, "rev-parse", "HEAD").decode().strip()
    commit(folder, "One\n", {"a": "same\n", "b": "same\n", "c/d": "other\n", "gone": "x\n"})
    # Reverted files and a rename need no new blob.
    commit(folder, "Two\n", {"gone": None, "b": "toy\n", "README": None})
    desk = desk_with(toy, github, folder, base)
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
    desk = make_desk(toy, github)
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
    base = git(folder, "rev-parse", "HEAD").decode().strip()
    commit(folder, "First\n", {"first": "1\n"})
    commit(folder, "Second\n", {"second": "2\n"})
    desk = desk_with(toy, github, folder, base)
    desk.push({"first": b"1\n"})
    (done,) = desk.open()
    assert [made.subject for made in done.commits] == ["Second"]
    assert "example/toy@main has all of area/0001-First.patch already" in done.notes
