"""`contribbot edit`: a patch as commits in a git work tree of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.hostile import person
from tests.test_refresh import put_stack
from tests.toy import AREA, FIXED, Toy, git


@pytest.fixture
def tree(toy: Toy) -> Path:
    """Where the patch `area` will be open."""
    toy.put_area()
    return toy.queue / ".contribbot/edit/area"


def commit(tree: Path, home: Path, *args: str) -> None:
    person(tree, "commit", "-q", *args, home=home)


def test_it_says_where_it_is_and_what_to_do_next(program: Program, tree: Path) -> None:
    left = tree.with_name(".area.partial")
    (left / "src").mkdir(parents=True)
    ran = program.ok("edit", "area")
    assert str(tree) in ran.out
    assert "contribbot refresh " in ran.out
    assert "contribbot edit --abort area" in ran.out
    assert (tree / "src/toy/area.py").read_text() == FIXED
    assert git(tree, "status", "--porcelain") == b""
    # What a killed run left is swept; its objects are the store's, without a copy.
    assert not left.exists()
    objects = [path for path in (tree / ".git/objects").rglob("*") if path.is_file()]
    assert {path.stat().st_nlink for path in objects} == {2}
    # What is open is left as it is.
    (tree / "README").write_text("mine\n")
    ran = program("edit", "area", "--json")
    assert (ran.code, ran.json()["state"]) == (0, "open")
    assert (tree / "README").read_text() == "mine\n"


def test_the_log_shows_the_patch_on_top_its_dependencies_and_the_pin(
    program: Program, toy: Toy
) -> None:
    put_stack(toy)

    view = program("edit", "cube", "--json").json()

    tree = Path(str(view["path"]))
    subjects = git(tree, "log", "--format=%s").decode().splitlines()
    assert subjects == ["Step 2", "Step 1", "Toy 1.0"]
    assert git(tree, "rev-parse", "HEAD~2").decode().strip() == toy.commit
    base = git(tree, "rev-parse", "refs/contribbot/base", "HEAD~1").decode().split()
    assert base == [view["base_commit"]] * 2
    assert git(tree, "branch", "--show-current") == b"contribbot/cube\n"
    assert view["state"] == "opened"


def test_it_says_no_when_the_patch_or_one_below_was_changed_meanwhile(
    program: Program, toy: Toy
) -> None:
    put_stack(toy)
    for name in ("area", "cube"):
        program.ok("edit", name)
    toy.put_patch(patch=toy.format_patch({"src/toy/area.py": FIXED}, subject="Other words"))

    ran = program("edit", "area")

    assert (ran.code, "changed since" in ran.out, "--abort area" in ran.out) == (1, True, True)
    ran = program("edit", "cube", "--json")
    assert (ran.code, ran.json()["state"]) == (1, "changed")
    assert ran.json()["drift"] == "base"


def test_it_goes_where_it_is_told_to(program: Program, tree: Path, tmp_path: Path) -> None:
    place = tmp_path / "else where/area"

    program.ok("edit", "area", "--at", place)

    assert (place / "src/toy/area.py").read_text() == FIXED
    assert program("edit", "area", "--json").json()["path"] == str(place)
    assert str(place) in program.refused("edit", "area", "--at", tmp_path / "third").err
    for args in (("show", "area"), ("edit", "area"), ("refresh",)):
        program.ok(*args, cwd=place)
    ran = program("edit", "--abort", "area", "--json", cwd=place)
    assert (ran.code, ran.json()["state"]) == (0, "removed")
    assert not place.exists()
    assert not tree.is_symlink()
    assert [path.name for path in tree.parent.iterdir()] == [".area.lock"]


def test_what_took_the_place_of_a_tree_elsewhere_is_not_removed(
    program: Program, tree: Path, tmp_path: Path
) -> None:
    place = tmp_path / "elsewhere"
    program("edit", "area", "--at", place)
    shutil.rmtree(place)
    place.mkdir()
    (place / "thesis").write_text("mine")
    ran = program("edit", "area", "--abort", "--force")
    assert (ran.code, "not a work tree of contribbot any more" in ran.err) == (3, True)
    assert (place / "thesis").read_text() == "mine"
    place.rename(tmp_path / "gone")
    assert program("edit", "area", "--json").json()["path"] == str(tree)


def test_a_patch_that_does_not_apply_is_not_opened(program: Program, toy: Toy, tree: Path) -> None:
    patch = toy.format_patch({"src/toy/area.py": FIXED})
    toy.put_patch(patch=patch.replace(b"-    return width + height", b"-    return height"))

    ran = program("edit", "area")

    assert ran.code == 2
    assert "area cannot be opened: 0001-change.patch: hunk 1 of src/toy/area.py" in ran.err
    assert not tree.exists()


def spoil(tree: Path, home: Path, how: str) -> None:
    """Do some work in the tree that refresh has not seen."""
    if how == "untracked":
        (tree / "new.py").write_text("new\n")
        return
    if how == "odd name":
        Path(os.fsdecode(bytes(tree / "caf") + b"\xe9")).write_text("new\n")
        return
    (tree / "README").write_text("mine\n")
    for command in SPOIL.get(how, "").split(";"):
        code = int(command.startswith("rebase"))
        person(tree, *command.split(), home=home, code=code) if command else None


SPOIL = {
    "commit": "commit -qam Mine",
    "stash": "stash",
    "branch": "switch -qc aside;commit -qam Mine;switch -q contribbot/area",
    "rebase": "commit -qam Mine;rebase -x false HEAD~1",
}
LOST = {
    "untracked": "new.py (not in git)", "changed": "README (not committed)", "commit": " Mine",
    "stash": " WIP on ", "branch": " Mine", "rebase": "an unfinished git rebase",
    "odd name": "(not in git)",
}  # fmt: skip


@pytest.mark.parametrize("how", LOST)
def test_abort_keeps_what_refresh_has_not_taken(
    program: Program, tree: Path, home: Path, how: str
) -> None:
    program("edit", "area")
    spoil(tree, home, how)

    ran = program("edit", "--abort", "area", "--json")

    assert (ran.code, ran.json()["state"]) == (1, "kept")
    assert LOST[how] in ran.err
    assert ran.json()["lost"]
    assert tree.is_dir()
    program.ok("edit", "--abort", "--force", "area")
    assert not tree.exists()


def test_abort_works_for_a_patch_that_left_the_queue(
    program: Program, toy: Toy, tree: Path
) -> None:
    program("edit", "area")
    shutil.rmtree(toy.queue / "patches/area")
    toy.put_queue([])

    program.ok("edit", "--abort", "area")

    assert not tree.exists()


def test_an_emptied_cache_leaves_open_trees_whole(
    program: Program, tree: Path, tmp_path: Path, home: Path
) -> None:
    program("edit", "area")
    (tmp_path / "cache").rename(tmp_path / "gone")

    (tree / "README").write_text("toy\nmine\n")
    commit(tree, home, "-am", "Zwölf")
    assert len(git(tree, "log", "--format=%s").splitlines()) == 3

    ran = program("edit", "--abort", "area")
    assert (ran.code, ran.err.count("commit ")) == (1, 1), ran.err
    program.ok("refresh", "area")
    program.ok("edit", "--abort", "area")


def test_a_persons_settings_do_not_reach_the_tree(
    program: Program, toy: Toy, tree: Path, home: Path
) -> None:
    mixed = AREA.encode().replace(b"    return side * side\n", b"    return side*side  # \xe9\r\n")
    toy.write("data.bin", b"\x00\xff\r\n")
    toy.write("src/toy/area.py", AREA)
    toy.put_patch(
        patch=toy.format_patch({"src/toy/area.py": mixed, "data.bin": b"\x00\xfe\r\n$Id$"}),
        files=("src/toy/area.py", "data.bin"),
    )

    program.ok("edit", "area", HOME=str(home))
    assert (tree / "src/toy/area.py").read_bytes() == mixed
    assert (tree / "data.bin").read_bytes() == b"\x00\xfe\r\n$Id$"
    # The person's own git finds nothing to say about it either, and may work in it.
    assert person(tree, "diff", "--no-ext-diff", "HEAD", home=home) == b""
    (tree / "README").write_text("toy\r\nmine\n")
    commit(tree, home, "-am", "Zwölf")
    told = person(tree, "cat-file", "commit", "HEAD", home=home)
    assert b"\nencoding" not in told
    assert b"\ngpgsig" not in told
    assert git(tree, "cat-file", "blob", "HEAD:README") == b"toy\r\nmine\n"
    assert git(tree, "branch", "--show-current") == b"contribbot/area\n"
    assert not (home / "hook-ran").exists()
